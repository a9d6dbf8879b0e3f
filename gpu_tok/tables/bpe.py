"""The model `BPE`: what each character is before any merge, and the merges as a hash table.

A pair of ids is looked up in `entry`, a hash table in buckets: its rank says which neighbours in a word are merged
first. By rank, `merged_id` says what they become.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_tok.tables.decode import byte_alphabet
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.letters import LetterTables, compile_letters, no_letters
from gpu_tok.tables.pair_entries import ID_BITS, MOST_IDS, NO_RANK, SHORT, Pairs, build_entries
from gpu_tok.tables.refusal import CannotCompile
from gpu_tok.tables.trie import build_trie
from gpu_tok.tables.trie_rows import NO_PIECE, NO_ROWS, Rows

FIRST, LAST = 1, 2  # where in its word a character stands; their sum: it is the only one, 0: it is in the middle

Ids = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Merge = tuple[str, str]


class BpeTables(NamedTuple):
    """symbol: int32[rows, characters], the id of a character as `row_at[place]` has it, place a sum of FIRST and LAST,
    or NO_PIECE; the last column is for all characters behind. byte_id: int32[256], the ids of "<0x00>" and so on, all
    NO_PIECE without `byte_fallback`. prefix, suffix: uint8[n], what stands around a character that falls back to bytes.
    unknown_id: NO_PIECE where unknown characters vanish. fuses_unknown: whether neighbours become one unknown.

    entry: uint64[buckets * BUCKET], left id, right id and rank, or NO_ENTRY. A pair is in bucket `(left << ID_BITS |
    right) * MULTIPLIER >> hash_shift`, or where that is full in one behind. merged_id: int32[merges], by rank.
    short: words of at most so many symbols may be merged by lowest rank. takes_words, word_row: whether, and in which
    trie, words are looked up as a whole (`ignore_merges`). expansion: as many ids may come from one character.
    letters: the tables of words of few letters; what they say follows from the others.
    """

    symbol: npt.NDArray[np.int32]
    row_at: npt.NDArray[np.int64]
    byte_id: Ids
    prefix: Bytes
    suffix: Bytes
    unknown_id: int
    fuses_unknown: bool
    entry: Pairs
    hash_shift: int
    merged_id: Ids
    short: int
    takes_words: bool
    word_row: Rows
    expansion: int
    letters: LetterTables


def compile_bpe(definition: Definition) -> BpeTables:
    """The model of a definition (`BpeBuilder::build` and `BPE::merge_word` of the reference).

    >>> tables = compile_bpe(gpt2)
    >>> tables.symbol[0, ord("a")], len(tables.merged_id), len(tables.entry)
    (64, 50000, 131072)

    Raises CannotCompile where the model is another, merges are random, or the reference would refuse a word.
    """
    model = definition.model
    if model["type"] != "BPE":
        raise CannotCompile("model", f"`{model['type']}` is not `BPE`")
    if model["dropout"]:
        raise CannotCompile("model.dropout", f"{model['dropout']} makes merges random")
    vocab = definition.reference.get_vocab(with_added_tokens=False)
    largest = max(vocab.values(), default=0)
    if largest >= MOST_IDS:
        raise CannotCompile("model.vocab", f"the id {largest} does not fit into {ID_BITS} bits")
    prefix, suffix = model["continuing_subword_prefix"] or "", model["end_of_word_suffix"] or ""
    symbol, row_at = symbols(vocab, prefix, suffix)
    unknown_id = unknown_of(model, vocab, symbol, definition)
    pairs, merged_id = merges_of(model["merges"], vocab, len(prefix.encode()))
    entry, hash_shift = build_entries(pairs)
    grows = only_grows(pairs, merged_id, vocab, len(prefix.encode()))
    takes_words = bool(model["ignore_merges"])
    letters = no_letters()
    if grows and not prefix and not suffix:
        letters = compile_letters(vocab, symbol[0], pairs, merged_id, entry, hash_shift, takes_words)
    return BpeTables(
        symbol=symbol,
        row_at=row_at,
        byte_id=byte_ids(vocab) if model["byte_fallback"] else np.full(256, NO_PIECE, np.int32),
        prefix=np.array([*prefix.encode()], np.uint8),
        suffix=np.array([*suffix.encode()], np.uint8),
        unknown_id=unknown_id,
        fuses_unknown=bool(model["fuse_unk"]),
        entry=entry,
        hash_shift=hash_shift,
        merged_id=merged_id,
        short=SHORT if grows else 0,
        takes_words=takes_words,
        word_row=build_trie(vocab, "").row if takes_words else NO_ROWS.copy(),
        expansion=len(prefix.encode()) + 4 + len(suffix.encode()) if model["byte_fallback"] else 1,
        letters=letters,
    )


def symbols(vocab: Mapping[str, int], prefix: str, suffix: str) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """The ids of characters by place: symbol and row_at of `BpeTables`. Places that spell alike share a row.

    >>> symbol, row_at = symbols({"a": 5, "a</w>": 6}, "", "</w>")
    >>> symbol[row_at[FIRST], ord("a")], symbol[row_at[LAST], ord("a")], symbol[row_at[LAST], ord("b")]
    (5, 6, -1)
    """
    spelled = [("" if place & FIRST else prefix, suffix if place & LAST else "") for place in range(4)]
    rows = list(dict.fromkeys(spelled))
    known = [characters_between(vocab, before, behind) for before, behind in rows]
    end = max((max(row) + 1 for row in known if row), default=0)
    symbol = np.full((len(rows), end + 1), NO_PIECE, np.int32)
    for row, ids in zip(symbol, known, strict=True):
        row[[*ids.keys()]] = [*ids.values()]
    return symbol, np.array([rows.index(place) for place in spelled])


def characters_between(vocab: Mapping[str, int], before: str, behind: str) -> dict[int, int]:
    """Code point -> id of the pieces that are one character between these two."""
    length, at = len(before) + 1 + len(behind), len(before)
    pieces = (piece for piece in vocab if len(piece) == length)
    return {ord(piece[at]): vocab[piece] for piece in pieces if piece == before + piece[at] + behind}


def byte_ids(vocab: Mapping[str, int]) -> Ids:
    """The ids that bytes fall back to, int32[256]; NO_PIECE where there is none."""
    return np.array([vocab.get(f"<0x{byte:02X}>", NO_PIECE) for byte in range(256)], np.int32)


def unknown_of(model: dict[str, Any], vocab: Mapping[str, int], symbol: Ids, definition: Definition) -> int:
    """The id of unknown characters, or NO_PIECE where they vanish or cannot occur."""
    unknown = model["unk_token"]
    if unknown is None or unknown in vocab:
        return NO_PIECE if unknown is None else vocab[unknown]
    byte_level = any(part["type"] == "ByteLevel" for part in definition.pre_tokenizers)
    letters = [*map(ord, byte_alphabet())]
    if not byte_level or symbol.shape[1] <= max(letters) or (symbol[:, letters] == NO_PIECE).any():
        raise CannotCompile("model.unk_token", f"{unknown!r} is no piece: unknown characters are an error")
    return NO_PIECE


def merges_of(merges: Sequence[Merge], vocab: Mapping[str, int], prefix_length: int) -> tuple[Pairs, Ids]:
    """The pairs of ids in order of rank, left << ID_BITS | right, and what each becomes.

    The second part loses as many bytes as the prefix has, whatever they are. Merges are written out by id: where
    several pieces share one, the file no longer says which was meant.
    """
    if len(merges) > NO_RANK:
        raise CannotCompile("model.merges", f"{len(merges)} merges are more than {NO_RANK}")
    left = np.array([vocab[first] for first, _second in merges], np.int64)
    right = np.array([vocab[second] for _first, second in merges], np.int64)
    shared = shared_ids(vocab)
    ambiguous = np.flatnonzero(np.isin(left, shared) | np.isin(right, shared))
    if len(ambiguous):
        raise CannotCompile("model.merges", f"a part of {list(merges[ambiguous[0]])} shares its id with another piece")
    if prefix_length:
        merged = [vocab[first + second.encode()[prefix_length:].decode()] for first, second in merges]
    else:
        merged = [vocab[first + second] for first, second in merges]
    return (left << ID_BITS | right).astype(np.uint64), np.array(merged, np.int32)


def only_grows(pairs: Pairs, merged_id: Ids, vocab: Mapping[str, int], prefix_length: int) -> bool:
    """Whether no two pairs that begin at the same place of a word, one after another, can become the same piece.

    `Word::merge_all` keeps a pair's rank when the pair is gone but another with the same result stands there. That
    needs a second part that adds nothing, or two pieces of one id; without both, the lowest rank of the pairs that are
    there decides.
    """
    adding_nothing = [vocab[piece] for piece in vocab if len(piece) <= prefix_length >= len(piece.encode())]
    right = pairs & np.uint64(MOST_IDS)
    return not (
        np.isin(right, np.array(adding_nothing, np.uint64)).any() or np.isin(merged_id, shared_ids(vocab)).any()
    )


def shared_ids(vocab: Mapping[str, int]) -> list[int]:
    """The ids of more than one piece."""
    if len(set(vocab.values())) == len(vocab):
        return []
    return [piece_id for piece_id, count in Counter(vocab.values()).items() if count > 1]
