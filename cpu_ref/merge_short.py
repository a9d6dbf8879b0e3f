"""Merges one word of at most SHORT symbols: its few candidates are searched for the lowest rank."""

from __future__ import annotations

import numpy as np

from cpu_ref.compiled import inlined, kernel
from gpu_tok.tables.pair_entries import BUCKET, ID_BITS, MULTIPLIER, NO_ENTRY, NO_RANK, PLACE_BITS, RANK_BITS, SHORT

LANES = 8  # candidates that are compared at a time
WIDE_ID_BITS, WIDE_RANK_BITS, WIDE_PLACE_BITS = np.uint64(ID_BITS), np.uint64(RANK_BITS), np.uint64(PLACE_BITS)
WIDE_NO_RANK, NO_PAIR = np.uint64(NO_RANK), NO_ENTRY >> np.uint64(RANK_BITS)
NO_CANDIDATE = np.uint64(NO_RANK << PLACE_BITS)
NOWHERE = np.uint64(SHORT)  # the place before the first symbol of a word and behind its last


@inlined
def first_entry(pair, hash_shift):
    """Which entry a pair is looked for from."""
    return (pair * MULTIPLIER >> np.uint64(hash_shift)) * np.uint64(BUCKET)


@inlined
def rank_of(entry, hash_shift, pair):
    """The rank of a pair, or NO_RANK. All are uint64: of a signed index the sign would be tested."""
    key = pair << WIDE_RANK_BITS
    at = first_entry(pair, hash_shift)
    while True:
        # What is left of an entry without its pair is a rank; of another one it is more than any.
        first, last = entry[at], entry[at + np.uint64(3)]
        least = min(min(first ^ key, entry[at + np.uint64(1)] ^ key), min(entry[at + np.uint64(2)] ^ key, last ^ key))
        if (first <= last) | (least <= WIDE_NO_RANK):
            return min(least, WIDE_NO_RANK)
        at = (at + np.uint64(BUCKET)) & np.uint64(len(entry) - 1)


@inlined
def merge_short(start, count, entry, hash_shift, merged_id, symbol, candidate, before, behind, ids):
    """Merges one word of at most SHORT symbols, those of ids from start on; symbol and behind list what is left.
    Returns the rank of the last merge, or NO_RANK.

    candidate: uint64[SHORT + 1], the rank of each symbol with the one behind, and below it its place: the least is the
    next merge. Before and after, none is below NO_CANDIDATE. before, behind: uint64[SHORT + 1], the symbols as a list.
    """
    for at in range(count):
        symbol[at], before[at], behind[at] = ids[start + at], at - 1, at + 1
        if at > 0:
            pair = symbol[at - 1] << WIDE_ID_BITS | symbol[at]
            candidate[at - 1] = rank_of(entry, hash_shift, pair) << WIDE_PLACE_BITS | np.uint64(at - 1)
    before[0] = behind[max(count - 1, 0)] = NOWHERE
    last = WIDE_NO_RANK
    while True:
        least = NO_CANDIDATE
        for at in range(0, count, LANES):
            low = min(min(candidate[at], candidate[at + 1]), min(candidate[at + 2], candidate[at + 3]))
            high = min(min(candidate[at + 4], candidate[at + 5]), min(candidate[at + 6], candidate[at + 7]))
            least = min(least, min(low, high))
        if least == NO_CANDIDATE:
            return last
        left, last = least & np.uint64(SHORT - 1), least >> WIDE_PLACE_BITS
        merged = np.uint64(merged_id[last])
        gone, neighbour = behind[left], before[left]
        right = behind[gone]
        symbol[left], behind[left], before[right] = merged, right, left
        candidate[gone] = NO_CANDIDATE
        # At an end of the word always the same bucket is looked up, instead of a branch that is hard to foresee.
        pair = merged << WIDE_ID_BITS | symbol[right] if right != NOWHERE else NO_PAIR
        candidate[left] = rank_of(entry, hash_shift, pair) << WIDE_PLACE_BITS | left
        pair = symbol[neighbour] << WIDE_ID_BITS | merged if neighbour != NOWHERE else NO_PAIR
        candidate[neighbour] = rank_of(entry, hash_shift, pair) << WIDE_PLACE_BITS | neighbour


@inlined
def room_for_short():
    """What `merge_short` works in: symbol, candidate, before, behind."""
    candidate = np.empty(SHORT + 1, np.uint64)
    for at in range(SHORT + 1):
        candidate[at] = NO_CANDIDATE
    return np.empty(SHORT + 1, np.uint64), candidate, np.empty(SHORT + 1, np.uint64), np.empty(SHORT + 1, np.uint64)


@kernel
def last_merges(symbols, length, entry, hash_shift, merged_id, rank):
    """Writes by which merge each word becomes one piece, the last of its merges; NO_RANK if it does not.

    symbols: int32[words, SHORT or less], the first length[i] of a row count. rank: int64[words].
    """
    symbol, candidate, before, behind = room_for_short()
    for index in range(len(length)):
        count = length[index]
        last = merge_short(0, count, entry, hash_shift, merged_id, symbol, candidate, before, behind, symbols[index])
        rank[index] = last if behind[0] == NOWHERE else WIDE_NO_RANK
