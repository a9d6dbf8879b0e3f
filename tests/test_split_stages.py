"""Words that stages make, against the reference's pre-tokenizers: characters and borders."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
import oracle
import pytest
import texts
import vocabularies
from hypothesis import given, settings
from hypothesis import strategies as some
from patterns import PATTERNS, representatives
from random_definitions import BEHAVIORS, random_pre_tokenizer, random_strings
from tokenizers import Regex, models, pre_tokenizers

from cpu_ref.split_stages import words_of
from gpu_tok.batch import starts_of
from gpu_tok.tables import ends, unicode, word_stages
from gpu_tok.tables.definition import Definition, Part
from gpu_tok.tables.refusal import CannotCompile
from gpu_tok.tables.regex import compile_regex
from gpu_tok.tables.rescan import rescans
from gpu_tok.tables.searches import NEXT
from gpu_tok.tables.variants import flags_that_matter, variant
from gpu_tok.tables.word_stages import FIRST, PARTED, PREFIX, WordStages, compile_word_stages

NO_TEXT = "\U0010fffe"  # parts many strings of one text
ALL_FLAGS = [0, ends.SUBSECTION_FIRST, ends.DOCUMENT_FIRST, ends.DOCUMENT_FIRST | ends.SUBSECTION_FIRST]
GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
FALCON = [{"type": "Punctuation", "behavior": "Contiguous"}, GPT2, {"type": "Digits", "individual_digits": False}]
EMPTY_MODEL = {"type": "BPE", "vocab": {}, "merges": []}


@pytest.fixture(scope="module", autouse=True)
def _each_pattern_is_compiled_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_stages, "compile_regex", cache(compile_regex))
        yield


def definition_of(*parts: Part, normalizer: Part | None = None) -> Definition:
    sequence = {"type": "Sequence", "pretokenizers": list(parts)}
    return Definition.from_str(json.dumps({"normalizer": normalizer, "pre_tokenizer": sequence, "model": EMPTY_MODEL}))


def split(pattern: str, behavior: str = "Isolated", invert: bool = False) -> Part:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def metaspace(scheme: str, split: bool = True) -> Part:
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


def spans(stages: WordStages, batch: list[str], flags: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The words of all texts, found in one call: characters, rows (start, end), and which words each text has."""
    starts = starts_of(np.array([len(text) for text in batch], np.int64))
    code_point = np.frombuffer("".join(batch).encode("utf-32-le"), np.uint32)
    return words_of(code_point, starts, np.full(len(batch), flags, np.uint8), stages)


def words(stages: WordStages, batch: list[str], flags: int = 0) -> list[list[str]]:
    made, word, word_starts = spans(stages, batch, flags)
    text = made[: word.max(initial=0)].tobytes().decode("utf-32-le")
    all_words = [text[start:end] for start, end in word.tolist()]
    return [all_words[begin:end] for begin, end in itertools.pairwise(word_starts.tolist())]


def first_difference(definition: Definition, batch: list[str], flags: int = 0, stages: WordStages | None = None) -> Any:
    """The first text whose words are not the reference's, with both; None if there is none."""
    reference = variant(definition, flags)
    found = words(stages or compile_word_stages(definition), batch, flags)
    for text, got in zip(batch, found, strict=True):
        expected = [word for word in oracle.pre_tokenize(reference, text) if word]  # an empty word has no pieces
        if got != expected:
            return text, got, expected
    return None


def first_split_apart(pattern: str, strings: Iterable[str], stages: WordStages | None = None) -> str | None:
    """The same for one pattern and very many strings: the reference is asked about many in one text, in which a
    splitter has parted them before."""
    reference = pre_tokenizers.Sequence(
        [pre_tokenizers.CharDelimiterSplit(NO_TEXT), pre_tokenizers.Split(Regex(pattern), "isolated")]
    )
    stages = stages or compile_word_stages(definition_of(split(pattern)))
    found = (first_in_batch_split_apart(reference, stages, batch) for batch in blocks(strings))
    return next((text for text in found if text is not None), None)


