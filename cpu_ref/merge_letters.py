"""Merges words of at most LONGEST letters (`gpu_tok.tables.letters`): each is a row of numbers in a vector register.

What is left to do of a word waits most of the time for memory or for the merge before, so two are merged side by side.
"""

from __future__ import annotations

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
    number_at,
    pairs_of,
    store_chosen,
    with_number,
    with_places,
)
from cpu_ref.machine import address_of, bits_in, leading_zeros, trailing_zeros
from cpu_ref.merge_short import NO_CANDIDATE, NO_PAIR, WIDE_ID_BITS, WIDE_NO_RANK, WIDE_PLACE_BITS, rank_of
from gpu_tok.tables.letters import LENGTH_BITS, LETTERS, LONGEST, WORD_MULTIPLIERS
from gpu_tok.tables.pair_entries import MOST_IDS, RANK_BITS, SHORT
from gpu_tok.tables.trie_rows import NO_PIECE

ALL_LANES = np.uint64((1 << LANES) - 1)
ONE, NO_MORE = np.uint64(1), np.uint64(SHORT - 1)  # NO_MORE: the place of a merge where there is none
IDS = 1 << 31  # an id is below, NO_PIECE is not


@kernel
def find_words(code_point, word, letters, expansion, ids, id_count, waiting, other):
    """Finds words that are a piece; returns how many words of letters are not, `waiting`, and how many `other` words.

    ids: int32; those of a word stand `expansion * word[index, 0]` and behind, and id_count says how many there are.
    waiting, other: int64, room for one a word; the numbers of the words.
    """
    entry, shift, key = letters.word_entry, letters.word_shift, letters.word_key
    id_of, word_id, code_points = letters.id_of, letters.word_id, address_of(code_point)
    waiting_count, other_count = np.int64(0), np.int64(0)
    for index in range(len(word)):
        start, length = word[index, 0], word[index, 1] - word[index, 0]
        found = np.int32(NO_PIECE)
        if length == 1 and code_point[start] < LETTERS:
            found = id_of[code_point[start]]
        elif 1 < length <= LONGEST:
            row = load_row(code_points + 4 * start, length)
            if below(row, LETTERS) == ALL_LANES:
                lowest = lowest_bytes(row)
                large = (below(row, 0x100) ^ ALL_LANES) << np.uint64(LENGTH_BITS) | np.uint64(length)
                mixed = large * WORD_MULTIPLIERS[WORDS]
                for part in range(WORDS):
                    mixed ^= lowest[part] * WORD_MULTIPLIERS[part]
                at = rank_of(entry, shift, mixed >> np.uint64(RANK_BITS))
                if at == WIDE_NO_RANK:
                    waiting[waiting_count] = index
                    waiting_count += 1
                    continue
                differs = key[at, WORDS] ^ large
                for part in range(WORDS):
                    differs |= key[at, part] ^ lowest[part]
                if differs == 0:
                    found = word_id[at]
        if found == NO_PIECE:
            other[other_count] = index
            other_count += 1
            continue
        ids[start * expansion], id_count[index] = found, 1
    return waiting_count, other_count


@kernel
def merge_letters(code_point, word, waiting, letters, expansion, ids, id_count, other, other_count):
    """Merges the words of letters that `find_words` left; returns the new other_count.

    Words with a letter that has no id come to the other words.

        candidate   the numbers that neighbours become, each with its place below: the least is the next merge
        left        a bit for each place that still holds a piece
    """
    entry, hash_shift, code_points, ids_at = letters.entry, letters.hash_shift, address_of(code_point), address_of(ids)
    firsts, ids_of = address_of(letters.first), address_of(letters.id_of)
    for at in range(0, len(waiting), 2):
        first, second = waiting[at], waiting[min(at + 1, len(waiting) - 1)]
        row, candidate, left = opened(code_points, word[first, 0], word[first, 1], firsts)
        row2, candidate2, left2 = opened(code_points, word[second, 0], word[second, 1], firsts)
        while min(least_of(candidate), least_of(candidate2)) < NO_CANDIDATE:
            row, candidate, left = merged_once(row, candidate, left, entry, hash_shift)
            row2, candidate2, left2 = merged_once(row2, candidate2, left2, entry, hash_shift)
        other_count = put_ids(row, left, first, word, ids_of, ids_at, expansion, id_count, other, other_count)
        if second != first:
            other_count = put_ids(row2, left2, second, word, ids_of, ids_at, expansion, id_count, other, other_count)
    return other_count


@inlined
def opened(code_points, start, end, firsts):
    """The row of a word, its candidates, and its places."""
    row = load_row(code_points + 4 * start, end - start)
    candidate = with_places(look_up(firsts, pairs_of(row, LETTERS), end - start - 1, NO_CANDIDATE))
    return row, candidate, (ONE << np.uint64(end - start)) - ONE


@inlined
def merged_once(row, candidate, left, entry, hash_shift):
    """The same word after its next merge, if it has one; without branches, since what they would ask is hard to guess.

    At an end of the word always the same bucket is looked up.
    """
    least = least_of(candidate)
    at = least & np.uint64(SHORT - 1) if least < NO_CANDIDATE else NO_MORE
    merged = least >> WIDE_PLACE_BITS & np.uint64(MOST_IDS)
    behind, before = left & ~ONE << at, left & (ONE << at) - ONE
    gone = behind & (np.uint64(0) - behind)
    behind ^= gone
    next, previous = trailing_zeros(behind), np.uint64(63) - leading_zeros(before)
    pair = merged << WIDE_ID_BITS | number_at(row, next) if behind != 0 else NO_PAIR
    rank = rank_of(entry, hash_shift, pair)
    pair = number_at(row, previous) << WIDE_ID_BITS | merged if before != 0 else NO_PAIR
    rank_before = rank_of(entry, hash_shift, pair)
    candidate = with_number(candidate, trailing_zeros(gone), NO_CANDIDATE)
    candidate = with_number(candidate, at, rank << WIDE_PLACE_BITS | at)
    candidate = with_number(candidate, previous, rank_before << WIDE_PLACE_BITS | previous)
    return with_number(row, at, merged), candidate, left ^ gone


@inlined
def put_ids(row, left, index, word, ids_of, ids_at, expansion, id_count, other, other_count):
    """Writes the ids of a word that is merged, or puts it to the other words; returns the new other_count."""
    start, end = word[index, 0], word[index, 1]
    id_row = look_up(ids_of, row, end - start, np.uint64(0))
    if below(id_row, IDS) & left != left:
        other[other_count] = index
        return other_count + 1
    store_chosen(ids_at + 4 * start * expansion, id_row, left)
    id_count[index] = bits_in(left)
    return other_count
