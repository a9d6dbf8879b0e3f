"""Splitters: a cut that a splitter calls independent leaves the part's words alone, by the oracle's own words."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from patterns import PATTERNS, representatives
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from gpu_tok.tables.refusal import CannotCompile
from gpu_tok.tables.splitters import GPT2_PATTERN, Splitter, boundaries, splitter_of

BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]


def part_of(reference):
    """A pre-tokenizer as tokenizer.json spells it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = reference
    return json.loads(tokenizer.to_str())["pre_tokenizer"]


def words(reference, text):
    return [word for word, _span in reference.pre_tokenize_str(text)]


def first_unsound(splitter: Splitter, reference, tries: int, seed: int = 1):
    """The first cut that a splitter allows and the oracle does not, with the words it makes; None if there is none."""
    source = random.Random(seed)
    of_atom = representatives(splitter.atom_of, 2)
    alphabet = "".join(of_atom)
    pairs = np.argwhere(splitter.independent)
    for _ in range(tries):
        a, b = pairs[source.randrange(len(pairs))]
        left = "".join(source.choices(alphabet, k=source.randint(0, 5))) + source.choice(of_atom[a])
        right = source.choice(of_atom[b]) + "".join(source.choices(alphabet, k=source.randint(0, 5)))
        whole, before, behind = words(reference, left + right), words(reference, left), words(reference, right)
        apart = before + behind
        joined = [*before[:-1], "".join(before[-1:] + behind[:1]), *behind[1:]]
        if whole != apart and (splitter.boundary[a, b] or whole != joined):
            return left, right, whole, apart
    return None


def splits():
    for name, pattern in PATTERNS.items():
        for behavior, invert in [("isolated", False), ("removed", True)]:
            yield pytest.param(pre_tokenizers.Split(Regex(pattern), behavior, invert), id=f"{name} {behavior}")
    for pattern in ["[0-9][0-9][0-9]", "a|b+c?", "a+", r"'s| ?\p{L}+|\s+(?!\S)", "ab|b|abc+"]:
        for behavior in BEHAVIORS:
            for invert in (False, True):
                name = f"{pattern} {behavior}" + " inverted" * invert
                yield pytest.param(pre_tokenizers.Split(Regex(pattern), behavior, invert), id=name)
    for behavior in BEHAVIORS:
        yield pytest.param(pre_tokenizers.Split("aab", behavior), id=f"literal {behavior}")
        yield pytest.param(pre_tokenizers.Punctuation(behavior), id=f"Punctuation {behavior}")
    yield pytest.param(pre_tokenizers.BertPreTokenizer(), id="BertPreTokenizer")
    yield pytest.param(pre_tokenizers.Whitespace(), id="Whitespace")
    yield pytest.param(pre_tokenizers.WhitespaceSplit(), id="WhitespaceSplit")
    yield pytest.param(pre_tokenizers.Digits(individual_digits=True), id="Digits, each")
    yield pytest.param(pre_tokenizers.Digits(individual_digits=False), id="Digits, runs")
    yield pytest.param(pre_tokenizers.CharDelimiterSplit("|"), id="CharDelimiterSplit")
    yield pytest.param(pre_tokenizers.Metaspace(prepend_scheme="never"), id="Metaspace")
    yield pytest.param(pre_tokenizers.Metaspace("x", "never", False), id="Metaspace without split")
    yield pytest.param(pre_tokenizers.ByteLevel(add_prefix_space=False), id="ByteLevel")
    yield pytest.param(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False), id="ByteLevel without split")


@pytest.mark.parametrize("reference", list(splits()))
def test_a_cut_that_a_stage_allows_changes_no_word(reference):
    assert first_unsound(splitter_of(part_of(reference), "pre_tokenizer"), reference, tries=2000) is None


@pytest.mark.slow
@pytest.mark.parametrize("reference", list(splits()))
def test_a_cut_that_a_stage_allows_changes_no_word_in_many_tries(reference):
    assert first_unsound(splitter_of(part_of(reference), "pre_tokenizer"), reference, tries=30_000, seed=2) is None


@cache
def by_pattern_named(name):
    reference = pre_tokenizers.Split(Regex(PATTERNS[name]), "isolated")
    return splitter_of(part_of(reference), "pre_tokenizer"), reference


@pytest.mark.parametrize("name", ["gpt2", "cl100k", "o200k", "deepseek numbers", "deepseek words"])
def test_the_check_finds_a_table_that_allows_every_cut(name):
    splitter, reference = by_pattern_named(name)
    all_pairs = replace(splitter, independent=np.ones_like(splitter.independent))
    assert first_unsound(all_pairs, reference, tries=5000) is not None


@pytest.mark.parametrize(("a", "b"), ["\na", " 1", "'s"])
def test_the_check_finds_one_pair_too_many(a, b):
    splitter, reference = by_pattern_named("gpt2")
    one_pair = np.zeros_like(splitter.independent)
    one_pair[splitter.atom_of[ord(a)], splitter.atom_of[ord(b)]] = True
    assert not (splitter.independent & one_pair).any()
    assert first_unsound(replace(splitter, independent=one_pair), reference, tries=5000) is not None


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_the_check_finds_boundaries_too_many(behavior):
    reference = pre_tokenizers.Punctuation(behavior)
    splitter = splitter_of(part_of(reference), "pre_tokenizer")
    everywhere = replace(splitter, boundary=np.ones_like(splitter.boundary))
    assert first_unsound(everywhere, reference, tries=500) is not None


