"""Greedy longest match against the reference's `WordPiece`."""

from __future__ import annotations

import itertools
import json
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from tokenizers import Tokenizer, models

from cpu_ref.match import match
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.refusal import CannotCompile
from gpu_tok.tables.trie import build_trie
from gpu_tok.tables.wordpiece import WordPieceTables, compile_wordpiece

UNK = "[UNK]"
SMALL = {UNK: 0, "a": 1, "##b": 2, "##": 3, "##a": 4, "ab": 5, "####b": 6, "#": 7, "": 8, "é": 9, "##é": 10, "中": 11}
BACKTRACKING = {UNK: 0, "a": 1, "abcd": 2, "##b": 3, "##bc": 4, "##cde": 5, "##d": 6, "##e": 7, "##bcdx": 8}
ALPHABET = "abcde#@é中\x00"


def model_of(vocab: dict[str, int], **options: object) -> models.WordPiece:
    return models.WordPiece(vocab, unk_token=UNK, **options)


def tables_of(model: models.WordPiece) -> WordPieceTables:
    return compile_wordpiece(Definition(Tokenizer(model)))


def pieces(tables: WordPieceTables, words: list[str]) -> list[list[tuple[int, int]]]:
    """(id, end in the word) of the pieces of each word, all found in one call."""
    code_point = np.frombuffer("".join(words).encode("utf-32-le"), np.uint32).copy()
    borders = np.cumsum([0] + [len(word) for word in words])
    word = np.stack([borders[:-1], borders[1:]], axis=1)
    ids, ends = np.empty(len(code_point), np.int32), np.empty(len(code_point), np.int64)
    id_starts = np.empty(len(words) + 1, np.int64)
    match(code_point, word, np.arange(len(words) + 1), tables, ids, ends, id_starts)
    bounds = id_starts.tolist()
    return [
        list(zip(ids[begin:end].tolist(), (ends[begin:end] - start).tolist(), strict=True))
        for begin, end, start in zip(bounds, bounds[1:], borders.tolist(), strict=False)
    ]


def assert_same_pieces(model: models.WordPiece, words: list[str]) -> None:
    for word, got in zip(words, pieces(tables_of(model), words), strict=True):
        expected = [(token.id, len(word.encode()[: token.offsets[1]].decode())) for token in model.tokenize(word)]
        assert got == expected, (word, model)


def all_words(alphabet: str, longest: int) -> list[str]:
    return ["".join(w) for length in range(1, longest + 1) for w in itertools.product(alphabet, repeat=length)]


@pytest.mark.parametrize("prefix", ["##", "", "@@", "#", "é"])
def test_small_vocabularies_under_every_prefix(prefix: str) -> None:
    vocab = {piece.replace("##", prefix): piece_id for piece, piece_id in SMALL.items()}
    assert_same_pieces(model_of(vocab, continuing_subword_prefix=prefix), all_words("ab#é中@", 4))


def test_a_piece_with_the_prefix_also_begins_a_word() -> None:
    assert pieces(tables_of(model_of(SMALL)), ["##b", "a##b"]) == [[(2, 3)], [(1, 1), (6, 4)]]
    assert_same_pieces(model_of(SMALL), ["##b", "a##b", "##", "####b", "#b"])


def test_the_longest_piece_is_taken_back_only_to_the_last_that_ended() -> None:
    assert_same_pieces(model_of(BACKTRACKING), all_words("abcde", 5))
    assert pieces(tables_of(model_of(BACKTRACKING)), ["abcx"]) == [[(0, 4)]]


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 100, 2**32, 2**63])
def test_words_longer_than_the_limit_are_unknown(limit: int) -> None:
    words = [letter * length for letter in ("a", "é", "中") for length in (1, 2, 3, 4, 99, 100, 101, 102)]
    vocab = {UNK: 0, "a": 1, "##a": 2, "é": 3, "##é": 4, "中": 5, "##中": 6}
    assert_same_pieces(model_of(vocab, max_input_chars_per_word=limit), words)


def test_a_word_of_a_million_characters_is_unknown_at_once() -> None:
    assert pieces(tables_of(model_of({UNK: 4, "a": 1, "##a": 2})), ["a" * 1_000_000]) == [[(4, 1_000_000)]]


def test_a_long_word_within_the_limit_takes_linear_time() -> None:
    model = model_of({UNK: 0, "a": 1, "##a": 2, "##aaaa": 3}, max_input_chars_per_word=10**9)
    (found,) = pieces(tables_of(model), ["a" * 400_001])
    assert found == [(1, 1), *((3, end) for end in range(5, 400_002, 4))]


def test_two_pieces_may_share_an_id() -> None:
    model = model_of({UNK: 0, "a": 1, "b": 1, "##b": 2})
    assert_same_pieces(model, ["a", "b", "ab", "bb"])


@settings(max_examples=200, deadline=None)
@given(
    some.dictionaries(some.text(ALPHABET, max_size=4), some.integers(0, 500), max_size=25),
    some.sampled_from(["##", "", "@@", "a"]),
    some.integers(0, 9),
    some.lists(some.text(ALPHABET, min_size=1, max_size=12), min_size=1, max_size=8),
)
def test_any_vocabulary_on_any_words(vocab: dict[str, int], prefix: str, limit: int, words: list[str]) -> None:
    vocab = {**vocab, UNK: 0}
    assert_same_pieces(model_of(vocab, continuing_subword_prefix=prefix, max_input_chars_per_word=limit), words)


def test_random_words_from_random_pieces() -> None:
    source = random.Random(11)
    for _ in range(20):
        stems = ["".join(source.choices(ALPHABET, k=source.randint(1, 5))) for _ in range(40)]
        vocab = {UNK: 0} | {source.choice(["", "##"]) + stem: number for number, stem in enumerate(stems, 1)}
        words = ["".join(source.choices(stems, k=source.randint(1, 5))) for _ in range(100)]
        assert_same_pieces(model_of(vocab), words)


def test_without_a_token_for_unknown_words_there_is_no_native_form() -> None:
    with pytest.raises(CannotCompile) as refusal:
        compile_wordpiece(Definition(Tokenizer(models.WordPiece({"a": 0}, unk_token="[missing]"))))
    assert refusal.value.part == "model.unk_token"


def test_ids_past_31_bits_have_no_native_form() -> None:
    definition: Any = SimpleNamespace(  # the reference would take a minute to write it out: it counts up to the last id
        model=json.loads(Tokenizer(model_of({UNK: 0})).to_str())["model"],
        reference=Tokenizer(model_of({UNK: 0, "a": 2**31})),
    )
    with pytest.raises(CannotCompile, match="31 bits"):
        compile_wordpiece(definition)


def test_another_model_has_no_native_form() -> None:
    with pytest.raises(CannotCompile, match="`BPE` is not `WordPiece`"):
        compile_wordpiece(Definition(Tokenizer(models.BPE())))


def test_the_tries_roots_are_what_match_expects() -> None:
    trie = build_trie(SMALL, "##")
    tables = tables_of(model_of(SMALL))
    assert (tables.row == trie.row).all()
    assert tables.continuation_root == trie.continuation_root
