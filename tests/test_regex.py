"""Patterns to automata: the matches are the oracle's, or the pattern is refused."""

from __future__ import annotations

import string
from functools import cache

import pytest
import texts
from patterns import PATTERNS, finder, reference_matches, representatives, strings_over
from tokenizers import pre_tokenizers

from gpu_tok.tables.atoms import only
from gpu_tok.tables.refusal import CannotCompile
from gpu_tok.tables.regex import compile_literal, compile_regex

NAMES = list(PATTERNS)

compiled = cache(compile_regex)


def first_difference(pattern, strings):
    """The first string whose matches are not the oracle's, with both; None if there is none."""
    automaton, find = compiled(pattern), finder(pattern)
    for text in strings:
        found, expected = automaton.find_matches(text), [span for _match, span in find.pre_tokenize_str(text)]
        if found != expected:
            return text, found, expected
    return None


def one_of_each_atom(name):
    return "".join(representatives(compiled(PATTERNS[name]).atom_of, 1))


@pytest.mark.parametrize("name", NAMES)
def test_matches_are_the_oracles_on_short_strings_over_all_atoms(name):
    assert first_difference(PATTERNS[name], strings_over(one_of_each_atom(name), 8000)) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_matches_are_the_oracles_on_many_strings_over_all_atoms(name):
    assert first_difference(PATTERNS[name], strings_over(one_of_each_atom(name), 200_000)) is None


@pytest.mark.parametrize("name", NAMES)
def test_matches_are_the_oracles_on_random_strings_over_three_of_each_atom(name):
    alphabet = "".join(representatives(compiled(PATTERNS[name]).atom_of, 3))
    assert first_difference(PATTERNS[name], strings_over(alphabet, 2000, longest=25)) is None


@pytest.mark.parametrize("name", NAMES)
def test_matches_are_the_oracles_on_hard_texts(name):
    hard = [text for text, _reason in texts.HARD_TEXTS] + texts.random_texts(seed=3, count=300)
    assert first_difference(PATTERNS[name], hard) is None


@pytest.mark.parametrize("language", ["en", "code", "zh", "ja", "ko", "hi", "multi", "markdown"])
def test_matches_are_the_oracles_on_real_texts(language, real_texts):
    sample = real_texts(language, 15_000)
    assert all(first_difference(pattern, sample) is None for pattern in PATTERNS.values())


PLAIN = "xaAbBc-&ABC]{}\x08 \n123kKsStſKßﬆﬀfi\t/'é"
TAKEN = [
    ("a{,2}b", "an interval without its lower bound"),
    ("a{2}", "an interval of one number"),
    ("a{2,}", "an interval without its upper bound"),
    ("a{1,2}+", "not possessive: an interval is repeated"),
    ("a{2,3}+b", "not possessive: a whole interval can be given back"),
    ("a{0}b", "never there"),
    ("a{", "a brace that opens no interval"),
    ("a{,}", "no interval either"),
    ("}|]|&|-", "characters that mean nothing outside sets"),
    ("a++a|b", "possessive: the second a is never left over"),
    ("a?+b", "possessive or nothing"),
    ("a?+[ab]|c", "possessive, and behind it one more a"),
    ("[ab]*+c|a", "possessive over a set"),
    ("(?:a|b)++c", "possessive over branches of one character"),
    ("(a|ab)(c|bc)", "the first branch wins, unless the rest then fails"),
    ("(?:ab|a)b?", "the longer branch first"),
    ("(?:a|ab){2,}c?", "branches inside a repetition"),
    ("(?:a{2,3})+", "a repetition inside a repetition"),
    ("a|(?i:b)|c", "case is ignored inside the group only"),
    ("(?i:a(?-i:b))", "and minded again inside"),
    ("(?i)a|b", "to the end of its group"),
    ("(?:(?i)a|b)c", "which may be an inner one"),
    ("(?i:k)|(?i:s)", "U+212A and U+017F"),
    ("(?i:[a-z]+)", "the same for a set"),
    ("(?i:[s][t])", "two sets are no ligature"),
    ("s(?i:s)", "only one of them ignores case"),
    ("a(?=b)", "look-ahead that must find something"),
    ("a(?!b)b?", "look-ahead in the middle"),
    ("(?=a|[bc])\\w", "look-ahead at the beginning, over branches"),
    ("\\s+(?!\\S)|\\s+", "the end of the text is fine for a negative one"),
    ("\\s(?=\\s)", "and not for a positive one"),
    ("[a-c&&b-d]", "both"),
    ("[a-c&&[^b]x]", "`&&` binds weaker than a list"),
    ("[^a-c&&[ab]]", "and stronger than `^`"),
    ("[\\p{L}&&[a-z]&&[^b]]", "three"),
    ("[^a-c[d-z]]", "a nested set belongs to what is negated"),
    ("[a&b]", "a single `&` is itself"),
    ("[-a]|[b-]", "`-` at an end is itself"),
    ("[&-a]", "a range from `&`"),
    ("[\\x{41}-\\x{43}]|\\u0061|\\x62", "characters by number"),
    ("[\\]\\-\\[\\n\\t]|\\/", "escapes"),
    ("\\p{^L}|\\P{Lu}", "negated classes"),
    ("\\P{^Lu}", "negated twice"),
    ("[^\\s\\p{L}\\p{N}]+", "a negated list of classes"),
    ("\\D\\W\\S", "negated short classes"),
    ("\\p{Alpha}", "a class that is not stored is asked for"),
    ("é+", "not ASCII"),
]


