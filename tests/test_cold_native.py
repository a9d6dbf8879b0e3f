"""The native cold path, whole: ids, and what each step made, against the reference."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import oracle
import pytest
import texts
import vocabularies
from hypothesis import given, settings
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from cpu_ref import cold
from gpu_tok.batch import starts_of
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.native import NativeTables, compile_native
from gpu_tok.tables.refusal import CannotCompile

NAMES = vocabularies.names(vocabularies.WORDPIECE)
LETTERS = "abcdefghijklmnopqrstuvwxyzäéñабвかな中国1２!。"
TINY = {"[UNK]": 0} | {piece: at for at, piece in enumerate([*LETTERS, *("##" + letter for letter in LETTERS)], 1)}

# Texts that part normalizer, words and model: what is deleted joins words, what is padded parts them.
JOINTS = [
    ("a\x0bb", "a deleted character joins its neighbours"),
    ("a\u200db \u00ad c", "so do format characters"),
    ("\x00", "NUL is deleted: nothing is left"),
    ("a\x00b\x00", "NUL within a word and at its end"),
    ("é" * 99 + " " + "é" * 100 + " " + "é" * 101, "the limit counts characters"),
    ("e\u0301" * 100 + " " + "e\u0301" * 101, "the limit counts what the normalizer leaves"),
    ("\u0301" * 99, "a word of combining marks"),
    ("a" + "\u0301\u0323" * 80, "160 marks on one letter, deleted or too many"),
    ("中国がか", "ideographs are words of their own, kana are not"),
    ("a中b", "an ideograph parts a word"),
    ("x😀y 👨\u200d👩\u200d👧", "emoji and joiners"),
    ("\u0300", "a mark alone"),
    ("\u00a0\u3000\u2003", "only white space"),
    ("x" * 100_000, "a word of 100,000 characters"),
]
TEXTS = [text for text, _reason in JOINTS] + texts.TEXTS


@cache
def native(definition: str) -> tuple[Tokenizer, NativeTables]:
    """The reference without added tokens, and our tables of it."""
    reference = oracle.bare(definition)
    return reference, compile_native(Definition(reference))


def encode(tables: NativeTables, batch: list[str]) -> list[list[int]]:
    rows = [text.encode() for text in batch]
    flat = np.frombuffer(b"".join(rows), np.uint8)
    ids, id_starts = cold.encode_chunks(flat, starts_of(np.array([len(row) for row in rows], np.int64)), tables)
    return [ids[id_starts[row] : id_starts[row + 1]].tolist() for row in range(len(rows))]


def assert_same_ids(definition: str, batch: list[str]) -> None:
    reference, tables = native(definition)
    for text, got, expected in zip(batch, encode(tables, batch), oracle.encode(reference, batch), strict=True):
        assert got == expected, text[:200]


def definition_of(normalizer: Any, pre_tokenizer: Any, **options: Any) -> str:
    tokenizer = Tokenizer(models.WordPiece(TINY, unk_token="[UNK]", **options))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    return tokenizer.to_str()


@pytest.mark.parametrize("name", NAMES)
def test_hard_and_random_texts_have_the_references_ids(name: str, definition_text: Callable[[str], str]) -> None:
    random_ones = [*texts.random_texts(7, 400), *texts.random_code_points(7, 400)]
    assert_same_ids(definition_text(name), [*TEXTS, *random_ones])


@pytest.mark.parametrize("language", ["en", "code", "zh", "ja", "ru", "ar", "hi", "multi"])
@pytest.mark.parametrize("name", ["shared/bert-base-uncased", "shared/bert-base-multilingual-cased", "own/bert"])
def test_real_texts_have_the_references_ids(
    name: str, language: str, definition_text: Callable[[str], str], real_texts: Callable[..., list[str]]
) -> None:
    assert_same_ids(definition_text(name), real_texts(language, 60_000))


@settings(max_examples=150, deadline=None)
@given(texts.strategy())
def test_any_text_has_the_references_ids(text: str) -> None:
    assert_same_ids(vocabularies.text("own/bert"), [text])


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer"),
    [
        (None, None),
        (None, pre_tokenizers.Whitespace()),
        (normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()),
        (normalizers.BertNormalizer(clean_text=False, strip_accents=False), pre_tokenizers.WhitespaceSplit()),
        (normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]), pre_tokenizers.Punctuation()),
        (
            normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]),
            pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(True)]),
        ),
        (normalizers.NFKD(), pre_tokenizers.CharDelimiterSplit("。")),
    ],
    ids=range(7),
)
def test_parts_in_other_combinations(normalizer: Any, pre_tokenizer: Any, limit: int) -> None:
    definition = definition_of(normalizer, pre_tokenizer, max_input_chars_per_word=limit)
    assert_same_ids(definition, [*TEXTS, *texts.random_texts(limit, 150)])


@pytest.mark.parametrize("name", ["own/bert", "own/steps"])
def test_each_step_makes_what_the_reference_makes(name: str) -> None:
    reference, tables = native(vocabularies.text(name))
    for text in [*TEXTS, *texts.random_texts(5, 200)]:
        made = cold.trace(text, tables)
        assert made.text == oracle.normalize(reference, text)
        words = [made.text[start:end] for start, end in made.word.tolist()]
        assert words == [word for word in oracle.pre_tokenize(reference, made.text) if word]
        for number, word in enumerate(words):
            begin, end = made.id_starts[number : number + 2].tolist()
            expected = reference.model.tokenize(word)
            assert made.ids[begin:end].tolist() == [token.id for token in expected]
            ends = (made.ends[begin:end] - made.word[number, 0]).tolist()
            assert ends == [len(word.encode()[: token.offsets[1]].decode()) for token in expected]


def test_an_empty_batch_and_empty_chunks() -> None:
    _reference, tables = native(vocabularies.text("own/bert"))
    assert encode(tables, []) == []
    assert encode(tables, ["", "", ""]) == [[], [], []]
    assert cold.trace("", tables).ids.tolist() == []


def test_ids_do_not_depend_on_how_chunks_are_batched() -> None:
    _reference, tables = native(vocabularies.text("own/bert"))
    batch = [*texts.TEXTS * 8, "", *texts.random_texts(1, 500, longest=400)]
    assert sum(len(text.encode()) for text in batch) > 4 * cold.BLOCK_BYTES
    whole = encode(tables, batch)
    bounds = texts.random_splits(3, len(batch), 9)
    parts = [encode(tables, batch[begin:end]) for begin, end in itertools.pairwise(bounds)]
    assert [row for part in parts for row in part] == whole
    assert [encode(tables, [text])[0] for text in batch[:100]] == whole[:100]


def test_chunks_longer_than_a_block_stand_beside_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = ["a", "word " * 9_000, "", "b é", "中" * 13_000, "c" * 50_000, "d"]
    reference, tables = native(vocabularies.text("own/bert"))
    expected = oracle.encode(reference, batch)
    assert encode(tables, batch) == expected
    monkeypatch.setattr(cold, "LONG_BYTES", 30_000)
    assert encode(tables, batch) == expected
    monkeypatch.setattr(cold, "WINDOW", 1_001)
    assert encode(tables, batch) == expected
    assert encode(tables, batch[1:2]) == expected[1:2]


def test_a_window_ends_where_a_word_does() -> None:
    _reference, tables = native(vocabularies.text("own/bert"))
    code_point = np.frombuffer(("ab cd" + "e" * 5_000 + "!").encode("utf-32-le"), np.uint32)
    borders = [cold.next_border(code_point, at, tables.words) for at in (1, 2, 3, 4, 5, 5_004, 5_005, 5_006, 9_999)]
    assert borders == [2, 2, 3, 5_005, 5_005, 5_005, 5_005, 5_006, 5_006]


def test_chunks_may_lie_anywhere_in_a_read_only_array() -> None:
    reference, tables = native(vocabularies.text("own/bert"))
    flat = np.frombuffer(b"skipped the cat skipped", np.uint8)
    ids, id_starts = cold.encode_chunks(flat, np.array([8, 11, 15], np.int64), tables)
    assert [ids[: id_starts[1]].tolist(), ids[id_starts[1] :].tolist()] == oracle.encode(reference, ["the", " cat"])


def test_time_is_linear_in_the_length_of_a_chunk() -> None:
    _reference, tables = native(vocabularies.text("own/bert"))
    source = random.Random(2)
    text = " ".join("".join(source.choices("etaoinshr", k=source.randint(1, 9))) for _ in range(100_000))

    def seconds(chunk: str) -> float:
        timings = []
        for _ in range(3):
            start = time.process_time()
            encode(tables, [chunk])
            timings.append(time.process_time() - start)
        return min(timings)

    assert seconds(text * 8) < 8 * 4 * seconds(text)


def test_the_first_part_without_a_native_form_is_named() -> None:
    refused = [
        (definition_of(normalizers.Nmt(), pre_tokenizers.ByteLevel()), "normalizer"),
        (definition_of(normalizers.NFC(), pre_tokenizers.ByteLevel()), "pre_tokenizer"),
        (Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).to_str(), "model"),
    ]
    for definition, part in refused:
        with pytest.raises(CannotCompile) as refusal:
            compile_native(Definition.from_str(definition))
        assert refusal.value.part == part