def first_in_batch_split_apart(reference: Any, stages: WordStages, batch: list[str]) -> str | None:
    _made, word, word_starts = spans(stages, batch)
    word += np.repeat(np.arange(len(batch)), np.diff(word_starts))[:, None]  # the separators before
    expected = np.array([span for _word, span in reference.pre_tokenize_str(NO_TEXT.join(batch))])
    if word.shape == expected.shape and (word == expected).all():
        return None
    wrong = int((word[: len(expected)] != expected[: len(word)]).any(axis=1).argmax())
    return batch[int(np.searchsorted(word_starts, wrong, side="right")) - 1]


def all_strings(alphabet: str, longest: int) -> Iterable[str]:
    return ("".join(row) for size in range(1, longest + 1) for row in itertools.product(alphabet, repeat=size))


def blocks(strings: Iterable[str], count: int = 200_000) -> Iterator[list[str]]:
    """Very many strings, some at a time."""
    left = iter(strings)
    return iter(lambda: list(itertools.islice(left, count)), [])


@cache
def one_of_each_atom(name: str) -> str:
    return "".join(representatives(compile_regex(PATTERNS[name]).atom_of, 1))


def edges_of_atoms(name: str) -> list[str]:
    """The first and the last of each run of code points that a pattern cannot tell apart."""
    atom_of = compile_regex(PATTERNS[name]).atom_of
    last = np.flatnonzero(atom_of[1:] != atom_of[:-1])
    edges = np.unique(np.concatenate([[0, len(atom_of) - 1], last, last + 1]))
    return [chr(edge) for edge in edges if not 0xD800 <= edge < 0xE000 and chr(edge) != NO_TEXT]


def beside_others(characters: Iterable[str]) -> Iterator[str]:
    """Each of them where a letter, a digit, a space or a sign may go with it."""
    return (text for c in characters for text in (f"a{c}b", f" {c}1{c}", f"'{c}! {c}\n", f"A{c}{c}/"))


# Patterns


@pytest.mark.parametrize("name", PATTERNS)
def test_all_short_strings_over_the_atoms_of_a_pattern_split_as_the_reference(name: str) -> None:
    longest = 4 if len(one_of_each_atom(name)) < 11 else 3
    assert first_split_apart(PATTERNS[name], all_strings(one_of_each_atom(name), longest)) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", PATTERNS)
def test_all_strings_of_five_over_the_atoms_of_a_pattern_split_as_the_reference(name: str) -> None:
    assert first_split_apart(PATTERNS[name], all_strings(one_of_each_atom(name), 5)) is None


@pytest.mark.parametrize("name", PATTERNS)
def test_random_strings_split_as_the_reference(name: str) -> None:
    alphabet = [*"".join(representatives(compile_regex(PATTERNS[name]).atom_of, 3)), "'s", "'ll", "  ", "12"]
    strings = [text for text in texts.random_texts(seed=2, count=3000, longest=25, alphabet=alphabet) if text]
    assert first_split_apart(PATTERNS[name], strings) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", PATTERNS)
def test_a_million_random_strings_split_as_the_reference(name: str) -> None:
    alphabet = [*"".join(representatives(compile_regex(PATTERNS[name]).atom_of, 5)), "'s", "'LL", "  ", "123", "\r\n"]
    strings = (text for seed in range(10) for text in texts.random_texts(seed, 100_000, 15, alphabet) if text)
    assert first_split_apart(PATTERNS[name], strings) is None


@pytest.mark.parametrize("name", PATTERNS)
def test_where_classes_of_code_points_begin_and_end(name: str) -> None:
    assert first_split_apart(PATTERNS[name], beside_others(edges_of_atoms(name))) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", PATTERNS)
