"""Decode: ids to text, against the reference's `decode_batch`, byte for byte."""

from __future__ import annotations

import itertools
import os
import random

import compare
import numpy as np
import oracle
import pytest
import vocabularies
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from gpu_tok.batch import Ragged, starts_of
from gpu_tok.decode import Decoder
from gpu_tok.device import Workers
from gpu_tok.errors import IdError
from gpu_tok.id_rows import ragged_ids
from gpu_tok.tables.decode import compile, kind_of
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.refusal import CannotCompile

QUICK = [
    *vocabularies.names(sources=("own",)),
    *(f"shared/{name}" for name in ("bert-base-uncased", "gpt2", "t5-small", "llama-2")),
]
SLOW = [name for name in vocabularies.names() if name not in QUICK]
EVERY_NAME = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]

CLEANED = ["do", "not", "n't", "'m", "'s", "'ve", "'re", "'", " ", ".", "?", "!", ",", "a", "##", "n", "t", " .", "é"]


@pytest.fixture(scope="module")
def decoder_of(definition_text):
    """`decoder_of("own/bert")` is the decoder and the reference that it has to equal."""

    def make(name: str) -> tuple[Decoder, Tokenizer]:
        definition = Definition.from_str(definition_text(name))
        return Decoder(definition), definition.reference

    return make


def decoder_for(reference: Tokenizer) -> Decoder:
    return Decoder(Definition(reference))


def assert_decodes(decoder: Decoder, reference: Tokenizer, rows: Ragged | list[list[int]]) -> None:
    rows = ragged_ids(rows)
    lists = [rows.row(row).tolist() for row in range(rows.count)]
    for skip, workers in ((True, 1), (False, 2)):
        expected = reference.decode_batch(lists, skip_special_tokens=skip)
        compare.assert_same_texts(expected, decoder.decode(rows, skip, Workers(workers)), lists)


