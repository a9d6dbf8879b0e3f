"""The flattened trie against the dictionary that it was made from."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from gpu_tok.tables.trie import Trie, build_trie, sort_pieces
from gpu_tok.tables.trie_rows import COLUMNS, ID, LINK, NO_PIECE, PARENT, WORD_ROOT

VOCABULARIES = {
    "empty": {},
    "one piece": {"a": 7},
    "the empty piece alone": {"": 3},
    "prefixes of each other": {"a": 0, "ab": 1, "abc": 2, "abcd": 3, "b": 4},
    "NUL and the last code point": {"\x00": 0, "\x00\x00": 1, "a\x00": 2, "\U0010ffff": 3},
    "one to four bytes a character": {"a": 0, "é": 1, "éa": 2, "中": 3, "中国": 4, "𠮷": 5, "𠮷é": 6},
    "continuations": {"a": 0, "##a": 1, "##": 2, "####": 3, "##é": 4, "#": 5, "##ab": 6},
    "every byte below one root": {chr(code_point): code_point for code_point in range(0x100)},
    "a long piece": {"x" * 70_000: 0, "x" * 3: 1},
}
PREFIXES = ["##", "", "@@", "é"]


def look_up(trie: Trie, root: int, piece: str) -> int:
    """The id of a whole piece below a root, byte by byte as the kernels do it."""
    node = root
    for byte in piece.encode():
        slot = int(trie.row[node, LINK]) + byte
        if trie.row[slot, PARENT] != node:
            return NO_PIECE
        node = slot
    return int(trie.row[node, ID])


def pieces_below(trie: Trie, root: int) -> dict[bytes, int]:
    """All pieces below a root, found by walking from node to node: whatever else is in the table would show."""
    children: dict[int, list[int]] = {}
    for slot in np.flatnonzero(trie.row[:, PARENT] >= 0).tolist():
        children.setdefault(int(trie.row[slot, PARENT]), []).append(slot)
    found, waiting = {}, [(root, b"")]
    while waiting:
        node, spelled = waiting.pop()
        if trie.row[node, ID] != NO_PIECE:
            found[spelled] = int(trie.row[node, ID])
        link = int(trie.row[node, LINK])
        waiting += [(slot, spelled + bytes([slot - link])) for slot in children.get(node, [])]
    return found


def expected(vocab: dict[str, int], prefix: str) -> tuple[dict[bytes, int], dict[bytes, int]]:
    first = {piece.encode(): piece_id for piece, piece_id in vocab.items() if piece}
    start = len(prefix)
    later = {p[start:].encode(): i for p, i in vocab.items() if p.startswith(prefix) and len(p) > start}
    return first, later


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("name", [name for name in VOCABULARIES if name != "a long piece"])
def test_the_trie_holds_the_vocabulary_and_nothing_else(name: str, prefix: str) -> None:
    trie = build_trie(VOCABULARIES[name], prefix)
    first, later = expected(VOCABULARIES[name], prefix)
    assert pieces_below(trie, WORD_ROOT) == first
    assert pieces_below(trie, trie.continuation_root) == later


@settings(max_examples=100, deadline=None)
@given(some.dictionaries(some.text(max_size=6), some.integers(0, 2**31 - 1), max_size=60), some.sampled_from(PREFIXES))
def test_any_vocabulary_is_held_whole(vocab: dict[str, int], prefix: str) -> None:
    trie = build_trie(vocab, prefix)
    first, later = expected(vocab, prefix)
    assert (pieces_below(trie, WORD_ROOT), pieces_below(trie, trie.continuation_root)) == (first, later)


def test_without_a_prefix_both_roots_are_one() -> None:
    assert build_trie(VOCABULARIES["continuations"], "").continuation_root == WORD_ROOT


def test_every_step_stays_within_the_rows() -> None:
    for vocab in VOCABULARIES.values():
        trie = build_trie(vocab, "##")
        assert trie.row.shape[1] == COLUMNS
        assert trie.row.flags.c_contiguous
        assert trie.row[:, LINK].min() >= 0
        assert trie.row[:, LINK].max() + 0xFF < len(trie.row)


def test_a_piece_of_70000_characters_is_found() -> None:
    vocab = VOCABULARIES["a long piece"]
    trie = build_trie(vocab, "##")
    assert [look_up(trie, WORD_ROOT, piece) for piece in (*vocab, "x" * 69_999)] == [0, 1, NO_PIECE]


def test_pieces_are_sorted_by_their_bytes() -> None:
    pieces = sort_pieces({"\U00010000": 0, "\uffff": 1, "b": 2, "ab": 3, "": 4})
    assert pieces.bytes.tobytes().decode() == "abb\uffff\U00010000"
    assert pieces.ids.tolist() == [3, 2, 1, 0]


def test_a_large_vocabulary_is_built_quickly_and_densely() -> None:
    source = np.random.default_rng(5)
    letters = "".join(map(chr, [*range(0x61, 0x7B), *range(0x4E00, 0x5200)]))
    rows = source.integers(0, len(letters), (120_000, 6))
    vocab = {"".join(letters[at] for at in row[: 1 + number % 6]): number for number, row in enumerate(rows.tolist())}
    build_trie({"a": 0}, "##")  # compiles
    start = time.process_time()
    trie = build_trie(vocab, "##")
    assert time.process_time() - start < 3, "about 0.4 s on an idle machine"
    assert len(trie.row) < 1.3 * np.count_nonzero(trie.row[:, PARENT] != -1)
    assert all(look_up(trie, WORD_ROOT, piece) == piece_id for piece, piece_id in list(vocab.items())[::50])