def test_every_code_point_splits_as_the_reference(name: str) -> None:
    every = (chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and chr(c) != NO_TEXT)
    assert first_split_apart(PATTERNS[name], (f"a{c}1{c}'{c} {c}!{c}\n{c}{c}" for c in every)) is None


@pytest.mark.parametrize("invert", [False, True], ids=["", "inverted"])
@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_every_behavior_of_split(behavior: str, invert: bool) -> None:
    strings = ["", *all_strings("ab -", 5), *texts.TEXTS]
    for pattern in (r"a+", r"a|b", r"ab|\s+(?!\S)|\s", r"\w"):
        assert first_difference(definition_of(split(pattern, behavior, invert)), strings) is None
    literal = {"type": "Split", "pattern": {"String": "aab"}, "behavior": behavior, "invert": invert}
    assert first_difference(definition_of(literal), strings) is None


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_the_matches_of_real_patterns_under_every_behavior(behavior: str) -> None:
    batch = [*texts.TEXTS, *texts.random_texts(seed=4, count=200)]
    for name, invert in itertools.product(("cl100k", "deepseek words", "falcon", "clip"), (False, True)):
        assert first_difference(definition_of(split(PATTERNS[name], behavior, invert)), batch) is None


# Parts and sequences of them


@pytest.mark.parametrize("prefix", [False, True], ids=["", "prefix"])
@pytest.mark.parametrize("use_regex", [False, True], ids=["whole", "regex"])
def test_byte_level_writes_the_references_characters(use_regex: bool, prefix: bool) -> None:
    part = GPT2 | {"use_regex": use_regex, "add_prefix_space": prefix}
    lines = ["".join(map(chr, block)) for block in unicode.blocks(0x400)]
    for flags in (0, ends.SUBSECTION_FIRST):
        assert first_difference(definition_of(part), [*texts.TEXTS, " a", "  a", "\xa0a", *lines[:200]], flags) is None


def test_stages_behind_byte_level_see_bytes_as_characters() -> None:
    definition = definition_of(*FALCON, split("[0-9][0-9][0-9]"))
    assert words(compile_word_stages(definition), ["ò12345"]) == [["Ã", "²", "123", "45"]]
    assert first_difference(definition, texts.TEXTS) is None


def test_bytes_of_bytes() -> None:
    assert first_difference(definition_of(GPT2, GPT2, GPT2), [text for text in texts.TEXTS if len(text) < 500]) is None


@pytest.mark.parametrize("flags", ALL_FLAGS)
@pytest.mark.parametrize("scheme", ["always", "first", "never"])
def test_metaspace_puts_its_prefix_where_the_reference_does(scheme: str, flags: int) -> None:
    batch = ["", " ", "a", " a", "▁a", "a b", "a  b ", "-a", "--", "a-", "a- b-▁c", *texts.TEXTS]
    for splits in (True, False):
        part = metaspace(scheme, splits)
        assert first_difference(definition_of(part), batch, flags) is None
        assert (
            first_difference(definition_of({"type": "CharDelimiterSplit", "delimiter": "-"}, part), batch, flags)
            is None
        )


@pytest.mark.parametrize("flags", ALL_FLAGS)
def test_a_prefix_goes_to_every_word_of_an_earlier_splitter(flags: int) -> None:
    digits, level = {"type": "Digits", "individual_digits": False}, GPT2 | {"add_prefix_space": True}
    definition = definition_of(digits, level)
    assert words(compile_word_stages(definition), ["a1b"], flags) == [["Ġa", "Ġ1", "Ġb"]]
    for parts in [(digits, level), (level, digits), (GPT2 | {"use_regex": False}, level), (level, level)]:
        assert first_difference(definition_of(*parts), texts.TEXTS, flags) is None


def random_parts(seed: int) -> tuple[list[Part], random.Random]:
    source = random.Random(seed)
    return [random_pre_tokenizer(source) for _ in range(source.randint(1, 4))], source


