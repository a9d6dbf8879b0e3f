"""The native normalizers against the reference's, code point by code point."""

from __future__ import annotations

import itertools
import json
import random

import numpy as np
import oracle
import pytest
import texts
import vocabularies
from hypothesis import given, settings
from random_definitions import random_normalizer, random_strings
from tokenizers import Regex, Tokenizer, models, normalizers

from cpu_ref.normalize import normalize_text
from gpu_tok.tables import ends, unicode
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.normalizer import NormalizerTables, compile_normalizer
from gpu_tok.tables.refusal import CannotCompile
from gpu_tok.tables.unicode import code_points
from gpu_tok.tables.variants import variant

BERT_OPTIONS = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
FORMS = [normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD()]
PARTS = [
    *FORMS,
    normalizers.Lowercase(),
    normalizers.StripAccents(),
    normalizers.BertNormalizer(),
    normalizers.BertNormalizer(lowercase=False),
]
SEQUENCES = [
    normalizers.Sequence([]),
    normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()]),
    normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]),
    normalizers.Sequence([normalizers.Lowercase(), normalizers.NFC()]),
    normalizers.Sequence([normalizers.StripAccents(), normalizers.NFC(), normalizers.NFKD()]),
    normalizers.Sequence([normalizers.NFC(), normalizers.Sequence([normalizers.BertNormalizer(), normalizers.NFKC()])]),
]
REPLACING = [
    normalizers.Replace(" ", "▁"),
    normalizers.Replace("e", " e "),
    normalizers.Replace("\u200d", ""),
    normalizers.Replace("``", '"'),
    normalizers.Replace("aa", "a"),
    normalizers.Replace("a", "$0"),
    normalizers.Replace(Regex(r"\s+"), " "),
    normalizers.Replace(Regex(r" {2,}"), "▁"),
    normalizers.Replace(Regex(r"\p{M}"), ""),
    normalizers.Replace(Regex(r"\p{L}(?=\p{M})|K"), "<$1>"),
    normalizers.Strip(),
    normalizers.Strip(left=False),
    normalizers.Strip(right=False),
    normalizers.Prepend("▁"),
    normalizers.Prepend("a\u0301 "),
    normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
    normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]),
    normalizers.Sequence([normalizers.Strip(), normalizers.Prepend("e"), normalizers.NFC()]),
]
ALL = PARTS + SEQUENCES + REPLACING
WHOLE_SECTION = ends.SECTION_FIRST | ends.SECTION_LAST

# What reorders, composes, expands, vanishes or changes case, in the older and the newer parts of Unicode.
TROUBLE = [
    *"aAeEoOIiſK ",
    *("\u0300", "\u0301", "\u0307", "\u0308", "\u0315", "\u0323", "\u0327", "\u0328", "\u0334", "\u0345", "\u0344"),
    *("\u0340", "\u0f71", "\u0f72", "\u0f73", "\u0f74", "\u0f80", "\u093c", "\u094d", "\u05b0", "\u05bf", "\u064b"),
    *("\u0651", "\u0653", "\u0654", "\u0655", "\u0670", "\u0711", "\u3099", "\u309a", "\u302e", "\u20e3", "\u034f"),
    *("\u1100", "\u1112", "\u1113", "\u1160", "\u1161", "\u1175", "\u1176", "\u11a7", "\u11a8", "\u11c2", "\u11c3"),
    *("\uac00", "\uac01", "\ud55c", "\ud788", "\ud7a3", "\u3131", "\uffa1", "\uffc2"),
    *("か", "は", "ハ", "が", "ぱ", "ｶ", "ﾊ", "ﾞ", "ﾟ", "゛"),
    *("İ", "ı", "Σ", "ς", "ß", "ẞ", "ﬁ", "ﬃ", "ǅ", "\ufdfa", "\u1e9b", "Å", "Ω", "Ậ", "ṩ", "ǖ", "ΰ", "ᾳ", "ᾷ"),
    *("\u0958", "\u09c7", "\u09be", "\u09d7", "\u0dd9", "\u0dcf", "\u0dca", "\u1025", "\u102e", "\ufb2c", "\ufb1d"),
    *("\U00011099", "\U000110ba", "\U00011131", "\U00011127", "\U000114b9", "\U000114b0", "\U0001d15e", "\U0001d165"),
    *("\U0001d16e", "\U0001d1bc", "\U0001e8d0", "\U0001e944", "\U00010d24", "\U00011f42", "\U00016d67", "\U000105d2"),
    *("\x00", "\t", "\x0b", "\x7f", "\x85", "\xa0", "\xad", "\u200d", "\u2028", "\u3000", "\ufffd", "\ufeff"),
    *("中", "豈", "\u4dc0", "\u9fff", "\U0002a6df", "\U0002b81f", "\U0002b820", "\U0002b91f", "\U0002b920"),
    *("\U0002ceaf", "\U0002ceb0", "\U0002f800", "\U0002fa1f", "\U0002fa20", "\U00030000"),
    *("\ue000", "\U000f0000", "\U0010ffff", "\u0378", "\U000e0041", "\U0001f600", "\ua64b", "\u1c80", "\U00010570"),
]


