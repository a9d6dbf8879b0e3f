"""Cuts that a third character decides: what the automaton says of three, which are chosen, and that they are sound."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import patterns
import pytest
import soundness
from random_definitions import BEHAVIORS, GPT2, random_pre_tokenizer, random_strings
from test_cuts import defined
from test_pairs import all_strings, cuts_of, unsound

from gpu_tok.tables import regex, splitters, thirds, word_boundaries
from gpu_tok.tables.automaton import Automaton, Triples
from gpu_tok.tables.cuts import CutTables, derive
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.refusal import CannotCompile
from gpu_tok.tables.thirds import Thirds, Three, cuts_by_thirds, largest_three, rectangles

SPACES, POINTS = r"\s+(?!\S)|\s+", r"[^a]?a+|[^a]+"
SMALL = [
    *(SPACES, POINTS, r"\s+(?!\S)", r"\s+(?=\S)|\s", r"a\.(?!\.)|[^c]", r"a\.|\.b|[^c]", r"aab|a", r"a(?:bc)+|b|c"),
    *(r"a{2,3}|b{1,2}c?", r"a{2}|ab|[bc]+", r"[ab]++c|a|b", r"a*+b|a|c", r"\s*\n|\s+(?!\S)|\s", r"ab?c|b+(?!c)|c"),
]
ALPHABET = " \n\xa0aAs1:'é中"
TROUBLE = [
    *" \n\t\r\xa0\u3000aAzs1:.'!/`=é中ば\u0301\u0338\u0378\u200d😀",
    "  ",
    "\n\n",
    "::",
    "'s",
    "..",
    "\u2025",
    " a",
]


@cache
def automaton_of(pattern: str) -> Automaton:
    return regex.compile_regex(pattern, "pattern")


def code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def alphabet(pattern: str) -> str:
    """The letters of a small pattern and white space if it minds them, and one other."""
    white = {"s": " ", "n": "\n"}
    return "".join(
        dict.fromkeys([*(c for c in pattern if c in "abc"), *(white[c] for c in "sn" if "\\" + c in pattern), "."])
    )


def places(automaton: Automaton, behind: Triples, before: Triples, text: str) -> Iterator[int]:
    """Before which characters of a text a cut changes no match, as said of all three neighbours in a row."""
    atoms = automaton.atom_of[code_points(text)]
    three = atoms[:-2], atoms[1:-1], atoms[2:]
    yield from (np.flatnonzero(behind[three]) + 1).tolist()
    yield from (np.flatnonzero(before[three]) + 2).tolist()


def changed_by_a_cut(pattern: str, texts: list[str], behind: Triples | None = None) -> str | None:
    """The first text, with a `|`, of which the parts have other matches than the whole."""
    automaton, matches = automaton_of(pattern), cache(patterns.finder(pattern).pre_tokenize_str)
    behind = automaton.independent_if_behind() if behind is None else behind
    before = automaton.independent_if_before()
    for text in texts:
        for at in places(automaton, behind, before, text):
            moved = [(match, (begin + at, end + at)) for match, (begin, end) in matches(text[at:])]
            if matches(text[:at]) + moved != matches(text):
                return f"{text[:at]}|{text[at:]}"
    return None


def random_texts(seed: int, count: int) -> list[str]:
    source = random.Random(seed)
    return ["".join(source.choices((ALPHABET, TROUBLE)[at % 2], k=source.randint(3, 8))) for at in range(count)]


def said(triples: Triples, automaton: Automaton, three: str) -> bool:
    return bool(triples[tuple(automaton.atom_of[code_points(three)])])


# --- what the automaton says of three


@pytest.mark.parametrize("pattern", SMALL)
def test_cuts_that_a_third_decides_change_no_match_of_small_patterns(pattern):
    letters = alphabet(pattern)
    assert changed_by_a_cut(pattern, all_strings(letters, 6 if len(letters) < 5 else 5)) is None


@pytest.mark.parametrize("name", patterns.PATTERNS)
def test_cuts_that_a_third_decides_change_no_match(name):
    assert changed_by_a_cut(patterns.PATTERNS[name], [*all_strings(ALPHABET, 3), *random_texts(1, 1_000)]) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", patterns.PATTERNS)
def test_cuts_that_a_third_decides_change_no_match_of_many_texts(name):
    assert changed_by_a_cut(patterns.PATTERNS[name], [*all_strings(ALPHABET, 5), *random_texts(2, 50_000)]) is None


@pytest.mark.parametrize("pattern", [SPACES, POINTS, r"\s+(?!\S)", r"aab|a", r"a{2}|ab|[bc]+", r"[ab]++c|a|b"])
def test_nothing_less_is_said_than_is_so(pattern):
    """Of each three of which it is not said, some text of at most seven characters is changed."""
    automaton, matches = automaton_of(pattern), cache(patterns.finder(pattern).pre_tokenize_str)
    letters = alphabet(pattern)
    around = ["", *all_strings(letters, 2)]
    behind, before = automaton.independent_if_behind(), automaton.independent_if_before()

    def changes(text: str, at: int) -> bool:
        words = [[match for match, _span in matches(part)] for part in (text[:at], text[at:], text)]
        return words[0] + words[1] != words[2]

    for three in all_strings(letters, 3):
        if len(three) == 3:
            for triples, at in ((behind, 1), (before, 2)):
                fine = not any(changes(x + three + y, len(x) + at) for x in around for y in around)
                assert said(triples, automaton, three) == fine, (three, at)


@pytest.mark.parametrize(
    ("name", "behind", "not_behind", "before", "not_before"),
    [
        (
            "gpt2",
            ["  a", "  1", "  !", "\n\na", "\n a", " \n中", " \t'"],
            ["   ", "  \n", "\n\n\n", "!!a", " aa"],
            ["!'s", "''s", " 's"],
            ["\n's", "'ss"],
        ),
        (
            "cl100k",
            ["  a", "  1", "  !", "\n a"],
            ["\n\na", "   ", " \na"],
            ["::a", " :a", "::中"],
            ["a:a", "\n:a", "1:a"],
        ),
        ("o200k", ["  a", "\n A"], ["\n\na"], ["::a", "::A"], ["a:a", "/!a"]),
        ("qwen", ["  a", "  1"], ["\n\na"], ["::a"], ["1:a"]),
        ("deepseek words", ["  a"], ["\n\na"], ["::a"], ["a:a"]),
    ],
)
def test_the_automaton_says_which_third_characters_decide(name, behind, not_behind, before, not_before):
    automaton = automaton_of(patterns.PATTERNS[name])
    if_behind, if_before = automaton.independent_if_behind(), automaton.independent_if_before()
    assert [three for three in behind if not said(if_behind, automaton, three)] == []
    assert [three for three in not_behind if said(if_behind, automaton, three)] == []
    assert [three for three in before if not said(if_before, automaton, three)] == []
    assert [three for three in not_before if said(if_before, automaton, three)] == []


@pytest.mark.parametrize("name", patterns.PATTERNS)
def test_what_two_decide_a_third_does_not_take_back(name):
    automaton = automaton_of(patterns.PATTERNS[name])
    independent = automaton.independent()
    assert not (independent[:, :, None] & ~automaton.independent_if_behind()).any()
    assert not (independent[None] & ~automaton.independent_if_before()).any()


def test_a_third_too_many_is_noticed():
    automaton = automaton_of(patterns.PATTERNS["gpt2"])
    space = automaton.atom_of[ord(" ")]
    wrong = automaton.independent_if_behind()
    wrong[space, space, space] = True
    assert changed_by_a_cut(patterns.PATTERNS["gpt2"], all_strings(" a", 4), wrong) is not None


def random_pattern(source: random.Random) -> str:
    sets = ["a", "b", "[ab]", "[^a]", r"\s", r"\S", "c", "[bc]"]

    def branch() -> str:
        counts = ["", "", "?", "*", "+", "{1,2}", "{2}", "++", "?+"]
        parts = [source.choice(sets) + source.choice(counts) for _ in range(source.randint(1, 3))]
        return "".join(parts) + source.choice(["", "", "", "(?!b)", r"(?!\S)", "(?=a)", r"(?=\s)"])

    return "|".join(branch() for _ in range(source.randint(1, 4)))


def assert_random_patterns_are_not_changed(seed: int, least: int) -> None:
    """Until so many patterns were looked at of which more is said of three than of two."""
    source, patterns_seen = random.Random(seed), 0
    texts = all_strings("abc ", 5)
    while patterns_seen < least:
        pattern = random_pattern(source)
        try:
            automaton = automaton_of(pattern)
        except CannotCompile:
            continue
        pairs = automaton.independent()
        more = (automaton.independent_if_behind() & ~pairs[:, :, None]) | (automaton.independent_if_before() & ~pairs)
        if more.any():
            assert all(
                automaton.find_matches(text) == patterns.reference_matches(pattern, text) for text in texts[:300]
            )
            assert changed_by_a_cut(pattern, texts) is None, pattern
            patterns_seen += 1


@pytest.mark.parametrize("seed", range(4))
def test_cuts_that_a_third_decides_change_no_match_of_random_patterns(seed):
    assert_random_patterns_are_not_changed(seed, 5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_cuts_that_a_third_decides_change_no_match_of_many_random_patterns(seed):
    assert_random_patterns_are_not_changed(seed, 150)


# --- choosing them


def of(classes: int, *members: int) -> np.ndarray:
    return np.isin(np.arange(classes), members)


def test_a_rectangle_holds_the_most_first_and_last_ones_that_go_together():
    triples = np.zeros((4, 4, 4), bool)
    triples[0, 1, [0, 2, 3]] = triples[1, 1, [0, 2]] = triples[2, 1, [0, 2]] = True
    triples[3, 2, 3] = True
    left, right = rectangles(triples, of(4, 1))
    assert np.flatnonzero(left[:, 1]).tolist() == [0, 1, 2]
    assert np.flatnonzero(right[1]).tolist() == [0, 2]
    assert left.sum() + right.sum() == 5, "the other middle one was not asked for"


@pytest.mark.parametrize("seed", range(20))
def test_all_in_a_rectangle_go_together(seed):
    rng = np.random.default_rng(seed)
    triples = rng.random((7, 7, 7)) < 0.6
    left, right = rectangles(triples, rng.random(7) < 0.8)
    assert not (left[:, :, None] & right[None] & ~triples).any()
    three = largest_three(left, right, rng.integers(0, 5, 7))
    assert not (three.first[:, None, None] & three.middle[:, None] & three.last & ~triples).any()


def test_the_largest_three_have_all_middle_ones_that_go_with_them():
    left, right = np.zeros((4, 4), bool), np.zeros((4, 4), bool)
    left[:2, 1] = left[:3, 2] = left[0, 3] = True
    right[1, 2:] = right[2, 2:] = right[3] = True
    weight = np.array([1, 5, 2, 1])
    assert [np.flatnonzero(part).tolist() for part in largest_three(left, right, weight)] == [[0, 1], [1, 2], [2, 3]]


def test_without_ascii_characters_there_are_no_three():
    every = np.ones((2, 2), bool)
    assert not largest_three(every, every, np.array([0, 0])).middle.any()
    assert not largest_three(every, np.zeros_like(every), np.array([1, 1])).middle.any()


def test_no_character_is_the_middle_one_of_both_kinds():
    behind, before = Three(of(4, 0), of(4, 1), of(4, 2)), Three(of(4, 3), of(4, 1, 2), of(4, 0, 1))
    found = Thirds.of(behind, before)
    assert found is not None
    assert [np.flatnonzero(part).tolist() for part in (*found.behind, *found.before)] == [[0], [1], [2], [3], [2], [0]]


def test_what_lacks_one_of_three_is_nothing():
    nothing, some = Three(of(2), of(2), of(2)), Three(of(2, 0), of(2, 1), of(2, 0))
    assert Thirds.of(nothing, some._replace(last=of(2))) is None
    found = Thirds.of(some, some)
    assert found is not None
    assert not any(part.any() for part in found.before)


def test_the_cut_stands_beside_the_middle_one_on_the_side_of_the_third():
    class_of = np.zeros(0x110000, np.uint8)
    class_of[[ord(c) for c in "_\xa0"]], class_of[[ord(c) for c in ".\xb7"]], class_of[ord("a")] = 1, 2, 3
    found = Thirds(Three(of(4, 1), of(4, 1), of(4, 3)), Three(of(4, 2), of(4, 2), of(4, 3)))

    def cut(text: str) -> str:
        cuts = cuts_by_thirds(code_points(text), class_of[code_points(text)], found)
        assert len(cuts) == max(len(text) - 1, 0)
        return "".join(c + "|" * bool(at < len(cuts) and cuts[at]) for at, c in enumerate(text))

    assert [cut(text) for text in ("", "_", "__", "__a", "___a_", "\xa0_a")] == [
        "",
        "_",
        "__",
        "_|_a",
        "__|_a_",
        "\xa0|_a",
    ]
    assert [cut(text) for text in ("..a", "..", ".a", "...aa", "\xb7.a")] == ["..|a", "..", ".a", "...|aa", "\xb7.|a"]
    assert [cut(text) for text in ("_\xa0a", ".\xb7a")] == ["_\xa0a", ".\xb7a"], "the middle one is not ASCII"


# --- real tokenizers

REAL = [
    ("gpt2", ["a| | b", "a|\n|\nb", "a|\n| b", "a| | 1", "a|  ", "!''|s", "x|::|add", "x|:|add"]),
    ("llama-3", ["a| | b", "a|\n\n|b", "a|\n| b", "a|\t|\t'", "x|::|add", "x|:add", "1|::|2", "!\n\n|a", "a|  "]),
    ("o200k_base", ["a| | b", "a|\n\n|b", "x|::|add", "x|//add", "x|:add"]),
    ("deepseek-v3", ["a| | b", "a|  |1", "a|  |中", "x|::|add", "x|:add"]),
    ("qwen3", ["a| | b", "a| | 1", "x|::|add", "é| :|é"]),
    ("falcon-7b", ["a| | b", "a|\n|\nb", "a|  |!"]),
    ("modernbert", ["a| | b", "a|\n|\nb", "a| | !", "x|:|add"]),
]


OFTEN = ["gpt2", "llama-3"]  # the others with the slow tests


@pytest.mark.parametrize(
    ("name", "expected"),
    [pytest.param(*case, marks=[] if case[0] in OFTEN else pytest.mark.slow, id=case[0]) for case in REAL],
)
def test_cuts_of_real_tokenizers_are_where_a_third_decides_and_sound(name, expected, definition_text, real_texts):
    definition = Definition.from_str(definition_text(f"shared/{name}"))
    tables = derive(definition)
    assert [cuts_of(text.replace("|", ""), tables) for text in expected] == expected
    sample = [text[:2_000] for language in ("en", "code", "zh") for text in real_texts(language, 20_000)]
    strings = [*soundness.class_strings(tables, 3_000), *random_texts(3, 2_000), *random_strings(random.Random(4), 500)]
    assert unsound(definition, tables, strings + sample) is None
    more, without = (
        sum(len(soundness.chunks_of(text, some, tables.taken)) for text in sample)
        for some in (tables, tables._replace(thirds=None))
    )
    assert more > 1.02 * without


# --- definitions


def splitting(pattern: str, behavior: str = "Isolated", invert: bool = False) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


CL100K = splitting(patterns.PATTERNS["cl100k"])
MARKED = splitting(r"a\.|\.!|[^c]")  # "a.|!", and no cut in "a..!": a. .!


def derived(parts: list[dict[str, Any]], *normalizers: Any) -> tuple[Definition, CutTables]:
    described = [{"type": kind} if isinstance(kind, str) else kind for kind in normalizers]
    definition = defined(described, parts)
    return definition, derive(definition)


def sound(definition: Definition, tables: CutTables, count: int = 500) -> bool:
    strings = [*soundness.class_strings(tables, count), *random_texts(5, count), *all_strings("a. \n", 5)]
    return unsound(definition, tables, strings) is None


@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_cuts_in_all_behaviors_are_sound(behavior, invert):
    definition, tables = derived([splitting(SPACES + r"|[^a\s]?a+|[^a\s]+", behavior, invert)])
    assert sound(definition, tables)
    matched_everywhere = behavior != "Contiguous"  # else neighbouring matches are one word
    assert (tables.thirds is not None) == matched_everywhere


@pytest.mark.parametrize(("part", "form"), [(CL100K, "NFC"), (CL100K, "NFKD"), (MARKED, "NFKC"), (MARKED, "NFD")])
def test_cuts_behind_normalizers_that_leave_ascii_are_sound(part, form):
    definition, tables = derived([part], form)
    assert tables.thirds is not None
    around = ["=\u0338a", "==\u0338a", ":=\u0338a", "::\u0338a", "  \u0338a", "a.\u0323!", "a\u2025!", "  \u1e9b\u0323"]
    assert sound(definition, tables)
    assert (
        unsound(definition, tables, [x + text + y for text in around for x in ("", "a", ":", " ") for y in ("", "a")])
        is None
    )


@pytest.mark.parametrize(
    ("parts", "normalizers"),
    [
        ([CL100K], ["Lowercase"]),
        ([CL100K], [{"type": "Replace", "pattern": {"String": "``"}, "content": '"'}]),
        ([CL100K], ["NFC", {"type": "Strip", "strip_left": True, "strip_right": False}]),
        ([GPT2 | {"add_prefix_space": True}], []),
        ([CL100K, GPT2 | {"add_prefix_space": True, "use_regex": False}], []),
        ([{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": False}, CL100K], []),
        ([{"type": "Digits", "individual_digits": True}], []),
    ],
)
def test_where_thirds_may_change_or_none_decides_there_are_none(parts, normalizers):
    assert derived(parts, *normalizers)[1].thirds is None


DIGITS = {"type": "Digits", "individual_digits": True}
STAGES = [
    ([DIGITS, CL100K], ["a| | b", "a|  |1"], "Digits takes the 1 away"),
    ([{"type": "Punctuation", "behavior": "Isolated"}, CL100K], ["a| | b", "a|  |!"], "Punctuation takes the ! away"),
    ([splitting(r"\p{N}{1,3}"), CL100K], ["a| | b", "a|  |1", "x|::|a"], "a number is a word of its own"),
    ([splitting(r"\S+"), CL100K], ["a|  b", "x|::add"], "spaces are alone in a word, and ::a might be divided"),
    ([splitting("::"), CL100K], ["a| | b", "x|::add"], "of ::: the last is with the letters"),
    ([{"type": "WhitespaceSplit"}, CL100K], ["x|::|add", "a|  b"], "spaces are gone"),
    ([CL100K, DIGITS], ["a| | b", "a| | 1"], "what comes behind sees words only"),
]


@pytest.mark.parametrize(("parts", "expected", "reason"), STAGES)
def test_a_third_decides_behind_other_parts_where_they_leave_it(parts, expected, reason):
    definition, tables = derived(parts)
    assert [cuts_of(text.replace("|", ""), tables) for text in expected] == expected, reason
    assert sound(definition, tables, 400)


def test_a_part_that_hides_every_third_leaves_none():
    assert derived([splitting(r"\S+"), splitting(SPACES)])[1].thirds is None


# --- wrong ones are found


def with_thirds(tables: CutTables, kind: str, **parts: np.ndarray) -> CutTables:
    assert tables.thirds is not None
    wrong = getattr(tables.thirds, kind)._replace(**parts)
    return tables._replace(thirds=tables.thirds._replace(**{kind: wrong}))


def test_sets_that_are_too_large_are_found():
    definition, tables = derived([CL100K])
    assert sound(definition, tables)
    every = np.ones(len(tables.certified), bool)
    for kind, part in [
        ("behind", "last"),
        ("behind", "middle"),
        ("before", "first"),
        ("before", "middle"),
        ("before", "last"),
    ]:
        assert not sound(definition, with_thirds(tables, kind, **{part: every})), (kind, part)


def test_a_middle_one_too_many_is_found():
    definition, tables = derived([CL100K])
    newline, letter = tables.class_of[[ord("\n"), ord("a")]]
    for kind, number in (("behind", newline), ("before", letter)):
        middle = getattr(tables.thirds, kind).middle.copy()
        middle[number] = True
        assert not sound(definition, with_thirds(tables, kind, middle=middle)), (kind, number)


def test_middle_ones_that_are_not_ascii_are_found(monkeypatch):
    definition, tables = derived([MARKED], "NFKC")
    assert tables.class_of[ord(".")] == tables.class_of[0x2025]  # which becomes two points
    assert unsound(definition, tables, ["a\u2025!", "a.!"]) is None
    monkeypatch.setattr(thirds, "ASCII", 0x110000)
    assert unsound(definition, tables, ["a\u2025!", "a.!"]) is not None


@pytest.mark.parametrize(("part", "section", "outside"), [(CL100K, "a  ", "b"), (splitting(SPACES), " \n", "x")])
def test_a_look_across_the_end_of_a_section_is_found(part, section, outside, monkeypatch):
    definition, tables = derived([part])
    cuts_inside = soundness.cuts_between

    def looking_across(code_point: np.ndarray, *others: Any) -> tuple[np.ndarray, ...]:
        longer = np.append(code_point, np.uint32(ord(outside)))
        return tuple(cuts[:-1] for cuts in cuts_inside(longer, *others))

    assert unsound(definition, tables, [section]) is None
    monkeypatch.setattr(soundness, "cuts_between", looking_across)
    assert unsound(definition, tables, [section]) is not None


def test_a_look_across_the_begin_of_a_section_is_found(monkeypatch):
    definition, tables = derived([CL100K])
    cuts_inside = soundness.cuts_between

    def looking_across(code_point: np.ndarray, *others: Any) -> tuple[np.ndarray, ...]:
        return tuple(cuts[1:] for cuts in cuts_inside(np.append(np.uint32(ord("!")), code_point), *others))

    assert unsound(definition, tables, [":add"]) is None
    monkeypatch.setattr(soundness, "cuts_between", looking_across)
    assert unsound(definition, tables, [":add"]) is not None


def together(splitter: splitters.Splitter) -> splitters.Splitter:
    return replace(splitter, together=np.ones_like(splitter.together))


def test_a_third_that_an_earlier_part_hides_is_found(monkeypatch):
    parts = [splitting("::"), CL100K]
    assert sound(*derived(parts), 400)
    monkeypatch.setattr(
        word_boundaries, "splitter_of", lambda part, where: together(splitters.splitter_of(part, where))
    )
    assert not sound(*derived(parts), 400)


# --- random definitions


def assert_random_definitions_are_sound(seed: int, least: int, count: int) -> None:
    """Until so many were looked at that have such cuts."""
    source, seen = random.Random(seed), 0
    patterns_at_hand = [SPACES, POINTS, patterns.PATTERNS["cl100k"], patterns.PATTERNS["gpt2"], *SMALL]
    while seen < least:
        forms = source.choice([[], [], ["NFC"], ["NFD"], ["NFKC"], ["NFKD"], ["NFKC", "NFD"]])
        others = [random_pre_tokenizer(source) for _ in range(source.choice([0, 0, 1, 2]))]
        part = splitting(source.choice(patterns_at_hand), source.choice(BEHAVIORS), source.random() < 0.3)
        others.insert(source.randint(0, len(others)), part)
        definition, tables = derived(others, *forms)
        if tables.thirds is not None:
            assert sound(definition, tables, count), (forms, others)
            seen += 1


@pytest.mark.parametrize("seed", range(3))
def test_cuts_of_random_definitions_are_sound(seed):
    assert_random_definitions_are_sound(seed, 1, 400)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_cuts_of_many_random_definitions_are_sound(seed):
    assert_random_definitions_are_sound(seed, 10, 1_500)