def assert_random_parts_split_as_the_reference(seed: int) -> bool:
    """Whether they have stages at all."""
    parts, source = random_parts(seed)
    definition = definition_of(*parts)
    try:
        stages = compile_word_stages(definition)
    except CannotCompile:
        return False
    batch = ["", *random_strings(source, 60), *source.sample(texts.TEXTS, 5)]
    for flags in ALL_FLAGS:
        assert first_difference(definition, batch, flags, stages) is None, (seed, parts, flags)
    return True


def test_random_sequences_split_as_the_reference_under_all_flags() -> None:
    assert sum(map(assert_random_parts_split_as_the_reference, range(25))) > 14


@pytest.mark.slow
def test_many_random_sequences_split_as_the_reference_under_all_flags() -> None:
    assert sum(map(assert_random_parts_split_as_the_reference, range(1000, 2500))) > 900


@settings(max_examples=30, deadline=None)
@given(some.integers(0, 300), some.sampled_from(ALL_FLAGS), texts.strategy())
def test_any_sequence_splits_any_text_as_the_reference(seed: int, flags: int, text: str) -> None:
    definition = definition_of(*random_parts(seed)[0])
    try:
        stages = compile_word_stages(definition)
    except CannotCompile:
        return
    assert first_difference(definition, [text], flags, stages) is None


# Whole definitions


@cache
def compiled(name: str) -> tuple[Definition, WordStages]:
    """Its normalizer and its pre-tokenizer alone."""
    definition = Definition.from_str(oracle.changed(vocabularies.text(name), model=EMPTY_MODEL, added_tokens=[]))
    return definition, compile_word_stages(definition)


def regexes_of(definition: Definition) -> set[str]:
    parts = [part["pattern"] for part in definition.pre_tokenizers if part["type"] == "Split"]
    return {pattern["Regex"] for pattern in parts if "Regex" in pattern}


@pytest.mark.parametrize("name", vocabularies.names())
def test_the_words_of_a_tokenizer_are_the_references(name: str, definition_text: Callable[[str], str]) -> None:
    definition_text(name)
    definition, stages = compiled(name)
    if name.startswith("shared/") and vocabularies.kind_of(name) == vocabularies.BYTE_LEVEL:
        assert regexes_of(definition) <= {*PATTERNS.values()}, "the tests of patterns miss one"
    batch = [*texts.TEXTS, *texts.random_texts(5, 100), *texts.random_code_points(6, 100)]
    kept = flags_that_matter(definition)
    for flags in sorted({each & kept for each in ALL_FLAGS}):
        reference = variant(definition, flags)
        normalized = [oracle.normalize(reference, text) for text in batch]
        assert first_difference(definition, normalized, flags, stages) is None, flags


def one_of_each_class(stages: WordStages) -> str:
    """A character for each combination of the classes that the stages have of it."""
    _classes, first = np.unique(stages.atom_of, axis=1, return_index=True)
    return "".join(chr(c) for c in sorted(first) if not 0xD800 <= c < 0xE000)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["shared/deepseek-v3", "shared/falcon-7b", "shared/clip-vit-base"])
def test_all_short_strings_over_the_classes_of_all_stages(name: str, definition_text: Callable[[str], str]) -> None:
    definition_text(name)
    definition, stages = compiled(name)
    alphabet = one_of_each_class(stages)
    longest = next(size for size in range(5, 1, -1) if len(alphabet) ** size < 1_500_000)
    for strings in blocks(all_strings(alphabet, longest)):
        assert first_difference(definition, strings, 0, stages) is None


@pytest.mark.parametrize("language", ["en", "code", "zh", "ja", "hi", "multi", "markdown"])
def test_the_words_of_real_texts_are_the_references(
    language: str, definition_text: Callable[[str], str], real_texts: Callable[..., list[str]]
) -> None:
    for name in ("gpt2", "o200k_base", "deepseek-v3", "kimi-k2", "falcon-7b", "clip-vit-base", "mistral-v3"):
        definition_text(f"shared/{name}")
        definition, stages = compiled(f"shared/{name}")
        assert first_difference(definition, real_texts(language, 10_000), 0, stages) is None


