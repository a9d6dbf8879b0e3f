"""Characters that no merge joins stay apart: cuts inside words, between classes of characters."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import numpy as np
import pytest
import soundness
import texts
import vocabularies
from compare import assert_same_ids
from random_definitions import ALPHABET, SMALL_ALPHABET, random_normalizer, random_pre_tokenizer, random_strings

from gpu_tok import Tokenizer
from gpu_tok.tables.cuts import MOST_CLASSES, CutTables, derive
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.joins import BYTES, OWN, UNKNOWN, class_joins, joins_of
from gpu_tok.tables.refusal import CannotCompile

LITERAL = ["shared/llama-2", "shared/phi-3", "shared/mistral-v1", "shared/mistral-v3", "shared/chatglm-6b"]
SMALL = ["own/prepend", "own/metaspace-first"]
BYTE_PIECES = [f"<0x{byte:02X}>" for byte in range(256)]
WHOLE_TEXT = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": False}
TROUBLE = [text for text, _reason in texts.HARD_TEXTS] + texts.random_texts(7, 600, 12)
TROUBLE += texts.random_code_points(8, 600, 10)


def defined(
    pieces: str,
    joined: str = "",
    pre_tokenizer: dict[str, Any] | None = None,
    missing: int | None = None,
    **changed: Any,
) -> Definition:
    """A BPE of the pieces and merges listed (`a+b` makes `ab`), with byte fallback but for one byte."""
    pairs = [merge.split("+") for merge in joined.split()]
    named = ["<unk>", *(piece for byte, piece in enumerate(BYTE_PIECES) if byte != missing)]
    vocab = dict.fromkeys([*named, *pieces.split(" "), *("".join(pair) for pair in pairs)])
    model = {
        "type": "BPE",
        "vocab": {piece: number for number, piece in enumerate(vocab)},
        "merges": pairs,
        "unk_token": "<unk>",
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": True,
        "ignore_merges": False,
        "dropout": None,
    }
    described = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": pre_tokenizer}
    return Definition.from_str(json.dumps(described | {"model": model | changed}))


def is_certified(tables: CutTables, cut: str) -> bool:
    first, second = tables.class_of[[ord(cut[0]), ord(cut[2])]]
    return bool(tables.certified[first, second])


def all_strings(characters: str, longest: int) -> list[str]:
    return ["".join(c) for size in range(1, longest + 1) for c in itertools.product(characters, repeat=size)]


def unsound(definition: Definition, tables: CutTables, strings: list[str]) -> soundness.UnsoundCut | None:
    return soundness.first_unsound_cut(definition, tables, strings, tables.certified)


# --- the pairs


@pytest.mark.parametrize("name", [*SMALL, "shared/llama-2", "shared/chatglm-6b"])
def test_the_pairs_are_all_neighbours_inside_what_merges_make(name, definition_text):
    definition = Definition.from_str(definition_text(name))
    plain = set()
    for left, right in definition.model["merges"]:
        plain.update(itertools.pairwise(left + right))
    joins = joins_of(definition)
    assert list(zip(joins.first.tolist(), joins.second.tolist(), strict=True)) == sorted(
        (ord(one), ord(other)) for one, other in plain
    )


def test_a_character_is_its_entry_or_its_bytes_or_unknown():
    symbol = joins_of(defined("a é", missing=0xA9)).symbol
    assert [symbol[ord(c)] for c in "aébꩀ中©"] == [OWN, OWN, BYTES, UNKNOWN, BYTES, UNKNOWN]
    fallback = {c for c in range(0x110000) if symbol[c] == BYTES and not 0xD800 <= c < 0xE000}
    assert fallback == {
        c for c in range(0x110000) if chr(c) not in "aé" and not 0xD800 <= c < 0xE000 and 0xA9 not in chr(c).encode()
    }


@pytest.mark.parametrize("name", [*SMALL, "shared/llama-2", "shared/chatglm-6b"])
def test_classes_are_apart_only_if_all_their_characters_are(name, definition_text):
    joins = joins_of(Definition.from_str(definition_text(name)))
    classes = class_joins(joins)
    assert not classes.apart[classes.class_of[joins.first], classes.class_of[joins.second]].any()
    assert classes.apart.mean() > 0.5


REFUSED = [
    ({"continuing_subword_prefix": "##"}, "continuing_subword_prefix"),
    ({"end_of_word_suffix": "</w>"}, "end_of_word_suffix"),
    ({"dropout": 0.1}, "dropout"),
    ({"ignore_merges": True}, "ignore_merges"),
    ({"unk_token": "a", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}, "unknown"),
    ({"vocab": {"<0x41>": 0, "b": 1, "<0x41>b": 2}, "merges": [["<0x41>", "b"]]}, "unknown"),
    ({"vocab": {"a": 0, "b": 1, "z": 1, "ab": 2}, "merges": [["a", "b"]]}, "share an id"),
]


@pytest.mark.parametrize(("changed", "reason"), REFUSED)
def test_models_in_which_more_than_merges_joins_characters_are_refused(changed, reason):
    definition = defined("a b", **changed)
    with pytest.raises(CannotCompile, match=reason):
        joins_of(definition)
    tables = derive(definition)
    assert not tables.certified.any()
    assert "only cuts inside words would help" in tables.reasons[0]


def test_other_models_are_refused(definition_text):
    for name, model in (("own/bert", "WordPiece"), ("own/unigram", "Unigram"), ("own/word-level", "WordLevel")):
        with pytest.raises(CannotCompile, match=model):
            joins_of(Definition.from_str(definition_text(name)))


# --- cuts of real tokenizers


@pytest.mark.parametrize("name", LITERAL)
def test_literal_families_are_cut_before_spaces_and_around_newlines(name, definition_text):
    tables = derive(Definition.from_str(definition_text(name)))
    for cut in ("a| ", "a|▁", ".| ", "a|\n", "\n|a", "\n|\n", "\n| ", "1|2", "a|1", "a|.", ".|a", "中|a", "😀|😀"):
        assert is_certified(tables, cut), cut
    for cut in (" |a", "▁|a", " | ", "a|b", ".|.", " |."):
        assert not is_certified(tables, cut), cut
    assert is_certified(tables, "中|国") == (name != "shared/chatglm-6b")
    assert "inside words" in tables.reasons[0]


@pytest.mark.parametrize("name", [*SMALL, *LITERAL])
def test_cuts_of_literal_families_are_sound(name, definition_text):
    definition = Definition.from_str(definition_text(name))
    tables = derive(definition)
    strings = soundness.class_strings(tables, 4000) + TROUBLE + random_strings(random.Random(3), 2000)
    assert unsound(definition, tables, strings) is None


@pytest.mark.parametrize("name", LITERAL)
def test_real_texts_are_cut_soundly(name, definition_text, real_texts):
    definition = Definition.from_str(definition_text(name))
    tables = derive(definition)
    for language in ("en", "code", "zh", "ja", "ko", "multi"):
        assert unsound(definition, tables, real_texts(language, 40_000)) is None


@pytest.mark.parametrize("name", [*SMALL, "shared/llama-2", "shared/mistral-v3", "shared/chatglm-6b"])
def test_added_tokens_among_cuts_have_the_ids_of_the_reference(name, definition_text, reference):
    ours, theirs = Tokenizer.from_str(definition_text(name), workers=2), reference(name)
    source = random.Random(5)
    parts = ["<s>", "</s>", "[INST]", "[/INST]", "[gMASK]", "<!dummy-prefix!>", "<unk>", " ", "\n", "▁", "the", "cat"]
    given = [
        "".join(source.choices([*parts, ",", "1", "中国", "é", " a"], k=source.randrange(1, 20))) for _ in range(400)
    ]
    for _cold_then_warm in range(2):
        assert_same_ids(theirs, given, ours.encode_batch(given))


@pytest.mark.parametrize("name", ["shared/gpt2", "own/byte-level", "own/word-end", "own/bert", "own/unigram"])
def test_tokenizers_that_have_no_such_cuts_say_nothing_about_them(name, definition_text):
    assert derive(Definition.from_str(definition_text(name))).reasons == ()


# --- wrong tables are found


def test_a_cut_where_merges_join_is_found(definition_text):
    definition = Definition.from_str(definition_text("own/prepend"))
    tables = derive(definition)
    for cut in ("▁|a", "a|b", "\n|\n"):
        assert not is_certified(tables, cut)
        first, second = tables.class_of[[ord(cut[0]), ord(cut[2])]]
        wrong = tables.certified.copy()
        wrong[first, second] = True
        strings = [*soundness.class_strings(tables, 4000), "is a test of the cat able\n\n"]
        assert unsound(definition, tables._replace(certified=wrong), strings) is not None


def test_a_missing_byte_makes_unknown_characters_wait():
    strings = all_strings("aé中 ", 5)
    whole, gap = defined("a ▁", missing=None), defined("a ▁", missing=0xB8)  # U+4E2D is E4 B8 AD
    assert is_certified(derive(whole), "é|é")
    assert unsound(whole, derive(whole), strings) is None
    assert unsound(gap, derive(whole), strings) is not None, "an unknown character is put behind the bytes of é"
    assert not is_certified(derive(gap), "é|é")
    assert not is_certified(derive(gap), "中|é")
    assert is_certified(derive(gap), "中|a")
    assert is_certified(derive(gap), "a|中")
    assert unsound(gap, derive(gap), strings) is None


def test_a_missing_byte_of_a_character_with_an_entry_is_harmless():
    tables = derive(defined("a \t", missing=9))
    assert is_certified(tables, "é|é")
    assert is_certified(tables, "\t|é")


@pytest.mark.parametrize("fuse_unk", [True, False])
@pytest.mark.parametrize("unk_token", ["<unk>", None])
def test_unknown_characters_without_byte_fallback(unk_token, fuse_unk):
    definition = defined("a b c", "a+b", WHOLE_TEXT, byte_fallback=False, unk_token=unk_token, fuse_unk=fuse_unk)
    tables = derive(definition)
    assert is_certified(tables, "b|a")
    assert is_certified(tables, "a|é") == (unk_token is not None), "without an unknown token, a|b meet in aéb"
    assert not is_certified(tables, "é|é")
    strings = all_strings("abcéß", 5)
    assert unsound(definition, tables, strings) is None
    if fuse_unk or unk_token is None:
        everything = np.ones_like(tables.certified) & ~tables.certified.all()
        joined = tables.class_of[[ord("a"), ord("b")]]
        everything[joined[0], joined[1]] = False
        assert unsound(definition, tables._replace(certified=everything), strings) is not None


def test_an_entry_that_merges_do_not_make_is_taken_whole():
    """So `ignore_merges` is refused: the part `bc` of `bca` would be one piece."""
    strings = all_strings("abc", 4)
    plain, taken_whole = defined("a b c bc"), defined("a b c bc", ignore_merges=True)
    assert unsound(plain, derive(plain), strings) is None
    assert unsound(taken_whole, derive(plain), strings) is not None


def test_a_part_that_looks_across_is_not_cut():
    split = {"type": "Split", "pattern": {"String": "ab"}, "behavior": "MergedWithNext", "invert": False}
    definition = defined("a b c", "c+a", split)
    tables = derive(definition)
    assert not is_certified(tables, "a|b"), "in cab no word holds ca, in its part ca one does"
    assert is_certified(tables, "b|c")
    assert unsound(definition, tables, all_strings("abc", 5)) is None
    unsplit = derive(defined("a b c", "c+a"))
    assert is_certified(unsplit, "a|b")
    assert unsound(definition, unsplit, all_strings("abc", 3)) is not None


def test_parts_that_are_unknown_or_make_bytes_leave_the_model_alone():
    for kind in ({"type": "UnicodeScripts"}, {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}):
        tables = derive(defined("a b", pre_tokenizer=kind | {"trim_offsets": True}))
        assert not tables.certified.any()
        assert "only cuts inside words would help" in tables.reasons[-1]


# --- random models behind random parts


def random_model(source: random.Random, definition: list[str]) -> dict[str, Any]:
    """Some of the characters, and merges of them and of what merges make."""
    known = sorted({c for c in definition if source.random() < 0.8})
    pieces, merges = [*known], []
    for _ in range(source.choice([0, 5, 30, 120])):
        pair = [source.choice(pieces), source.choice(pieces)]
        if pair not in merges and len("".join(pair)) < 8:
            merges.append(pair)
            pieces.append("".join(pair))
    held = source.choice([[], BYTE_PIECES, [piece for piece in BYTE_PIECES if source.random() < 0.9]])
    vocab = dict.fromkeys(["<unk>", *held, *pieces])
    return {
        "type": "BPE",
        "vocab": {piece: number for number, piece in enumerate(vocab)},
        "merges": merges,
        "unk_token": source.choice(["<unk>", "<unk>", None]),
        "fuse_unk": source.random() < 0.6,
        "byte_fallback": source.random() < 0.8,
        "ignore_merges": False,
        "dropout": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
    }


def random_definition(source: random.Random) -> Definition:
    characters = source.sample(ALPHABET, 25) + SMALL_ALPHABET + ["▁", "b", "c", "x"]
    whole_text = [WHOLE_TEXT | {"prepend_scheme": scheme} for scheme in ("never", "first", "always")]
    parts = [
        source.choice([*whole_text, *[random_pre_tokenizer(source)] * 3]) for _ in range(source.choice([0, 1, 1, 2]))
    ]
    normalizers = [random_normalizer(source, []) for _ in range(source.choice([0, 0, 1, 1, 2]))]
    described = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": parts},
        "model": random_model(source, [c for c in characters if len(c) == 1]),
    }
    return Definition.from_str(json.dumps(described))


def assert_random_models_are_sound(seed: int, definitions: int, count: int) -> None:
    source = random.Random(seed)
    inside_words = 0
    for _ in range(definitions):
        definition = random_definition(source)
        tables = derive(definition)
        assert len(tables.certified) <= MOST_CLASSES
        if tables.certified.any():
            inside_words += any("inside words" in reason for reason in tables.reasons)
            strings = random_strings(source, count) + soundness.class_strings(tables, count, seed)
            assert unsound(definition, tables, strings) is None, definition.json
    assert inside_words > 0.2 * definitions


@pytest.mark.parametrize("seed", range(2))
def test_random_models_are_cut_soundly(seed):
    assert_random_models_are_sound(seed, 8, 300)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1040))
def test_many_random_models_are_cut_soundly(seed):
    assert_random_models_are_sound(seed, 20, 3000)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SMALL, *LITERAL, "package/moonshine"])
def test_literal_families_are_sound_on_many_strings(name, definition_text, real_texts):
    definition = Definition.from_str(definition_text(name))
    tables = derive(definition)
    assert unsound(definition, tables, soundness.class_strings(tables, 50_000)) is None
    assert unsound(definition, tables, [*texts.neighbours(), *random_strings(random.Random(4), 20_000)]) is None
    for language in ("en", "code", "zh", "ja", "ko", "ru", "ar", "hi", "th", "vi", "multi", "markdown", "json"):
        assert unsound(definition, tables, real_texts(language, 200_000)) is None


def test_names_of_literal_families_are_known():
    known = vocabularies.names(vocabularies.SENTENCEPIECE)
    assert {*SMALL, *LITERAL, "package/moonshine"} == {*known}