def definition_of(normalizer: normalizers.Normalizer) -> Definition:
    reference = Tokenizer(models.WordPiece({"[UNK]": 0}))
    reference.normalizer = normalizer
    return Definition(reference)


def name_of(normalizer: normalizers.Normalizer) -> str:
    described = json.loads(normalizer.__getstate__())
    return described["type"] if described["type"] in ("NFC", "NFD", "NFKC", "NFKD") else str(normalizer)[:60]


@pytest.fixture(scope="module", params=ALL, ids=[f"{index}-{name_of(each)}" for index, each in enumerate(ALL)])
def both(request) -> tuple[normalizers.Normalizer, NormalizerTables]:
    return request.param, compile_normalizer(definition_of(request.param))


def native(text: str, tables: NormalizerTables, flags: int = WHOLE_SECTION) -> str:
    code_point = np.frombuffer(text.encode("utf-32-le"), np.uint32).copy()
    return normalize_text(code_point, flags, tables).tobytes().decode("utf-32-le")


def assert_same(some_texts, both) -> None:
    normalizer, tables = both
    for text in some_texts:
        expected, actual = normalizer.normalize_str(text), native(text, tables)
        assert actual == expected, f"{text!a} becomes {actual!a}, not {expected!a}"


def lines_of(pieces: list[str], size: int = 1000):
    r"""Many pieces in few texts, apart by U+0001, which nothing composes with and no mark moves over."""
    return ("\x01".join(pieces[begin : begin + size]) for begin in range(0, len(pieces), size))


def test_every_code_point_alone(both):
    assert_same(map(chr, itertools.chain(range(0x3400), range(0xA000, 0xAD00), range(0xF900, 0x10000))), both)


def test_code_points_beside_others(both):
    every = code_points()
    assert_same(lines_of([*map(chr, every[:0x20000]), *map(chr, every[0x20000::16])]), both)


@pytest.mark.slow
def test_every_code_point_beside_others(both):
    assert_same(lines_of(list(map(chr, code_points()))), both)


@pytest.mark.parametrize("normalizer", FORMS, ids=name_of)
def test_every_first_before_every_second(normalizer):
    both = normalizer, compile_normalizer(definition_of(normalizer))
    firsts = {*unicode.compositions()[:, 0].tolist(), *map(ord, TROUBLE), *range(0x1100, 0x1113)}
    seconds = [*np.flatnonzero(unicode.has("seconds")).tolist(), 0x11A7, 0x1176, 0x11C3]
    assert_same(lines_of([chr(first) + chr(second) for first in firsts for second in seconds]), both)


def test_pairs_of_troublemakers(both):
    assert_same(lines_of([first + second for first in TROUBLE for second in TROUBLE]), both)


def test_random_troublemakers(both):
    assert_same(texts.random_texts(seed=5, count=4000, longest=12, alphabet=TROUBLE), both)


def test_random_marks_behind_letters(both):
    marks = [chr(c) for c in np.flatnonzero(unicode.combining_class())]
    assert_same(texts.random_texts(seed=6, count=2000, longest=8, alphabet=[*marks, *"aeouAI" * 40]), both)


def test_hard_texts_and_random_code_points(both):
    assert_same([*texts.TEXTS, *texts.random_texts(7, 500), *texts.random_code_points(8, 1000)], both)


@pytest.mark.parametrize("language", ["en", "zh", "ko", "hi", "vi", "multi"])
def test_real_texts(language, real_texts):
    some_texts = real_texts(language, 60_000)
    for normalizer in [*FORMS, normalizers.BertNormalizer(), normalizers.BertNormalizer(lowercase=False)]:
        assert_same(some_texts, (normalizer, compile_normalizer(definition_of(normalizer))))


@settings(max_examples=60, deadline=None)
@given(text=texts.strategy())
def test_texts_of_hypothesis(both, text):
    assert_same([text], both)


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 100, 5000])
def test_runs_of_marks_of_every_length(count):
    source = random.Random(count)
    marks = [chr(c) for c in np.flatnonzero(unicode.combining_class()) if len(unicode.image("nfd").row(c)) == 1]
    for normalizer in FORMS:
        tables = compile_normalizer(definition_of(normalizer))
        assert_same(["a" + "".join(source.choices(marks, k=count)) + "b\u0301"], (normalizer, tables))


