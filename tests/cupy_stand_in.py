"""CuPy without a GPU: only what the real CuPy has, called as the real one can be called, on NumPy and the emulator.

    cupy = StandIn()
    CudaDevice(cupy=cupy).launch(...)      runs on the emulator

Arrays are as strict as CuPy's: they do not mix with NumPy's, do not become NumPy arrays by themselves, sums are arrays,
too, and only those of the current GPU take part. Every function and argument is checked against the real CuPy, which
imports without a driver.
"""

from __future__ import annotations

import functools
import inspect
import threading
import time
import types
from typing import Any

import cupy as real
import numpy as np

from gpu_tok.emulated import EmulatedDevice

ANYWHERE = ("copy", "item", "reshape", "tobytes", "tolist", "view")  # methods that do not mind which GPU is current
HOST_TO_DEVICE = ("asarray", "array", "ascontiguousarray")  # the functions that take NumPy's arrays
WAITING = ("item", "tobytes", "tolist", "nonzero", "flatnonzero", "argwhere", "unique")  # for values, on the host

copied: list[tuple[int, bool]] = []  # to the host: how many bytes, and did it wait for them
waited: list[str] = []  # what else made the host wait


class _Current(threading.local):
    """The GPU that is current in a thread: `gpus[-1]`."""

    def __init__(self) -> None:
        self.gpus = [0]


_current = _Current()


class ndarray:  # noqa: N801 - CuPy's own name
    """An array "on the device" (number `gpu`, the current one if not given); `host` is where it really is."""

    def __init__(self, host: np.ndarray, gpu: int | None = None) -> None:
        self.host = host
        self.gpu = _current.gpus[-1] if gpu is None else gpu

    def __getattr__(self, name: str) -> Any:
        if not hasattr(real.ndarray, name):
            raise AttributeError(f"cupy.ndarray has no {name}")
        found = getattr(self.host, name)
        if name in WAITING:
            waited.append(name)
        if callable(found) and name not in ANYWHERE:
            _on_host(self)
        return _forwarded(found) if callable(found) else _on_device(found)

    @property
    def data(self) -> Any:
        return types.SimpleNamespace(ptr=self.host.ctypes.data)

    @property
    def device(self) -> Any:
        return Device(self.gpu)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.host.__array_interface__

    def __len__(self) -> int:
        return len(self.host)

    def __getitem__(self, key: Any) -> ndarray:
        if isinstance(key, ndarray) and key.host.dtype == bool:
            waited.append("mask")
        return ndarray(np.asarray(self.host[_on_host(key)]), self.gpu)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.host[_on_host(key)] = _on_host(value)

    def __bool__(self) -> bool:
        waited.append("bool")
        return bool(self.host)

    def __int__(self) -> int:
        waited.append("int")
        return int(self.host)

    def __array__(self, *_args: Any, **_kwargs: Any) -> np.ndarray:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """NumPy's functions of CuPy's arrays are CuPy's; NumPy's arrays do not take part."""
        assert method == "__call__"
        assert hasattr(real, ufunc.__name__), f"cupy has no {ufunc.__name__}"
        return _on_device(ufunc(*map(_on_host, inputs), **kwargs))

    __hash__ = None  # type: ignore[assignment]

    def get(self, stream: Any = None, order: str = "C", out: np.ndarray | None = None, blocking: bool = True) -> Any:
        copied.append((self.host.nbytes, blocking))
        if out is None:
            return self.host.copy()
        assert out.shape == self.host.shape
        assert out.dtype == self.host.dtype
        out[...] = self.host
        return out

    def set(self, arr: np.ndarray, stream: Any = None) -> None:
        assert type(arr) is np.ndarray
        assert (arr.shape, arr.dtype) == (self.host.shape, self.host.dtype)
        self.host[...] = arr


def _operator(name: str) -> Any:
    def apply(self: ndarray, *others: Any) -> Any:
        result = getattr(_on_host(self), name)(*map(_on_host, others))
        if result is NotImplemented:
            raise TypeError(f"{name} of {self.host.dtype} and {others}")
        is_in_place = name.startswith("__i") and name != "__invert__"
        return self if is_in_place else _on_device(result)

    return apply


