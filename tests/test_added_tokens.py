"""Added tokens: sections, each encoded in the variant that its flags ask for, are what the reference encodes."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
import vocabularies
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_tok.added_tokens import TEXT, WHOLE_TEXT, find_sections
from gpu_tok.batch import TextBatch
from gpu_tok.errors import TextError
from gpu_tok.tables import ends
from gpu_tok.tables.added_tokens import BY_SUSPICION, NATIVE, NO_PASS, compile_added_tokens
from gpu_tok.tables.atoms import only
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.preimages import preimage
from gpu_tok.tables.variants import variant

FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
ALPHABET = "abABéÉ <>;\t▁K\u212a\u0301\u0338\u0323≯；－-\u200d\u037e"
NORMALIZERS = {
    "none": None,
    "empty Sequence": {"type": "Sequence", "normalizers": []},
    "NFC": {"type": "NFC"},
    "NFKC": {"type": "NFKC"},
    "NFD": {"type": "NFD"},
    "Lowercase": {"type": "Lowercase"},
    "Strip": {"type": "Strip", "strip_left": True, "strip_right": True},
    "Prepend": {"type": "Prepend", "prepend": "▁"},
    "Prepend and Replace": {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ],
    },
    "Bert": {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": True,
    },
    "clip": {
        "type": "Sequence",
        "normalizers": [
            {"type": "NFC"},
            {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
            {"type": "Lowercase"},
        ],
    },
    "collapse": {
        "type": "Sequence",
        "normalizers": [
            {"type": "NFKD"},
            {"type": "StripAccents"},
            {"type": "Replace", "pattern": {"String": "-"}, "content": ""},
            {"type": "Replace", "pattern": {"String": ";"}, "content": "-"},
            {"type": "Lowercase"},
        ],
    },
    "deletion": {"type": "Replace", "pattern": {"String": "b"}, "content": ""},
    "growth": {"type": "Replace", "pattern": {"Regex": "A+"}, "content": "<a>"},
}
PRE_TOKENIZERS = {
    "none": None,
    "Metaspace always": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    "Metaspace first": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False},
    "ByteLevel": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False},
}


def token(content, **flags):
    return {"id": 0, "content": content, **dict.fromkeys(FLAGS, False), **flags}


def definition(tokens, normalizer=None, pre_tokenizer=None):
    """Characters are pieces, so ids tell the text, and no character is unknown."""
    byte_level = [chr(code) for code in (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x144))]
    characters = dict.fromkeys([*ALPHABET, *byte_level, *"ekKÉé\u0300|mxyz \n"])
    vocab = {character: at for at, character in enumerate(characters)}
    described = {
        "added_tokens": tokens,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    }
    return Definition.from_str(json.dumps(described))


def sections_of(made, texts):
    batch = TextBatch.of(texts)
    return batch, find_sections(batch.bytes, batch.starts, compile_added_tokens(made))


def ids_by_sections(made, texts):
    batch, sections = sections_of(made, texts)
    rows = []
    for begin, end in zip(sections.row_section.tolist(), sections.row_section[1:].tolist(), strict=False):
        ids = []
        for at in range(begin, end):
            if sections.id[at] == TEXT:
                text = batch.bytes[sections.start[at] : sections.end[at]].tobytes().decode()
                ids += variant(made, int(sections.flags[at])).encode(text, add_special_tokens=False).ids
            else:
                ids.append(int(sections.id[at]))
        rows.append(ids)
    return rows


def reference_ids(made, texts):
    return [made.reference.encode(text, add_special_tokens=False).ids for text in texts]


def assert_sections_encode_as_the_reference(made, texts):
    for text, ids, expected in zip(texts, ids_by_sections(made, texts), reference_ids(made, texts), strict=True):
        assert ids == expected, f"{text!r} with {made.added_tokens}"


def parts(made, text):
    """A text's sections as strings, tokens in brackets."""
    batch, sections = sections_of(made, [text])
    shown = []
    for start, end, token_id in zip(sections.start, sections.end, sections.id, strict=True):
        part = batch.bytes[start:end].tobytes().decode()
        shown.append(part if token_id == TEXT else f"[{part}]")
    return shown


