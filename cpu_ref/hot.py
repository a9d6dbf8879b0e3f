"""The hot path of one work unit: cut, look up, write ids.

    bytes  --cut-->  chunks  --key, look up-->  rows  --write-->  ids

It goes block by block, in three short loops that keep to the first cache level: where the chunks begin; their keys
(and a prefetch of their rows); their rows and ids. A chunk that has no row is put on a list with the place where its
ids belong; `cpu_ref.gather.insert` puts them there once the cold path has made them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpu_ref.compiled import inlined, kernel
from cpu_ref.cut import BEFORE_CUT, BEHIND_CUT, BLOCK, BLOCK_WORDS, ONE, SCRATCH, cut_block, third_made
from cpu_ref.intern import (
    INLINE_IDS,
    LONGEST_KEPT,
    SPARE,
    count_of,
    find_row,
    has_bytes,
    key_of,
    mix,
    row_address,
    write_ids,
)
from cpu_ref.machine import LANES, address_of, bits_in, load_u64, load_u64_acquire, prefetch, store_u64, write_places
from gpu_tok.tables.added_tokens import TEXT
from gpu_tok.tables.ends import SECTION_LAST, WHOLE

MISS_START, MISS_LENGTH, MISS_FLAGS, MISS_PLACE, MISS_SECTION = range(5)
MISS_FIELDS = 5
KEY_WORDS = 3

NO_KEY = np.uint64((1 << 64) - 1)  # no row has it


class Work(NamedTuple):
    """What a work unit is encoded from. start: int64[sections + 1], the sections of `bytes` (uint8), one behind the
    other; id: int32[sections], an added token's id or TEXT; flags: uint8[sections], ends.py's.

    end_place: int64[sections], written: how many ids of the unit lie before the end of each section.
    """

    bytes: np.ndarray
    start: np.ndarray
    id: np.ndarray
    flags: np.ndarray
    end_place: np.ndarray


@kernel
def encode_unit(work, first, last, flag_mask, cut_table, table, ids, misses):
    """Encodes the sections `first` up to `last`.

    flag_mask: the end flags that this tokenizer's keys need. ids (int32) and misses (int64[n, MISS_FIELDS]) are buffers
    to start with; larger ones take their place when they are full. Returns (ids, how many, misses, how many); the ids
    of misses are not among them yet.
    """
    bytes, section_start, section_id, section_flags, end_place = work
    begin, end = section_start[first], section_start[last]
    mask = np.empty(BLOCK_WORDS, np.uint64)
    before, after = np.empty(2 * SCRATCH, np.uint8), np.empty(2 * SCRATCH, np.uint8)
    chunk_start = np.empty(BLOCK + 2 + LANES, np.int64)  # LANES: that `write_places` may write behind the last
    keys = np.empty((BLOCK + 2, KEY_WORDS), np.uint64)  # low, high, address of the first candidate row
    empty_row = np.zeros(4, np.uint64)  # the row of chunks that the table never keeps: no key is like it
    text, readable_end = address_of(bytes), len(bytes)
    rows_address, last_row = address_of(table.rows), len(table.rows) // 4 - 1
    pools = address_of(table.keys), address_of(table.ids)
    keys_address, ids_address, no_row = address_of(keys), address_of(ids), address_of(empty_row)
    id_count, miss_count = np.int64(0), np.int64(0)  # typed: a literal would compile the helpers once more
    section = first  # the section in which the open chunk lies
    next_start = open_start = block = begin  # next_start: where the section begins that is to be entered next
    last_class, skip, run, paired = np.int64(cut_table.class_of[0]), np.int64(0), np.int64(0), np.uint64(0)
    while block < end:
        block_end = min(block + BLOCK, end)
        last_class, skip, run, paired = cut_block(
            bytes, block, block_end - block, last_class, skip, run, paired, cut_table, mask, before, after
        )
        _cut_at_sections(
            mask, block, block_end, section, last, section_start, section_id, section_flags, bytes, cut_table
        )
        chunks = _list_chunks(mask, block, block_end, open_start, block_end == end, chunk_start)
        open_start = chunk_start[chunks]
        if len(ids) < id_count + INLINE_IDS * chunks + SPARE:
            ids = _grown(ids, id_count, INLINE_IDS * chunks + SPARE)
            ids_address = address_of(ids)
        if len(misses) < miss_count + chunks:
            misses = _grown_rows(misses, miss_count, chunks)
        _make_keys(text, readable_end, chunk_start, chunks, keys_address, rows_address, last_row, no_row)
        chunk = 0
        while chunk < chunks:
            start = chunk_start[chunk]
            if start == next_start:
                section = _enter_section(section, start, last, section_start, end_place, id_count, begin)
                next_start = section_start[section + 1]
                if section_id[section] != TEXT:
                    ids[id_count] = section_id[section]
                    id_count += 1
                    chunk += 1
                    continue
            flags, stop = np.int64(0), chunks
            if flag_mask != 0 or section_flags[section] & WHOLE:
                flags = _flags_of(start, chunk_start[chunk + 1], section, section_start, section_flags, flag_mask)
                stop = chunk + 1 if flag_mask & SECTION_LAST else chunks
            if flags == 0:
                if next_start <= block_end:
                    stop = min(stop, _first_chunk_from(chunk_start, chunk, chunks, next_start))
                room = len(ids) - INLINE_IDS * chunks - SPARE
                written, noted = (ids_address, id_count, room), (address_of(misses), miss_count, section)
                chunk, id_count, miss_count = _write_found(
                    keys_address, chunk, stop, text, chunk_start, pools, written, noted
                )
                if chunk == stop:
                    continue
                start = chunk_start[chunk]
            length = chunk_start[chunk + 1] - start
            row = 0
            if flags < WHOLE and length <= LONGEST_KEPT and last_row >= 0:
                low, high = keys[chunk, 0], keys[chunk, 1]
                row = find_row(low, high, flags, rows_address, last_row, pools[0], text + start, length)
            if row == 0:
                _write_miss(address_of(misses), miss_count, start, length, flags, id_count, section)
                miss_count += 1
            else:
                count = count_of(row)
                room = count + INLINE_IDS * (chunks - chunk) + SPARE
                if len(ids) < id_count + room:
                    ids = _grown(ids, id_count, room)
                    ids_address = address_of(ids)
                write_ids(row, pools[1], ids_address + 4 * id_count)
                id_count += count
            chunk += 1
        block = block_end
    if begin < end:
        section = _enter_section(section, end, last, section_start, end_place, id_count, begin)
    for rest in range(section, last):
        end_place[rest] = id_count
    keys[0, 0] = empty_row[0]  # numba frees an array behind its last use, and their addresses were in use until here
    return ids, id_count, misses, miss_count


@inlined
def _cut_at_sections(mask, block, block_end, section, last, section_start, section_id, section_flags, bytes, cut_table):
    """Cuts where sections begin, nowhere inside added tokens and whole sections, and nowhere for a third character that
    lies in another section."""
    while section < last and section_start[section] < block_end:
        start, end = section_start[section], section_start[section + 1]
        if start >= block and start < end:
            mask[(start - block) // LANES] |= ONE << np.uint64((start - block) % LANES)
        if section_id[section] != TEXT or section_flags[section] & WHOLE:
            for at in range(max(start + 1, block), min(end, block_end)):
                mask[(at - block) // LANES] &= ~(ONE << np.uint64((at - block) % LANES))
        else:
            for at, kind in ((start + 1, BEFORE_CUT), (end - 1, BEHIND_CUT)):
                if max(start + 1, block) <= at < min(end, block_end):
                    bit = ONE << np.uint64((at - block) % LANES)
                    if mask[(at - block) // LANES] & bit and third_made(bytes, at, kind, cut_table):
                        mask[(at - block) // LANES] &= ~bit
        section += 1


@inlined
def _list_chunks(mask, block, block_end, open_start, is_last, chunk_start):
    """Writes the starts of the open chunk, of those that begin in this block, and, in the last one, its end.

    Returns how many chunks are closed: chunk i is `chunk_start[i]:chunk_start[i + 1]`.
    """
    chunk_start[0] = open_start
    if open_start == block:  # only the first one: it is listed
        mask[0] &= ~ONE
    chunks, address = np.int64(0), address_of(chunk_start) + 8
    for word in range((block_end - block + LANES - 1) // LANES):
        write_places(mask[word], block + word * LANES, address + 8 * chunks)
        chunks += bits_in(mask[word])
    if is_last:
        chunks += 1
        chunk_start[chunks] = block_end
    return chunks


@inlined
def _make_keys(text, readable_end, chunk_start, chunks, keys_address, rows_address, last_row, no_row):
    """Writes the key of each chunk and the address of the row to look at first, and asks for that row."""
    for chunk in range(chunks):
        start = chunk_start[chunk]
        length = chunk_start[chunk + 1] - start
        key = keys_address + 8 * KEY_WORDS * chunk
        row = no_row
        if length <= LONGEST_KEPT and last_row >= 0:
            low, high = key_of(text + start, readable_end - start, length)
            row = row_address(rows_address, last_row, mix(low, high), np.int64(0))
            prefetch(row)
            store_u64(key, low)
            store_u64(key + 8, high)
        else:
            store_u64(key + 8, NO_KEY)
        store_u64(key + 16, np.uint64(row))


@inlined
def _write_found(keys_address, chunk, stop, text, chunk_start, pools, written, noted):
    """Writes the ids of chunks without flags as long as each is found in its first row, or is known to have none, since
    that one is free: a miss.

    written: where ids go, how many there are, and how far those of the pool may reach, so that all others still fit
    behind. noted: where misses go, how many there are, and the section of all these chunks. Returns the first chunk
    that needs more, and the new counts of ids and misses. This is the loop that most of the time goes to.
    """
    pool_of_keys, pool_of_ids = pools
    ids_address, id_count, room = written
    misses_address, miss_count, section = noted
    place, end = ids_address + 4 * id_count, ids_address + 4 * room
    while chunk < stop:
        key = keys_address + 8 * KEY_WORDS * chunk
        row, high = np.int64(load_u64(key + 16)), load_u64(key + 8)
        published = load_u64_acquire(row + 8)
        if published != high or load_u64(row) != load_u64(key):
            if published != 0:
                break
            start = chunk_start[chunk]
            length, flags = chunk_start[chunk + 1] - start, np.int64(0)
            _write_miss(misses_address, miss_count, start, length, flags, (place - ids_address) // 4, section)
            miss_count += 1
            chunk += 1
            continue
        words = load_u64(row + 24)
        found = np.int64(words >> np.uint64(32))
        if found <= INLINE_IDS:
            store_u64(place, load_u64(row + 16))
            store_u64(place + 8, words)
        else:
            found = count_of(row)
            start = chunk_start[chunk]
            if place + 4 * found > end or not has_bytes(
                row, pool_of_keys, text + start, chunk_start[chunk + 1] - start
            ):
                break
            write_ids(row, pool_of_ids, place)
        place += 4 * found
        chunk += 1
    return chunk, (place - ids_address) // 4, miss_count


@inlined
def _first_chunk_from(chunk_start, low, high, start):
    """The first of the chunks `low` up to `high` that begins at `start` or behind it."""
    while low < high:
        middle = (low + high) // 2
        if chunk_start[middle] < start:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _enter_section(section, start, last, section_start, end_place, id_count, begin):
    """Closes the sections that end at `start` and returns the one that begins there."""
    if start > begin:
        end_place[section] = id_count
        section += 1
    while section < last and section_start[section + 1] <= start:
        end_place[section] = id_count
        section += 1
    return section


@inlined
def _flags_of(start, end, section, section_start, section_flags, flag_mask):
    flags = np.int64(section_flags[section])
    if flags & WHOLE:
        return flags
    if start != section_start[section]:
        flags &= SECTION_LAST
    if end != section_start[section + 1]:
        flags &= ~SECTION_LAST
    return flags & flag_mask


@inlined
def _write_miss(misses_address, miss, start, length, flags, place, section):
    row = misses_address + 8 * MISS_FIELDS * miss
    store_u64(row + 8 * MISS_START, np.uint64(start))
    store_u64(row + 8 * MISS_LENGTH, np.uint64(length))
    store_u64(row + 8 * MISS_FLAGS, np.uint64(flags))
    store_u64(row + 8 * MISS_PLACE, np.uint64(place))
    store_u64(row + 8 * MISS_SECTION, np.uint64(section))


@inlined
def _grown(ids, used, room):
    larger = np.empty(max(len(ids) + len(ids) // 2, used + room), np.int32)
    for at in range(used):  # in loops: an assignment to a slice takes seconds to compile
        larger[at] = ids[at]
    return larger


@inlined
def _grown_rows(misses, used, room):
    larger = np.empty((max(2 * len(misses), used + room), MISS_FIELDS), np.int64)
    for miss in range(used):
        for field in range(MISS_FIELDS):
            larger[miss, field] = misses[miss, field]
    return larger