def byte_reference() -> Tokenizer:
    """A byte-level tokenizer whose id i is the i-th letter of the alphabet."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    reference = Tokenizer(models.BPE({letter: at for at, letter in enumerate(letters)}, []))
    reference.decoder = decoders.ByteLevel()
    return reference


def wordpiece_reference(tokens: list[str], decoder: decoders.Decoder | None) -> Tokenizer:
    reference = Tokenizer(models.WordPiece({token: at for at, token in enumerate(tokens)}, unk_token=tokens[0]))
    if decoder is not None:
        reference.decoder = decoder
    return reference


@pytest.mark.parametrize("name", EVERY_NAME)
def test_every_id_alone_and_behind_another(decoder_of, name):
    decoder, reference = decoder_of(name)
    ids = np.arange(max(reference.get_vocab().values()) + 3)
    assert_decodes(decoder, reference, Ragged(ids, np.arange(len(ids) + 1)))
    behind = np.stack([np.full_like(ids, len(ids) // 2), ids], axis=1)
    assert_decodes(decoder, reference, behind)


@pytest.mark.parametrize("name", EVERY_NAME)
def test_random_ids(decoder_of, name):
    decoder, reference = decoder_of(name)
    rng = np.random.default_rng(1)
    starts = starts_of(rng.integers(0, 20, 4000))
    ids = rng.integers(0, max(reference.get_vocab().values()) + 10, starts[-1])
    assert_decodes(decoder, reference, Ragged(ids, starts))


@pytest.mark.parametrize("name", EVERY_NAME)
def test_real_texts(decoder_of, real_texts, name):
    decoder, reference = decoder_of(name)
    texts = [*real_texts("multi", 60_000), *real_texts("code", 30_000)]
    assert_decodes(decoder, reference, oracle.encode(reference, texts))


def test_empty_rows_and_the_empty_batch(decoder_of):
    for name in ("own/bert", "own/byte-level", "own/prepend"):
        decoder, reference = decoder_of(name)
        assert decoder.decode(ragged_ids([])) == []
        assert_decodes(decoder, reference, [[]])
        assert_decodes(decoder, reference, [[], [1], [], [], [2, 3], []])


def test_wordpiece_clean_up_goes_token_by_token_in_the_reference_s_order():
    rng = random.Random(2)
    tokens = ["[UNK]", "", "##", " do not", "##n't", "' ' ", "do not", " ' 's"]
    tokens += ["".join(rng.choices(CLEANED, k=rng.randint(1, 4))) for _ in range(3000)]
    for kind in (decoders.WordPiece(), decoders.WordPiece(cleanup=False), decoders.WordPiece(prefix="do")):
        reference = wordpiece_reference(list(dict.fromkeys(tokens)), kind)
        rows = [[rng.randrange(reference.get_vocab_size()) for _ in range(rng.randint(1, 5))] for _ in range(4000)]
        assert_decodes(decoder_for(reference), reference, rows)


@pytest.mark.parametrize(
    "decoder",
    [
        None,
        decoders.Sequence([]),
        decoders.Sequence([decoders.WordPiece()]),
        decoders.Sequence([decoders.Sequence([decoders.WordPiece()]), decoders.Fuse()]),
        decoders.Sequence([decoders.Replace("a", "##"), decoders.WordPiece()]),
        decoders.Metaspace(),
        decoders.Metaspace(replacement="#", prepend_scheme="never"),
        decoders.Fuse(),
    ],
    ids=str,
)
def test_decoders_that_see_one_token_at_a_time_are_native(decoder):
    reference = wordpiece_reference(["[UNK]", "a", "##a", "##", "b#", "▁b", "▁▁", "", "b . c", "x" * 40], decoder)
    rows = [list(row) for row in itertools.product(range(11), repeat=3)]
    native = decoder_for(reference)
    assert native.grade == 1
    assert_decodes(native, reference, rows)


def test_other_decoders_run_through_the_reference_and_say_why():
    reference = wordpiece_reference(["[UNK]", "a", "<0xE4>", "▁"], decoders.Sequence([decoders.ByteFallback()]))
    decoder = decoder_for(reference)
    assert decoder.grade == 3
    assert decoder.reasons == ("decoder.decoders[0]: `ByteFallback` has no kernel here; it runs through the reference",)
    assert_decodes(decoder, reference, [[1, 2, 1], [2, 2], [], [7]])


def test_every_pair_of_bytes_and_the_borders_of_longer_ones():
    """One U+FFFD for each longest start of what could have become a code point."""
    reference = byte_reference()
    decoder = decoder_for(reference)
    id_of = {bytes_of: at for at, bytes_of in enumerate(map(bytes, _bytes_of_ids(reference)))}
    pairs = [[first, second] for first in range(256) for second in range(128, 256)]
    edges = [0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xDF, 0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xF5, 0xFF]
    leads = [0xC2, 0xE0, 0xE1, 0xED, 0xEE, 0xF0, 0xF1, 0xF4, 0x80]
    longer = [list(row) for row in itertools.product(leads, edges, edges, edges)]
    rows = [[id_of[bytes([byte])] for byte in row] for row in [*pairs, *longer]]
    assert_decodes(decoder, reference, rows)


def _bytes_of_ids(reference: Tokenizer) -> list[bytes]:
    from gpu_tok.tables.decode import byte_level_bytes

    return [byte_level_bytes(reference.id_to_token(at)) for at in range(256)]


def test_a_bad_row_leaves_its_neighbours_alone():
    reference = byte_reference()
    rng = np.random.default_rng(3)
    decoder = decoder_for(reference)
    letter = reference.token_to_id("a")
    for count in (1, 7, 8, 9, 31, 32, 33, 100):
        rows = [[letter] * count, rng.integers(0, 256, count).tolist(), [letter] * count]
        assert_decodes(decoder, reference, rows)


def test_added_tokens_special_or_not_with_spaces_and_other_letters():
    for make in (byte_reference, lambda: wordpiece_reference(["[UNK]", "a", "##b", "[S]"], decoders.WordPiece())):
        reference = make()
        reference.add_special_tokens([AddedToken("[S]", special=True), AddedToken("<|ünd . so|>", special=True)])
        reference.add_tokens([AddedToken("x y é"), AddedToken("do not . !"), AddedToken("Ġ中"), AddedToken("a" * 50)])
        size = max(reference.get_vocab().values()) + 2
        rows = [list(row) for row in itertools.product(range(max(0, size - 10), size), repeat=3)]
        assert_decodes(decoder_for(reference), reference, rows)


def test_a_token_that_stopped_being_special_is_skipped_as_the_reference_does():
    reference = byte_reference()
    reference.add_special_tokens([AddedToken("<s>", special=True)])
    reference.add_tokens([AddedToken("<s>", special=False)])
    assert_decodes(decoder_for(reference), reference, [[256], [1, 256, 1]])


def test_holes_in_the_ids_leave_nothing():
    reference = Tokenizer(models.WordLevel({"a": 0, "b": 5, "c": 70_000}, "a"))
    assert_decodes(decoder_for(reference), reference, [[1, 0, 2, 5, 3], [70_000, 69_999, 70_001, 2**32 - 1], [4]])


def test_ids_too_far_apart_go_to_the_reference():
    reference = Tokenizer(models.WordLevel({"a": 0, "b": 9_000_000}, "a"))
    decoder = decoder_for(reference)
    assert decoder.grade == 3
    assert_decodes(decoder, reference, [[0, 9_000_000]])


@pytest.mark.parametrize("name", ["own/bert", "own/byte-level", "own/prepend"])
@pytest.mark.parametrize("bad_id", [-1, -100, 2**32, 2**40])
def test_an_impossible_id_names_its_row(decoder_of, name, bad_id):
    decoder, reference = decoder_of(name)
    with pytest.raises(OverflowError):
        reference.decode_batch([[bad_id]])
    with pytest.raises(IdError, match=rf"row 2: the id {bad_id} at 1 "):
        decoder.decode(ragged_ids([[1], [], [1, bad_id], [bad_id]]))


def test_32_bit_ids_are_taken_as_they_are(decoder_of):
    decoder, _reference = decoder_of("own/bert")
    wide = ragged_ids([[7, 8, 9], [10, 11]])
    assert decoder.decode(Ragged(wide.flat.astype(np.int32), wide.starts)) == decoder.decode(wide)


def test_rows_that_begin_in_the_middle_of_the_ids(decoder_of):
    for name in ("own/bert", "own/prepend"):
        decoder, reference = decoder_of(name)
        rows = Ragged(np.arange(5, 25), np.array([3, 6, 6, 15]))
        assert_decodes(decoder, reference, rows)


def test_many_short_rows_and_one_long_one(decoder_of):
    decoder, reference = decoder_of("own/bert")
    ids = np.random.default_rng(4).integers(0, reference.get_vocab_size(), 1_000_000)
    long_one = decoder.decode_bytes(Ragged(ids, np.array([0, len(ids)])), workers=Workers(2))
    assert long_one.text(0) == reference.decode(ids.tolist())
    short_ones = decoder.decode_bytes(Ragged(ids, np.arange(len(ids) + 1)), workers=Workers(2))
    assert len(short_ones) == len(ids)
    assert short_ones.text(999_999) == reference.decode([int(ids[-1])])
    assert short_ones.valid


def test_every_number_of_workers_gives_the_same_bytes(decoder_of, monkeypatch):
    monkeypatch.setattr("gpu_tok.decode._UNIT", 64)
    rng = np.random.default_rng(5)
    for name in ("own/bert", "own/byte-level"):
        decoder, reference = decoder_of(name)
        starts = starts_of(rng.integers(0, 200, 300))
        rows = Ragged(rng.integers(0, reference.get_vocab_size(), starts[-1]), starts)
        assert_decodes(decoder, reference, rows)
        assert bytes(decoder.decode_bytes(rows, workers=Workers(3)).bytes) == bytes(decoder.decode_bytes(rows).bytes)


def test_tables_say_what_a_token_becomes(decoder_of):
    reference = wordpiece_reference(["[UNK]", "cat", "##ing", "y" * 16], decoders.WordPiece())
    tables = compile(Definition(reference))
    assert tables.rows.shape == (2, 4, 2)
    assert tables.rows[1, 1].tobytes() == b" cat" + bytes(11) + b"\x04"
    assert tables.rows[1, 2].tobytes() == b"ing" + bytes(12) + b"\x03"
    assert tables.pool.tobytes() == b"y" * 16 + b" " + b"y" * 16


def test_a_decoder_without_a_native_form_is_refused_by_the_compiler():
    reference = wordpiece_reference(["[UNK]"], decoders.BPEDecoder())
    with pytest.raises(CannotCompile, match="decoder: `BPEDecoder`"):
        kind_of(Definition(reference))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_process_forked_after_use_decodes_on(decoder_of, monkeypatch):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    for name in ("own/bert", "own/prepend"):
        decoder, _reference = decoder_of(name)
        rows = ragged_ids([[5, 6, 7]] * 100)
        expected = decoder.decode(rows, workers=Workers(2))
        child = os.fork()
        if child == 0:
            os._exit(0 if decoder.decode(rows, workers=Workers(2)) == expected else 1)
        assert os.waitpid(child, 0)[1] == 0
