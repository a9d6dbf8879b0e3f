"""A CUDA device, driven through CuPy: short methods, so that nearly all of the GPU path runs on the emulator, too.

device = CudaDevice()
with device.running():
    start, marks = device.upload(np.array([0, 3])), device.xp.zeros(2, np.uint32)
    device.launch("mark_starts", device.grid(2, 256), 256, start, 1, marks)
    device.download(marks)
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gpu_tok import compile as compiler
from gpu_tok import nvrtc
from gpu_tok.copies import Copy
from gpu_tok.device import Workers, usable_cores
from gpu_tok.errors import DeviceError, no_memory

USE_CPU = 'or use device="cpu"'
NO_DRIVER = "there is no NVIDIA driver on this machine"
DRIVERS = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so")
BLOCKS_EACH = 8  # of 256 threads: a multiprocessor holds no more at once; kernels go round in a loop for the rest
NO_MEMORY, NOT_INITIALIZED, OLD_DRIVER, NO_DEVICE = 2, 3, 35, 100  # of cudaError_t
PARALLEL_COPY = 8 << 20  # bytes from which threads share a copy into pinned memory
MOST_COPIERS = 8
HOST_MEMORY = 1  # of cudaMemoryType: pinned

_started_in: int | None = None  # the process in which CUDA was started: it does not go through a fork


class CudaDevice:
    """One GPU. `xp` is CuPy; arrays are CuPy's.

    Threads may share it. What is launched or computed with `xp` belongs inside `running()`.
    """

    name = "cuda"

    def __init__(self, ordinal: int = 0, cupy: Any = None) -> None:
        """ordinal: which GPU; cupy: the module, for tests. Raises `DeviceError` where the GPU cannot be used."""
        self.xp = cupy or import_cupy()
        check(self.xp, ordinal)
        runtime = self.xp.cuda.runtime
        self._process = os.getpid()
        self.ordinal = ordinal
        self._device = self.xp.cuda.Device(ordinal)
        self._nvrtc = nvrtc.find(runtime.driverGetVersion() // 1000)
        properties = runtime.getDeviceProperties(ordinal)
        self.multiprocessors = int(properties["multiProcessorCount"])
        self.description = f"{properties['name'].decode()} (cuda:{ordinal})"
        with self._device:
            self.stream, self._incoming, self._outgoing = (
                self.xp.cuda.Stream(non_blocking=True) for _stream in range(3)
            )
        self._lock = threading.Lock()
        self._copiers = Workers(min(MOST_COPIERS, usable_cores()))
        self._modules: dict[Path, Any] = {}
        self._functions: dict[str, Any] = {}

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """All inside runs on this device's stream: behind what the caller's stream holds, which then goes on behind it.

        No waiting on the host: a user's own CuPy code before and after sees its data in order. Raises `DeviceError`
        where memory runs out inside.
        """
        self._check_process()
        with self._device:
            caller = self.xp.cuda.get_current_stream()
            self.stream.wait_event(caller.record())
            try:
                with self.stream:
                    yield
            except MemoryError as error:
                raise no_memory(self.description, error) from error
            finally:
                caller.wait_event(self.stream.record())

    def launch(self, kernel: str, grid: int, block: int, *args: Any) -> None:
        """Starts a kernel by name: `grid` blocks of `block` threads. args: arrays, and whole numbers of 64 bits."""
        self._check_process()
        self._function(kernel)((grid,), (block,), tuple(self._parameter(value) for value in args))

    def grid(self, threads: int, block: int) -> int:
        """Blocks for a kernel that goes round in a loop: for so many threads, or as many as the GPU holds at once."""
        return max(1, min(-(-threads // block), self.multiprocessors * BLOCKS_EACH * 256 // block))

    def upload(self, array: np.ndarray) -> Any:
        """A copy on the device, from an address that is a multiple of 256. Returns before it is done only for pinned
        arrays, which must not change until `synchronize`; CuPy takes others through its own pinned memory."""
        array = np.ascontiguousarray(array)
        if not self._is_pinned(array):
            return self.xp.asarray(array)
        copy = self.xp.empty(array.shape, array.dtype)
        copy.set(array, stream=self.xp.cuda.get_current_stream())
        return copy

    def here(self, array: Any) -> Any:
        """An array on this GPU: itself, or a copy of one that is elsewhere."""
        if isinstance(array, np.ndarray):
            return self.upload(array)
        return array if array.device.id == self.ordinal else array.copy()

    def download(self, array: Any, out: np.ndarray | None = None) -> np.ndarray:
        """A copy on the host (in `out`, pinned for full speed), once all that was started before is done."""
        return array.get(out=out)

    def stage(self, array: np.ndarray) -> Copy:
        """Begins a copy to the device on a stream of its own, through pinned memory. What is started afterwards finds
        it there; the copy object is to be kept until all that reads the array is done."""
        source = array if self._is_pinned(array) else self._pinned_copy(array)
        with self._incoming:
            target = self.xp.empty(array.shape, array.dtype)
            target.set(source, stream=self._incoming)
            done = self._incoming.record()
        self.stream.wait_event(done)
        return Copy(target, source, done)

    def fetch(self, array: Any) -> Copy:
        """Begins a copy to pinned host memory on a stream of its own, behind what was started before."""
        out = self.pinned(array.size, array.dtype).reshape(array.shape)
        self._outgoing.wait_event(self.stream.record())
        array.get(stream=self._outgoing, out=out, blocking=False)
        return Copy(out, array, self._outgoing.record())

    def release_memory(self) -> None:
        """Gives back to the driver what CuPy's pools hold unused."""
        self.synchronize()
        self.xp.get_default_memory_pool().free_all_blocks()
        self.xp.get_default_pinned_memory_pool().free_all_blocks()

    def address(self, array: Any) -> int:
        """Where the array lies."""
        return int(array.data.ptr)

    def copy(self, array: Any) -> Any:
        """Another array with the same in it, from an address that is a multiple of 256."""
        return array.copy()

    def pinned(self, count: int, dtype: Any) -> np.ndarray:
        """Host memory that the GPU copies from and to at full speed; not initialized, kept in CuPy's pool. Raises
        `MemoryError` where there is none, which CuPy itself does on the device only."""
        size = max(1, count * np.dtype(dtype).itemsize)
        try:
            memory = self.xp.cuda.alloc_pinned_memory(size)
        except self.xp.cuda.runtime.CUDARuntimeError as error:
            if error.status != NO_MEMORY:
                raise
            raise MemoryError(f"{size:,} bytes of pinned host memory cannot be had") from error
        return np.frombuffer(memory, dtype, count)

    def synchronize(self) -> None:
        """Waits until all that was started is done; raises what went wrong in it."""
        self.stream.synchronize()

    def free_memory(self) -> int:
        """Bytes that can still be had: free on the device, or unused in CuPy's pool."""
        self._check_process()
        with self._device:
            free, _total = self._device.mem_info
            return int(free + self.xp.get_default_memory_pool().free_bytes())

    def _function(self, kernel: str) -> Any:
        function = self._functions.get(kernel)
        if function is not None:
            return function
        path = compiler.file_of_kernel().get(kernel)
        if path is None:
            raise DeviceError(f"there is no kernel {kernel!r} in {compiler.kernel_folder()}")
        with self._lock:
            if path not in self._modules:
                self._modules[path] = self._load(path)
            return self._functions.setdefault(kernel, self._modules[path].get_function(kernel))

    def _load(self, path: Path) -> Any:
        arch = compiler.arch_for(self._device.compute_capability, self._nvrtc)
        module = self.xp.cuda.Module()
        with self._device:
            module.load(compiler.compile_file(path, arch, self._nvrtc).cubin)
        return module

    def _parameter(self, value: Any) -> Any:
        """A kernel's parameter as CuPy passes it: 8 bytes each. None is the null pointer."""
        if isinstance(value, self.xp.ndarray):
            if not value.flags.c_contiguous:
                raise TypeError(f"a kernel's array of shape {value.shape} is not contiguous")
            return value
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return np.int64(value or 0)
        if isinstance(value, np.int64 | np.uint64):
            return value
        raise TypeError(f"a kernel takes arrays and 64-bit integers, not {type(value).__name__}")

    def _pinned_copy(self, array: np.ndarray) -> np.ndarray:
        """By several threads: one alone copies more slowly than the bus to the GPU."""
        copy = self.pinned(array.size, array.dtype).reshape(array.shape)
        if array.nbytes < PARALLEL_COPY:
            copy[...] = array
            return copy
        flat, source = copy.reshape(-1), array.reshape(-1)
        step = -(-array.size // self._copiers.count)
        self._copiers.map(
            lambda begin: np.copyto(flat[begin : begin + step], source[begin : begin + step]),
            range(0, array.size, step),
        )
        return copy

    def _is_pinned(self, array: np.ndarray) -> bool:
        return array.size > 0 and self.xp.cuda.runtime.pointerGetAttributes(array.ctypes.data).type == HOST_MEMORY

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise _used_after_fork(self._process)


def has_driver() -> bool:
    """Is there an NVIDIA driver: its library loads. Starts nothing, and needs no CuPy."""
    for name in DRIVERS:
        with contextlib.suppress(OSError):
            ctypes.CDLL(name)
            return True
    return False


def import_cupy() -> Any:
    """CuPy; raises `DeviceError` where it is not installed or does not load."""
    try:
        return importlib.import_module("cupy")
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "cupy"
        finding = "CuPy is not installed" if missing else f"CuPy does not load: {error}"
        raise DeviceError(finding, f"pip install 'gpu_tok[cuda]' (CUDA 13) or 'gpu_tok[cuda12]', {USE_CPU}") from error


def check(cupy: Any, ordinal: int) -> None:
    """Raises `DeviceError` with the reason why this GPU cannot be used, if there is one."""
    global _started_in
    if _started_in not in (None, os.getpid()):
        raise _used_after_fork(_started_in)
    runtime = cupy.cuda.runtime
    driver, built_for = runtime.driverGetVersion(), runtime.runtimeGetVersion()
    if driver == 0:
        raise DeviceError(NO_DRIVER, f"install the driver, {USE_CPU}")
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise _cannot_start(error, driver, built_for) from error
    if count == 0:
        raise _no_device()
    if ordinal >= count:
        raise DeviceError(f"there is no GPU {ordinal}: this machine has {count}", "they are numbered from 0")
    _started_in = os.getpid()


def _cannot_start(error: Any, driver: int, built_for: int) -> DeviceError:
    if error.status == OLD_DRIVER:
        finding = f"the NVIDIA driver is for CUDA {_dotted(driver)} and CuPy is built for CUDA {_dotted(built_for)}"
        return DeviceError(finding, f"update the driver, or pip install 'gpu_tok[cuda12]', {USE_CPU}")
    if error.status == NO_DEVICE:
        return _no_device()
    if error.status == NOT_INITIALIZED:
        return _used_after_fork(None)
    return DeviceError(f"CUDA does not start: {error}", USE_CPU.removeprefix("or "))


def _no_device() -> DeviceError:
    return DeviceError("this process sees no GPU", f"look at nvidia-smi and CUDA_VISIBLE_DEVICES, {USE_CPU}")


def _used_after_fork(process: int | None) -> DeviceError:
    where = "a process that this one was forked from" if process is None else f"process {process}, and this is a fork"
    hint = 'multiprocessing.set_start_method("spawn"), or make the tokenizer in the process that uses it'
    return DeviceError(f"CUDA was started in {where}", hint)


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"
