"""The Unicode tables say what the reference says."""

from __future__ import annotations

import random

import numpy as np
import pytest
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from gpu_tok.tables import make_unicode, unicode

MEMBERS = np.load(unicode.PATH)
PROPERTIES = [name[4:] for name in MEMBERS.files if name.startswith("has_")]
SURROGATES = slice(0xD800, 0xE000)


def is_text(code_point: int) -> bool:
    return not 0xD800 <= code_point < 0xE000


def interesting(name: str, count: int = 400) -> list[int]:
    """Code points on both sides of each place where a property begins or ends, and some others."""
    borders = np.flatnonzero(np.diff(unicode.has(name)))
    others = random.Random(name).sample(range(unicode.CODE_POINTS), count)
    others += random.Random(name).sample(range(0x3200), count)
    return sorted(filter(is_text, {*borders.tolist(), *(borders + 1).tolist(), *others}))


def differences(name: str, says) -> list[str]:
    has = unicode.has(name)
    return [f"U+{c:04X}" for c in interesting(name) if says(chr(c)) != has[c]]


def test_the_tables_come_from_the_reference_that_is_installed():
    assert unicode.made_by() == tokenizers.__version__


@pytest.mark.parametrize("name", PROPERTIES)
def test_surrogates_have_no_property(name):
    assert not unicode.has(name)[SURROGATES].any()


