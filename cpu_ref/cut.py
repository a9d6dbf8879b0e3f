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

Other cuts need a third character (`gpu_tok.tables.thirds`). Of two neighbours it is known in the same way whether they
are the two at such a cut, or the other two; where both are so, one byte apart, there is a cut, for the middle one is
ASCII.

    bytes          : : a _ _ b
    BEFORE_FIRST     ^                first, middle
    BEFORE_CUT         ^              middle | last       one behind it: a cut
    BEHIND_CUT               ^        first | middle      a cut
    BEHIND_LAST                ^      middle, last        one behind it
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cpu_ref.compiled import inlined, kernel
from cpu_ref.machine import (
    LANES,
    address_of,
    classify,
    common_bit_mask,
    common_bits_mask,
    continuation_mask,
    load_u8,
    non_ascii_mask,
    trailing_zeros,
)
from cpu_ref.utf8 import code_point_at, code_point_length
from gpu_tok.tables.pairs import MULTIPLIER
from gpu_tok.tables.runs import LONGEST_RUN

BEHIND_CUT, BEHIND_LAST, BEFORE_FIRST, BEFORE_CUT = np.uint8(1), np.uint8(2), np.uint8(4), np.uint8(8)
BLOCK_WORDS = 16
ALL_BYTES = np.uint64((1 << LANES) - 1)
BLOCK = BLOCK_WORDS * LANES  # bytes that are cut in one go: they, their keys and rows stay in the first cache level
SCRATCH = BLOCK + LANES
NONE, ONE = np.uint64(0), np.uint64(1)


