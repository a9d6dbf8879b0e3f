"""A kernel launch with its arguments and all their buffers in one file, for kernels/emu/replay.cpp."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MAGIC = b"EMULAUN1"
ALIGNMENT = 256  # of buffers on a GPU


@dataclass(frozen=True)
class Extent:
    """Addresses from `start` to `end`: an array, or arrays that overlap."""

    start: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.start


def extents(arrays: Sequence[np.ndarray]) -> list[Extent]:
    """The memory of contiguous arrays, sorted; what overlaps is one.

    >>> extents([flat[2:6], flat[:4], other])
    [Extent(start=4096, end=4102), Extent(start=8192, end=8200)]
    """
    merged: list[Extent] = []
    for start, end in sorted((a.ctypes.data, a.ctypes.data + a.nbytes) for a in arrays):
        if merged and start < merged[-1].end:
            merged[-1] = Extent(merged[-1].start, max(end, merged[-1].end))
        elif not merged or Extent(start, end) != merged[-1]:
            merged.append(Extent(start, end))
    return merged


def pack(kernel: str, grid: int, block: int, seed: int, arguments: Sequence[Any]) -> bytes:
    """The file's bytes: replay.cpp says what they are. arguments: as for a launch."""
    buffers = extents([argument for argument in arguments if isinstance(argument, np.ndarray)])
    name = kernel.encode()
    parts = [MAGIC, struct.pack("<6q", grid, block, seed, len(buffers), len(arguments), len(name)), name]
    parts += [struct.pack("<2q", buffer.count, buffer.start % ALIGNMENT) for buffer in buffers]
    parts += [_argument(argument, buffers) for argument in arguments]
    return b"".join(parts) + b"".join(_bytes_at(buffer) for buffer in buffers)


def unpack_result(result: bytes, arguments: Sequence[Any]) -> list[np.ndarray]:
    """The arrays among the arguments as replay left them, in their order."""
    arrays = [argument for argument in arguments if isinstance(argument, np.ndarray)]
    buffers = extents(arrays)
    begins = np.cumsum([0, *(buffer.count for buffer in buffers)])
    found = []
    for array in arrays:
        buffer, offset = _place(array, buffers)
        begin = int(begins[buffer]) + offset
        found.append(np.frombuffer(result[begin : begin + array.nbytes], dtype=array.dtype).reshape(array.shape))
    return found


def _argument(argument: Any, buffers: Sequence[Extent]) -> bytes:
    if argument is None:
        return struct.pack("<2q", -1, 0)
    if isinstance(argument, np.ndarray):
        return struct.pack("<2q", *_place(argument, buffers))
    return struct.pack("<qQ", -1, int(argument) % 2**64)


def _place(array: np.ndarray, buffers: Sequence[Extent]) -> tuple[int, int]:
    """The buffer that holds an array, and the array's offset in it."""
    start, end = array.ctypes.data, array.ctypes.data + array.nbytes
    number = next(i for i, buffer in enumerate(buffers) if buffer.start <= start and end <= buffer.end)
    return number, start - buffers[number].start


def _bytes_at(extent: Extent) -> bytes:
    return ctypes.string_at(extent.start, extent.count)
