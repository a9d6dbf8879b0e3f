"""Runs in which pairs are asked for: which neighbours fit, that cuts in good runs are harmless, and how far runs go."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import cache
from itertools import pairwise

import numpy as np
import oracle
import patterns
import pytest
import soundness
from test_pairs import all_strings, cuts_of, defined, inside, random_strings, splitting, unsound

from gpu_tok import Tokenizer
from gpu_tok.tables import regex
from gpu_tok.tables.automaton import Automaton
from gpu_tok.tables.cuts import CutTables, derive
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.pairs import unspaced
from gpu_tok.tables.refusal import CannotCompile
from gpu_tok.tables.runs import LONGEST_RUN, Runs, are_in_good_runs

CASES = r"[\p{Lu}\p{Lo}]*[\p{Ll}\p{Lo}]+"
TROUBLE = (
    "中国ば゙ーกำ국、１ａＡ" + "abstrevlmdſABǅʰªא\u0301\u0378\u302a1 \n/'’!😀\u200d"
)  # of every category that patterns tell apart


@cache
def automaton_of(pattern: str) -> Automaton:
    return regex.compile_regex(pattern, "pattern")


@cache
def runs_of(pattern: str) -> Runs:
    automaton = automaton_of(pattern)
    found = automaton.runs(np.bincount(automaton.atom_of[unspaced()], minlength=automaton.next_state.shape[1]))
    return Runs(found.harmless, found.begins, found.inside)


def code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def places_in_runs(pattern: str, runs: Runs, text: str) -> list[int]:
    """Where the pattern's runs say that a cut is harmless."""
    atoms = automaton_of(pattern).atom_of[code_points(text)]
    fine = runs.asked[atoms[:-1], atoms[1:]] & are_in_good_runs(atoms, runs)[:-1]
    return (np.flatnonzero(fine) + 1).tolist()


def changed_by_a_cut(pattern: str, runs: Runs, texts: Iterable[str]) -> str | None:
    """The first text, with a `|`, of which the parts have other matches than the whole, divided there."""
    finder = patterns.finder(pattern)

    def matches(text: str) -> list[str]:
        return [match for match, _span in finder.pre_tokenize_str(text)]

    def divided_matches(text: str, at: int) -> list[str]:
        spans = [span for _match, span in finder.pre_tokenize_str(text)]
        edges = [[begin, at, end] if begin < at < end else [begin, end] for begin, end in spans]
        return [text[begin:end] for edge in edges for begin, end in pairwise(edge)]

    for text in texts:
        for at in places_in_runs(pattern, runs, text):
            if divided_matches(text, at) != matches(text[:at]) + matches(text[at:]):
                return f"{text[:at]}|{text[at:]}"
    return None


# --- which neighbours fit


@pytest.mark.parametrize(
    ("name", "fitting", "not_fitting"),
    [
        ("o200k", "AÉǅ \n\t。！1／/'’\u0378\u200d😀", "aéxsſʰª中א\u0301"),
        ("tekken", "AÉǅ \n\t。！1／/'’\u0378\u200d😀", "aéxsſʰª中א\u0301"),
        ("cl100k", "aAʰ中 。1'", ""),
        ("gpt2", "aAʰ中 。1'", ""),
    ],
)
def test_the_automaton_says_which_neighbours_fit(name, fitting, not_fitting):
    atom_of, begins = automaton_of(patterns.PATTERNS[name]).atom_of, runs_of(patterns.PATTERNS[name]).begins
    assert [c for c in fitting if not begins[atom_of[ord(c)], atom_of[ord("国")]]] == []
    assert [c for c in not_fitting if begins[atom_of[ord(c)], atom_of[ord("国")]]] == []


@pytest.mark.parametrize(
    ("name", "pairs"), [("o200k", "中国 ばー กำ ำก 국가"), ("tekken", "中国 ばー กำ ำก 국가"), ("kimi", "ばー")]
)
def test_more_pairs_are_open_in_good_runs(name, pairs):
    automaton, runs = automaton_of(patterns.PATTERNS[name]), runs_of(patterns.PATTERNS[name])
    for pair in pairs.split():
        one, other = automaton.atom_of[[ord(c) for c in pair]]
        assert runs.asked[one, other], pair
        assert not automaton.harmless()[one, other], pair


