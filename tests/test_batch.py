"""Batches: texts in any form come to the same bytes, and bad ones are named by their row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import texts

from gpu_tok.batch import NO_STARTS, Padding, TextBatch, TokenBatch, TypeIds, starts_of
from gpu_tok.errors import GpuTokError, TextError
from gpu_tok.id_rows import ragged_ids

SOME = ["the cat", "", "sät", "日本語", "🧑🏽‍💻"]


def batch_of(rows: list[list[int]], **fields) -> TokenBatch:
    flat = np.array([token for row in rows for token in row], np.int32)
    lengths = np.array([len(row) for row in rows], np.int64)
    return TokenBatch(flat, starts_of(lengths), fields.pop("counts", lengths), **fields)


@pytest.mark.parametrize(
    "given",
    [
        SOME,
        tuple(SOME),
        iter(SOME),
        [text.encode() for text in SOME],
        [text if row % 2 else text.encode() for row, text in enumerate(SOME)],
        pa.array(SOME),
        pa.array(SOME, pa.large_string()),
        pa.array([text.encode() for text in SOME]),
        pa.array(["before", *SOME, "behind"])[1:-1],
        pa.chunked_array([SOME[:2], SOME[2:]]),
        pa.chunked_array([SOME[:2], [], SOME[2:]], pa.large_string()),
        pa.array(SOME).dictionary_encode(),
        pa.array(SOME, pa.string_view()),
        TextBatch.of(SOME),
    ],
    ids=lambda given: type(given).__name__,
)
def test_texts_of_any_form_are_the_same_batch(given):
    batch = TextBatch.of(given)
    assert batch.to_list() == SOME
    assert batch.byte_count == sum(len(text.encode()) for text in SOME)


@pytest.mark.parametrize("given", [[], (), pa.array([], pa.string()), pa.chunked_array([], pa.string())])
def test_a_batch_of_no_texts_has_no_rows(given):
    assert len(TextBatch.of(given)) == 0


def test_all_hard_texts_survive_packing():
    hard = texts.TEXTS
    assert TextBatch.of(hard).to_list() == hard


@pytest.mark.parametrize(
    ("given", "row", "message"),
    [
        (["a", "b\ud800"], 1, "lone surrogate U.D800 at character 1"),
        (["a", "b", 3], 2, "is int, not str or bytes"),
        (["a", None], 1, "is NoneType"),
        (pa.array(["a", None]), 1, "is null"),
        ([b"a", b"a\xff"], 1, "byte 0xff at 1"),
        ([b"ok", b"\xe6\x97"], 1, "byte 0xe6 at 0"),
        ("one text", 0, "takes a list of texts"),
        (None, 0, "takes a list of texts, not NoneType"),
        ({"a": "text"}, 0, "takes a list of texts, not dict"),
        (pa.array([1, 2]), 0, "type int64"),
    ],
)
def test_a_bad_text_is_named_by_its_row(given, row, message):
    with pytest.raises(TextError, match=message) as caught:
        TextBatch.of(given)
    assert caught.value.row == row
    assert "hint: " in str(caught.value)


def test_a_character_that_two_rows_share_is_no_utf8():
    halves = TextBatch(np.frombuffer("é".encode(), np.uint8), np.array([0, 1, 2]))
    with pytest.raises(TextError, match="text 0"):
        TextBatch.of(halves)


@pytest.mark.parametrize(("bad", "good"), [(b"a\xffb", "a\ufffdb"), ("a\ud800b", "a\ufffdb"), (b"\xe6\x97", "\ufffd")])
def test_invalid_utf8_is_replaced_when_asked(bad, good):
    assert TextBatch.of(["x", bad], invalid_utf8="replace").to_list() == ["x", good]


@pytest.mark.parametrize(
    ("bytes_", "starts", "message"),
    [
        (np.zeros(3, np.int8), np.array([0, 3]), "uint8"),
        (np.zeros(3, np.uint8), np.array([0, 3], np.int32), "int64"),
        (np.zeros(3, np.uint8), np.array([0, 4]), "within"),
        (np.zeros(3, np.uint8), np.array([0, 2, 1]), "goes down"),
        (np.zeros(3, np.uint8), np.zeros(0, np.int64), "within"),
    ],
)
def test_a_text_batch_of_the_wrong_shape_is_refused(bytes_, starts, message):
    with pytest.raises(GpuTokError, match=message):
        TextBatch(bytes_, starts)


def test_a_token_batch_is_read_by_row_and_by_slice():
    batch = batch_of([[1, 2], [], [3]])
    assert len(batch) == 3
    assert batch[0].tolist() == [1, 2]
    assert batch[-1].tolist() == [3]
    assert batch[1:].to_list() == [[], [3]]
    assert batch[5:].to_list() == []
    assert batch.lengths.tolist() == [2, 0, 1]
    assert batch.to_arrow().to_pylist() == [[1, 2], [], [3]]
    assert [row.tolist() for row in batch] == batch.to_list()
    with pytest.raises(IndexError, match="row 3 of a batch of 3"):
        batch[3]


def test_padding_is_laid_out_on_the_side_that_the_batch_says():
    rows = [[101, 7, 102], [101, 102]]
    types = TypeIds((0,), 1, (2,))
    right = batch_of(rows, type_ids=types, padding=Padding(9, 5, "right")).to_padded()
    assert right.input_ids.tolist() == [[101, 7, 102], [101, 102, 9]]
    assert right.attention_mask.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert right.token_type_ids.tolist() == [[0, 1, 2], [0, 2, 5]]
    left = batch_of(rows, type_ids=types, padding=Padding(9, 5, "left")).to_padded(pad_to_multiple_of=4)
    assert left.input_ids.tolist() == [[9, 101, 7, 102], [9, 9, 101, 102]]
    assert left.attention_mask.tolist() == [[0, 1, 1, 1], [0, 0, 1, 1]]
    assert left.token_type_ids.tolist() == [[5, 0, 1, 2], [5, 5, 0, 2]]


def test_rows_that_are_padded_already_keep_their_mask():
    padded = batch_of([[101, 7, 0], [101, 0, 0]], counts=np.array([2, 1]))
    assert padded.to_padded(length=4).attention_mask.tolist() == [[1, 1, 0, 0], [1, 0, 0, 0]]


@pytest.mark.parametrize(
    "given",
    [
        [[1, 2], [3, 4]],
        np.array([[1, 2], [3, 4]], np.int32),
        [np.array([1, 2]), [3, 4]],
        pa.array([[1, 2], [3, 4]]),
        pa.chunked_array([[[1, 2]], [[3, 4]]]),
        pa.array([[9], [1, 2], [3, 4]])[1:],
        pa.array([[9, 9], [1, 2], [3, 4]], pa.list_(pa.int32(), 2))[1:],
        batch_of([[1, 2], [3, 4]]),
    ],
)
def test_rows_of_ids_of_any_form_are_the_same(given):
    ragged = ragged_ids(given)
    assert [ragged.row(row).tolist() for row in range(ragged.count)] == [[1, 2], [3, 4]]


@pytest.mark.parametrize("given", [[1, 2], [["a"]], [[1.5]], "12", 3, [[[1]]], pa.array([1, 2])])
def test_what_is_no_rows_of_ids_is_refused(given):
    with pytest.raises(GpuTokError, match=r"decode_batch takes|whole numbers|holds no rows of ids"):
        ragged_ids(given)


def test_rows_and_ids_that_are_null_are_refused():
    with pytest.raises(GpuTokError, match="row 1 is null"):
        ragged_ids(pa.array([[1], None]))
    with pytest.raises(GpuTokError, match="whole numbers"):
        ragged_ids(pa.array([[1, None]]))


def test_a_choice_that_there_is_not_is_refused():
    with pytest.raises(GpuTokError, match="invalid_utf8='ignore'"):
        TextBatch.of(["a"], invalid_utf8="ignore")


def test_a_batch_shows_its_size_not_its_ids():
    assert repr(batch_of([[1, 2], [3]])) == "TokenBatch(2 rows, 3 ids)"


def test_no_rows_of_ids_are_no_rows():
    assert ragged_ids([]).count == 0
    assert ragged_ids([[], []]).starts.tolist() == [0, 0, 0]
    assert NO_STARTS.tolist() == [0]