# The form of the call


def test_each_text_has_its_own_words() -> None:
    stages = compile_word_stages(definition_of(GPT2))
    assert words(stages, ["", "a b", "", " ", "c", ""]) == [[], ["a", "Ġb"], [], ["Ġ"], ["c"], []]
    assert words(stages, []) == []


def test_each_text_has_its_own_flags() -> None:
    stages = compile_word_stages(definition_of(metaspace("always")))
    code_point, starts = np.array([97, 98, 99], np.uint32), np.array([0, 1, 2, 3])
    made, word, word_starts = words_of(code_point, starts, np.array([8, 0, 12], np.uint8), stages)
    assert [made[start:end].tolist() for start, end in word] == [[0x2581, 97], [98], [0x2581, 99]]
    assert word_starts.tolist() == [0, 1, 2, 3]


def test_without_a_pre_tokenizer_a_text_is_one_word() -> None:
    assert words(compile_word_stages(definition_of()), ["a b, c", "", " "]) == [["a b, c"], [], [" "]]


def test_neighbouring_splitters_by_kind_are_one_stage() -> None:
    parts = [{"type": "WhitespaceSplit"}, {"type": "Digits", "individual_digits": True}, {"type": "BertPreTokenizer"}]
    assert len(compile_word_stages(definition_of(*parts)).stage) == 1
    assert len(compile_word_stages(definition_of(parts[0], split("a"), parts[1])).stage) == 3


def test_a_broken_table_is_found() -> None:
    definition = definition_of(split(PATTERNS["gpt2"]), metaspace("always"))
    strings = list(all_strings("a 1!'s\n", 3))
    assert first_difference(definition, strings) is None
    stages = compile_word_stages(definition)
    for column, value in [(PARTED, 0), (PREFIX, ord("x"))]:
        stage = stages.stage.copy()
        stage[0 if column == PARTED else 1, column] = value
        assert first_difference(definition, strings, 0, stages._replace(stage=stage)) is not None


@pytest.mark.parametrize(("behind", "before"), [" \n", "  ", "a ", "aa", "!a", "\n "])
def test_a_wrong_entry_is_found(behind: str, before: str) -> None:
    stages = compile_word_stages(definition_of(split(PATTERNS["gpt2"])))
    atom = {letter: int(stages.atom_of[0, ord(letter)]) for letter in behind + before}
    row = int(stages.step[stages.stage[0, FIRST] + atom[behind]]) >> NEXT
    step = stages.step.copy()
    step[row + atom[before]] = 0  # no accept, and no thread goes on
    strings = all_strings("a 1!'\n", 3)
    assert first_split_apart(PATTERNS["gpt2"], strings, stages._replace(step=step)) is not None


@pytest.mark.parametrize("name", PATTERNS)
def test_a_long_run_takes_time_linear_in_its_length(name: str) -> None:
    stages = compile_word_stages(definition_of(split(PATTERNS[name])))
    for unit in ("a", " ", "1", "!", "\n", " \n", "'", "aA", "中"):
        begun = time.process_time()
        spans(stages, [unit * 100_000 + "x"])
        assert time.process_time() - begun < 1, repr(unit)


@pytest.mark.parametrize(
    ("pattern", "expected", "reason"),
    [
        (r"a+b", True, "each a begins an attempt that runs to the last one"),
        (r"<[^>]*>", True, "each < does"),
        (r"\s*[\r\n]+", True, "each space does"),
        (r"\s*[\r\n]+|\s+(?!\S)|\s+", False, "the second attempt takes all the spaces that the first has passed"),
        (r"\w+@\w+|\w+", False, "what was read in vain is a match of its own"),
        (r'"[^"]*"', False, "the second attempt begins at a quotation mark, where the first one would have ended"),
        (r"\p{L}++| +", False, "a possessive repetition is certain of its match"),
        (r"\d+(?:\.\d+)*", False, "what is read in vain is one point"),
    ],
)
def test_patterns_that_may_read_the_same_again_and_again(pattern: str, expected: bool, reason: str) -> None:
    assert rescans(compile_regex(pattern)) == expected, reason