@pytest.mark.parametrize(("pattern", "reason"), TAKEN)
def test_a_pattern_is_read_as_oniguruma_reads_it(pattern, reason):
    assert first_difference(pattern, strings_over(PLAIN, 2000)) is None, reason


def test_case_is_ignored_as_oniguruma_ignores_it():
    pattern = "(?i:" + "|".join(string.ascii_lowercase) + ")"
    everything = "".join(chr(c) for c in range(0x20000) if not 0xD800 <= c < 0xE000)
    assert compile_regex(pattern).find_matches(everything) == reference_matches(pattern, everything)


REFUSED = [
    ("(?<=a)b", "look-behind"),
    ("(?<!a)b", "look-behind"),
    ("\\ba", "an anchor"),
    ("^a", "an anchor"),
    ("a$", "an anchor"),
    (".", "any character"),
    ("a+?", "a lazy quantifier"),
    ("a{2}?", "a lazy quantifier"),
    ("(a)\\1", "a back reference"),
    ("a(?!bc)", "look-ahead at more than one character"),
    ("a(?=b*)", "look-ahead at more than one character"),
    ("(?>a)", "an atomic group"),
    ("(?<n>a)", "a named group"),
    ("(?m:a)", "an unknown kind of group"),
    ("x(?i)a", "an unknown kind of group"),
    ("(?:ab)++", "a possessive quantifier behind more than one character"),
    ("a**", "a quantifier of a quantifier"),
    ("(?:a?)+", "a repeated part that can be empty"),
    ("a{3,2}", "a quantifier with its bounds exchanged"),
    ("a*", "can match the empty text"),
    ("", "can match the empty text"),
    ("a|", "can match the empty text"),
    ("(?!a)", "can match the empty text"),
    ("(?i:ss)", "ligature"),
    ("(?i:s)(?i:t)", "ligature"),
    ("(?i:(?:x|f)(?:i|y))", "ligature"),
    ("(?i:f{2})", "ligature"),
    ("(?i:é)", "beyond ASCII"),
    ("(?i:[^a])", "a negated set where case is ignored"),
    ("(?i:\\p{L})", "a class of characters where case is ignored"),
    ("[[:alpha:]]", "a POSIX class"),
    ("\\p{Nope}", "a class unknown here"),
    ("\\h", "an escape unknown here"),
    ("a{1,99999}", "instructions"),
    ("[ab]*a[ab]{30}", "too many states"),
    ("(" * 5000 + "a" + ")" * 5000, "nested too deeply"),
]


@pytest.mark.parametrize(("pattern", "reason"), REFUSED)
def test_a_pattern_that_is_not_understood_is_refused_by_name(pattern, reason):
    with pytest.raises(CannotCompile, match=r"^pre_tokenizer: .*") as refusal:
        compile_regex(pattern, "pre_tokenizer")
    assert reason in refusal.value.reason


@pytest.mark.parametrize("literal", ["<!dummy-prefix!>", " ", "aab", "a.b*[", "▁"])
def test_a_literal_is_found_as_the_oracle_finds_it(literal):
    find = pre_tokenizers.Split(literal, "removed", invert=True)
    automaton = compile_literal(literal)
    for text in strings_over("".join(sorted({*literal, "a", "b"})), 3000):
        doubled = text + literal + text
        assert automaton.find_matches(doubled) == [span for _match, span in find.pre_tokenize_str(doubled)]


def test_an_empty_literal_is_refused():
    with pytest.raises(CannotCompile, match="empty text"):
        compile_literal("")


def test_a_long_run_takes_one_step_a_character():
    automaton = compile_regex(PATTERNS["cl100k"])
    assert automaton.find_matches("a" * 300_000) == [(0, 300_000)]


def test_atoms_that_are_always_inside_a_match_and_those_that_never_are():
    automaton = compile_regex("[0-9]{2}|a|b+c?")
    inside, outside = automaton.always_inside(), automaton.never_inside()
    atom = {c: automaton.atom_of[ord(c)] for c in "1abcx"}
    assert [c for c in "1abcx" if inside[atom[c]]] == ["a", "b"]
    assert [c for c in "1abcx" if outside[atom[c]]] == ["x"]


def test_only_holds_its_characters_and_nothing_else():
    assert only("ba").nonzero()[0].tolist() == [97, 98]
