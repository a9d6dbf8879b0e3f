"""Merges words of at most LONGEST letters (`gpu_tok.tables.letters`): each is a row of numbers in a vector register.

What is left to do of a word waits most of the time for memory or for the merge before, so four are merged side by side.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cpu_ref.compiled import inlined, kernel
from cpu_ref.lanes import (
    LANES,
    WORDS,
    below,
    least_of,
    load_row,
    look_up,
    lowest_bytes,
    pairs_of,
    store_chosen,
    store_row,
    with_chosen,
    with_places,
)
from cpu_ref.machine import address_of, bits_in, leading_zeros, load_u32, prefetch, store_u32, trailing_zeros
from cpu_ref.merge_short import NO_CANDIDATE, NO_PAIR, WIDE_ID_BITS, WIDE_NO_RANK, WIDE_PLACE_BITS, first_entry, rank_of
from gpu_tok.tables.letters import LENGTH_BITS, LETTERS, LONGEST, WORD_MULTIPLIERS
from gpu_tok.tables.pair_entries import MOST_IDS, RANK_BITS, SHORT
from gpu_tok.tables.trie_rows import NO_PIECE

ALL_LANES = np.uint64((1 << LANES) - 1)
ONE, NO_MORE = np.uint64(1), np.uint64(SHORT - 1)  # NO_MORE: the place of a merge where there is none
ASKED = 32  # words whose rows are asked for before the first of them is looked at
TOGETHER = 4  # words that are merged side by side
IDS = 1 << 31  # an id is below, NO_PIECE is not


@kernel
def find_words(code_point, word, letters, expansion, ids, id_count, waiting, other):
    """Finds words that are a piece; returns how many words of letters are not, `waiting`, and how many `other` words.

    ids: int32; those of a word stand `expansion * word[index, 0]` and behind, and id_count says how many there are.
    waiting, other: int64, room for one a word; the numbers of the words.
    """
    entry, shift, key = letters.word_entry, letters.word_shift, letters.word_key
    id_of, word_id, code_points = letters.id_of, letters.word_id, address_of(code_point)
    entry_address, key_address, id_address = address_of(entry), address_of(key), address_of(word_id)
    found = np.empty(ASKED, np.uint64)  # of each word its fingerprint, then its row in `key`
    waiting_count, other_count = np.int64(0), np.int64(0)
    for begin in range(0, len(word), ASKED):
        end = min(begin + ASKED, len(word))
        for index in range(begin, end):
            start, length = word[index, 0], word[index, 1] - word[index, 0]
            found[index - begin] = NO_PAIR
            if 1 < length <= LONGEST:
                row = load_row(code_points + 4 * start, length)
                if below(row, LETTERS) == ALL_LANES:
                    fingerprint = fingerprint_of(lowest_bytes(row), large_letters(row, length))
                    found[index - begin] = fingerprint
                    prefetch(entry_address + 8 * np.int64(first_entry(fingerprint, shift)))
        for index in range(begin, end):
            if found[index - begin] != NO_PAIR:
                at = rank_of(entry, shift, found[index - begin])
                found[index - begin] = at
                if at != WIDE_NO_RANK:
                    prefetch(key_address + 8 * (WORDS + 1) * np.int64(at))
                    prefetch(id_address + 4 * np.int64(at))
        for index in range(begin, end):
            start, length, at = word[index, 0], word[index, 1] - word[index, 0], found[index - begin]
            id = np.int32(NO_PIECE)
            if at == WIDE_NO_RANK:
                waiting[waiting_count] = index
                waiting_count += 1
                continue
            if at != NO_PAIR:
                row = load_row(code_points + 4 * start, length)
                lowest = lowest_bytes(row)
                differs = key[at, WORDS] ^ large_letters(row, length)
                for part in range(WORDS):
                    differs |= key[at, part] ^ lowest[part]
                if differs == 0:
                    id = word_id[at]
            elif length == 1 and code_point[start] < LETTERS:
                id = id_of[code_point[start]]
            if id == NO_PIECE:
                other[other_count] = index
                other_count += 1
                continue
            ids[start * expansion], id_count[index] = id, 1
    return waiting_count, other_count


@inlined
def large_letters(row, length):
    """Which letters of a word are large, and how many it has: the last column of its key."""
    return (below(row, 0x100) ^ ALL_LANES) << np.uint64(LENGTH_BITS) | np.uint64(length)


@inlined
def fingerprint_of(lowest, large):
    """`fingerprints` of `gpu_tok.tables.letters`, of one key."""
    mixed = large * WORD_MULTIPLIERS[WORDS]
    for part in range(WORDS):
        mixed ^= lowest[part] * WORD_MULTIPLIERS[part]
    return mixed >> np.uint64(RANK_BITS)


class Merging(NamedTuple):
    """A word that is being merged.

    number: the address of its numbers, uint32[LANES]. candidate: row, the numbers that neighbours become, each with its
    place below. least: of these, the next merge. left: a bit for each place that still holds a piece.
    """

    number: int
    candidate: Any
    least: np.uint64
    left: np.uint64


@kernel
def merge_letters(code_point, word, waiting, letters, expansion, ids, id_count, other, other_count):
    """Merges the words of letters that `find_words` left; returns the new other_count.

    Words with a letter that has no id come to the other words.
    """
    entry, hash_shift, code_points = letters.entry, letters.hash_shift, address_of(code_point)
    firsts, ids_of, places = address_of(letters.first), address_of(letters.id_of), address_of(ids)
    waiting = by_length(word, waiting)
    numbers = np.empty((TOGETHER, LANES), np.uint32)
    number, following = address_of(numbers), 4 * LANES
    for at in range(0, len(waiting), TOGETHER):
        first = opened(number, code_points, word, waiting, at, firsts)
        second = opened(number + following, code_points, word, waiting, at + 1, firsts)
        third = opened(number + 2 * following, code_points, word, waiting, at + 2, firsts)
        fourth = opened(number + 3 * following, code_points, word, waiting, at + 3, firsts)
        while min(min(first.least, second.least), min(third.least, fourth.least)) < NO_CANDIDATE:
            first = merged_once(first, entry, hash_shift)
            second = merged_once(second, entry, hash_shift)
            third = merged_once(third, entry, hash_shift)
            fourth = merged_once(fourth, entry, hash_shift)
        other_count = put_ids(first, word, waiting, at, ids_of, places, expansion, id_count, other, other_count)
        other_count = put_ids(second, word, waiting, at + 1, ids_of, places, expansion, id_count, other, other_count)
        other_count = put_ids(third, word, waiting, at + 2, ids_of, places, expansion, id_count, other, other_count)
        other_count = put_ids(fourth, word, waiting, at + 3, ids_of, places, expansion, id_count, other, other_count)
    numbers[0, 0] = 0  # numba frees an array behind its last use, and its address was in use until here
    return other_count


@inlined
def by_length(word, waiting):
    """The numbers of words, the shortest first, so that words that are merged together are done together."""
    begin = np.zeros(LONGEST + 2, np.int64)  # where words of a length begin
    for index in waiting:
        begin[word[index, 1] - word[index, 0] + 1] += 1
    for length in range(LONGEST + 1):
        begin[length + 1] += begin[length]
    sorted = np.empty(len(waiting), np.int64)
    for index in waiting:
        length = word[index, 1] - word[index, 0]
        sorted[begin[length]] = index
        begin[length] += 1
    return sorted


@inlined
def opened(number, code_points, word, waiting, at, firsts):
    """The word `waiting[at]`, or the last one, before its first merge; its numbers come to the address `number`."""
    index = waiting[min(at, len(waiting) - 1)]
    start, end = word[index, 0], word[index, 1]
    row = load_row(code_points + 4 * start, end - start)
    store_row(number, row, LANES)
    candidate = with_places(look_up(firsts, pairs_of(row, LETTERS), end - start - 1, NO_CANDIDATE))
    return Merging(number, candidate, least_of(candidate), (ONE << np.uint64(end - start)) - ONE)


@inlined
def merged_once(merging, entry, hash_shift):
    """The word after its next merge, if it has one; without branches, since what they would ask is hard to guess.

    At an end of the word always the same bucket is looked up.
    """
    number, candidate, least, left = merging
    at = least & np.uint64(SHORT - 1) if least < NO_CANDIDATE else NO_MORE
    merged, here = least >> WIDE_PLACE_BITS & np.uint64(MOST_IDS), ONE << at
    behind, before = left & ~ONE << at, left & here - ONE
    gone = behind & (np.uint64(0) - behind)
    behind ^= gone
    next, previous = trailing_zeros(behind) % np.uint64(LANES), leading_zeros(before) ^ np.uint64(63)
    previous %= np.uint64(LANES)  # both count too far where there is nothing, and nothing is made of what lies there
    next_number, previous_number = load_u32(number + 4 * np.int64(next)), load_u32(number + 4 * np.int64(previous))
    pair = merged << WIDE_ID_BITS | next_number if behind != 0 else NO_PAIR
    rank = rank_of(entry, hash_shift, pair)
    pair = previous_number << WIDE_ID_BITS | merged if before != 0 else NO_PAIR
    rank_before = rank_of(entry, hash_shift, pair)
    store_u32(number + 4 * np.int64(at), merged)
    candidate = with_chosen(candidate, gone, NO_CANDIDATE)
    candidate = with_chosen(candidate, here, rank << WIDE_PLACE_BITS | at)
    candidate = with_chosen(candidate, ONE << previous & before, rank_before << WIDE_PLACE_BITS | previous)
    return Merging(number, candidate, least_of(candidate), left ^ gone)


@inlined
def put_ids(merging, word, waiting, at, ids_of, places, expansion, id_count, other, other_count):
    """Writes the ids of a word that is merged, or puts it to the other words; returns the new other_count."""
    if at >= len(waiting):
        return other_count
    index, left = waiting[at], merging.left
    start, end = word[index, 0], word[index, 1]
    id_row = look_up(ids_of, load_row(merging.number, LANES), end - start, np.uint64(0))
    if below(id_row, IDS) & left != left:
        other[other_count] = index
        return other_count + 1
    store_chosen(places + 4 * start * expansion, id_row, left)
    id_count[index] = bits_in(left)
    return other_count