REFUSED = [
    ([{"type": "UnicodeScripts"}], 0, "`UnicodeScripts`"),
    ([GPT2, {"type": "FixedLength", "length": 5}], 1, "`FixedLength`"),
    ([split("(?<=a)b")], 0, "look-behind"),
    ([GPT2, split("a+b")], 1, "again and again"),
    ([GPT2, metaspace("first")], 1, "begins at byte 0"),
]


@pytest.mark.parametrize(("parts", "at", "reason"), REFUSED, ids=[reason for *_rest, reason in REFUSED])
def test_what_has_no_stages_is_refused_by_place_and_reason(parts: list[Part], at: int, reason: str) -> None:
    with pytest.raises(CannotCompile) as refusal:
        compile_word_stages(definition_of(*parts))
    assert refusal.value.part == f"pre_tokenizer.pretokenizers[{at}]"
    assert reason in refusal.value.reason


def test_which_word_begins_at_byte_0_is_known_while_nothing_has_changed_the_text() -> None:
    parts = {"type": "WhitespaceSplit"}, metaspace("first")
    compile_word_stages(definition_of(*parts))
    with pytest.raises(CannotCompile, match="byte 0"):
        compile_word_stages(definition_of(*parts, normalizer={"type": "NFC"}))
    compile_word_stages(definition_of(metaspace("first"), normalizer={"type": "NFC"}))
    with pytest.raises(CannotCompile, match="byte 0"):
        compile_word_stages(definition_of(metaspace("first"), normalizer={"type": "StripAccents"}))


@pytest.mark.parametrize(
    "normalizer",
    [
        *({"type": kind} for kind in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "ByteLevel", "Nmt")),
        *(
            {"type": "BertNormalizer", "handle_chinese_chars": True, "lowercase": lowercase}
            | {"clean_text": clean, "strip_accents": strips}
            for clean, strips, lowercase in itertools.product((False, True), (False, True, None), (False, True))
        ),
        *({"type": "Strip", "strip_left": left, "strip_right": True} for left in (False, True)),
        *({"type": "Prepend", "prepend": prefix} for prefix in ("a", "ab")),
        *(
            {"type": "Replace", "pattern": {"String": given}, "content": made}
            for given, made in (("a", "b"), ("a", "bcd"), ("中", "b"), ("a", ""), ("ab", "c"), ("ab", "abc"))
        ),
        {"type": "Replace", "pattern": {"Regex": "a+"}, "content": "c"},
    ],
    ids=str,
)
def test_a_text_begins_at_byte_0_unless_its_beginning_is_deleted_or_replaced(normalizer: Part) -> None:
    """The reference says so by `prepend_scheme: first`, which acts there and nowhere else."""
    described = {"normalizer": normalizer, "pre_tokenizer": metaspace("first", split=False), "model": EMPTY_MODEL}
    definition = Definition.from_str(json.dumps(described))
    vocab = {character: at for at, character in enumerate(map(chr, [*range(0x500), 0x2581, 0x4E2D]))}
    definition.reference.model = models.BPE(vocab, [])
    strings = ["".join(row) for size in (1, 2, 3) for row in itertools.product("ab \x01é\u0301中İ", repeat=size)]
    left = [text for text in strings if oracle.normalize(definition.reference, text).lstrip(" ▁")]
    begun = [row.ids[:1] == [vocab["▁"]] for row in definition.reference.encode_batch_fast(left)]
    assert all(begun) or not word_stages.keeps_beginning(normalizer)
    assert not all(begun) or word_stages.keeps_beginning(normalizer) or "Regex" in str(normalizer)