@pytest.mark.parametrize("name", ["gpt2", "cl100k", "cl100k possessive", "qwen", "deepseek words", "clip"])
def test_most_patterns_need_no_runs(name):
    automaton, runs = automaton_of(patterns.PATTERNS[name]), runs_of(patterns.PATTERNS[name])
    asked = np.unique(automaton.atom_of[unspaced()])
    assert not (runs.asked & ~automaton.harmless())[np.ix_(asked, asked)].any()


# --- cuts in good runs are harmless

OTHERS = [
    CASES,
    CASES + r"|[^\r\n\p{L}\p{N}]+",
    r"[\p{Lu}\p{Lo}]{0,2}[\p{Ll}\p{Lo}]+",
    r"[\p{Lu}\p{Lo}]*[\p{Ll}\p{Lo}]+(?!\p{N})|x",
    r"a\p{Lo}+|\p{Lo}{2}|\p{L}",
    r"\p{Ll}\p{Lo}*B|\p{Lo}+|\p{L}",
    r"\p{Lo}+(?=\p{Lu})|\p{L}",
]


@pytest.mark.parametrize("pattern", [*patterns.PATTERNS.values(), *OTHERS])
def test_cuts_in_good_runs_change_no_match(pattern):
    assert changed_by_a_cut(pattern, runs_of(pattern), all_strings("中ばaBs'ั1、 ", 4)) is None
    source = random.Random(1)
    texts = ["".join(source.choices(TROUBLE, k=source.randint(2, 9))) for _ in range(4_000)]
    assert changed_by_a_cut(pattern, runs_of(pattern), texts) is None


@pytest.mark.parametrize("name", ["o200k", "tekken", "kimi"])
def test_a_neighbour_that_does_not_fit_is_noticed(name):
    pattern = patterns.PATTERNS[name]
    runs = runs_of(pattern)
    wrong = runs._replace(begins=np.broadcast_to(runs.inside, runs.begins.shape))
    assert changed_by_a_cut(pattern, wrong, all_strings("aばーB", 5)) is not None
    assert changed_by_a_cut(pattern, runs, all_strings("aばーB", 5)) is None


def random_pattern(source: random.Random) -> str:
    sets = [
        r"\p{Lu}",
        r"\p{Ll}",
        r"\p{Lo}",
        r"\p{M}",
        r"\p{Han}",
        r"[\p{Lu}\p{Lo}]",
        r"[\p{Ll}\p{Lo}\p{M}]",
        r"[^\s\p{L}]",
    ]

    def branch() -> str:
        parts = [
            source.choice(sets) + source.choice(["", "?", "*", "+", "+", "{1,2}"]) for _ in range(source.randint(1, 3))
        ]
        return "".join(parts) + source.choice(["", "", "", r"(?!\p{Lu})", r"(?=\p{Lo})"])

    return "|".join(branch() for _ in range(source.randint(1, 4)))


@pytest.mark.parametrize("seed", range(4))
def test_cuts_in_good_runs_of_random_patterns_change_no_match(seed):
    source, cuts = random.Random(seed), 0
    while cuts < 3_000:
        pattern = random_pattern(source)
        try:
            runs = runs_of(pattern)
        except CannotCompile:
            continue
        if not (runs.asked & ~automaton_of(pattern).harmless()).any():
            continue
        texts = ["".join(source.choices("中国ばaB\u0301ัก1 ", k=source.randint(2, 8))) for _ in range(300)]
        assert changed_by_a_cut(pattern, runs, texts) is None, pattern
        cuts += sum(len(places_in_runs(pattern, runs, text)) for text in texts)


# --- how far runs go


def test_a_run_ends_with_what_is_not_inside_and_after_so_many_characters():
    class_of = np.array([0, 1, 2, 2, 3, 2, 1, 2, 2])  # 1: a good neighbour, 2: inside, 0, 3: neither
    begins = np.zeros((4, 4), bool)
    begins[1, 2] = True
    runs = Runs(np.zeros((4, 4), bool), begins, np.array([False, False, True, False]))
    assert np.flatnonzero(are_in_good_runs(class_of, runs)).tolist() == [2, 3, 7, 8]
    assert np.flatnonzero(are_in_good_runs(class_of[2:], runs)).tolist() == [0, 1, 5, 6], "the first is good"
    assert are_in_good_runs(np.full(LONGEST_RUN + 5, 2), runs).sum() == LONGEST_RUN
    assert are_in_good_runs(class_of[:0], runs).tolist() == []


# --- definitions

MERGES = [*inside("国人"), ("国".encode(), "人".encode()), ("人".encode(), b"B"), ("国".encode(), b"B")]


