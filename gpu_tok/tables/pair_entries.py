"""Ranks of pairs as a hash table in buckets: the merges of `BPE`.

A pair is in bucket `pair * MULTIPLIER >> hash_shift`, or where that is full in one behind. The entries of a bucket
rise, or fall if some went on: so a look-up without success goes on only where it must.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

ID_BITS, RANK_BITS = 21, 22  # an entry is left id, right id, rank
NO_RANK = (1 << RANK_BITS) - 1
NO_ENTRY = np.uint64((1 << 64) - 1)
MOST_IDS = (1 << ID_BITS) - 1  # of the pairs, the last stands for none
BUCKET = 4  # entries that a look-up compares at once: 32 bytes
CACHE_LINE = 64
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio: neighbouring pairs land far apart
PLACE_BITS = 5
SHORT = 1 << PLACE_BITS  # symbols of a word whose places fit below a rank

Pairs = npt.NDArray[np.uint64]


def build_entries(pairs: Pairs, first_rank: int = 0) -> tuple[Pairs, int]:
    """The hash table of pairs that all differ, ranked from first_rank on, at most half full; and its hash_shift.

    All pairs that are not yet in it are tried at once: of those that meet in a bucket as many stay as it has room for,
    and the others go on to the next.
    """
    bits = max(1, (2 * len(pairs) // BUCKET).bit_length())
    entry = within_lines((1 << bits) * BUCKET).reshape(-1, BUCKET)
    entry[:] = NO_ENTRY
    held, goes_on = np.zeros(1 << bits, np.int64), np.zeros(1 << bits, bool)
    waiting = pairs << np.uint64(RANK_BITS) | np.arange(first_rank, first_rank + len(pairs), dtype=np.uint64)
    bucket = (pairs * MULTIPLIER >> np.uint64(64 - bits)).astype(np.int64)
    while len(waiting):
        order = np.argsort(bucket, kind="stable")
        waiting, bucket = waiting[order], bucket[order]
        place = held[bucket] + np.arange(len(bucket)) - np.searchsorted(bucket, bucket)
        fits = place < BUCKET
        entry[bucket[fits], place[fits]] = waiting[fits]
        held += np.bincount(bucket[fits], minlength=len(held))
        goes_on[bucket[~fits]] = True
        waiting, bucket = waiting[~fits], (bucket[~fits] + 1) % len(entry)
    entry.sort(axis=1)
    entry[goes_on] = entry[goes_on, ::-1]
    return entry.reshape(-1), 64 - bits


def within_lines(count: int) -> Pairs:
    """Room for some numbers that begins where a cache line does, so that no bucket lies in two."""
    room = np.empty(8 * count + CACHE_LINE, np.uint8)
    offset = -room.ctypes.data % CACHE_LINE
    return room[offset : offset + 8 * count].view(np.uint64)
