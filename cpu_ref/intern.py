"""chunks -> entries: the table that maps the bytes of a chunk to its ids.

A row is 32 bytes. A chunk of up to 15 bytes is its own key; longer keys and longer id lists lie in pools.

    short key   |  15 bytes of the chunk        | length, flags |  id  |  id  |  id  | count |
    long key    |  hash  |  length              | flags         | key_at | ids_at | - | count, IN_POOL |

Rows are only ever added, by one writer at a time (the caller holds a lock), and published by a release store of the
word that holds the length: a reader that sees it sees the whole row. No hash is taken as proof: keys are compared byte
for byte.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpu_ref.compiled import inlined, kernel
from cpu_ref.machine import (
    address_of,
    fold_multiply,
    load_u8,
    load_u64,
    load_u64_acquire,
    prefetch,
    store_u64,
    store_u64_release,
)

ROW_BYTES = 32
SHORT = 15  # bytes of the longest key that lies in its row
INLINE_IDS = 3
AHEAD = 8  # chunks from the one that is published to the one whose row is asked for
PROBES = 16  # rows looked at before a chunk counts as not found
LONGEST_KEPT = 256  # bytes of the longest chunk that the table keeps
SPARE = 16  # ids behind the last that may be read in the pool and where ids lie, and written where they go
MOST_FLAGS = 15  # flags beyond the four of a key belong to chunks that are not kept
IN_POOL = 1 << 31  # bit of the count word: ids lie in the pool

ROWS_USED, KEYS_USED, IDS_USED = 0, 1, 2  # places in `used`

_SEED_LOW, _SEED_HIGH = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_LENGTH_SHIFT, _FLAGS_SHIFT = np.uint64(56), np.uint64(60)
_WITHOUT_FLAGS = np.uint64((1 << 60) - 1)
_LOW_MASK = np.array([(1 << min(64, 8 * n)) - 1 for n in range(SHORT + 1)], np.uint64)
_HIGH_MASK = np.array([(1 << max(0, 8 * n - 64)) - 1 for n in range(SHORT + 1)], np.uint64)


class InternTable(NamedTuple):
    """rows: uint64[4 * capacity], the capacity a power of two (0 rows: nothing is kept); keys: uint8 pool;
    ids: int32 pool, SPARE of it never taken; used: int64[3], how much of each is taken."""

    rows: np.ndarray
    keys: np.ndarray
    ids: np.ndarray
    used: np.ndarray


@inlined
def key_of(address, readable, length):
    """The two key words of the chunk at `address`, without flags: (low, high). readable: bytes from there on that may
    be read, which may be more than the chunk has."""
    if length <= SHORT:
        low, high = _sixteen_bytes(address, readable, length)
        low &= _LOW_MASK[length]
        high &= _HIGH_MASK[length]
        high |= np.uint64(length) << _LENGTH_SHIFT
    else:
        low, high = _hash_bytes(address, length), np.uint64(length)
    return low, high


@inlined
def with_flags(high, flags):
    """The high key word of a chunk with flags."""
    return high | np.uint64(flags) << _FLAGS_SHIFT


@inlined
def mix(low, high):
    """The hash of a key; its flags are not part of it."""
    return fold_multiply(low ^ _SEED_LOW, high ^ _SEED_HIGH)


@inlined
def mix_with_flags(low, high):
    """The same hash, of a key with flags."""
    return mix(low, high & _WITHOUT_FLAGS)


@inlined
def _sixteen_bytes(address, readable, length):
    if readable >= 16:
        return load_u64(address), load_u64(address + 8)
    low, high = np.uint64(0), np.uint64(0)
    for at in range(min(length, 8)):
        low |= np.uint64(load_u8(address + at)) << np.uint64(8 * at)
    for at in range(8, length):
        high |= np.uint64(load_u8(address + at)) << np.uint64(8 * at - 64)
    return low, high


@inlined
def _hash_bytes(address, length):
    mixed = _SEED_LOW ^ np.uint64(length)
    at = 0
    while at + 16 <= length:
        mixed = fold_multiply(load_u64(address + at) ^ mixed, load_u64(address + at + 8) ^ _SEED_HIGH)
        at += 16
    mixed ^= load_u64(address + length - 16)
    return fold_multiply(mixed ^ _SEED_HIGH, load_u64(address + length - 8) ^ _SEED_LOW)


@inlined
def is_row_of(row, low, high, keys_address, address, length):
    """Is the row at this address the one of this key. keys_address: of the pool of long keys."""
    if load_u64_acquire(row + 8) != high or load_u64(row) != low:
        return False
    return has_bytes(row, keys_address, address, length)


@inlined
def has_bytes(row, keys_address, address, length):
    """Does a row with the two key words of a chunk have its bytes as well: those of short ones are in the words."""
    if length <= SHORT:
        return True
    key_at = np.int64(load_u64(row + 16) & np.uint64(0xFFFFFFFF))
    return same_bytes(keys_address + key_at, address, length)


@inlined
def same_bytes(left, right, length):
    """Are two runs of bytes, given by their addresses, equal."""
    differs = np.uint64(0)
    if length < 8:
        for at in range(length):
            differs |= np.uint64(load_u8(left + at) ^ load_u8(right + at))
        return differs == 0
    for at in range(0, length - 8, 8):
        if load_u64(left + at) != load_u64(right + at):
            return False
    return load_u64(left + length - 8) == load_u64(right + length - 8)  # may overlap the word before


@inlined
def find_row(low, high, flags, rows_address, last_row, keys_address, address, length):
    """Address of the row of a chunk, or 0. Looks at up to `PROBES` rows and stops at the first empty one.

    last_row: rows of the table minus one.
    """
    mixed = mix(low, high)
    high = with_flags(high, flags)
    for probe in range(PROBES):
        row = row_address(rows_address, last_row, mixed, probe)
        if is_row_of(row, low, high, keys_address, address, length):
            return row
        if load_u64_acquire(row + 8) == 0:
            return 0
    return 0


@inlined
def row_address(rows_address, last_row, mixed, probe):
    """Where the `probe`-th candidate row of a hash lies."""
    return rows_address + np.int64((mixed + np.uint64(probe)) & np.uint64(last_row)) * ROW_BYTES


@inlined
def count_of(row):
    """How many ids a row stands for."""
    return np.int64(load_u64(row + 24) >> np.uint64(32)) & ~IN_POOL


@inlined
def write_ids(row, pool_address, place):
    """Writes the ids of a row at the address `place`, and up to 3 behind them. pool_address: of the pool of ids."""
    words = load_u64(row + 24)
    if words >> np.uint64(63):
        source = pool_address + 4 * np.int64(load_u64(row + 16) >> np.uint64(32))
        copy_ids(source, place, count_of(row))
    else:
        store_u64(place, load_u64(row + 16))
        store_u64(place + 8, words)


@inlined
def copy_ids(source, place, count):
    """Copies ids from one address to another, four at a time: up to three more are read and written."""
    for at in range(0, 4 * count, 16):
        store_u64(place + at, load_u64(source + at))
        store_u64(place + at + 8, load_u64(source + at + 8))


@kernel
def publish(table, chunks, ids, id_starts, first, row_limit):
    """Adds rows for the chunks from `first` on until `row_limit` rows are taken.

    Returns the first chunk that was not looked at any more, and how many found no room in their rows or the pools.

    chunks: NewChunks; ids, id_starts: their ids (int32, int64[chunks + 1]). The caller lets one thread in at a time.
    """
    keys, pool, used, bytes, starts, key = table.keys, table.ids, table.used, chunks.bytes, chunks.starts, chunks.key
    rows_address, last_row = address_of(table.rows), len(table.rows) // 4 - 1
    left_out = 0
    for chunk in range(first, len(key)):
        if chunk + AHEAD < len(key):
            mixed = mix_with_flags(key[chunk + AHEAD, 0], key[chunk + AHEAD, 1])
            prefetch(row_address(rows_address, last_row, mixed, np.int64(0)))
        start, length = starts[chunk], starts[chunk + 1] - starts[chunk]
        if length > LONGEST_KEPT or chunks.flags[chunk] > MOST_FLAGS:
            continue
        low, high = key[chunk, 0], key[chunk, 1]
        mixed = mix_with_flags(low, high)
        row = _free_row(low, high, mixed, rows_address, last_row, address_of(keys), address_of(bytes) + start, length)
        if row == 0:  # somebody else's row for the same chunk is as good
            continue
        if used[ROWS_USED] >= row_limit:
            return chunk, left_out
        id_start = id_starts[chunk]
        count = id_starts[chunk + 1] - id_start
        pooled = length if length > SHORT else 0
        key_at, ids_at = used[KEYS_USED], used[IDS_USED]
        if row < 0:
            left_out += 1
            continue
        if pooled == 0 and count <= INLINE_IDS:
            words = _inline_words(ids, id_start, count)
        elif key_at + pooled > len(keys) or ids_at + count > len(pool) - SPARE:
            left_out += 1
            continue
        else:
            for at in range(pooled):
                keys[key_at + at] = bytes[start + at]
            for at in range(count):
                pool[ids_at + at] = ids[id_start + at]
            words = (np.uint64(key_at | ids_at << 32), np.uint64(count | IN_POOL) << np.uint64(32))
            used[KEYS_USED] += pooled
            used[IDS_USED] += count
        used[ROWS_USED] += 1
        store_u64(row, low)
        store_u64(row + 16, words[0])
        store_u64(row + 24, words[1])
        store_u64_release(row + 8, high)
    return len(key), left_out


@inlined
def _inline_words(ids, at, count):
    """The two words of a row that hold up to INLINE_IDS ids and their count."""
    if at + 4 > len(ids):
        low, high = np.uint64(0), np.uint64(0)
        for index in range(count):
            if index < 2:
                low |= np.uint64(np.uint32(ids[at + index])) << np.uint64(32 * index)
            else:
                high = np.uint64(np.uint32(ids[at + index]))
    else:
        low, high = load_u64(address_of(ids) + 4 * at), load_u64(address_of(ids) + 4 * at + 8)
        low, high = low & _LOW_MASK[4 * count], high & _HIGH_MASK[4 * count]
    return low, high | np.uint64(count) << np.uint64(32)


@inlined
def _free_row(low, high, mixed, rows_address, last_row, keys_address, address, length):
    """Address of the row to write; 0 when the chunk has a row already; -1 when all candidates are taken."""
    for probe in range(PROBES):
        row = row_address(rows_address, last_row, mixed, probe)
        if load_u64_acquire(row + 8) == 0:
            return row
        if is_row_of(row, low, high, keys_address, address, length):
            return 0
    return -1


@kernel
def move_rows(rows, larger):
    """Copies all rows into a larger, empty table (uint64[4 * capacity] each); the pools that they refer to stay."""
    last_row = len(larger) // 4 - 1
    for index in range(0, len(rows), 4):
        if rows[index + 1] == 0:
            continue
        mixed = mix_with_flags(rows[index], rows[index + 1])
        for probe in range(PROBES):
            row = row_address(address_of(larger), last_row, mixed, probe)
            if load_u64(row + 8) == 0:
                for word in range(4):
                    store_u64(row + 8 * word, rows[index + word])
                break
