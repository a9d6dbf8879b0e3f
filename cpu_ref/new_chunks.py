"""misses -> new chunks: each distinct one once, for the cold path and then for the table."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpu_ref.compiled import inlined, kernel
from cpu_ref.hot import MISS_FLAGS, MISS_LENGTH, MISS_START
from cpu_ref.intern import SHORT, key_of, mix, same_bytes, with_flags
from cpu_ref.machine import address_of, load_u64, prefetch, store_u64

BLOCK = 32  # misses whose slots are asked for before the first of them is looked at


class NewChunks(NamedTuple):
    """Distinct chunks in order of first appearance.

    bytes: uint8; starts: int64[chunks + 1]. flags: uint8[chunks], those of `gpu_tok.tables.ends`. key: uint64[chunks,
    2], the key words, flags among them. first: int64[chunks], the miss that each comes from.
    """

    bytes: np.ndarray
    starts: np.ndarray
    flags: np.ndarray
    key: np.ndarray
    first: np.ndarray


@kernel
def collect(bytes, misses, count):
    """The distinct chunks among `count` misses (same bytes, same flags): (number: int32[count], which of them each miss
    is, NewChunks). misses: int64[>= count, MISS_FIELDS], as `cpu_ref.hot` writes them.

        misses   cat  dog  cat        number   0 1 0        bytes   catdog
    """
    capacity = 16
    while capacity < 2 * count:
        capacity *= 2
    slots, number = np.full(capacity, -1, np.int32), np.empty(count, np.int32)
    key, flags = np.empty((count, 2), np.uint64), np.empty(count, np.uint8)
    first, starts = np.empty(count, np.int64), np.zeros(count + 1, np.int64)
    room = np.int64(16)  # short chunks are written as 16 bytes
    for miss in range(count):
        room += misses[miss, MISS_LENGTH]
    flat = np.empty(room, np.uint8)
    text, flat_at, slots_at = address_of(bytes), address_of(flat), address_of(slots)
    ahead = np.empty((BLOCK, 3), np.uint64)  # key words and hash
    distinct = 0
    for begin in range(0, count, BLOCK):
        end = min(begin + BLOCK, count)
        for miss in range(begin, end):
            start, length = misses[miss, MISS_START], misses[miss, MISS_LENGTH]
            low, high = key_of(text + start, len(bytes) - start, length)
            mixed = mix(low, high)
            ahead[miss - begin, 0], ahead[miss - begin, 1] = low, with_flags(high, misses[miss, MISS_FLAGS])
            ahead[miss - begin, 2] = mixed
            prefetch(slots_at + 4 * np.int64(mixed & np.uint64(capacity - 1)))
        for miss in range(begin, end):
            start, length, its_flags = misses[miss, MISS_START], misses[miss, MISS_LENGTH], misses[miss, MISS_FLAGS]
            low, high = ahead[miss - begin, 0], ahead[miss - begin, 1]
            slot = np.int64(ahead[miss - begin, 2] & np.uint64(capacity - 1))
            other = np.int64(slots[slot])
            while other >= 0 and not (
                (key[other, 0] == low) & (key[other, 1] == high) & (flags[other] == its_flags)
                and (length <= SHORT or same_bytes(flat_at + starts[other], text + start, length))
            ):
                slot = (slot + 1) & (capacity - 1)
                other = np.int64(slots[slot])
            if other < 0:
                other = distinct
                slots[slot], first[other], flags[other] = other, miss, its_flags
                key[other, 0], key[other, 1] = low, high
                starts[other + 1] = starts[other] + length
                _copy_bytes(text + start, low, high, length, flat_at + starts[other])
                distinct += 1
            number[miss] = other
    chunks = NewChunks(
        flat[: starts[distinct]], starts[: distinct + 1], flags[:distinct], key[:distinct], first[:distinct]
    )
    return number, chunks


@inlined
def _copy_bytes(source, low, high, length, place):
    """Copies a chunk's bytes, and up to 16 behind them to where the next chunk goes. low, high: its key words."""
    if length <= SHORT:
        store_u64(place, low)
        store_u64(place + 8, high)
        return
    for at in range(0, length - 8, 8):
        store_u64(place + at, load_u64(source + at))
    store_u64(place + length - 8, load_u64(source + length - 8))  # may overlap the word before
