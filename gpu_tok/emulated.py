"""The emulated device: the CUDA kernels, compiled by the host's C++ compiler, run by kernels/emu on NumPy's arrays.

>>> device = EmulatedDevice(seed=1)
>>> device.launch("mark_starts", 1, 256, start, start.size - 1, starts)
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gpu_tok import host_build, signatures
from gpu_tok.compile import kernel_folder
from gpu_tok.copies import Copy
from gpu_tok.errors import DeviceError, no_memory
from gpu_tok.host_build import Mode
from gpu_tok.launch_file import ALIGNMENT, extents, pack
from gpu_tok.signatures import Parameter, Signature

MESSAGE_BYTES = 4096
_one_at_a_time = threading.Lock()
SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=0",
    "TSAN_OPTIONS": "halt_on_error=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


@dataclass
class Traffic:
    """Bytes of global memory that threads asked for, and the 32-byte sectors they lie in (once a warp and interval)."""

    read_bytes: int = 0
    read_sectors: int = 0
    written_bytes: int = 0
    written_sectors: int = 0


@dataclass
class Counts:
    """What all launches of a kernel moved. table: in arrays that `mark_table` named; streaming: in all others.

    imbalance: 32 x the accesses of the busiest lane / the sum of all, over the intervals between warp-wide points: 1
    where all lanes have as many.
    """

    launches: int = 0
    streaming: Traffic = field(default_factory=Traffic)
    table: Traffic = field(default_factory=Traffic)
    atomics: int = 0
    accesses: int = 0
    busiest_times_32: int = 0

    @property
    def imbalance(self) -> float:
        return self.busiest_times_32 / self.accesses if self.accesses else 1.0

    def add(self, numbers: Sequence[int]) -> None:
        """numbers: the eleven of `struct Counts` in kernels/emu/counters.cpp."""
        self.launches += 1
        for traffic, part in ((self.streaming, numbers[:4]), (self.table, numbers[4:8])):
            traffic.read_bytes += part[0]
            traffic.read_sectors += part[1]
            traffic.written_bytes += part[2]
            traffic.written_sectors += part[3]
        self.atomics += numbers[8]
        self.accesses += numbers[9]
        self.busiest_times_32 += numbers[10]


class EmulatedDevice:
    """Runs kernels on the CPU. Results must not depend on `seed`, which shuffles threads, warps and blocks and chooses
    the garbage in shared memory.

    count: fill `counts` (several times slower). threads: OS threads in place of fibers, two blocks at once (slow; for
    rivals that really are at work together). dump_folder: every launch is first written there, for `replay`.
    """

    name = "emulated"
    xp: Any = np
    multiprocessors = 2
    description = "the CPU, in CUDA's place"

    def __init__(
        self,
        seed: int = 0,
        *,
        count: bool = False,
        threads: bool = False,
        dump_folder: Path | None = None,
        folders: Sequence[Path] | None = None,
    ) -> None:
        """folders: where the *.cu files are; None takes those of gpu_tok. Raises `DeviceError` without a compiler."""
        self.seed = seed
        self.dump_folder = dump_folder
        self.counts: dict[str, Counts] = {}
        self._folders = tuple(folders or (kernel_folder(),))
        self._signatures = signatures.read(self._folders)
        self._library = _load(self._folders, Mode.COUNT if count else Mode.THREADS if threads else Mode.FIBERS)
        self._counting = count
        self._launches = 0
        self._tables: list[np.ndarray] = []

    def launch(self, kernel: str, grid: int, block: int, *arguments: Any) -> None:
        """Runs a kernel to its end. arguments: arrays or None for pointers, ints for 64-bit integers.

        Raises `DeviceError` for a launch that does not fit the kernel, and for what the emulator notices: a barrier or
        warp intrinsic that some threads never reach, a failed assertion.
        """
        signature = self._signature(kernel)
        words = check_launch(signature, grid, block, arguments)
        seed = (self.seed * 1_000_003 + self._launches) % 2**63
        self._launches += 1
        if self.dump_folder is not None:
            path = self.dump_folder / f"{self._launches:05}_{kernel}.launch"
            path.write_bytes(pack(kernel, grid, block, seed, arguments))
        message = ctypes.create_string_buffer(MESSAGE_BYTES)
        packed = (ctypes.c_uint64 * max(len(words), 1))(*words)
        function = ctypes.cast(getattr(self._library, kernel), ctypes.c_void_p)
        name = kernel.encode()
        with _one_at_a_time:  # the counters are the library's, which runs one launch at a time anyway
            if self._counting:
                self._count_from_zero(arguments)
            failed = self._library.emu_launch(
                function, name, grid, block, packed, len(words), seed, message, MESSAGE_BYTES
            )
            if self._counting:
                self._add_counts(kernel)
        if failed:
            raise DeviceError(f"kernel {kernel}: {message.value.decode(errors='replace')}")

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """As on a GPU, where this is the device's stream; here nothing needs one. Raises `DeviceError` where memory
        runs out inside."""
        try:
            yield
        except MemoryError as error:
            raise no_memory(self.description, error) from error

    def grid(self, threads: int, block: int) -> int:
        """Blocks for a kernel that goes round in a loop. Few, so that small texts go round, too."""
        return max(1, min(-(-threads // block), self.multiprocessors * 8 * 256 // block))

    def upload(self, array: np.ndarray) -> np.ndarray:
        """A copy on the device, from an address that is a multiple of 256 as on a GPU."""
        copy = _aligned(array.shape, array.dtype)
        copy[...] = array
        return copy

    def here(self, array: np.ndarray) -> np.ndarray:
        """The array: there is no other memory."""
        return array

    def download(self, array: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """A copy on the host, in `out` if given."""
        if out is None:
            return array.copy()
        out[...] = array
        return out

    def stage(self, array: np.ndarray) -> Copy:
        """As `upload`; nothing goes on beside it here."""
        return Copy(self.upload(array))

    def fetch(self, array: np.ndarray) -> Copy:
        """As `download`."""
        return Copy(self.download(array))

    def release_memory(self) -> None:
        """No pool holds any."""

    def address(self, array: np.ndarray) -> int:
        """Where the array lies."""
        return int(array.ctypes.data)

    def copy(self, array: np.ndarray) -> np.ndarray:
        """Another array with the same in it, from an address that is a multiple of 256."""
        return self.upload(array)

    def pinned(self, count: int, dtype: Any) -> np.ndarray:
        """Host memory; nothing to pin here."""
        return np.empty(count, dtype)

    def synchronize(self) -> None:
        """Nothing to wait for: a launch has ended when it returns."""

    def free_memory(self) -> int:
        """Bytes that can still be had."""
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def mark_table(self, *arrays: np.ndarray) -> None:
        """Has the traffic of these arrays counted as table traffic from now on."""
        self._tables += [_owner(array) for array in arrays]

    def _signature(self, kernel: str) -> Signature:
        if kernel not in self._signatures:
            raise DeviceError(f"there is no kernel {kernel}", f"there are {', '.join(sorted(self._signatures))}")
        return self._signatures[kernel]

    def _count_from_zero(self, arguments: Sequence[Any]) -> None:
        owners = [_owner(argument) for argument in arguments if isinstance(argument, np.ndarray)]
        tables = [extent for extent in extents(self._tables) if extent.count]
        ranges = []
        for extent in extents(owners):
            is_table = any(table.start < extent.end and extent.start < table.end for table in tables)
            ranges += [extent.start, extent.end, int(is_table)]
        self._library.emu_count_from_zero((ctypes.c_uint64 * max(len(ranges), 1))(*ranges), len(ranges) // 3)

    def _add_counts(self, kernel: str) -> None:
        numbers = (ctypes.c_uint64 * 11)()
        self._library.emu_counts(numbers)
        self.counts.setdefault(kernel, Counts()).add(list(numbers))


def check_launch(signature: Signature, grid: int, block: int, arguments: Sequence[Any]) -> list[int]:
    """The 64-bit words of a launch, or a `DeviceError` that names the argument that does not fit."""
    name, parameters = signature.name, signature.parameters
    if not 1 <= grid < 2**31 or not 1 <= block <= signature.most_threads:
        raise DeviceError(f"kernel {name}: {grid} blocks of {block} threads; at most {signature.most_threads} a block")
    if len(arguments) != len(parameters):
        names = ", ".join(parameter.name for parameter in parameters)
        raise DeviceError(f"kernel {name} takes {len(parameters)} arguments ({names}) and got {len(arguments)}")
    return [_word(name, *pair) for pair in zip(parameters, arguments, strict=True)]


def _word(kernel: str, parameter: Parameter, argument: Any) -> int:
    place = f"kernel {kernel}: {parameter.name}"
    if not parameter.is_pointer:
        is_number = isinstance(argument, int | np.int64 | np.uint64) and not isinstance(argument, bool)
        if is_number and -(2**63) <= int(argument) < 2**64:
            return int(argument) % 2**64
        raise DeviceError(f"{place} is a 64-bit integer and got {type(argument).__name__}")
    if argument is None:
        return 0
    if not isinstance(argument, np.ndarray):
        raise DeviceError(f"{place} is a pointer and got {type(argument).__name__}", "pass an array or None")
    if not argument.flags.c_contiguous:
        raise DeviceError(f"{place} is not contiguous")
    if not (parameter.is_const or argument.flags.writeable):
        raise DeviceError(f"{place} is written by the kernel, and the array is read-only")
    given = np.uint8 if argument.dtype == np.bool_ else argument.dtype
    if parameter.element is not None and given != parameter.element:
        raise DeviceError(f"{place} points at {np.dtype(parameter.element)} and got an array of {argument.dtype}")
    return argument.ctypes.data


def replay(path: Path, mode: Mode, result: Path | None = None, folders: Sequence[Path] | None = None) -> str:
    """Runs a dumped launch in a process of its own; "" if all is well, else what the sanitizer or the emulator said."""
    program = host_build.replay_program(tuple(folders or (kernel_folder(),)), mode)
    words = [str(program), str(path), *([str(result)] if result else [])]
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False, env=SANITIZERS)
    return "" if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"


def _aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array of its own (not a view of a longer one) at a multiple of 256."""
    count = math.prod(shape) * dtype.itemsize
    memory = (ctypes.c_uint8 * (count + ALIGNMENT))()
    begin = -ctypes.addressof(memory) % ALIGNMENT
    return np.frombuffer(memoryview(memory), np.uint8, count, begin).view(dtype).reshape(shape)


def _owner(array: np.ndarray) -> np.ndarray:
    """The array whose memory a view looks at."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


@functools.cache
def _load(folders: tuple[Path, ...], mode: Mode) -> ctypes.CDLL:
    library = ctypes.CDLL(str(host_build.library(folders, mode)))
    words = ctypes.POINTER(ctypes.c_uint64)
    i64, u64, text = ctypes.c_int64, ctypes.c_uint64, ctypes.c_char_p
    library.emu_launch.argtypes = [ctypes.c_void_p, text, i64, i64, words, i64, u64, text, i64]
    library.emu_launch.restype = ctypes.c_int
    if mode is Mode.COUNT:
        library.emu_count_from_zero.argtypes = [words, i64]
        library.emu_counts.argtypes = [words]
    return library


def _renew_lock() -> None:
    """In a forked child: the thread that held the lock may not exist here."""
    global _one_at_a_time
    _one_at_a_time = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


__all__ = ["Counts", "EmulatedDevice", "Mode", "Traffic", "check_launch", "replay"]