contents = st.text(ALPHABET, min_size=1, max_size=3)
some_tokens = st.lists(
    st.builds(
        lambda content, flags: token(content, **dict(zip(FLAGS, flags, strict=True))),
        contents,
        st.tuples(*[st.booleans()] * 5),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda token: token["content"],
)


def collide(made):
    """Tokens that become one another, of which the reference finds one or another; or nothing, for which it may look
    for ever (strip_accents, U+0338)."""
    normalizer = made.reference.normalizer
    contents = [token["content"] for token in made.added_tokens if token["normalized"]]
    if normalizer is not None:
        contents = [normalizer.normalize_str(content) for content in contents]
    return len(set(contents)) < len(contents) or "" in contents


@settings(max_examples=250, deadline=None)
@given(
    tokens=some_tokens,
    normalizer=st.sampled_from(sorted(NORMALIZERS)),
    pre_tokenizer=st.sampled_from(sorted(PRE_TOKENIZERS)),
    encode_special_tokens=st.booleans(),
    text=st.text(ALPHABET, max_size=12),
    data=st.data(),
)
def test_made_up_tokens(tokens, normalizer, pre_tokenizer, encode_special_tokens, text, data):
    made = definition(tokens, NORMALIZERS[normalizer], PRE_TOKENIZERS[pre_tokenizer])
    if collide(made):
        return
    made.reference.encode_special_tokens = encode_special_tokens
    pieces = st.sampled_from([token["content"] for token in tokens]) | st.text(ALPHABET, max_size=3)
    text += "".join(data.draw(st.lists(pieces, max_size=6)))
    try:
        expected = reference_ids(made, [text])
    except BaseException as error:
        assert type(error).__name__ == "PanicException"  # noqa: PT017 - a panic is no Exception
        with pytest.raises(BaseException):  # noqa: B017, PT011 - ours, or the panic in a WHOLE section
            ids_by_sections(made, [text])
        return
    assert ids_by_sections(made, [text]) == expected


HARD = [
    ("", "an empty text"),
    ("a", "no token"),
    ("a  b   c", "runs of spaces are tokens of gpt-neox and modernbert"),
    ("    def f(x):\n        return x", "indented code"),
    ("a [MASK] b[MASK]c", "lstrip"),
    ("a \t<mask>  b<mask>", "lstrip, more white space"),
    ("<s>a</s>b</s> c", "adjacent and touching"),
    ("</s></s>", "nothing but tokens"),
    ("<|endoftext|>a<|endoftext|>", "at both ends"),
    ("<|startoftext|>A<|STARTOFTEXT|> b", "CLIP finds it in lower case"),
    ("［ＵＮＫ］ a [UNK]", "DeBERTa: full width becomes a token"),
    ("<｜User｜>hi<｜Assistant｜>", "DeepSeek, not ASCII"),
    ("|||IP_ADDRESS|||\u0338 x", "a mark composes with the token's last character"),
    ("<|0.00|> t <|0.02|>", "whisper's times"),
    (">>aa<< text >>x", "Marian's languages"),
    ("<extra_id_0><extra_id_99>", "T5"),
    ("[INST]a[/INST] <pad> <unk>", "Mistral"),
    ("[CLS] [SEP][PAD]", "BERT"),
    ("<", "the first byte of a token ends the text"),
    ("é  \u0301  x", "a mark after spaces"),
    ("a" * 64 + "<s>" + "b" * 63 + "[MASK]" + " " * 65 + "c", "about the size of a block"),
]


@pytest.mark.parametrize("name", vocabularies.names())
def test_tokenizers_at_hand(reference, name):
    made = Definition(reference(name))
    own = [token["content"] for token in made.added_tokens[:: max(1, len(made.added_tokens) // 40)]]
    texts = [text for text, _why in HARD]
    texts += [f"a{content}b {content} {content.upper()}" for content in own] + ["".join(own)]
    assert_sections_encode_as_the_reference(made, texts)


@pytest.mark.parametrize("stem", ["modernbert", "deepseek-v3", "clip-vit-base", "deberta-v3-base", "gpt-neox-20b"])
def test_real_texts(definition_text, real_texts, stem):
    made = Definition.from_str(definition_text(f"shared/{stem}"))
    texts = [*real_texts("code", 60_000), *real_texts("markdown", 30_000), *real_texts("multi", 30_000)]
    assert_sections_encode_as_the_reference(made, texts)


def test_longest_of_the_leftmost():
    made = definition([token("ab"), token("abb"), token("bbbb")])
    assert parts(made, "abbbbb") == ["[abb]", "bbb"]


def test_lstrip_and_rstrip_eat_white_space():
    made = definition([token("<a>", lstrip=True, rstrip=True)])
    assert parts(made, "b \t<a>  <a>b") == ["b", "[ \t<a>  ]", "[<a>]", "b"]


def test_a_discarded_single_word_match_still_swallows_its_text():
    made = definition([token("aba", single_word=True), token("bab")])
    assert parts(made, "babab aba") == ["[bab]", "ab ", "[aba]"]
    assert parts(made, "xabab") == ["xabab"]


def test_what_rstrip_ate_is_searched_on():
    made = definition([token("<", rstrip=True), token("  ")])
    assert parts(made, "<   a") == ["[<   ]", "[  ]", " a"]
    assert_sections_encode_as_the_reference(made, ["<   a", "<    a", "<  ", "< "])


def test_a_text_that_makes_the_reference_panic_is_named():
    made = definition([token("<", rstrip=True), token("  ", lstrip=True)])
    assert_sections_encode_as_the_reference(made, ["<  a"])
    with pytest.raises(TextError, match="text 1: its added tokens overlap"):
        ids_by_sections(made, ["a", "<    a"])


def test_flags_of_sections():
    made = definition([token("<"), token(">", normalized=True)])
    _batch, sections = sections_of(made, ["a<b>a", "", "a"])
    first, last, document, sub = ends.SECTION_FIRST, ends.SECTION_LAST, ends.DOCUMENT_FIRST, ends.SUBSECTION_FIRST
    assert sections.flags.tolist() == [WHOLE_TEXT, 0, sub | first, 0, sub | last, WHOLE_TEXT, WHOLE_TEXT]
    assert sections.row_section.tolist() == [0, 5, 6, 7]
    assert document & WHOLE_TEXT


@pytest.mark.parametrize(
    ("tokens", "normalizer", "way"),
    [
        ([token("a")], "NFC", NO_PASS),
        ([token("<a>", normalized=True)], "none", NATIVE),
        ([token("  ", normalized=True)], "NFC", NATIVE),
        ([token("é", normalized=True)], "NFC", BY_SUSPICION),
        ([token("<a>", normalized=True, single_word=True)], "NFC", BY_SUSPICION),
        ([token("<a>", normalized=True)], "Lowercase", BY_SUSPICION),
    ],
)
def test_how_normalized_tokens_are_looked_for(tokens, normalizer, way):
    assert compile_added_tokens(definition(tokens, NORMALIZERS[normalizer])).normalized_pass == way


def test_a_token_that_normalizes_to_nothing_sends_every_section_whole():
    made = definition([token(" ", normalized=True)], NORMALIZERS["Strip"], PRE_TOKENIZERS["Metaspace always"])
    assert_sections_encode_as_the_reference(made, ["ab", " a ", ""])


def test_only_sections_that_hold_a_normalized_token_go_whole():
    made = definition([token("<a>", normalized=True)], NORMALIZERS["Lowercase"])
    _batch, sections = sections_of(made, ["a b", "a < b", "b<A>b"])
    assert (sections.flags & ends.WHOLE != 0).tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("normalizer", "character", "expected"),
    [
        ("Lowercase", "k", "kK\u212a"),
        ("NFC", ";", ";\u037e"),
        ("Prepend", "▁", None),
        ("Prepend", "<", "<"),
        ("growth", "<", None),
        ("deletion", "a", "a"),
    ],
)
def test_sources_of_a_character(normalizer, character, expected):
    made = definition([token("a")], NORMALIZERS[normalizer])
    found = preimage(made.normalizers, only(character))
    assert (found is None) if expected is None else np.array_equal(found, only(expected))


@pytest.mark.parametrize(
    ("stem", "texts"),
    [
        ("clip-vit-base", ["<|endoftext|", "a < b | c", "x|startoftext|>"]),
        ("deberta-v3-base", ["[\n  1]", "[UN]", "[U+FFFD]", "[a] U", "［ＵＮＫ", "[ UNK]"]),
    ],
)
def test_texts_that_nearly_hold_a_token_are_not_whole(definition_text, stem, texts):
    made = Definition.from_str(definition_text(f"shared/{stem}"))
    assert not np.any(sections_of(made, texts)[1].flags & ends.WHOLE)
    holding = ["[\u200dUNK]", "[\x01U\u0301NK]", "［ＵＮＫ］", "a[UNK]", "<|START\u212aOFTEXT|>", "<|STARTOFTEXT|>"]
    assert_sections_encode_as_the_reference(made, [*texts, *holding])


def test_rows_of_a_slice_of_a_batch():
    made = definition([token("<a>")])
    batch = TextBatch.of(["b<a>", "<a>b", "", "b<a>b"])
    sections = find_sections(batch.bytes, batch.starts[1:4], compile_added_tokens(made))
    assert sections.start.tolist() == [4, 7, 8]
    assert sections.row_section.tolist() == [0, 2, 3]


def test_no_added_tokens_and_no_texts():
    made = definition([])
    assert parts(made, "a b") == ["a b"]
    assert len(sections_of(made, [])[1].start) == 0
    assert len(sections_of(definition([token("a")]), [])[1].start) == 0


@pytest.mark.parametrize("text", ["a" + " " * 200, "<" + " " * 200, ("<" + " " * 30) * 8, " " * 200 + "a"])
def test_long_white_space_takes_linear_time(text):
    made = definition([token("<", rstrip=True), token(" ", rstrip=True), token("a", lstrip=True)])
    added = compile_added_tokens(made)
    batch = TextBatch.of([text * 5_000])
    find_sections(batch.bytes, batch.starts, added)
    began = time.thread_time()
    find_sections(batch.bytes, batch.starts, added)
    assert time.thread_time() - began < 2  # a square of a million would take hours