def by_case(pattern: str = CASES) -> tuple[Definition, CutTables]:
    definition = defined(MERGES, splitting(pattern))
    return definition, derive(definition)


def test_pairs_are_asked_in_good_runs_only():
    _definition, tables = by_case()
    assert cuts_of("a中国Bc", tables) == "a中国Bc"
    assert cuts_of("中国中国人", tables) == "中|国|中|国人"
    assert cuts_of("A中国中Bc", tables) == "A中|国|中Bc"
    assert cuts_of("a中国。中国", tables) == "a中国|。|中|国"
    long = "中" * (LONGEST_RUN + 2)
    assert cuts_of(long, tables) == "中|" * LONGEST_RUN + "中中"


def test_the_rule_left_out_is_noticed():
    definition, tables = by_case()
    wrong = tables._replace(asked=tables.asked | tables.runs.asked, runs=None)
    assert unsound(definition, tables, ["a中国Bc"]) is None
    assert unsound(definition, wrong, ["a中国Bc"]) is not None
    anywhere = np.broadcast_to(tables.runs.inside, tables.runs.begins.shape)
    assert unsound(definition, tables._replace(runs=tables.runs._replace(begins=anywhere)), ["a中国Bc"]) is not None


@pytest.mark.parametrize("pattern", [CASES, *(patterns.PATTERNS[name] for name in ("o200k", "tekken", "kimi"))])
def test_cuts_in_runs_are_sound(pattern):
    definition, tables = by_case(pattern)
    assert tables.runs is not None
    assert unsound(definition, tables, all_strings("a国人B。", 5)) is None
    source = random.Random(3)
    strings = ["".join(source.choices(TROUBLE + "国人" * 4, k=source.randint(2, 14))) for _ in range(5_000)]
    assert unsound(definition, tables, strings) is None
    assert unsound(definition, tables, random_strings(source, 1_000)) is None


@pytest.mark.parametrize("parts", [[r"\p{Han}+"], [r"\p{Han}{1,2}"], [r"a\p{L}|\s"], [r"。+"]])
@pytest.mark.parametrize("last", [False, True])
def test_runs_behind_and_before_other_parts_are_sound(parts, last):
    others = [part for pattern in parts for part in splitting(pattern)[:1]]
    by_case = splitting(CASES)[:1]
    definition = defined(MERGES, [*(by_case + others if last else others + by_case), splitting("x")[1]])
    tables = derive(definition)
    assert unsound(definition, tables, all_strings("a国人B。", 5)) is None


def test_without_certainty_of_what_stands_before_there_are_no_runs():
    prefixed = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}
    assert derive(defined(MERGES, [splitting(CASES)[0], prefixed])).runs is None
    assert derive(defined(MERGES, splitting(CASES), normalizers=("NFC",))).runs is None
    assert by_case()[1].runs is not None


@pytest.mark.parametrize("name", ["o200k_base", "mistral-nemo-tekken"])
def test_real_texts_are_cut_soundly(name, definition_text, real_texts):
    definition = Definition.from_str(definition_text(f"shared/{name}"))
    tables = derive(definition)
    assert tables.runs is not None
    strings = ["a中国Bc", "".join(f"{c}国际{d}" for c, d in pairwise(TROUBLE))]
    strings += ["".join(random.Random(seed).choices(TROUBLE, k=12)) for seed in range(2_000)]
    real = [text for language in ("zh", "ja", "th") for text in real_texts(language, 100_000)]
    assert soundness.first_unsound_cut(definition, tables, strings + real) is None
    chunks, without = (
        sum(len(soundness.chunks_of(text, some, tables.taken)) for text in real)
        for some in (tables, tables._replace(runs=None))
    )
    assert chunks > 2 * without


@pytest.mark.parametrize("device", ["cpu", "emulated"])
@pytest.mark.parametrize("name", ["o200k_base", "mistral-nemo-tekken"])
def test_real_texts_have_the_ids_of_the_reference(name, device, definition_text, reference, real_texts):
    tokenizer = Tokenizer.from_str(definition_text(f"shared/{name}"), device=device)
    batch = [text[:2_000] for language in ("zh", "ja", "th") for text in real_texts(language, 20_000)]
    batch += ["a中国Bc", "中" * 1000 + "Bc", "x" + "国际人" * 300, "a", "中国Bc", "", "国际"]
    expected = oracle.encode(reference(f"shared/{name}"), batch)
    for _pass in ("cold", "warm"):
        assert tokenizer.encode_batch(batch).to_list() == expected
