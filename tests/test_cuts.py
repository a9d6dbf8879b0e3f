"""Certified cuts are sound: what is cut into chunks and encoded chunk by chunk has the ids of the whole."""

from __future__ import annotations

import base64
import json
import random
from functools import lru_cache
from typing import Any

import corpora
import numpy as np
import pytest
import soundness
import texts
import vocabularies
from random_definitions import ALPHABET, GPT2, random_normalizer, random_pre_tokenizer, random_strings
from tokenizers.normalizers import Precompiled

from gpu_tok.tables import ends
from gpu_tok.tables.charsmap import read_charsmap
from gpu_tok.tables.classes import merge_classes
from gpu_tok.tables.cuts import MOST_CLASSES, CutTables, derive
from gpu_tok.tables.definition import Definition

TROUBLE = (
    [t for t, _reason in texts.HARD_TEXTS] + texts.random_texts(7, 1500, 12) + texts.random_code_points(8, 1500, 10)
)


def assert_sound(definition: Definition, tables: CutTables, strings: list[str]) -> None:
    different = (tables.certified != tables.taken).any()
    for pairs in (tables.certified, tables.taken) if different else (tables.taken,):
        assert soundness.first_unsound_cut(definition, tables, strings, pairs) is None


@lru_cache(maxsize=1)
def character_model() -> dict[str, Any]:
    """A model whose ids show each character, and whether a word begins with it: whatever moves a boundary is seen."""
    characters = {chr(c) for c in (*range(0x250), *range(0x2580, 0x2590))} | set("".join(ALPHABET))
    pieces = [piece for character in sorted(characters) for piece in (character, "##" + character)]
    vocab = {piece: number for number, piece in enumerate(["<unk>", *pieces])}
    return {
        "type": "BPE",
        "vocab": vocab,
        "merges": [],
        "unk_token": "<unk>",
        "continuing_subword_prefix": "##",
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "dropout": None,
    }


def defined(normalizers: list[dict[str, Any]], pre_tokenizers: list[dict[str, Any]]) -> Definition:
    described = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre_tokenizers},
        "model": character_model(),
    }
    return Definition.from_str(json.dumps(described))


def is_certified(tables: CutTables, cut: str) -> bool:
    """Whether the cut `a|b` is certified; a and b are one character each."""
    first, second = tables.class_of[[ord(cut[0]), ord(cut[2])]]
    return bool(tables.certified[first, second])


# --- all tokenizers at hand; of the real ones one a family, the others with the slow tests

FAMILIES = [
    *(
        "bert-base-uncased",
        "bert-base-chinese",
        "gpt2",
        "cl100k_base",
        "o200k_base",
        "qwen3",
        "deepseek-v3",
        "falcon-7b",
    ),
    *("clip-vit-base", "t5-small", "albert-base-v2", "deberta-v3-base", "nmt-marian"),
]


@pytest.fixture(scope="module")
def tokenizer(request: pytest.FixtureRequest, definition_text: Any) -> tuple[Definition, CutTables]:
    """A real tokenizer and its cuts; tests of the same one run together."""
    definition = Definition.from_str(definition_text(f"shared/{request.param}"))
    return definition, derive(definition)


@pytest.mark.parametrize("name", vocabularies.names(sources=("own", "package")))
def test_cuts_of_small_tokenizers_are_sound(name, definition_text):
    definition = Definition.from_str(definition_text(name))
    tables = derive(definition)
    assert_sound(definition, tables, soundness.class_strings(tables, 2500) + TROUBLE[::2])


@pytest.mark.parametrize("tokenizer", FAMILIES, indirect=True)
def test_cuts_of_real_tokenizers_are_sound(tokenizer, real_texts):
    definition, tables = tokenizer
    real = [text[:2000] for language in corpora.LANGUAGES for text in real_texts(language, 3000)]
    assert_sound(definition, tables, soundness.class_strings(tables, 6000) + TROUBLE[::3] + real)


@pytest.mark.slow
@pytest.mark.parametrize("name", vocabularies.names())
def test_cuts_are_sound_on_many_strings(name, definition_text, real_texts):
    definition = Definition.from_str(definition_text(name))
    tables = derive(definition)
    assert_sound(definition, tables, soundness.class_strings(tables, 200_000))
    assert_sound(definition, tables, [*TROUBLE, *texts.neighbours(), *random_strings(random.Random(3), 20_000)])
    assert_sound(definition, tables, [text for language in corpora.LANGUAGES for text in real_texts(language, 300_000)])


# --- the checker finds what it looks for


