"""Decoding as ids come: all pieces joined are the reference's text, however the ids are divided into steps."""

from __future__ import annotations

import itertools
import random
from functools import cache

import numpy as np
import oracle
import pytest
import vocabularies
from hypothesis import given
from hypothesis import strategies as st
from package_vocabularies import Absent
from texts import TEXTS
from tokenizers import Tokenizer, decoders, models
from tokenizers.decoders import DecodeStream as TheirStream

from gpu_tok.decode_stream import DecodeStream
from gpu_tok.errors import IdError
from gpu_tok.tables.definition import Definition

NAMES = [
    *vocabularies.names(sources=("own",)),
    *(f"shared/{name}" for name in ("bert-base-uncased", "gpt2", "t5-small", "llama-2")),
]
TOKENS = [
    *("a", "▁", "▁a", " ", "  b ", "##c", "c</w>", "</w>", "", ".", "'s", "中", "\ufffd", "<pad>", "|", "ab|"),
    *(
        "<0x41>",
        "<0xE4>",
        "<0xB8>",
        "<0xAD>",
        "<0xFF>",
        "<0xC3>",
        "<0xe9>",
        "<0x+f>",
        "<0x 1>",
        "<0xGG>",
        "Ġ",
        "Ã",
        "©",
    ),
]
BYTES_FUSED = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
DECODERS = [
    None,
    decoders.BPEDecoder("</w>"),
    decoders.ByteFallback(),
    decoders.ByteLevel(),
    decoders.CTC(),
    decoders.Fuse(),
    decoders.Metaspace(),
    decoders.Metaspace(prepend_scheme="never"),
    decoders.Replace("a", "bb"),
    decoders.WordPiece(),
    decoders.WordPiece(cleanup=False),
    decoders.Sequence([]),
    decoders.Sequence([*BYTES_FUSED, decoders.Strip(" ", 1, 0)]),
    decoders.Sequence([*BYTES_FUSED, decoders.Strip("a", 2, 0)]),
    decoders.Sequence([*BYTES_FUSED, decoders.Replace("ab", "c")]),
    decoders.Sequence([decoders.ByteFallback(), decoders.BPEDecoder("</w>"), decoders.Metaspace()]),
    decoders.Sequence([decoders.CTC(), decoders.WordPiece()]),
    decoders.Sequence([decoders.ByteLevel(), decoders.Sequence([decoders.Fuse(), decoders.Strip("c", 1, 0)])]),
    decoders.Sequence([decoders.Strip(" ", 1, 0), decoders.Fuse(), decoders.BPEDecoder("</w>")]),
]


@cache
def definition_of(name: str) -> Definition:
    return Definition.from_str(vocabularies.text(name))


@cache
def with_decoder(at: int) -> Definition:
    """All of `TOKENS`, the last two of them special, under one of `DECODERS`."""
    reference = Tokenizer(models.WordLevel({token: at for at, token in enumerate(TOKENS)}, "a"))
    if DECODERS[at] is not None:
        reference.decoder = DECODERS[at]
    reference.add_special_tokens(TOKENS[-2:])
    return Definition(reference)


def streamed(definition: Definition, ids: list[int], ends: list[int], skip: bool = True) -> str:
    """The ids in steps that end at these places, joined."""
    stream = DecodeStream(definition, skip)
    places = [0, *sorted(ends), len(ids)]
    return "".join(stream.step(ids[a:b]) for a, b in itertools.pairwise(places)) + stream.finish()


def assert_streams(definition: Definition, ids: list[int], ends: list[int]) -> None:
    for skip in (True, False):
        expected = definition.reference.decode(ids, skip_special_tokens=skip)
        assert streamed(definition, ids, ends, skip) == expected
        assert streamed(definition, ids, list(range(len(ids))), skip) == expected


@pytest.mark.parametrize("name", NAMES)
def test_any_ids_in_any_steps(name):
    try:
        definition = definition_of(name)
    except Absent as absent:
        pytest.skip(str(absent))
    size = max(definition.reference.get_vocab().values()) + 3
    rng = random.Random(7)
    for _ in range(150):
        count = rng.randint(1, 30)  # ids below 300 are bytes in most vocabularies
        ids = [rng.randrange(300 if rng.random() < 0.5 else size) for _ in range(count)]
        assert_streams(definition, ids, [rng.randint(0, count) for _ in range(rng.randint(0, 4))])


@pytest.mark.parametrize("at", range(len(DECODERS)), ids=[str(decoder)[:60] for decoder in DECODERS])
@given(data=st.data())
def test_every_decoder_of_the_reference(at, data):
    ids = data.draw(st.lists(st.integers(0, len(TOKENS)), min_size=1, max_size=12))
    ends = data.draw(st.lists(st.integers(0, len(ids)), max_size=4))
    assert_streams(with_decoder(at), ids, ends)


def test_what_may_be_stripped_from_the_end_waits():
    """Not with any ids: the reference panics where less is left than it may strip."""
    reference = Tokenizer(models.WordLevel({"a": 0, "ba": 1, "aa": 2}, "a"))
    reference.decoder = decoders.Sequence([decoders.Fuse(), decoders.Strip("a", 1, 2)])
    definition = Definition(reference)
    stream = DecodeStream(definition)
    assert [stream.step(token_id) for token_id in (0, 1, 2, 2, 1, 0)] == ["", "b", "a", "aa", "aab", ""]
    assert stream.finish() == ""
    for count in range(1, 5):
        for ids in itertools.product(range(3), repeat=count):
            assert_streams(definition, [1, *ids, 1], [2])