def can_cut(name, a, b):
    splitter, _splitter = by_pattern_named(name)
    at = splitter.atom_of[ord(a)], splitter.atom_of[ord(b)]
    return bool(splitter.independent[at] and splitter.boundary[at])


CUTS = [
    ("gpt2", "a ", True, "a letter ends its word before a space"),
    ("gpt2", "a1", True, "and before a digit"),
    ("gpt2", "!\n", True, "and a symbol before a newline"),
    ("gpt2", "ab", False, "one word"),
    ("gpt2", "\na", False, "two newlines before a letter are two words, at an end one"),
    ("gpt2", " a", False, "the space belongs to the word"),
    ("gpt2", " 1", False, "and the spaces before it keep one back"),
    ("gpt2", "'s", False, "a contraction"),
    ("gpt2", "'x", True, "none"),
    ("gpt2", "'S", True, "none: case counts here"),
    ("gpt2", "a'", True, "a word ends before its contraction"),
    ("cl100k", "\na", True, "newlines are matched before look-ahead is asked"),
    ("cl100k", "\n1", True, "the same"),
    ("cl100k", "\n\n", False, "one word"),
    ("cl100k", "\n ", False, "white space before a newline is one word"),
    ("cl100k", "'x", False, "a symbol goes with the letters behind it"),
    ("cl100k", "'S", False, "a contraction in any case"),
    ("cl100k", "'\u017f", False, "long s folds"),
    ("cl100k", "'1", True, "digits stay alone"),
    ("cl100k", "12", False, "three digits at a time, from the left"),
    ("qwen", "12", True, "each digit is a word"),
    ("o200k", "\n/", False, "newlines and slashes go with the symbol before them"),
    ("o200k", "\nx", True, "newlines behind a symbol end its word, whatever comes"),
    ("o200k", "/x", False, "a symbol goes with the letters behind it"),
    ("o200k", "aA", True, "a capital begins a word behind a small letter"),
    ("o200k", "Aa", False, "a small letter goes with it"),
    ("o200k", "中A", False, "without case it may be followed by both"),
    ("tekken", "\n/", False, "the same"),
    ("kimi", "中a", True, "Han is apart"),
    ("kimi", "a中", True, "on both sides"),
    ("deepseek numbers", "a1", True, "a number begins"),
    ("deepseek numbers", "ab", False, "nothing matches here"),
    ("deepseek han", "中a", True, "Han ends"),
    ("falcon", "a1", False, "three digits or none"),
]


@pytest.mark.parametrize(("name", "pair", "expected", "reason"), CUTS)
def test_where_a_pattern_can_be_cut(name, pair, expected, reason):
    assert can_cut(name, *pair) == expected, reason


def test_byte_level_splits_as_its_pattern_says():
    by_name = splitter_of(part_of(pre_tokenizers.ByteLevel(add_prefix_space=False)), "pre_tokenizer")
    by_pattern = splitter_of(part_of(pre_tokenizers.Split(Regex(GPT2_PATTERN), "isolated")), "pre_tokenizer")
    assert (by_name.independent == by_pattern.independent).all()
    assert by_name.makes_bytes
    assert not by_pattern.makes_bytes


def test_a_stage_tells_what_the_part_adds_and_replaces():
    metaspace = splitter_of(part_of(pre_tokenizers.Metaspace("▁", "first")), "pre_tokenizer")
    assert (metaspace.prefix, metaspace.prefix_scheme, metaspace.replaces) == ("▁", "first", (0x20, 0x2581))
    assert splitter_of(part_of(pre_tokenizers.Metaspace()), "pre_tokenizer").prefix_scheme == "always"
    byte_level = splitter_of(part_of(pre_tokenizers.ByteLevel(add_prefix_space=True)), "pre_tokenizer")
    assert (byte_level.prefix, byte_level.prefix_scheme) == (" ", "always")
    assert (
        splitter_of(part_of(pre_tokenizers.ByteLevel(add_prefix_space=False)), "pre_tokenizer").prefix_scheme == "never"
    )


def test_metaspace_looks_at_both_spaces():
    splitter = splitter_of(part_of(pre_tokenizers.Metaspace("▁", "never")), "pre_tokenizer")
    assert splitter.atom_of[ord(" ")] == splitter.atom_of[ord("▁")] != splitter.atom_of[ord("a")]


@pytest.mark.parametrize("reference", [pre_tokenizers.UnicodeScripts(), pre_tokenizers.FixedLength(5)])
def test_parts_without_known_cuts_are_refused_by_name(reference):
    with pytest.raises(CannotCompile, match=r"pretokenizers\[1\]: .*" + type(reference).__name__):
        splitter_of(part_of(reference), "pre_tokenizer.pretokenizers[1]")


def test_a_refused_pattern_names_its_place():
    with pytest.raises(CannotCompile, match=r"^pre_tokenizer: `\(\?<=` \(look-behind\)"):
        splitter_of(part_of(pre_tokenizers.Split(Regex("(?<=a)b"), "isolated")), "pre_tokenizer")


def test_atoms_that_may_be_inside_a_match_are_no_boundary():
    sometimes = np.array([False])
    names = ["Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"]
    assert not any(boundaries(sometimes, sometimes, name).any() for name in names)