@pytest.mark.parametrize(
    "options", [*itertools.product([False, True], [False, True], [None, False, True], [False, True])]
)
def test_the_four_options_of_bert(options):
    normalizer = normalizers.BertNormalizer(**dict(zip(BERT_OPTIONS, options, strict=True)))
    both = normalizer, compile_normalizer(definition_of(normalizer))
    assert_same([*texts.TEXTS, *texts.random_texts(9, 200, alphabet=TROUBLE), *map(chr, range(0x250))], both)


def test_nothing_outgrows_the_room_that_the_tables_ask_for(both):
    _normalizer, tables = both
    for text in [*TROUBLE, "\ufdfa" * 50, "ΐ" * 50, "豈" * 50, "".join(TROUBLE)]:
        assert len(native(text, tables)) <= len(text) * tables.expansion


def test_a_text_of_ascii_takes_the_short_way_to_the_same_end(both):
    every = "".join(map(chr, range(128)))
    assert_same([every, every + "é", "", "A"], both)


def test_no_normalizer_leaves_texts_alone():
    tables = compile_normalizer(Definition(Tokenizer(models.WordPiece({"[UNK]": 0}))))
    assert [native(text, tables) for text in TROUBLE] == TROUBLE


def test_other_parts_are_refused_by_their_place():
    inner = {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, {"type": "Nmt"}]}
    described = json.loads(Tokenizer(models.WordPiece({"[UNK]": 0})).to_str())
    described["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFC"}, inner]}
    with pytest.raises(CannotCompile, match="`Nmt`") as refused:
        compile_normalizer(Definition.from_str(json.dumps(described)))
    assert refused.value.part == "normalizer.normalizers[1].normalizers[1]"


def random_definition(source: random.Random) -> Definition:
    parts = [random_normalizer(source, []) for _ in range(source.randint(1, 4))]
    model = {"type": "BPE", "vocab": {}, "merges": []}
    return Definition.from_str(json.dumps({"normalizer": {"type": "Sequence", "normalizers": parts}, "model": model}))


def first_difference(definition: Definition, some_texts, tables: NormalizerTables | None = None):
    """The first text that becomes something else than by the definition's variant, for any end flags."""
    tables = tables or compile_normalizer(definition)
    for flags in (0, ends.SECTION_FIRST, ends.SECTION_LAST, WHOLE_SECTION):
        normalizer = variant(definition, flags).normalizer
        for text in some_texts:
            expected, actual = normalizer.normalize_str(text), native(text, tables, flags)
            if actual != expected:
                return flags, text, actual, expected
    return None


def count_of_same(seeds: range) -> int:
    """How many random normalizers have a program; each must make what the reference makes."""
    compiled = 0
    for seed in seeds:
        source = random.Random(seed)
        definition = random_definition(source)
        try:
            tables = compile_normalizer(definition)
        except CannotCompile:
            continue
        compiled += 1
        some_texts = ["", " ", "  a  ", *random_strings(source, 60)]
        assert first_difference(definition, some_texts, tables) is None, (seed, definition.normalizers)
    return compiled


def test_random_sequences_of_parts_under_all_end_flags():
    assert count_of_same(range(30)) > 12


@pytest.mark.slow
def test_many_random_sequences_of_parts_under_all_end_flags():
    assert count_of_same(range(1000, 1600)) > 250


BPE_NAMES = vocabularies.names(vocabularies.BYTE_LEVEL, vocabularies.SENTENCEPIECE, sources=("own", "shared"))


@pytest.mark.parametrize("name", BPE_NAMES)
def test_the_normalizers_of_tokenizers(name, definition_text):
    empty = {"type": "BPE", "vocab": {}, "merges": []}
    described = oracle.changed(definition_text(name), model=empty, added_tokens=[], pre_tokenizer=None)
    definition = Definition.from_str(described)
    if definition.normalizers:
        assert first_difference(definition, [*texts.TEXTS, *texts.random_texts(12, 100)]) is None


def test_a_broken_program_is_found():
    definition = definition_of(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace("aa", "b")]))
    tables = compile_normalizer(definition)
    some_texts = ["a", "aa", "aaa", "baab"]
    assert first_difference(definition, some_texts, tables) is None
    for broken in (tables._replace(steps=tables.steps[::-1].copy()), tables._replace(step=tables.step ^ np.uint32(1))):
        assert first_difference(definition, some_texts, broken) is not None


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (normalizers.Replace(Regex("(?<=a)b"), ""), "look-behind"),
        (normalizers.Replace(Regex("a*"), "b"), "empty text"),
        (normalizers.Replace(Regex("a+b"), ""), "again and again"),
        (normalizers.Replace("", "a"), "empty text"),
        (normalizers.Nmt(), "`Nmt`"),
    ],
    ids=["look-behind", "empty match", "quadratic", "empty literal", "Nmt"],
)
def test_what_has_no_program_is_refused_by_its_reason(part, reason):
    with pytest.raises(CannotCompile, match=r"^normalizer: ") as refused:
        compile_normalizer(definition_of(part))
    assert reason in refused.value.reason