@pytest.mark.parametrize("name", NAMES)
def test_texts_come_back_as_the_reference_gives_them(name):
    try:
        definition = definition_of(name)
    except Absent as absent:
        pytest.skip(str(absent))
    texts = [text for text in TEXTS if len(text) < 200]
    for ids in oracle.encode(definition.reference, texts):
        assert_streams(definition, ids, [])


@pytest.mark.parametrize("name", ["own/byte-level", "own/bert", "own/prepend"])
def test_a_text_comes_as_soon_as_it_is_certain(name):
    """What is held back is at most the U+FFFD of a character that has begun, or a run of byte tokens."""
    definition = definition_of(name)
    decode = definition.reference.decode
    for text in ("The cat sat, 12 times.", "naïve 中文 🦜🦜 x", "a\ufffdb"):
        ids, stream, pieces = (
            definition.reference.encode(text, add_special_tokens=False).ids,
            DecodeStream(definition),
            "",
        )
        for count, token_id in enumerate(ids, 1):
            pieces += stream.step(token_id)
            rest = decode(ids[:count]).removeprefix(pieces)
            assert decode(ids[:count]).startswith(pieces)
            assert rest.strip("\ufffd") == "" or definition.reference.id_to_token(token_id).startswith("<0x")


def test_a_character_in_three_tokens_comes_with_the_last():
    reference = Tokenizer(models.WordLevel({token: at for at, token in enumerate(["ä", "¸", "Ń", "!"])}, "!"))
    reference.decoder = decoders.ByteLevel()
    stream = DecodeStream(Definition(reference))
    assert [stream.step(token_id) for token_id in (0, 1, 2, 3, 0, 1)] == ["", "", "中", "!", "", ""]
    assert stream.finish() == "\ufffd"
    assert [stream.step(token_id) for token_id in (0, 3)] == ["", "\ufffd!"]


def test_a_run_of_byte_tokens_waits_for_its_end_unless_it_is_bad_already():
    definition = with_decoder(DECODERS.index(next(d for d in DECODERS if "ByteFallback" in str(d))))
    stream = DecodeStream(definition)
    ids = {token: at for at, token in enumerate(TOKENS)}
    e4, b8, ad, ff, a = (ids[token] for token in ("<0xE4>", "<0xB8>", "<0xAD>", "<0xFF>", "a"))
    assert [stream.step(token_id) for token_id in (e4, b8, ad, e4, b8, ad, a)] == [""] * 6 + ["中中a"]
    bad = [stream.step(token_id) for token_id in (e4, b8, ad, ff, e4, a)]
    assert bad == ["", "", "", "\ufffd" * 4, "\ufffd", "a"]
    assert [stream.step(e4), stream.finish()] == ["", "\ufffd"]


def test_beside_the_reference_s_own_stream():
    """It gives nothing for what is held back at the end, and holds back a U+FFFD that stands in the text itself."""
    definition = definition_of("own/byte-level")
    reference = definition.reference

    def theirs(ids: list[int]) -> list[str]:
        stream = TheirStream(skip_special_tokens=True)
        return [stream.step(reference, token_id) or "" for token_id in ids]

    def ours(ids: list[int]) -> list[str]:
        stream = DecodeStream(definition)
        return [*(stream.step(token_id) for token_id in ids), stream.finish()]

    ids = reference.encode("naïve 中文 🦜!").ids
    assert "".join(theirs(ids)) == "".join(ours(ids)) == reference.decode(ids)
    cut = ids[:-2]
    assert "".join(theirs(cut)) == "naïve 中文"  # and a space, which came with the first bytes
    assert "".join(ours(cut)) == reference.decode(cut)
    ids = reference.encode("a\ufffd").ids
    assert theirs(ids)[-1] == ""
    assert "".join(ours(ids)) == "a\ufffd"


def test_long_texts_take_no_more_memory_and_time_a_step():
    definition = definition_of("own/prepend")
    rng = np.random.default_rng(8)
    ids = rng.integers(0, definition.reference.get_vocab_size(), 20_000)
    stream = DecodeStream(definition)
    pieces = [stream.step(token_id) for token_id in ids]
    assert max(map(len, pieces)) < 200
    assert "".join(pieces) + stream.finish() == definition.reference.decode(ids.tolist())


def test_ids_come_in_many_forms_and_bad_ones_change_nothing():
    definition = definition_of("own/bert")
    ids = definition.reference.encode("the cat sat", add_special_tokens=False).ids
    expected = definition.reference.decode(ids)
    for form in (ids, tuple(ids), np.array(ids, np.int32), iter(ids), np.array([ids])[0]):
        stream = DecodeStream(definition)
        assert stream.step(form) + stream.finish() == expected
    stream = DecodeStream(definition)
    with pytest.raises(IdError, match=r"step: the id -100 at 1 is not between 0 and"):
        stream.step([ids[0], -100])
    with pytest.raises(IdError, match="the id 4294967296 at 0"):
        stream.step(2**32)
    with pytest.raises(TypeError):
        stream.step(1.5)
    assert stream.step([]) + stream.step(ids) + stream.finish() == expected
    assert stream.step(ids) == expected  # a new text
