"""Word boundaries against the reference's pre-tokenizers."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
import texts
from hypothesis import given, settings
from hypothesis import strategies as some
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from cpu_ref.split import split
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.refusal import CannotCompile
from gpu_tok.tables.words import WordTables, compile_words

BEHAVIORS = ["removed", "isolated", "contiguous", "merged_with_previous", "merged_with_next"]
SPLITTERS = [
    pre_tokenizers.BertPreTokenizer(),
    pre_tokenizers.Whitespace(),
    pre_tokenizers.WhitespaceSplit(),
    pre_tokenizers.Digits(individual_digits=True),
    pre_tokenizers.Digits(individual_digits=False),
    pre_tokenizers.CharDelimiterSplit("-"),
    pre_tokenizers.CharDelimiterSplit("。"),
    *(pre_tokenizers.Punctuation(behavior) for behavior in BEHAVIORS),
]

# One or two of each kind that some stage tells apart: letters, marks, digits, numbers, punctuation, white space.
KINDS = ["a", "中", "\u0301", "1", "²", "!", "-", "_", "$", "。", " ", "\n", "\xa0", "\x1c", "\u200b", "\x00", "😀"]


def definition_with(pre_tokenizer: Any) -> Definition:
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    return Definition(tokenizer)


def spans(words: WordTables, batch: list[str]) -> list[list[tuple[int, int]]]:
    """The words of each text, (start, end) in it, found in one call."""
    starts = np.cumsum([0] + [len(text) for text in batch])
    code_point = np.frombuffer("".join(batch).encode("utf-32-le"), np.uint32).copy()
    word, word_starts = np.empty((len(code_point), 2), np.int64), np.empty(len(batch) + 1, np.int64)
    split(code_point, starts, words, word, word_starts)
    return [
        [tuple(span) for span in (word[word_starts[row] : word_starts[row + 1]] - starts[row]).tolist()]
        for row in range(len(batch))
    ]


def assert_same_words(pre_tokenizer: Any, batch: list[str]) -> None:
    found = spans(compile_words(definition_with(pre_tokenizer)), batch)
    for text, got in zip(batch, found, strict=True):
        expected = [span for word, span in pre_tokenizer.pre_tokenize_str(text) if word]  # an empty word has no pieces
        assert got == expected, (pre_tokenizer, text)


def sequences(seed: int, count: int) -> list[Any]:
    source = random.Random(seed)
    return [pre_tokenizers.Sequence(source.choices(SPLITTERS, k=source.randint(1, 4))) for _ in range(count)]


@pytest.mark.parametrize("stage", SPLITTERS, ids=lambda stage: repr(stage)[:60])
def test_a_stage_splits_as_the_reference(stage: Any) -> None:
    short = ["".join(kinds) for length in (1, 2, 3) for kinds in itertools.product(KINDS, repeat=length)]
    assert_same_words(stage, short)
    assert_same_words(stage, [*texts.TEXTS, *texts.random_texts(2, 300), *texts.random_code_points(2, 300)])


def test_code_points_of_all_planes_split_as_the_reference() -> None:
    code_points = [chr(c) for c in range(0, 0x110000, 37) if not 0xD800 <= c < 0xE000]
    for stage in (pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Whitespace()):
        assert_same_words(stage, [f"a{character}!{character}" for character in code_points])


@pytest.mark.parametrize("sequence", sequences(seed=4, count=25), ids=range(25))
def test_a_sequence_splits_as_the_reference(sequence: Any) -> None:
    assert_same_words(sequence, [*texts.TEXTS[:60], *texts.random_texts(3, 150, alphabet=KINDS)])


@settings(max_examples=60, deadline=None)
@given(some.lists(some.sampled_from(range(len(SPLITTERS))), max_size=3), texts.strategy())
def test_any_sequence_splits_any_text_as_the_reference(numbers: list[int], text: str) -> None:
    assert_same_words(pre_tokenizers.Sequence([SPLITTERS[number] for number in numbers]), [text])


def test_sequences_within_sequences_run_in_order() -> None:
    inner = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.WhitespaceSplit()])
    outer = pre_tokenizers.Sequence([pre_tokenizers.Punctuation("merged_with_next"), inner])
    assert_same_words(outer, ["a 12!b  c!!3", *texts.TEXTS])


def test_without_a_pre_tokenizer_a_text_is_one_word() -> None:
    assert spans(compile_words(definition_with(None)), ["a b, c", "", " "]) == [[(0, 6)], [], [(0, 1)]]


def test_words_end_with_their_text() -> None:
    words = compile_words(definition_with(pre_tokenizers.WhitespaceSplit()))
    assert spans(words, ["ab", "cd ", "", "e"]) == [[(0, 2)], [(0, 2)], [], [(0, 1)]]


def test_a_removed_kind_is_parted_from_every_kind() -> None:
    for pre_tokenizer in [*SPLITTERS, *sequences(seed=9, count=10)]:
        words = compile_words(definition_with(pre_tokenizer))
        assert words.parted[words.removed].all()
        assert words.parted[:, words.removed].all()


@pytest.mark.parametrize(
    "part",
    [
        pre_tokenizers.ByteLevel(),
        pre_tokenizers.Metaspace(),
        pre_tokenizers.Split(Regex(r"\d+"), "isolated"),
        pre_tokenizers.UnicodeScripts(),
    ],
    ids=["ByteLevel", "Metaspace", "Split", "UnicodeScripts"],
)
def test_other_parts_are_refused_by_place_and_name(part: Any) -> None:
    definition = definition_with(pre_tokenizers.Sequence([pre_tokenizers.Digits(), part]))
    outer = {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, definition.json["pre_tokenizer"]]}
    definition.json["pre_tokenizer"] = outer
    with pytest.raises(CannotCompile) as refusal:
        compile_words(definition)
    assert refusal.value.part == "pre_tokenizer.pretokenizers[1].pretokenizers[1]"
    assert f"`{type(part).__name__}`" in refusal.value.reason
    with pytest.raises(CannotCompile) as refusal:
        compile_words(definition_with(part))
    assert refusal.value.part == "pre_tokenizer"