@pytest.mark.parametrize(
    ("tokenizer", "cut", "reason"),
    [
        ("gpt2", "\n|a", "two newlines before a letter are two words, at an end they are one"),
        ("gpt2", " |1", "the space belongs to the number"),
        ("cl100k_base", "1|2", "digits are counted in threes from the left"),
        ("bert-base-uncased", "a|\x7f", "a deleted character joins what stands around it"),
        ("bert-base-uncased", "e|\u0301", "a mark"),
        ("qwen3", "は|゙", "NFC composes"),
        ("t5-small", "a|b", "inside a word"),
        ("deberta-v3-base", " | ", "runs of spaces collapse"),
    ],
    indirect=["tokenizer"],
)
def test_a_cut_that_is_wrong_is_found(tokenizer, cut, reason):
    definition, tables = tokenizer
    assert not is_certified(tables, cut), reason
    first, second = tables.class_of[[ord(cut[0]), ord(cut[2])]]
    wrong = tables.taken.copy()
    wrong[first, second] = True
    strings = [x + cut[0] + cut[2] + y for x in ("", "a", "1", "\n", " ") for y in ("", "a", "b ", "34")]
    found = soundness.first_unsound_cut(definition, tables, strings + soundness.class_strings(tables, 2000), wrong)
    assert found is not None


@pytest.mark.parametrize("tokenizer", ["deberta-v3-base"], indirect=True)
def test_an_end_flag_that_is_missing_is_found(tokenizer):
    definition, tables = tokenizer
    strings = ["\x85x y", "x \x85", "x y"]
    assert soundness.first_unsound_cut(definition, tables, strings) is None
    for flag in (ends.SECTION_FIRST, ends.SECTION_LAST, ends.SUBSECTION_FIRST):
        assert soundness.first_unsound_cut(definition, tables._replace(flags=tables.flags & ~flag), strings) is not None


# --- counterexamples to simpler derivations

REAL_PAIRS = [
    ("gpt2", "a| a|! a|1 1|a !|a !|1 a|\n", "\n|a \n|\n  |1  |a '|s '|t !|! 1|1"),
    ("cl100k_base", "a| \n|a \n|1 a|1 a|! a|\n", "1|2 '|s \n|\n !|\n  |a !|a"),
    ("o200k_base", "a|B \n|a a|! 中|1", "\n|/ 中|B 1|2 '|s ʰ|B"),
    ("qwen3", "a|  1|2 a|1 \n|a", "は|゙ á|\u0323 a|\u0301 ᄀ|ᅡ"),
    ("deepseek-v3", " |1  |中 中|a 1|a", "1|2 中|国 \n|\n"),
    ("falcon-7b", " |! a|! a| ", "\n|a 1|2"),
    ("bert-base-uncased", "a|中 中|国 \x7f|中  |a a|.", "a|\x7f \x7f|a a|\u0301 a|b 中|\u0301"),
    ("t5-small", "a|   |a a|▁", "\x01|a a|\x01 \u0600|a a|b \r|\n a|\u200d \u200d|= 🇩|🇪 é|\u0301"),
    ("albert-base-v2", "a|   |a", "`|` '|'"),
    ("deberta-v3-base", "a| ", " |  \x85|  \x0b|  a|b"),
    ("nmt-marian", "a| ", " |  a|\n"),
]


@pytest.mark.parametrize(("tokenizer", "certified", "refused"), REAL_PAIRS, indirect=["tokenizer"])
def test_pairs_of_real_tokenizers(tokenizer, certified, refused):
    _definition, tables = tokenizer
    assert [cut for cut in cuts_in(certified) if not is_certified(tables, cut)] == []
    assert [cut for cut in cuts_in(refused) if is_certified(tables, cut)] == []


def cuts_in(listed: str) -> list[str]:
    """The three-character cuts in a list: what stands around each `|`."""
    return [listed[at - 1 : at + 2] for at, character in enumerate(listed) if character == "|"]


def test_classes_are_of_what_the_normalizer_makes():
    symbols = derive(defined([], [GPT2]))
    images = derive(defined([{"type": "NFKC"}], [GPT2]))
    assert is_certified(symbols, "a|㎏")
    assert not is_certified(images, "a|㎏")
    assert len(images.certified) <= MOST_CLASSES


def test_deleted_characters_are_transparent():
    zwj = {"type": "Replace", "pattern": {"String": "\u200d"}, "content": ""}
    tables = derive(defined([zwj, {"type": "NFC"}], [{"type": "Digits", "individual_digits": True}]))
    assert is_certified(tables, "e|1")
    assert not is_certified(tables, "1|\u200d"), "1, ZWJ, U+0338 would compose or be sorted"
    assert is_certified(tables, "\u200d|1")


def test_a_prefix_goes_to_every_word_of_an_earlier_splitter():
    tables = derive(defined([], [{"type": "Digits", "individual_digits": False}, GPT2 | {"add_prefix_space": True}]))
    assert is_certified(tables, "a|1")
    assert is_certified(tables, "a| ")
    assert not is_certified(tables, "a|!"), "the word behind the cut would get a prefix of its own"
    assert tables.flags == 0