class CutTable(NamedTuple):
    """The tables of this step; `gpu_tok.cut` makes them from `CutTables`.

    class_of: uint8[0x110000]; taken: uint32[classes], bit b of row a: cut between a and b. before: uint8[classes], the
    *before* byte of each class. asked: uint32[classes], the same, but for those that `pairs`, the filter, holds: uint32
    words as `gpu_tok.tables.pairs` makes them. asked_in_runs, run_begins: uint32[classes], such rows of
    `gpu_tok.tables.runs.Runs`; in_run: uint32[1], bit c: class c is inside. These three are empty if there are no runs.
    values, ranges: uint8[2, 128] and uint8[ranges, 4], *before* and *after* bytes of ASCII as `machine.classify` reads
    them. has_lanes: 0 when ASCII needs more lanes than there are, and all goes code point by code point. third_before,
    third_after: uint8[classes], *before* and *after* bytes as `gpu_tok.cut.third_bytes` makes them; third_values,
    third_ranges: those of ASCII, as `values` and `ranges`. All four are empty if no third character makes a cut.
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
    third_before: np.ndarray
    third_after: np.ndarray
    third_values: np.ndarray
    third_ranges: np.ndarray


class PairMasks(NamedTuple):
    """A bit for each byte of a word: there begins the second one of a pair of this kind."""

    behind_cut: np.uint64
    behind_last: np.uint64
    before_first: np.uint64
    before_cut: np.uint64


@inlined
def cut_block(bytes, begin, count, last_class, skip, run, paired, table, mask, before, after):
    """Cuts `count` <= BLOCK bytes from `begin` on; fills one word of `mask` for each 64 bytes.

    last_class: class of the code point before `begin`; skip: bytes at `begin` that end that code point; run: what
    `_run_behind` said of it; paired: uint64, 1 if it is the second one of a pair BEFORE_FIRST. Returns the same four
    for the next block. before, after: scratch, uint8[2 * SCRATCH].
    """
    address = address_of(bytes) + begin
    readable = len(bytes) - begin
    words = (count + LANES - 1) // LANES
    before_address, after_address = address_of(before), address_of(after)
    values, ranges, range_count = address_of(table.values), address_of(table.ranges), len(table.ranges) // 4
    has_lanes, has_thirds = table.has_lanes[0] != 0, len(table.third_before) > 0
    third_values, third_ranges = address_of(table.third_values), address_of(table.third_ranges)
    third_count = len(table.third_ranges) // 4
    for word in range(words):
        at = word * LANES
        if has_lanes and at + LANES <= readable and non_ascii_mask(address + at) == 0:
            classify(address + at, values, ranges, range_count, before_address + at + 1, after_address + at)
            if has_thirds:
                left, right = before_address + SCRATCH + at + 1, after_address + SCRATCH + at
                classify(address + at, third_values, third_ranges, third_count, left, right)
            mask[word] = np.uint64(1)
        else:
            mask[word] = np.uint64(0)
    waiting = np.uint64(0)  # 1 if the last byte of a word is the second one of a pair BEHIND_CUT
    for word in range(words):
        at = word * LANES
        width = min(LANES, count - at)
        if mask[word] != 0:
            before[at] = table.before[last_class]
            cuts = common_bits_mask(before_address + at, after_address + at)
            thirds = PairMasks(NONE, NONE, NONE, NONE)
            if has_thirds:
                before[SCRATCH + at] = table.third_before[last_class]
                left, right = before_address + SCRATCH + at, after_address + SCRATCH + at
                thirds = PairMasks(
                    common_bit_mask(left, right, BEHIND_CUT),
                    common_bit_mask(left, right, BEHIND_LAST),
                    common_bit_mask(left, right, BEFORE_FIRST),
                    common_bit_mask(left, right, BEFORE_CUT),
                )
            last_class = np.int64(table.class_of[load_u8(address + at + width - 1)])
            skip = run = np.int64(0)
        else:
            cuts, thirds, last_class, skip, run = _cut_code_points(
                bytes, begin + at, width, last_class, skip, run, table
            )
        if has_thirds:
            if waiting & thirds.behind_last != 0:
                mask[word - 1] |= ONE << np.uint64(LANES - 1)
            cuts |= thirds.behind_cut & thirds.behind_last >> ONE
            cuts |= thirds.before_cut & (thirds.before_first << ONE | paired)
            waiting = thirds.behind_cut >> np.uint64(width - 1) & ONE
            paired = thirds.before_first >> np.uint64(LANES - 1)
        if width < LANES:
            cuts &= (ONE << np.uint64(width)) - ONE
        mask[word] = cuts
    if waiting != 0 and skip == 0 and count < readable:
        next_class = table.class_of[code_point_at(bytes, begin + count)]
        if table.third_before[last_class] & table.third_after[next_class] & BEHIND_LAST:
            mask[words - 1] |= ONE << np.uint64((count - 1) % LANES)
    return last_class, skip, run, paired


@inlined
def _cut_code_points(bytes, begin, width, last_class, skip, run, table):
    """Cuts `width` <= LANES bytes from `begin` on, but for the first `skip`, without those that a third character
    makes: what speaks for these is returned. The rest is as for `cut_block`."""
    class_of, taken, asked, pairs = table.class_of, table.taken, table.asked, table.pairs
    asked_in_runs, run_begins, in_run = table.asked_in_runs, table.run_begins, table.in_run
    asks, has_runs, address = len(pairs) > 0, len(in_run) > 0, address_of(bytes) + begin
    has_thirds, third_before, third_after = len(table.third_before) > 0, table.third_before, table.third_after
    last = _of_3_bytes(address + skip - 3) if asks and begin + skip >= 3 else np.int64(0)
    behind_ascii = True  # one of the two must be ASCII; of the code point before the word it is not known
    starts = _starts(address, width, len(bytes) - begin) & ALL_BYTES << np.uint64(skip)
    cuts, end = NONE, skip
    behind_cut, behind_last, before_first, before_cut = NONE, NONE, NONE, NONE
    while starts != 0:
        at = np.int64(trailing_zeros(starts))
        starts &= starts - ONE
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
        cuts |= (np.uint64(row >> np.uint32(this_class)) & ONE) << np.uint64(at)
        is_ascii = first < 0x80
        if has_thirds and (is_ascii or behind_ascii):
            kinds = third_before[last_class] & third_after[this_class]
            if kinds != 0:
                behind_cut |= np.uint64(kinds & BEHIND_CUT != 0) << np.uint64(at)
                behind_last |= np.uint64(kinds & BEHIND_LAST != 0) << np.uint64(at)
                before_first |= np.uint64(kinds & BEFORE_FIRST != 0) << np.uint64(at)
                before_cut |= np.uint64(kinds & BEFORE_CUT != 0) << np.uint64(at)
        behind_ascii = is_ascii
        last, last_class, end = this, np.int64(this_class), at + code_point_length(first)
    return cuts, PairMasks(behind_cut, behind_last, before_first, before_cut), last_class, end - width, run


@inlined
def third_made(bytes, at, kind, table):
    """Does only a third character make the cut at `at`, one of this kind: BEHIND_CUT or BEFORE_CUT."""
    if len(table.third_before) == 0:
        return False
    before = at - 1
    while bytes[before] & 0xC0 == 0x80:
        before -= 1
    first, second = table.class_of[code_point_at(bytes, before)], table.class_of[code_point_at(bytes, at)]
    if table.taken[first] >> np.uint32(second) & np.uint32(1):
        return False
    return table.third_before[first] & table.third_after[second] & kind != 0


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
    of a code point, and no run is known to reach it; third characters are not asked."""
    at = begin
    while at < end and bytes[at] & 0xC0 == 0x80:
        at += 1
    if at >= end:
        return -1
    last_class, run = np.int64(table.class_of[code_point_at(bytes, at)]), np.int64(0)
    skip = code_point_length(bytes[at])
    while at < end:
        width = min(LANES, end - at)
        cuts, _thirds, last_class, skip, run = _cut_code_points(bytes, at, width, last_class, skip, run, table)
        if cuts != 0:
            return at + np.int64(trailing_zeros(cuts))
        at += width
    return -1