@pytest.mark.parametrize("name", ["nfc", "nfd", "nfkc", "nfkd", "lowercase"])
def test_an_image_is_what_the_normalizer_makes_of_one_code_point(name):
    normalizer = make_unicode.NORMALIZERS[name]
    image = unicode.image(name)
    changed, rows = unicode.image_changes(name)
    sample = random.Random(name).sample(range(unicode.CODE_POINTS), 3000)
    for c in filter(is_text, [*changed[:: max(1, len(changed) // 5000)].tolist(), *sample]):
        assert "".join(map(chr, image.row(c))) == normalizer.normalize_str(chr(c)), f"U+{c:04X}"
    assert [image.row(c).tolist() for c in changed[:50]] == [rows.row(i).tolist() for i in range(50)]
    assert image.row(0xD800).tolist() == [0xD800]


@pytest.mark.parametrize("name", [name for name in PROPERTIES if name.startswith("re_")])
def test_regex_classes_are_those_of_split(name):
    split = pre_tokenizers.Split(Regex(make_unicode.PATTERNS[name]), "removed")
    assert not differences(name, lambda c: split.pre_tokenize_str(c) == [])


@pytest.mark.parametrize(
    ("name", "splitter", "pieces"),
    [
        ("bert_punctuation", pre_tokenizers.BertPreTokenizer(), 3),
        ("bert_whitespace", pre_tokenizers.BertPreTokenizer(), 2),
        ("white", pre_tokenizers.WhitespaceSplit(), 2),
        ("numeric", pre_tokenizers.Digits(individual_digits=True), 3),
        ("punctuation", pre_tokenizers.Punctuation(), 3),
        ("whitespace_w", pre_tokenizers.Whitespace(), 1),
        ("whitespace_s", pre_tokenizers.Whitespace(), 2),
    ],
)
def test_splitters_see_what_the_table_says(name, splitter, pieces):
    assert not differences(name, lambda c: len(splitter.pre_tokenize_str(f"a{c}a")) == pieces)


def bert(**options) -> normalizers.BertNormalizer:
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**(off | options))


@pytest.mark.parametrize(
    ("name", "normalizer", "result"),
    [
        ("bert_deleted", bert(clean_text=True), lambda c: ""),
        ("bert_space", bert(clean_text=True), lambda c: " "),
        ("bert_cjk", bert(handle_chinese_chars=True), lambda c: f" {c} "),
        ("bert_mark", bert(strip_accents=True), lambda c: ""),
        ("accent", normalizers.StripAccents(), lambda c: ""),
    ],
)
def test_normalizers_act_where_the_table_says(name, normalizer, result):
    assert not differences(name, lambda c: normalizer.normalize_str(c) == result(c))


def test_strip_eats_what_whitespace_split_splits_at():
    strip = normalizers.Strip()
    assert not differences("white", lambda c: strip.normalize_str(f"{c}a{c}") == "a")


def added_token_ids(text: str, **flags) -> list[int]:
    tokenizer = Tokenizer(models.WordLevel({"?": 0}, "?"))
    tokenizer.add_tokens([AddedToken("qz", normalized=False, **flags)])
    return tokenizer.encode(text).ids


def test_a_single_word_token_minds_word_characters_on_both_sides():
    assert not differences("added_w", lambda c: added_token_ids(f"{c}qz", single_word=True) == [0])
    assert not differences("added_w", lambda c: added_token_ids(f"qz{c}", single_word=True) == [0])


def test_lstrip_and_rstrip_eat_the_same_white_space():
    assert not differences("added_s", lambda c: added_token_ids(f"{c}qz", lstrip=True) == [1])
    assert not differences("added_s", lambda c: added_token_ids(f"qz{c}", rstrip=True) == [1])


def test_a_property_that_is_not_stored_is_asked_for():
    assert np.flatnonzero(unicode.has("re_Runic"))[0] == 0x16A0
    assert unicode.matched_by(r"[[:punct:]&&\p{ASCII}]").sum() == 32


def test_names_that_nobody_knows_are_errors():
    with pytest.raises(ValueError, match="invalid character property"):
        unicode.has("re_NoSuchScript")
    with pytest.raises(KeyError, match="no_such_property"):
        unicode.has("no_such_property")


def test_marks_stand_in_the_order_of_their_classes():
    order = normalizers.NFD().normalize_str
    classes = unicode.combining_class()
    marks = [c for c in np.flatnonzero(classes).tolist() if order(chr(c)) == chr(c)]
    shuffled = random.Random(7).sample(marks, len(marks))
    expected = sorted(shuffled, key=lambda c: classes[c])  # sorted() is stable, as the reference's sort has to be
    assert order("a" + "".join(map(chr, shuffled))) == "a" + "".join(map(chr, expected))


def test_starters_stay_before_and_behind_marks_of_every_class():
    order = normalizers.NFD().normalize_str
    for c in interesting("starter"):
        if unicode.has("starter")[c] and order(chr(c)) == chr(c):
            text = f"a\u0345{chr(c)}\u0334"
            assert order(text) == text, f"U+{c:04X}"


def test_every_first_with_every_second_composes_as_the_table_says():
    compose, take_apart = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str
    composed = {(first, second): made for first, second, made in unicode.compositions().tolist()}
    firsts, seconds = ({row[column] for row in composed} for column in (0, 1))
    for first, second in ((first, second) for first in firsts for second in seconds):
        pair = chr(first) + chr(second)
        if (first, second) in composed:
            assert compose(pair) == chr(composed[first, second])
        elif take_apart(chr(first)) == chr(first):  # else the second may join a part of the first: Â, dot below
            assert compose(pair) == pair


@pytest.mark.slow
def test_no_other_code_point_composes_with_a_second():
    compose = normalizers.NFC().normalize_str
    whole = np.ones(unicode.CODE_POINTS, bool)
    whole[unicode.image_changes("nfd")[0]] = False
    firsts = [c for c in unicode.code_points().tolist() if whole[c] and c != ord("\n")]
    pairs = {(first, second) for first, second, _made in unicode.compositions().tolist() if whole[first]}
    pairs |= {(lead, vowel) for lead in range(0x1100, 0x1113) for vowel in range(0x1161, 0x1176)}
    for second in np.flatnonzero(unicode.has("seconds")).tolist():
        # Behind each pair a newline, so that no pair sees another one.
        made = compose("".join(f"{chr(first)}{chr(second)}\n" for first in firsts)).split("\n")
        joined = {first for first, both in zip(firsts, made, strict=False) if len(both) == 1}
        assert joined == {first for first, mark in pairs if mark == second}, f"U+{second:04X}"


@pytest.mark.slow
def test_the_stored_tables_are_what_the_reference_says_today():
    made = make_unicode.make()
    assert sorted(made) == sorted(MEMBERS.files)
    for name, member in made.items():
        np.testing.assert_array_equal(member, MEMBERS[name], err_msg=name)