def test_a_prefix_of_the_first_word_is_a_flag():
    tables = derive(defined([], [GPT2 | {"add_prefix_space": True}]))
    assert is_certified(tables, "a|!")
    assert tables.flags == ends.SUBSECTION_FIRST


def test_a_prefix_at_byte_0_behind_a_splitter_and_a_normalizer_is_not_cut():
    first = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}
    digits = {"type": "Digits", "individual_digits": True}
    assert is_certified(derive(defined([], [digits, first])), "a|1")
    tables = derive(defined([{"type": "NFKC"}], [digits, first]))
    assert not tables.certified.any()
    assert "byte 0" in tables.reasons[0]


def test_nothing_is_cut_where_nothing_is_known():
    for pre_tokenizer in ({"type": "UnicodeScripts"}, {"type": "FixedLength", "length": 3}):
        tables = derive(defined([], [pre_tokenizer]))
        assert not tables.certified.any()
        assert pre_tokenizer["type"] in tables.reasons[0]


def test_a_text_that_is_one_word_says_so():
    tables = derive(defined([], []))
    assert tables.certified.shape == (1, 1)
    assert not tables.certified.any()
    assert "only cuts inside words would help" in tables.reasons[0]


def test_white_space_at_an_end_is_not_divided():
    strip = {"type": "Strip", "strip_left": False, "strip_right": True}
    split = {"type": "WhitespaceSplit"}
    assert is_certified(derive(defined([], [split])), " |\x85")
    assert not is_certified(derive(defined([strip], [split])), " |\x85")
    assert derive(defined([strip], [split])).flags == ends.SECTION_LAST


# --- taken cuts


def test_taken_cuts_are_certified(definition_text):
    for name in ("own/bert", "own/byte-level", "own/unigram"):
        tables = derive(Definition.from_str(definition_text(name)))
        assert not (tables.taken & ~tables.certified).any()


def test_a_space_stays_with_the_word_behind_it(definition_text):
    tables = derive(Definition.from_str(definition_text("own/bert")))
    assert soundness.chunks_of("the cat, 中国  sat", tables, tables.taken) == [
        *("the", " cat", ",", " 中", "国", "  sat"),
    ]


# --- random definitions: the derivation knows nothing of them


def assert_random_definition_is_sound(seed: int, count: int, others: list[dict[str, Any]]) -> None:
    source = random.Random(seed)
    normalizers = [random_normalizer(source, others) for _ in range(source.choice([0, 1, 1, 2, 2, 3]))]
    definition = defined(normalizers, [random_pre_tokenizer(source) for _ in range(source.choice([1, 1, 2, 3]))])
    tables = derive(definition)
    assert len(tables.certified) <= MOST_CLASSES
    if tables.certified.any():
        assert_sound(definition, tables, random_strings(source, count) + soundness.class_strings(tables, count, seed))


@pytest.mark.parametrize("seed", range(8))
def test_cuts_of_random_definitions_are_sound(seed):
    assert_random_definition_is_sound(seed, 1000, [])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_cuts_of_many_random_definitions_are_sound(seed, definition_text):
    precompiled = [precompiled_of(definition_text(f"shared/{name}")) for name in ("t5-small", "nmt-marian")]
    assert_random_definition_is_sound(seed, 4000, precompiled)


def precompiled_of(definition: str) -> dict[str, Any]:
    parts = Definition.from_str(definition).normalizers
    return next(part for part in parts if part["type"] == "Precompiled")


def test_a_charsmap_says_what_the_reference_makes_of_single_characters(definition_text):
    part = precompiled_of(definition_text("shared/t5-small"))
    charsmap = read_charsmap(part["precompiled_charsmap"])
    normalizer = Precompiled(base64.b64decode(part["precompiled_charsmap"]))
    for code_point in (*range(0x3400), *range(0xF900, 0x10000), *range(0x1F000, 0x1FC00)):
        assert charsmap.get(chr(code_point), chr(code_point)) == normalizer.normalize_str(chr(code_point))


@pytest.mark.parametrize("broken", ["", "AAAA", "////", "AAEAAA==", "no base64!"])
def test_a_broken_charsmap_is_refused(broken):
    with pytest.raises(ValueError):  # noqa: PT011 - base64's own errors are ValueErrors, too
        read_charsmap(broken)


def test_more_classes_than_fit_are_merged_and_lose_cuts():
    class_of = np.arange(0x110000) % 40
    pairs = np.random.default_rng(1).random((40, 40)) < 0.7
    merged_of, (merged,) = merge_classes(class_of, [pairs], MOST_CLASSES)
    assert merged.shape == (MOST_CLASSES, MOST_CLASSES)
    kept = merged[merged_of[:40, None], merged_of[None, :40]]
    assert not (kept & ~pairs).any()
    assert kept.sum() > 0.5 * pairs.sum()