_BINARY = ["add", "sub", "mul", "floordiv", "truediv", "mod", "and", "or", "xor", "lshift", "rshift"]
for _name in [*_BINARY, *("r" + name for name in _BINARY), *("i" + name for name in _BINARY if name != "itruediv")]:
    setattr(ndarray, f"__{_name}__", _operator(f"__{_name}__"))
for _name in ["eq", "ne", "lt", "le", "gt", "ge", "neg", "invert"]:
    setattr(ndarray, f"__{_name}__", _operator(f"__{_name}__"))


def _on_device(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return ndarray(np.asarray(value))
    return type(value)(map(_on_device, value)) if type(value) in (tuple, list) else value


def _on_host(value: Any) -> Any:
    if isinstance(value, ndarray):
        if value.gpu != _current.gpus[-1]:
            raise ValueError(f"Array device must be same as the current device: {value.gpu} {_current.gpus[-1]}")
        return value.host
    if isinstance(value, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    return type(value)(map(_on_host, value)) if type(value) in (tuple, list) else value


def _forwarded(function: Any) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _on_device(function(*map(_on_host, args), **{name: _on_host(value) for name, value in kwargs.items()}))

    return call


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError {status}")
        self.status = status


class Runtime:
    """cupy.cuda.runtime. `status`: what getDeviceCount fails with, 0 for nothing."""

    CUDARuntimeError = CUDARuntimeError

    def __init__(self, cupy: StandIn, driver: int, count: int, status: int) -> None:
        self._cupy, self._driver, self._count, self._status = cupy, driver, count, status

    def driverGetVersion(self) -> int:  # noqa: N802 - this and those below are CUDA's names
        return self._driver

    def runtimeGetVersion(self) -> int:  # noqa: N802
        return 13020

    def getDeviceCount(self) -> int:  # noqa: N802
        if self._status:
            raise CUDARuntimeError(self._status)
        return self._count

    def getDeviceProperties(self, device: int) -> dict[str, Any]:  # noqa: N802
        return {"name": b"Stand-in", "multiProcessorCount": 2}

    def pointerGetAttributes(self, ptr: int) -> Any:  # noqa: N802
        inside = any(start <= ptr < start + size for start, size in self._cupy.pinned)
        return types.SimpleNamespace(type=1 if inside else 0)


class Event:
    """cupy.cuda.Event."""

    def __init__(self, cupy: StandIn, stream: str) -> None:
        self._cupy, self._stream = cupy, stream
        self._recorded = time.perf_counter()

    def __str__(self) -> str:
        return f"event of {self._stream}"

    def synchronize(self) -> None:
        self._cupy.log.append(f"host waits for {self}")


class Stream:
    """cupy.cuda.Stream; what it is told is written down in `log`."""

    def __init__(self, cupy: StandIn, null: bool = False, non_blocking: bool = False) -> None:
        self._cupy = cupy
        self._name = "null" if null else ("own", "incoming", "outgoing")[cupy.streams_made % 3]
        cupy.streams_made += not null

    def __enter__(self) -> Stream:
        self._cupy.streams.append(self)
        return self

    def __exit__(self, *_: Any) -> None:
        assert self._cupy.streams.pop() is self

    def record(self, event: Any = None) -> Any:
        return Event(self._cupy, self._name)

    def wait_event(self, event: Any) -> None:
        self._cupy.log.append(f"{self._name} waits for {event}")

    def synchronize(self) -> None:
        self._cupy.log.append(f"host waits for {self._name}")


class Device:
    """cupy.cuda.Device."""

    compute_capability = "90"
    mem_info = (1000, 4000)

    def __init__(self, device: int = 0) -> None:
        self.id = device

    def __enter__(self) -> Device:
        _current.gpus.append(self.id)
        return self

    def __exit__(self, *_: Any) -> None:
        assert _current.gpus.pop() == self.id


class Module:
    """cupy.cuda.Module: looks at the cubin, then runs the emulator."""

    def __init__(self, cupy: StandIn) -> None:
        self._cupy = cupy

    def load(self, cubin: bytes) -> None:
        assert isinstance(cubin, bytes)
        assert cubin.startswith(b"\x7fELF")
        self._cubin = cubin

    def get_function(self, name: str) -> Function:
        assert f".text.{name}\0".encode() in self._cubin, "no such kernel in the machine code"
        return Function(self._cupy, name)


class Function:
    """cupy.cuda.Function."""

    def __init__(self, cupy: StandIn, name: str) -> None:
        self._cupy, self._name = cupy, name

    def __call__(self, grid: tuple, block: tuple, args: tuple, shared_mem: int = 0, stream: Any = None) -> None:
        assert (len(grid), len(block)) == (1, 1)
        parameters = self._cupy.emulator._signature(self._name).parameters
        values = [self._value(value, parameter.is_pointer) for value, parameter in zip(args, parameters, strict=True)]
        self._cupy.log.append(f"{self._name} on {self._cupy.streams[-1]._name}")
        self._cupy.emulator.launch(self._name, *grid, *block, *values)

    def _value(self, value: Any, is_pointer: bool) -> Any:
        if isinstance(value, ndarray):
            return _on_host(value)
        assert isinstance(value, np.int64 | np.uint64), f"CuPy passes {type(value)} in another width"
        if is_pointer:
            assert value == 0
            return None
        return int(value)


class Cuda:
    """cupy.cuda."""

    Device = Device

    def __init__(self, cupy: StandIn, driver: int, count: int, status: int) -> None:
        self._cupy = cupy
        self.runtime = Runtime(cupy, driver, count, status)

    def Stream(self, null: bool = False, non_blocking: bool = False) -> Stream:  # noqa: N802
        return Stream(self._cupy, null, non_blocking)

    def Module(self) -> Module:  # noqa: N802
        return Module(self._cupy)

    def get_current_stream(self) -> Stream:
        return self._cupy.streams[-1]

    def get_elapsed_time(self, start_event: Event, end_event: Event) -> float:
        return 1e3 * (end_event._recorded - start_event._recorded)

    def set_allocator(self, allocator: Any = None) -> None:
        self._cupy.log.append("pool left out")

    def alloc_pinned_memory(self, size: int) -> Any:
        memory = np.empty(size, np.uint8)
        self._cupy.pinned.append((memory.ctypes.data, size))
        return memory


class StandIn:
    """The module `cupy`."""

    ndarray = ndarray

    def __init__(self, driver: int = 13020, count: int = 1, status: int = 0) -> None:
        self.log: list[str] = []  # launches and waits, in order
        self.pinned: list[tuple[int, int]] = []
        self.emulator = EmulatedDevice()
        self.cuda = Cuda(self, driver, count, status)
        self.streams_made = 0  # by a device: its own, incoming, outgoing
        self.streams = [Stream(self, null=True)]

    def get_default_memory_pool(self) -> Any:
        return types.SimpleNamespace(free_bytes=lambda: 500, free_all_blocks=lambda: self.log.append("pool emptied"))

    def get_default_pinned_memory_pool(self) -> Any:
        return types.SimpleNamespace(free_all_blocks=lambda: self.log.append("pinned pool emptied"))

    def __getattr__(self, name: str) -> Any:
        found = getattr(real, name)  # AttributeError for what CuPy has not
        if not callable(found) or isinstance(found, type):
            return found
        if name in WAITING:
            waited.append(name)
        if name in HOST_TO_DEVICE:
            return functools.partial(self._copied, found)
        forwarded = _forwarded(getattr(np, name))

        def call(*args: Any, **kwargs: Any) -> Any:
            _check_binds(found, args, kwargs)
            return forwarded(*args, **kwargs)

        return call

    def from_dlpack(self, array: Any) -> ndarray:
        return ndarray(array.host)

    def _copied(self, function: Any, value: Any, *args: Any, **kwargs: Any) -> ndarray:
        _check_binds(function, (value, *args), kwargs)
        if hasattr(value, "__cuda_array_interface__") and not isinstance(value, ndarray):
            return ndarray(value.host)  # a tensor of another library: the same memory
        host = value.host if isinstance(value, ndarray) else np.asarray(value)  # of any GPU: the copy is here
        dtype = args[0] if args else kwargs.get("dtype")
        return ndarray(self.emulator.upload(host if dtype is None else host.astype(dtype)))


def _check_binds(function: Any, args: tuple, kwargs: dict) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # compiled, without a signature
        return
    signature.bind(*args, **kwargs)
