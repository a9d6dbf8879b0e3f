"""Words of at most LONGEST letters, the model `BPE`: pieces that are a whole word, and the merges that can come about.

Two pieces meet in a word only if they do in a text of these two alone, since nothing that was merged up to there lies
across their borders. So of all merges that make a piece only one ever acts: the last one when the piece is merged as a
word of its own. Of the 280,147 merges of Llama 3 that leaves 125,898. It also gives each piece one rank, by which
pieces are numbered here: the number of what a pair becomes is at once how early it is merged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cpu_ref.lanes import LANES
from cpu_ref.merge_short import last_merges
from gpu_tok.tables.pair_entries import ID_BITS, MOST_IDS, NO_RANK, PLACE_BITS, RANK_BITS, Pairs, build_entries
from gpu_tok.tables.trie_rows import NO_PIECE

LETTERS = 0x144  # code points below are letters here: those that bytes are spelled with, U+0021 to U+0143
LONGEST = LANES - 1  # letters of such words: the last place of a row stands for no merge
LENGTH_BITS = 6
WORD_MULTIPLIERS = (  # one for each column of a key
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xC2B2AE3D27D4EB4F),
    np.uint64(0x165667B19E3779F9),
    np.uint64(0xD6E8FEB86659FD93),
    np.uint64(0x2545F4914F6CDD1D),
)

Ids = npt.NDArray[np.int32]
Letters = npt.NDArray[np.uint32]


class LetterTables(NamedTuple):
    """Empty for models that have no such words. A letter's number is its code point, a piece's LETTERS or more.

    id_of: int32[numbers], NO_PIECE for a letter that is none. first: uint32[LETTERS * LETTERS], the number that two
    letters become or NO_RANK, << PLACE_BITS. entry, hash_shift: as those of `BpeTables`, of numbers, and for the rank
    the number.

    word_entry, word_shift: the same hash table of the fingerprints of pieces that are a word, with rows of word_key,
    uint64[words, WORDS + 1], the low bytes of the letters, and which letters are large and how many there are; and of
    word_id.
    """

    id_of: Ids
    first: Letters
    entry: Pairs
    hash_shift: int
    word_entry: Pairs
    word_shift: int
    word_key: npt.NDArray[np.uint64]
    word_id: Ids


def no_letters() -> LetterTables:
    """For models of which no word is one of letters."""
    no_ids, no_pairs = np.zeros(0, np.int32), np.zeros(0, np.uint64)
    return LetterTables(no_ids, np.zeros(0, np.uint32), no_pairs, 0, no_pairs, 0, no_pairs.reshape(0, 3), no_ids)


def compile_letters(
    vocab: Mapping[str, int],
    symbol: Ids,
    pairs: Pairs,
    merged_id: Ids,
    entry: Pairs,
    hash_shift: int,
    takes_words: bool,
) -> LetterTables:
    """The tables of a model without prefix and suffix, in which the lowest rank of the pairs that are there decides.

    symbol: int32[characters], their ids. pairs, merged_id: by rank; entry, hash_shift: the same as a hash table.
    """
    last = chr(LETTERS - 1)
    pieces = [piece for piece in vocab if 1 < len(piece) <= LONGEST and max(piece) <= last]
    letter = np.frombuffer("".join(piece.ljust(LANES, "\0") for piece in pieces).encode("utf-32-le"), np.uint32)
    letter = letter.reshape(-1, LANES)
    length = np.array([len(piece) for piece in pieces], np.int64)
    piece_id = np.array([vocab[piece] for piece in pieces], np.int32)
    letter_id = np.full(LETTERS, NO_PIECE, np.int32)
    letter_id[: len(symbol) - 1] = symbol[:-1][:LETTERS]

    rank = ranks_of(letter, length, letter_id, entry, hash_shift, merged_id)
    living = np.sort(rank[rank != NO_RANK])
    if LETTERS + len(living) >= MOST_IDS:
        return no_letters()
    id_of = np.concatenate([letter_id, merged_id[living]])
    left, right = parts_of(pairs[living], id_of)
    number_entry, number_shift = build_entries(left << np.uint64(ID_BITS) | right, LETTERS)
    words = np.flatnonzero((rank != NO_RANK) | takes_words)
    key = word_keys(letter[words], length[words])
    _fingerprint, kept = np.unique(fingerprints(key), return_index=True)
    key, words = key[kept], words[kept]
    word_entry, word_shift = build_entries(fingerprints(key))
    return LetterTables(
        id_of=id_of,
        first=first_merges(left, right),
        entry=number_entry,
        hash_shift=number_shift,
        word_entry=word_entry,
        word_shift=word_shift,
        word_key=key,
        word_id=piece_id[words],
    )


def ranks_of(
    letter: Letters,
    length: npt.NDArray[np.int64],
    letter_id: Ids,
    entry: Pairs,
    hash_shift: int,
    merged_id: Ids,
) -> npt.NDArray[np.int64]:
    """By which merge each word becomes one piece, or NO_RANK. letter: uint32[words, LANES]."""
    symbols = letter_id[letter]
    rank = np.full(len(length), NO_RANK, np.int64)
    spelled = np.flatnonzero(((symbols != NO_PIECE) | (np.arange(LANES) >= length[:, None])).all(axis=1))
    found = rank[spelled]
    last_merges(symbols[spelled], length[spelled], entry, hash_shift, merged_id, found)
    rank[spelled] = found
    return rank


def parts_of(pairs: Pairs, id_of: Ids) -> tuple[Pairs, Pairs]:
    """The numbers of the parts of pairs of ids."""
    number = np.zeros(MOST_IDS + 1, np.uint64)
    known = np.flatnonzero(id_of != NO_PIECE)
    number[id_of[known]] = known
    left, right = pairs >> np.uint64(ID_BITS), pairs & np.uint64(MOST_IDS)
    return number[left.astype(np.int64)], number[right.astype(np.int64)]


def first_merges(left: Pairs, right: Pairs) -> Letters:
    """What two letters become: first of `LetterTables`. left, right: the numbers of all pairs in order of rank."""
    first = np.full((LETTERS, LETTERS), NO_RANK << PLACE_BITS, np.uint32)
    of_letters = np.flatnonzero((left < LETTERS) & (right < LETTERS))
    first[left[of_letters].astype(np.int64), right[of_letters].astype(np.int64)] = LETTERS + of_letters << PLACE_BITS
    return first.reshape(-1)


def word_keys(letter: Letters, length: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """What words are compared by, no two alike: word_key of `LetterTables`."""
    large = ((letter >= 0x100) << np.arange(LANES)).sum(axis=1) << LENGTH_BITS | length
    low = letter.astype(np.uint8).view(np.uint64)
    return np.column_stack([low, large.astype(np.uint64)])


def fingerprints(key: npt.NDArray[np.uint64]) -> Pairs:
    """As many bits of a hash as a pair has, of each key."""
    mixed = key * np.array(WORD_MULTIPLIERS)
    return np.bitwise_xor.reduce(mixed, axis=1) >> np.uint64(RANK_BITS)
