"""Merging neighbours against the reference's `BPE`."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as some
from package_vocabularies import byte_letters
from texts import TEXTS
from tokenizers import Tokenizer, models, pre_tokenizers
from vocabularies import BYTE_LEVEL, SENTENCEPIECE, names

from cpu_ref.merge import merge
from gpu_tok.tables.bpe import FIRST, LAST, BpeTables, compile_bpe, symbols
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.letters import LANES, LETTERS, no_letters
from gpu_tok.tables.pair_entries import BUCKET, MULTIPLIER, NO_ENTRY, NO_RANK, RANK_BITS, SHORT, build_entries
from gpu_tok.tables.refusal import CannotCompile

Merges = list[tuple[str, str]]
QUICK = [*names(BYTE_LEVEL, SENTENCEPIECE, sources=("own",)), "package/gpt2", "shared/gpt2", "shared/llama-2"]
QUICK += ["shared/clip-vit-base"]
SLOW = [name for name in names(BYTE_LEVEL, SENTENCEPIECE) if name not in QUICK]
UNK = "<unk>"
FALLBACK = {UNK: 0, "a": 1, "b": 2, "<0xC3>": 3, "<0xA9>": 4, "<0x78>": 5, "ab": 6, "<0xC3><0xA9>": 7, "<unk>a": 8}
FALLBACK_MERGES = [("<unk>", "a"), ("<0xC3>", "<0xA9>"), ("a", "b")]


def model_of(vocab: dict[str, int], merges: Iterable[tuple[str, str]], **options: Any) -> models.BPE:
    return models.BPE(vocab, list(merges), **{name: value for name, value in options.items() if value is not None})


def tables_of(model: models.BPE) -> BpeTables:
    return compile_bpe(Definition(Tokenizer(model)))


def ids_of(tables: BpeTables, words: list[str]) -> list[list[int]]:
    """The ids of each word, all found in one call."""
    code_point = np.frombuffer("".join(words).encode("utf-32-le"), np.uint32).copy()
    borders = np.cumsum([0] + [len(word) for word in words])
    word = np.stack([borders[:-1], borders[1:]], axis=1)
    ids, id_starts = np.empty(len(code_point) * tables.expansion, np.int32), np.empty(len(words) + 1, np.int64)
    merge(code_point, word, np.arange(len(words) + 1), tables, ids, id_starts)
    return [ids[begin:end].tolist() for begin, end in itertools.pairwise(id_starts.tolist())]


def without_letters(tables: BpeTables, short: int) -> BpeTables:
    """The same tables, by which words of few letters are merged as all others."""
    return tables._replace(short=short, letters=no_letters())


def assert_same_ids(model: models.BPE, words: list[str], tables: BpeTables | None = None) -> None:
    for word, got in zip(words, ids_of(tables or tables_of(model), words), strict=True):
        assert got == [token.id for token in model.tokenize(word)], word[:200]


def all_words(alphabet: str, longest: int) -> list[str]:
    return ["".join(w) for length in range(1, longest + 1) for w in itertools.product(alphabet, repeat=length)]


def alone(text: str) -> Tokenizer:
    """The tokenizer of a definition with nothing but its model."""
    return Tokenizer(Tokenizer.from_str(text).model)


def words_for(reference: Tokenizer, source: random.Random, count: int) -> list[str]:
    """Words that are hard for a vocabulary: its pieces, pieces in a row, its characters, and some it does not know."""
    vocab = list(reference.get_vocab(with_added_tokens=False))
    letters = [piece for piece in vocab if len(piece) == 1] + ["中", "é", "\U0001f600", "\x00"]
    words = source.sample(vocab, min(count, len(vocab)))
    words += ["".join(source.choices(vocab, k=source.randint(2, 5))) for _ in range(count)]
    words += ["".join(source.choices(letters, k=source.randint(1, 60))) for _ in range(count)]
    few = source.sample(letters, min(4, len(letters)))
    words += ["".join(source.choices(few, k=source.randint(1, 40))) for _ in range(count)]
    return [word for word in words if word]


def real_words(reference: Tokenizer, texts: list[str]) -> list[str]:
    """What the whole tokenizer hands its model, each word once."""
    words: dict[str, None] = {}
    for text in texts:
        normal = reference.normalizer.normalize_str(text) if reference.normalizer else text
        split = reference.pre_tokenizer.pre_tokenize_str(normal) if reference.pre_tokenizer else [(normal, (0, 0))]
        words.update(dict.fromkeys(word for word, _span in split if word))
    return list(words)


def check_vocabulary(text: str, texts: list[str], count: int) -> None:
    whole = Tokenizer.from_str(text)
    tables = compile_bpe(Definition(whole))
    words = real_words(whole, texts) + words_for(whole, random.Random(7), count)
    assert_same_ids(whole.model, words, tables)
    if tables.short:
        sample = words[:: max(1, len(words) // 2000)]
        found = ids_of(tables, sample)
        assert ids_of(without_letters(tables, SHORT), sample) == found, "letters and the search part ways"
        assert ids_of(without_letters(tables, 0), sample) == found, "the heap and the search part ways"


@pytest.mark.parametrize("name", QUICK)
def test_words_of_a_vocabulary(name: str, definition_text: Callable[[str], str]) -> None:
    check_vocabulary(definition_text(name), [text for text in TEXTS if len(text) < 5000], 700)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_real_words_of_every_vocabulary(
    name: str, definition_text: Callable[[str], str], real_texts: Callable[..., list[str]]
) -> None:
    texts = [
        text for language in ("en", "code", "zh", "ja", "ru", "hi", "multi") for text in real_texts(language, 150_000)
    ]
    check_vocabulary(definition_text(name), texts, 20_000)


# Order of merges


def test_the_lowest_rank_is_merged_first_and_of_equal_ones_the_leftmost() -> None:
    model = model_of({"a": 0, "b": 1, "aa": 2, "ab": 3, "aab": 4}, [("a", "a"), ("a", "b"), ("a", "ab")])
    assert ids_of(tables_of(model), ["aaa", "aaab", "ab", "aab"]) == [[2, 0], [2, 3], [3], [2, 1]]
    assert_same_ids(model, all_words("ab", 9))


def test_words_side_by_side() -> None:
    model = model_of({"h": 0, "u": 1, "g": 2, "ug": 3, "hug": 4, "中": 5}, [("u", "g"), ("h", "ug")], unk_token=None)
    assert ids_of(tables_of(model), ["hugg", "中hu", "?hug?"]) == [[4, 2], [5, 0, 1], [4]]


def test_merges_are_spelled_as_strings_or_as_pairs() -> None:
    """Pairs, as newer files have them, may hold pieces with spaces."""
    vocab = {"a": 0, "b": 1, " ": 2, "ab": 3, "ba": 4, " a": 5, "aba": 6, " ab": 7}
    pairs = [["b", "a"], ["a", "b"], ["ab", "a"], [" ", "a"], [" a", "b"]]
    for merges in (pairs, pairs[:3], [" ".join(pair) for pair in pairs[:3]]):
        definition = Definition.from_str(json.dumps({"model": {"type": "BPE", "vocab": vocab, "merges": merges}}))
        tables = compile_bpe(definition)
        assert len(tables.merged_id) == len(merges)
        assert_same_ids(definition.reference.model, all_words("ab ", 6), tables)


def test_of_equal_merges_the_last_rank_counts() -> None:
    vocab = {"a": 0, "b": 1, "ab": 2, "ba": 3}
    model = model_of(vocab, [("a", "b"), ("b", "a"), ("a", "b")])
    assert ids_of(tables_of(model), ["aba"]) == [[0, 3]]
    assert_same_ids(model, all_words("ab", 8))


def test_an_entry_that_no_merge_makes_is_never_taken() -> None:
    assert ids_of(tables_of(model_of({"a": 0, "b": 1, "ab": 2, "abb": 3}, [("a", "b")])), ["abb"]) == [[2, 1]]


def test_another_order_of_merges_is_noticed() -> None:
    vocab = {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4}
    model, other = (model_of(vocab, merges) for merges in ([("a", "b"), ("b", "c")], [("b", "c"), ("a", "b")]))
    with pytest.raises(AssertionError, match="abc"):
        assert_same_ids(model, ["ab", "bc", "abc"], tables_of(other))


@some.composite
def merge_lists(draw: Callable[..., Any]) -> tuple[dict[str, int], Merges]:
    """Merges over three letters in any order, repeated ones and such as come before their parts too."""
    known = ["a", "b", "c"]
    merges: Merges = []
    for left, right in draw(some.lists(some.tuples(some.integers(0, 30), some.integers(0, 30)), max_size=14)):
        pair = known[left % len(known)], known[right % len(known)]
        merges.append(pair)
        if "".join(pair) not in known:
            known.append("".join(pair))
    vocab = {piece: piece_id for piece_id, piece in enumerate(draw(some.permutations(known)))}
    return vocab, draw(some.permutations(merges)) if draw(some.booleans()) else merges


@settings(max_examples=40)
@given(merge_lists(), some.integers(0, 2**32))
def test_any_merges_on_all_short_words(made: tuple[dict[str, int], Merges], seed: int) -> None:
    model = model_of(*made)
    tables = tables_of(model)
    source = random.Random(seed)
    words = all_words("abc", 6) + ["".join(source.choices("abc", k=source.randint(7, 50))) for _ in range(200)]
    for way in (tables, without_letters(tables, SHORT), without_letters(tables, 0)):
        assert_same_ids(model, words, way)


@pytest.mark.slow
@settings(max_examples=1000)
@given(merge_lists())
def test_any_merges_on_all_words_of_seven(made: tuple[dict[str, int], Merges]) -> None:
    model = model_of(*made)
    tables = tables_of(model)
    for way in (tables, without_letters(tables, SHORT), without_letters(tables, 0)):
        assert_same_ids(model, all_words("abc", 7), way)


@some.composite
def odd_models(draw: Callable[..., Any]) -> models.BPE:
    """Prefixes and suffixes, empty pieces, parts that add nothing, shared ids."""
    prefix = draw(some.sampled_from(["", "#", "é"]))
    texts = some.text("ab#é", max_size=3)
    known = draw(some.lists(texts | texts.map(prefix.__add__), min_size=1, max_size=10, unique=True))
    known += [letter for letter in ("a", "b", prefix + "a", prefix + "b") if letter not in known]
    merges = []
    for left, right in draw(some.lists(some.tuples(some.integers(0, 30), some.integers(0, 30)), max_size=12)):
        first, second = known[left % len(known)], known[right % len(known)]
        tail = second.encode()[len(prefix.encode()) :].decode(errors="replace")
        if len(second.encode()) >= len(prefix.encode()) and "\ufffd" not in tail:  # else the reference panics
            merges.append((first, second))
            known += [first + tail] if first + tail not in known else []
    most = draw(some.sampled_from([0, 0, 3]))  # of the ids that the last pieces share with others
    ids = {piece: max(0, len(known) - 1 - most) if at >= len(known) - most else at for at, piece in enumerate(known)}
    suffix = draw(some.sampled_from([None, "a", "#"]))
    return model_of(ids, merges, continuing_subword_prefix=prefix or None, end_of_word_suffix=suffix)


def tables_or_none(model: models.BPE) -> BpeTables | None:
    """None where merges have parts that share ids: the reference writes out too little about them."""
    try:
        return tables_of(model)
    except CannotCompile as refusal:
        if "shares its id" in refusal.reason:
            return None
        raise


@settings(max_examples=150)
@given(odd_models())
def test_odd_models_are_exact_or_refused(model: models.BPE) -> None:
    tables = tables_or_none(model)
    if tables is None:
        event("refused")
        return
    assert_same_ids(model, [*all_words("ab#é", 4), "ab" * 30, "a" * 40], tables)


def test_a_rank_outlives_its_pair_where_another_makes_the_same_piece() -> None:
    vocab = {"a": 0, "b": 1, "c": 2, "d": 3, "bc": 4, "bcd": 5, "ab": 6, "abc": 6}
    model = model_of(vocab, [("b", "c"), ("a", "b"), ("bc", "d"), ("a", "bc")])
    tables = tables_of(model)
    assert ids_of(tables, ["abcd"]) == [[6, 3]]
    assert tables.short == 0
    assert ids_of(tables._replace(short=SHORT), ["abcd"]) == [[0, 5]], "by the pairs that are there: another result"
    assert_same_ids(model, all_words("abcd", 6))


# Words of few letters


def test_a_piece_keeps_the_one_merge_that_acts() -> None:
    vocab = {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "abc": 5, "ca": 6, "cab": 7}
    model = model_of(vocab, [("a", "b"), ("b", "c"), ("a", "bc"), ("ab", "c"), ("c", "a"), ("ca", "b")])
    letters = tables_of(model).letters
    assert letters.id_of[LETTERS:].tolist() == [3, 4, 5, 6], "cab is merged as c, ab"
    assert sorted(letters.word_id.tolist()) == [3, 4, 5, 6]
    assert_same_ids(model, all_words("abc", 7))


def test_words_around_the_most_letters() -> None:
    pieces = ["a", "b", *("a" * length for length in (2, 4, 8, 16)), "a" * 15 + "b", "a" * 16 + "b"]
    merges = [("a", "a"), ("aa", "aa"), ("aaaa", "aaaa"), ("a" * 8, "a" * 8), ("a" * 16, "b")]
    model = model_of({piece: piece_id for piece_id, piece in enumerate(pieces)}, merges)
    words = [before + "a" * length + "b" for length in range(LANES - 3, LANES + 3) for before in ("", "b", "é")]
    assert_same_ids(model, words + ["a" * length for length in range(2, 2 * LANES + 2)])


def test_words_that_only_share_a_fingerprint() -> None:
    vocab = {"a": 0, "b": 1, "ab": 2, "bab": 3}
    for takes_words, ids in ((False, [[2], [1, 2], [2, 1]]), (True, [[2], [3], [2, 1]])):
        tables = tables_of(model_of(vocab, [("a", "b")], ignore_merges=takes_words))
        other = tables._replace(letters=tables.letters._replace(word_key=tables.letters.word_key ^ np.uint64(1)))
        assert ids_of(tables, ["ab", "bab", "abb"]) == ids_of(other, ["ab", "bab", "abb"]) == ids


@pytest.mark.parametrize("count", [1, 2, 3, 16, 17])
def test_a_letter_without_an_id_among_others(count: int) -> None:
    """Letters are merged two words at a time, and what has no id is seen last."""
    model = model_of({"a": 0, "b": 1, "ab": 2, UNK: 3}, [("a", "b")], unk_token=UNK)
    words = ["abab"] * count + ["abxab"] + ["abba"] * count + ["xaab", "ax"]
    assert_same_ids(model, words)


def test_large_and_small_letters_are_told_apart() -> None:
    """U+0120 and U+0020 have the same low byte."""
    model = model_of({"Ġ": 0, " ": 1, "a": 2, "Ġa": 3, " a": 4}, [("Ġ", "a"), (" ", "a")])
    assert_same_ids(model, all_words("Ġ a", 5))


# What a character is before any merge


@pytest.mark.parametrize("unknown", [None, UNK])
@pytest.mark.parametrize("fuses", [False, True])
@pytest.mark.parametrize("falls_back", [False, True])
@pytest.mark.parametrize(
    ("prefix", "suffix"), [(None, None), ("", ""), ("x", None), (None, "é"), ("é", "x"), ("中", "")]
)
def test_unknown_characters(
    unknown: str | None, fuses: bool, falls_back: bool, prefix: str | None, suffix: str | None
) -> None:
    vocab = dict(FALLBACK)
    for piece in ("a", "b"):
        for spelled in ((prefix or "") + piece, piece + (suffix or ""), (prefix or "") + piece + (suffix or "")):
            vocab.setdefault(spelled, len(vocab))
    merges = FALLBACK_MERGES if not prefix else []
    model = model_of(
        vocab,
        merges,
        unk_token=unknown,
        fuse_unk=fuses,
        byte_fallback=falls_back,
        continuing_subword_prefix=prefix,
        end_of_word_suffix=suffix,
    )
    assert_same_ids(model, [*all_words("abé中x", 4), "中" * 40, "é" * 40, "é中" * 40, "a中" * 40])


def test_bytes_overtake_an_unknown_character() -> None:
    model = model_of(FALLBACK, [], unk_token=UNK, byte_fallback=True)
    assert ids_of(tables_of(model), ["中éa"]) == [[3, 4, 0, 1]]
    assert_same_ids(model, ["中éa", "中中éa", "é中", "中é"])


def test_bytes_are_spelled_with_large_digits() -> None:
    model = model_of({"<0xc3>": 0, "<0xC3>": 1, "<0xA9>": 2, "<0xa9>": 3}, [], byte_fallback=True)
    assert ids_of(tables_of(model), ["é"]) == [[1, 2]]
    assert_same_ids(model, ["é", "éé", "è"])


def test_four_places_of_a_character() -> None:
    vocab = {"a": 0, "#a": 1, "a$": 2, "#a$": 3, "#b": 4}
    symbol, row_at = symbols(vocab, "#", "$")
    assert [symbol[row_at[place], ord("a")] for place in (FIRST, 0, LAST, FIRST + LAST)] == [0, 1, 3, 2]
    model = model_of(vocab, [], continuing_subword_prefix="#", end_of_word_suffix="$")
    assert ids_of(tables_of(model), ["a", "aa", "aaa", "b", "aba"]) == [[2], [0, 3], [0, 1, 3], [], [0, 4, 3]]


def test_without_prefix_and_suffix_all_places_share_a_row() -> None:
    assert symbols({"a": 0}, "", "")[0].shape == (1, ord("a") + 2)
    assert symbols({"a": 0}, "", "</w>")[0].shape[0] == 2


# Whole words


def test_ignore_merges_takes_a_word_that_is_an_entry() -> None:
    vocab = {"a": 0, "b": 1, "ab": 2, "bab": 3, "é中": 4, UNK: 5}
    taken, merged = (model_of(vocab, [("a", "b")], unk_token=UNK, ignore_merges=takes) for takes in (True, False))
    words = ["bab", "babb", "é中", "é中a", "ab", "<unk>"]
    assert ids_of(tables_of(taken), words) == [[3], [1, 2, 1], [4], [5, 5, 0], [2], [5]]
    assert ids_of(tables_of(merged), words[:3]) == [[1, 2], [1, 2, 1], [5, 5]]
    assert_same_ids(taken, words + all_words("ab", 5))


# Long words


def long_words(length: int) -> dict[str, str]:
    source = random.Random(3)
    letters = sorted(byte_letters())
    base64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    chinese = "".join(chr(source.randint(0x4E00, 0x6000)) for _ in range(length // 3))
    spelled = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(chinese)
    return {
        "one letter": "a" * length,
        "underscores": "_" * length,
        "base64": "".join(source.choices(base64, k=length)),
        "random bytes": "".join(source.choices(letters, k=length)),
        "Chinese": spelled[0][0],
        "a sentence without spaces": ("thequickbrownfoxjumpsoverthelazydog" * (length // 35 + 1))[:length],
    }


@pytest.mark.parametrize("length", [30_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["own/byte-level", "shared/gpt2"])
def test_long_words(name: str, length: int, definition_text: Callable[[str], str]) -> None:
    model = Tokenizer.from_str(definition_text(name)).model
    assert_same_ids(model, list(long_words(length).values()))


@pytest.mark.parametrize("length", [*range(30, 36), 63, 64, 65])
def test_words_around_the_length_at_which_the_heap_begins(length: int) -> None:
    model = model_of({"a": 0, "b": 1, "aa": 2, "aab": 3, "aaaa": 4}, [("aa", "aa"), ("aa", "b"), ("a", "a")])
    source = random.Random(length)
    assert_same_ids(model, ["a" * length, *("".join(source.choices("aab", k=length)) for _ in range(50))])


# Tables


def found_rank(entry: np.ndarray, hash_shift: int, pair: int) -> int:
    at = (pair * int(MULTIPLIER) % 2**64 >> hash_shift) * BUCKET
    while True:
        for place in range(at, at + BUCKET):
            if int(entry[place]) >> RANK_BITS == pair:
                return int(entry[place]) & NO_RANK
        if entry[at + BUCKET - 1] == NO_ENTRY:
            return NO_RANK
        at = (at + BUCKET) % len(entry)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 100, 5000])
def test_every_pair_is_found_with_its_rank(count: int) -> None:
    source = np.random.default_rng(count)
    pairs = np.unique(source.integers(0, 1 << 41, count + 50).astype(np.uint64))
    held, others = pairs[:count], pairs[count:]
    entry, hash_shift = build_entries(held)
    assert [found_rank(entry, hash_shift, int(pair)) for pair in held] == list(range(len(held)))
    assert {found_rank(entry, hash_shift, int(pair)) for pair in others} == {NO_RANK}
    assert len(entry) >= 2 * count


def test_pairs_that_meet_in_one_bucket_go_on_to_the_next() -> None:
    pairs = np.arange(1 << 14, dtype=np.uint64)
    last = pairs[(pairs * MULTIPLIER >> np.uint64(64 - 4)) == 15][:9]
    entry, hash_shift = build_entries(np.concatenate([last, pairs[100:120]]))
    assert hash_shift == 64 - 4
    assert [found_rank(entry, hash_shift, int(pair)) for pair in last] == list(range(9))
    rows = entry.reshape(-1, BUCKET)
    falls = np.flatnonzero(rows[:, 0] > rows[:, -1])
    assert {15, 0} <= {*falls.tolist()}, "nine pairs go on from two full buckets"
    assert (np.diff(np.delete(rows, falls, axis=0).astype(object), axis=1) >= 0).all()
    model = model_of({"a": 0, "b": 1, "ab": 2}, [("a", "b")])
    assert_same_ids(model, all_words("ab", 6))


# Refusals


@pytest.mark.parametrize(
    ("model", "part"),
    [
        (lambda: model_of({"a": 0}, [], dropout=0.1), "model.dropout"),
        (lambda: model_of({"a": 0}, [], unk_token="<no>"), "model.unk_token"),
        (lambda: model_of({"a": 0, "b": 0, "ab": 1, "ba": 2}, [("a", "b")]), "model.merges"),
        (lambda: model_of({"a": 0, "b": (1 << 21) - 1}, []), "model.vocab"),
        (lambda: models.WordPiece({"[UNK]": 0}), "model"),
    ],
)
def test_what_has_no_native_form(model: Callable[[], Any], part: str) -> None:
    with pytest.raises(CannotCompile) as refusal:
        tables_of(model())
    assert refusal.value.part == part


def test_dropout_of_nothing_is_none() -> None:
    model = model_of({"a": 0, "b": 1, "ab": 2}, [("a", "b")], dropout=0.0)
    assert_same_ids(model, all_words("ab", 4))


def test_an_unknown_token_that_cannot_occur_need_not_be_an_entry() -> None:
    letters = {letter: at for at, letter in enumerate(sorted(byte_letters()))}
    tokenizer = Tokenizer(model_of(letters, [], unk_token="<no>"))
    with pytest.raises(CannotCompile, match="unknown characters are an error"):
        compile_bpe(Definition(tokenizer))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    assert ids_of(compile_bpe(Definition(tokenizer)), ["Ġ"]) == [[letters["Ġ"]]]


def test_two_pieces_of_one_id_that_no_merge_joins() -> None:
    model = model_of({"a": 0, "b": 1, "c": 1, "d": 3, "ad": 4}, [("a", "d")])
    assert_same_ids(model, all_words("abcd", 5))


def test_no_words_and_empty_words() -> None:
    tables = tables_of(model_of({"a": 0}, []))
    assert ids_of(tables, []) == []
    assert ids_of(tables, ["", "a", ""]) == [[], [0], []]
