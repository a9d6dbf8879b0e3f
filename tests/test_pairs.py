"""Cuts between two characters that no merge joins: the pairs, the filter, and that the cuts are sound."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import soundness
import texts

from gpu_tok.tables import byte_joins as byte_joins_module
from gpu_tok.tables.byte_joins import byte_joins
from gpu_tok.tables.cuts import CutTables, cuts_between, derive
from gpu_tok.tables.decode import BYTE_OF, byte_level_bytes
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.pairs import NO_PAIRS, make_filter, may_join, unspaced

ASKING = ["gpt2", "cl100k_base", "llama-3"]
OTHERS = [
    "qwen3",
    "deepseek-v3",
    "kimi-k2",
    "whisper-tiny",
    "chatglm-6b",
    "o200k_base",
    "mistral-nemo-tekken",
    "gpt-neox-20b",
]
LETTER = {byte: letter for letter, byte in BYTE_OF.items()}
ALPHABET = "中国人乾燥、。がはばだーกขา국가ㅏＡ\u3099"
WITH_OTHERS = [*ALPHABET, "a", "B", "é", " ", "1", "\n", "😀"]
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def by_speed(names: list[str], slow: list[str]) -> list[Any]:
    return [*names, *(pytest.param(name, marks=pytest.mark.slow) for name in slow)]


@pytest.fixture(scope="module")
def real(definition_text: Any) -> Callable[[str], tuple[Definition, CutTables]]:
    """Real tokenizers and their cuts; of the last three, since tables are large."""

    @lru_cache(maxsize=3)
    def made(name: str) -> tuple[Definition, CutTables]:
        definition = Definition.from_str(definition_text(f"shared/{name}"))
        return definition, derive(definition)

    return made


def splitting(pattern: str, behavior: str = "Isolated") -> list[dict[str, Any]]:
    return [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}, BYTE_LEVEL]


def spelled(part: bytes) -> str:
    return "".join(LETTER[byte] for byte in part)


def defined(
    merges: list[tuple[bytes, bytes]],
    pre_tokenizers: list[dict[str, Any]] = [BYTE_LEVEL],  # noqa: B006 - nobody changes it
    entries: tuple[bytes, ...] = (),
    normalizers: tuple[str, ...] = (),
    **changed: Any,
) -> Definition:
    """A byte-level BPE with these merges; entries are further ones, that no merge makes."""
    pairs = [[spelled(left), spelled(right)] for left, right in merges]
    parts = [piece for left, right in pairs for piece in (left, right, left + right)]
    vocab = dict.fromkeys([*LETTER.values(), *parts, *map(spelled, entries)])
    model = {
        "type": "BPE",
        "vocab": {piece: number for number, piece in enumerate(vocab)},
        "merges": pairs,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "dropout": None,
    }
    described = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": kind} for kind in normalizers]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre_tokenizers},
        "model": model | changed,
    }
    return Definition.from_str(json.dumps(described))


def inside(characters: str) -> list[tuple[bytes, bytes]]:
    """The merges that make characters of their bytes."""
    return [pair for c in map(str.encode, characters) for pair in ((c[:1], c[1:2]), (c[:2], c[2:]))]


def is_asked(tables: CutTables, pair: str) -> bool:
    first, second = tables.class_of[[ord(pair[0]), ord(pair[1])]]
    return bool(tables.asked[first, second])


def cuts_of(text: str, tables: CutTables) -> str:
    """The text with a `|` at each cut."""
    return "|".join(soundness.chunks_of(text, tables, tables.taken))


def unsound(definition: Definition, tables: CutTables, strings: list[str]) -> soundness.UnsoundCut | None:
    return soundness.first_unsound_cut(definition, tables, strings)


def all_strings(characters: str, longest: int) -> list[str]:
    return ["".join(c) for size in range(1, longest + 1) for c in itertools.product(characters, repeat=size)]


def random_strings(source: random.Random, count: int, longest: int = 14) -> list[str]:
    return ["".join(source.choices(WITH_OTHERS, k=source.randint(1, longest))) for _ in range(count)]


# --- the filter


@pytest.mark.parametrize("count", [0, 1, 1000, 100_000])
def test_a_filter_holds_all_its_pairs_and_few_others(count):
    rng = np.random.default_rng(count)
    first, second = (rng.choice(np.flatnonzero(unspaced()), count).astype(np.uint32) for _ in range(2))
    pairs = make_filter(first, second)
    assert may_join(first, second, pairs).all()
    others = (rng.choice(np.flatnonzero(unspaced()), 10_000).astype(np.uint32) for _ in range(2))
    assert may_join(*others, pairs).mean() < 0.1


def test_an_empty_filter_holds_nothing():
    assert not may_join(np.array([ord("中")]), np.array([ord("国")]), NO_PAIRS).any()


# --- the pairs of a byte-level model


def joined(definition: Definition) -> set[str]:
    joins = byte_joins(definition)
    return {chr(one) + chr(other) for one, other in zip(joins.first.tolist(), joins.second.tolist(), strict=True)}


def test_a_merge_of_two_characters_joins_them():
    assert joined(defined([*inside("中国"), ("中".encode(), "国".encode())])) == {"中国"}
    assert joined(defined(inside("中国"))) == set()


def test_a_part_of_a_character_joins_all_that_fit():
    begins = joined(defined([("中".encode(), "国".encode()[:2])]))
    assert begins == {"中" + chr(c) for c in range(0x56C0, 0x5700)}, "国 is U+56FD: E5 9B BD"
    ends = joined(defined([("中".encode()[2:], "国".encode())]))
    assert "中国" in ends
    assert {pair[1] for pair in ends} == {"国"}
    assert {pair[0].encode()[2] for pair in ends} == {0xAD}


def test_a_solid_character_is_never_in_parts():
    whole = inside("中")
    crossing = (b"\xad", "国".encode())
    assert "中国" not in joined(defined([*whole, crossing]))
    assert "中国" in joined(defined([crossing, *whole]))
    assert "中国" in joined(defined([(b" ", b"\xe4"), *whole, crossing])), "behind a space it may be in parts"
    strings = all_strings("中国丿 a", 5)
    for merges in ([*whole, crossing], [crossing, *whole], [(b" ", b"\xe4"), *whole, crossing]):
        definition = defined(merges)
        assert unsound(definition, derive(definition), strings) is None


@pytest.mark.parametrize("name", by_speed(ASKING, OTHERS))
def test_no_two_neighbours_inside_any_merge_result_are_apart(name, real):
    definition, tables = real(name)
    made = {left + right for left, right in definition.model["merges"]}
    byte_level = any(part["type"] == "ByteLevel" for part in definition.pre_tokenizers)
    spelled_out = [byte_level_bytes(piece).decode(errors="ignore") if byte_level else piece for piece in made]
    results = [text for text in spelled_out if len(text) > 1 and unspaced()[[ord(c) for c in text]].any()]
    assert len(results) > 5
    for text in results:
        code_point = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        asked = tables.asked if tables.runs is None else tables.asked | tables.runs.asked
        asked = asked[tables.class_of[code_point[:-1]], tables.class_of[code_point[1:]]]
        _certified, cuts = cuts_between(code_point, tables)
        assert not (cuts & asked).any(), text


# --- where pairs are asked


@pytest.mark.parametrize(
    ("pattern", "asked", "not_asked"),
    [
        (r"\p{L}+", "中国 กข 국가 、。", "中。"),
        (r" ?\p{L}+|[^\s\p{L}]+", "中国 、。", "1２"),
        (r"\p{L}{1,3}", "", "中国 国人"),
        (r"\p{L}+(?!\p{L})|x", "中国", ""),
        (r"\p{L}+(?=\.)|x", "", "中国"),
        (r"\p{Han}{2}|\p{L}+", "กข", "中国"),
        (r"[\p{Lu}\p{Lo}]*[\p{Ll}\p{Lo}]+", "", "中国 กข"),
        (r"\p{Han}+|[\p{Lu}\p{Thai}]*[\p{Ll}\p{Thai}]+", "中国", "กข"),
    ],
)
def test_pairs_are_asked_where_the_pattern_does_not_mind(pattern, asked, not_asked):
    merges = [*inside("国人"), ("国".encode(), "人".encode()), (b"A", b"a"), (b"a", b"A")]
    definition = defined(merges, splitting(pattern))
    tables = derive(definition)
    assert [pair for pair in asked.split() if not is_asked(tables, pair)] == []
    assert [pair for pair in not_asked.split() if is_asked(tables, pair)] == []
    strings = all_strings("中国aA人", 5) + random_strings(random.Random(1), 500)
    assert unsound(definition, tables, strings) is None


def test_pairs_of_other_scripts_are_not_asked():
    tables = derive(defined([]))
    assert is_asked(tables, "中国")
    assert not any(is_asked(tables, pair) for pair in ("ab", "éà", "жд", "中a", "a中", "中😀", "1 "))
    assert cuts_of("ab中国 cd", tables) == "ab中|国 cd"


def test_nothing_is_asked_where_the_model_would_mind(definition_text):
    for changed in ({"end_of_word_suffix": "</w>"}, {"continuing_subword_prefix": "##"}):
        assert len(derive(defined([], **changed)).pairs) == 0
    for name in ("own/word-end", "own/bert", "own/unigram", "own/word-level"):
        assert len(derive(Definition.from_str(definition_text(name))).pairs) == 0


def test_characters_with_a_byte_that_is_no_entry_are_not_asked():
    held = [byte for byte in range(256) if byte != 0xAD]
    tables = derive(defined([], vocab={LETTER[byte]: number for number, byte in enumerate(held)}))
    assert not is_asked(tables, "中国"), "中 is E4 B8 AD"
    assert not is_asked(tables, "国中")
    assert is_asked(tables, "国人")


def test_a_character_that_may_compose_is_asked_for_as_all_that_it_may_become():
    merges = [*inside("国ば"), ("国".encode(), "ば".encode())]
    plain, composing = defined(merges), defined(merges, normalizers=("NFC",))
    assert cuts_of("国は国ば", derive(plain)) == "国|は|国ば"
    assert cuts_of("国は国ば", derive(composing)) == "国は|国ば"
    strings = all_strings("国は\u3099ば", 5)
    assert unsound(composing, derive(composing), strings) is None
    wrong = derive(composing)._replace(pairs=derive(plain).pairs)
    assert unsound(composing, wrong, strings) is not None


@pytest.mark.parametrize("name", ["llama-3"])
def test_a_real_entry_that_no_merge_makes_is_kept_away_from(name, real, monkeypatch):
    definition, tables = real(name)
    text = "て、作物が乾燥しないよう"
    assert unsound(definition, tables, [text]) is None
    monkeypatch.setattr(byte_joins_module, "_keep_entries", lambda _model, _kind_of: np.zeros((2, 0), np.int64))
    assert unsound(definition, derive(definition), [text]) is not None


def test_entries_that_no_merge_makes_are_kept_away_from(monkeypatch):
    definition = defined([], entries=("乾燥".encode(),), ignore_merges=True)
    tables = derive(definition)
    assert cuts_of("中国乾燥中", tables) == "中|国乾燥中"
    strings = all_strings("中国乾燥", 5)
    assert unsound(definition, tables, strings) is None
    monkeypatch.setattr(byte_joins_module, "_keep_entries", lambda _model, _kind_of: np.zeros((2, 0), np.int64))
    assert unsound(definition, derive(definition), strings) is not None


def test_a_pair_that_is_left_out_is_noticed():
    merges = [*inside("国人"), ("国".encode(), "人".encode())]
    definition = defined(merges, splitting(r"\p{L}+"))
    tables = derive(definition)
    strings = random_strings(random.Random(2), 2000)
    assert unsound(definition, tables, strings) is None
    assert unsound(definition, tables._replace(pairs=np.zeros_like(tables.pairs)), strings) is not None


def test_a_condition_that_is_left_out_is_noticed():
    definition = defined([*inside("国"), ("国".encode(), b"B")], splitting(r"[\p{Lu}\p{Lo}]*[\p{Ll}\p{Lo}]+"))
    wrong = derive(defined([], splitting(r"\p{L}+")))  # no merge joins two that are asked for
    assert unsound(definition, derive(definition), ["a中国Bc"]) is None
    assert unsound(definition, wrong, ["a中国Bc"]) is not None


# --- random models behind random parts


def random_merges(source: random.Random) -> list[tuple[bytes, bytes]]:
    """Merges of neighbours in random texts, as training would make them: inside characters and across."""
    words = [[bytes([b]) for b in "".join(source.choices(ALPHABET + " a", k=12)).encode()] for _ in range(9)]
    merges = []
    for _ in range(source.choice([5, 20, 60, 120])):
        candidates = [pair for word in words for pair in itertools.pairwise(word)]
        pair = source.choice(candidates)
        if pair not in merges and len(b"".join(pair)) < 16:
            merges.append(pair)
            words = [merged(word, pair) for word in words]
    return merges


def merged(word: list[bytes], pair: tuple[bytes, bytes]) -> list[bytes]:
    result: list[bytes] = []
    for piece in word:
        if result and (result[-1], piece) == pair:
            result[-1] += piece
        else:
            result.append(piece)
    return result


PATTERNS = [
    r"\p{L}+|\p{N}{1,3}|[^\p{L}\p{N}]+",
    r"[^\r\n\p{L}\p{N}]?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"\p{Han}+|[\p{Lu}\p{Lo}]*[\p{Ll}\p{Lo}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lo}\p{M}]*[\p{Ll}\p{Lo}\p{M}]+| ?[^\s\p{L}\p{N}]+",
    r"中+|国人|\p{L}+",
    r"[\p{L}\p{M}]+|人{2,3}",
    r"、|\p{L}+。?",
    r"\p{Han}{1,2}",
]


def random_definition(source: random.Random) -> Definition:
    parts = [
        *splitting(source.choice(PATTERNS), source.choice(["Isolated", "Removed", "MergedWithNext", "Contiguous"])),
    ][:1] * source.choice([0, 1, 1])
    parts += source.choice([[], [{"type": "Digits", "individual_digits": True}], splitting(r"[가-힣]+")[:1]])
    ignore_merges = source.random() < 0.4
    entries = ["".join(source.choices(ALPHABET, k=source.randint(1, 3))).encode() for _ in range(3 * ignore_merges)]
    return defined(
        random_merges(source),
        [*parts, BYTE_LEVEL | {"use_regex": source.random() < 0.3}],
        tuple(entries),
        source.choice([(), (), ("NFC",), ("NFD",), ("NFKC",), ("Lowercase",), ("StripAccents", "NFC")]),
        ignore_merges=ignore_merges,
    )


def assert_random_models_are_sound(seed: int, definitions: int, count: int) -> None:
    source = random.Random(seed)
    cuts = 0
    for _ in range(definitions):
        definition = random_definition(source)
        tables = derive(definition)
        strings = random_strings(source, count)
        assert unsound(definition, tables, strings) is None, definition.json
        plain = tables._replace(asked=np.zeros_like(tables.asked), runs=None)
        cuts += sum(len(cuts_of(text, tables)) - len(cuts_of(text, plain)) for text in strings)
    assert cuts > count


@pytest.mark.parametrize("seed", range(2))
def test_random_models_are_cut_soundly(seed):
    assert_random_models_are_sound(seed, 6, 400)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1040))
def test_many_random_models_are_cut_soundly(seed):
    assert_random_models_are_sound(seed, 20, 4000)


# --- real tokenizers

MORE_TROUBLE = [
    "て、作物が乾燥しないよう",
    "ばか゚き",
    "a中国Bc中Ab",
    "中é国\u0301人",
    "한국어각\u11a8가ᅡ",
    "กำลัง ขึ้น",
    "国\u200d人",
]


@pytest.mark.parametrize("name", by_speed(ASKING, [*OTHERS, "llama-2", "falcon-7b", "modernbert"]))
def test_cuts_of_real_tokenizers_are_sound(name, real, real_texts):
    definition, tables = real(name)
    assert (len(tables.pairs) > 0) == (name not in ("llama-2", "falcon-7b"))
    strings = [text for language in ("zh", "ja", "ko", "th", "vi", "multi") for text in real_texts(language, 10_000)]
    strings += MORE_TROUBLE + random_strings(random.Random(5), 2000) + texts.random_texts(9, 500, 12)
    assert unsound(definition, tables, strings) is None
