"""bytes -> cuts: a bit for each byte at which a chunk begins.

A cut is taken between two code points when the table of class pairs says so, or says to ask and the filter of pairs
does not hold the two, which both have 3 bytes then. Some pairs are asked for in good runs only
(`gpu_tok.tables.runs`), so it is carried along how far a run may still go. Where 64 bytes are ASCII, no run goes on,
and they are looked up together: each byte gets a *before* byte (which lanes may be cut off behind it) and an *after*
byte (its own lane), and a cut stands where the *before* of one byte and the *after* of the next share a bit.

    bytes     t h e _ c a t ,        lanes: letter 1, space 2, punctuation 4
    before    6 6 6 0 6 6 6 7        behind a letter: cut before spaces and punctuation
    after     1 1 1 2 1 1 1 4
    cuts            ^       ^        before[i - 1] & after[i] != 0
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpu_ref.compiled import inlined, kernel
from cpu_ref.machine import (
    LANES,
    address_of,
    classify,
    common_bits_mask,
    continuation_mask,
    load_u8,
    non_ascii_mask,
    trailing_zeros,
)
from cpu_ref.utf8 import code_point_at, code_point_length
from gpu_tok.tables.pairs import MULTIPLIER
from gpu_tok.tables.runs import LONGEST_RUN

BLOCK_WORDS = 16
ALL_BYTES = np.uint64((1 << LANES) - 1)
BLOCK = BLOCK_WORDS * LANES  # bytes that are cut in one go: they, their keys and rows stay in the first cache level


class CutTable(NamedTuple):
    """The tables of this step; `gpu_tok.cut` makes them from `CutTables`.

    class_of: uint8[0x110000]; taken: uint32[classes], bit b of row a: cut between a and b. before: uint8[classes], the
    *before* byte of each class. asked: uint32[classes], the same, but for those that `pairs`, the filter, holds: uint32
    words as `gpu_tok.tables.pairs` makes them. asked_in_runs, run_begins: uint32[classes], such rows of
    `gpu_tok.tables.runs.Runs`; in_run: uint32[1], bit c: class c is inside. These three are empty if there are no runs.
    values, ranges: uint8[2, 128] and uint8[ranges, 4], *before* and *after* bytes of ASCII as `machine.classify` reads
    them. has_lanes: 0 when ASCII needs more lanes than there are, and all goes code point by code point.
    """

    class_of: np.ndarray
    taken: np.ndarray
    before: np.ndarray
    asked: np.ndarray
    pairs: np.ndarray
    asked_in_runs: np.ndarray
    run_begins: np.ndarray
    in_run: np.ndarray
    values: np.ndarray
    ranges: np.ndarray
    has_lanes: np.ndarray


@inlined
def cut_block(bytes, begin, count, last_class, skip, run, table, mask, before, after):
    """Cuts `count` <= BLOCK bytes from `begin` on; fills one word of `mask` for each 64 bytes.

    last_class: class of the code point before `begin`; skip: bytes at `begin` that end that code point; run: what
    `_run_behind` said of it. before, after: scratch, uint8[BLOCK + 64]. Returns the same three for the next block.
    """
    address = address_of(bytes) + begin
    readable = len(bytes) - begin
    words = (count + LANES - 1) // LANES
    before_address, after_address = address_of(before), address_of(after)
    values, ranges, range_count = address_of(table.values), address_of(table.ranges), len(table.ranges) // 4
    has_lanes = table.has_lanes[0] != 0
    for word in range(words):
        at = word * LANES
        if has_lanes and at + LANES <= readable and non_ascii_mask(address + at) == 0:
            classify(address + at, values, ranges, range_count, before_address + at + 1, after_address + at)
            mask[word] = np.uint64(1)
        else:
            mask[word] = np.uint64(0)
    for word in range(words):
        at = word * LANES
        width = min(LANES, count - at)
        if mask[word] != 0:
            before[at] = table.before[last_class]
            cuts = common_bits_mask(before_address + at, after_address + at)
            if width < LANES:
                cuts &= (np.uint64(1) << np.uint64(width)) - np.uint64(1)
            last_class = np.int64(table.class_of[load_u8(address + at + width - 1)])
            skip = run = np.int64(0)
        else:
            cuts, last_class, skip, run = _cut_code_points(bytes, begin + at, width, last_class, skip, run, table)
        mask[word] = cuts
    return last_class, skip, run


@inlined
def _cut_code_points(bytes, begin, width, last_class, skip, run, table):
    """Cuts `width` <= LANES bytes from `begin` on, but for the first `skip`; the rest is as for `cut_block`."""
    class_of, taken, asked, pairs = table.class_of, table.taken, table.asked, table.pairs
    asked_in_runs, run_begins, in_run = table.asked_in_runs, table.run_begins, table.in_run
    asks, has_runs, address = len(pairs) > 0, len(in_run) > 0, address_of(bytes) + begin
    last = _of_3_bytes(address + skip - 3) if asks and begin + skip >= 3 else np.int64(0)
    starts = _starts(address, width, len(bytes) - begin) & ALL_BYTES << np.uint64(skip)
    cuts, end = np.uint64(0), skip
    while starts != 0:
        at = np.int64(trailing_zeros(starts))
        starts &= starts - np.uint64(1)
        first = load_u8(address + at)
        if first >> 4 == 0xE:
            this = _of_3_bytes(address + at)
            this_class = class_of[this]
            row = taken[last_class]
            if asks:
                open = asked[last_class]
                if has_runs:
                    open |= asked_in_runs[last_class] if run > 0 else np.uint32(0)
                    run = _run_behind(run, run_begins[last_class], in_run[0], this_class)
                row |= open & np.uint32(_are_apart(last, this, pairs)) << np.uint32(this_class)
        else:
            this, run = np.int64(code_point_at(bytes, begin + at)), np.int64(0)
            this_class = class_of[this]
            row = taken[last_class]
        cuts |= (np.uint64(row >> np.uint32(this_class)) & np.uint64(1)) << np.uint64(at)
        last, last_class, end = this, np.int64(this_class), at + code_point_length(first)
    return cuts, last_class, end - width, run


@inlined
def _starts(address, width, readable):
    """A bit for each of `width` bytes with which a code point begins."""
    if readable >= LANES:
        starts = ~continuation_mask(address)
        return starts if width == LANES else starts & ((np.uint64(1) << np.uint64(width)) - np.uint64(1))
    starts = np.uint64(0)
    for at in range(width):
        starts |= np.uint64(load_u8(address + at) & 0xC0 != 0x80) << np.uint64(at)
    return starts


@inlined
def _of_3_bytes(address):
    """The code point of 3 bytes."""
    first, second, third = load_u8(address), load_u8(address + 1), load_u8(address + 2)
    return np.int64(first & 0x0F) << 12 | np.int64(second & 0x3F) << 6 | np.int64(third & 0x3F)


@inlined
def _run_behind(run, begins, inside, this_class):
    """How many characters the good run has left, with the one of `this_class`; 0 if that is in none.

    run: the same for the one before; begins: the row of that one; inside: the classes that go on with a run.
    """
    if begins >> np.uint32(this_class) & np.uint32(1):
        return np.int64(LONGEST_RUN)
    if run > 0 and inside >> np.uint32(this_class) & np.uint32(1):
        return run - 1
    return np.int64(0)


@inlined
def _are_apart(first, second, pairs):
    """1 if the filter does not hold these two code points, both of 3 bytes; else 0. Of others nothing is meant."""
    pair = np.uint64(first << 16 | second)
    place = (pair * np.uint64(MULTIPLIER) & np.uint64(0xFFFFFFFF)) * np.uint64(len(pairs))
    word = np.uint64(pairs[place >> np.uint64(32)])
    return ~(word >> (place >> np.uint64(27) & np.uint64(31))) & np.uint64(1)


@kernel
def next_cut(bytes, begin, end, table):
    """The first cut behind `begin` (exclusive) and before `end`; -1 where there is none. `begin` need not be the start
    of a code point, and no run is known to reach it."""
    at = begin
    while at < end and bytes[at] & 0xC0 == 0x80:
        at += 1
    if at >= end:
        return -1
    last_class, run = np.int64(table.class_of[code_point_at(bytes, at)]), np.int64(0)
    skip = code_point_length(bytes[at])
    while at < end:
        width = min(LANES, end - at)
        cuts, last_class, skip, run = _cut_code_points(bytes, at, width, last_class, skip, run, table)
        if cuts != 0:
            return at + np.int64(trailing_zeros(cuts))
        at += width
    return -1
