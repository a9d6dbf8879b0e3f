"""Texts in several batches on a device: the same rows, in any size of batch, whatever fails on the way."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from test_device_path import AROUND, some_texts
from test_hot import ALL_ENDS, MadeUpModel, plain_ids, random_tables

from gpu_tok.batch import TextBatch
from gpu_tok.emulated import EmulatedDevice
from gpu_tok.errors import DeviceError, TextError
from gpu_tok.on_device import batches, table
from gpu_tok.on_device.batches import DevicePath
from gpu_tok.postprocess import NO_PADDING, PAD_TO_LENGTH, PAD_TO_LONGEST, Plan
from gpu_tok.tables.added_tokens import AddedTokens, compile_added_tokens
from gpu_tok.tables.definition import Definition

NOTHING_AROUND = AROUND._replace(
    prefix=np.zeros(0, np.int32), suffix=np.zeros(0, np.int32), keep_at_most=-1, pad_mode=NO_PADDING
)
TABLES = random_tables(21)


@pytest.fixture(scope="module")
def no_tokens() -> AddedTokens:
    return compile_added_tokens(Definition.from_str('{"model": {"type": "WordLevel", "vocab": {}, "unk_token": "?"}}'))


def path_of(added: AddedTokens, batch_bytes: int | None, flags: int = 0, budget: int = 1 << 16, device=None):
    return DevicePath(device or EmulatedDevice(), TABLES, MadeUpModel(flags), added, budget, batch_bytes)


def rows_of(path: DevicePath, texts: list[str], plan: Plan = NOTHING_AROUND) -> list[list[int]]:
    rows = path.encode_texts(TextBatch.of(texts), plan)
    assert len(rows.ids) == rows.starts[-1]
    return [rows.ids[begin:end].tolist() for begin, end in itertools.pairwise(rows.starts)]


@pytest.mark.parametrize("batch_bytes", [1, 100, 2000, None])
@pytest.mark.parametrize("flags", [0, ALL_ENDS])
def test_any_size_of_batch_gives_the_same_ids(batch_bytes, flags, no_tokens):
    path, given = path_of(no_tokens, batch_bytes, flags), some_texts(21)
    expected = [plain_ids(text, TABLES, path.encoder.cold) for text in given]
    for _pass in ("cold", "warm"):
        assert rows_of(path, given) == expected


@pytest.mark.parametrize("mode", [NO_PADDING, PAD_TO_LENGTH, PAD_TO_LONGEST])
def test_rows_come_to_the_host_as_they_are_on_the_device(mode, no_tokens):
    plan, batch = AROUND._replace(pad_mode=mode, pad_length=9), TextBatch.of(some_texts(26))
    path = path_of(no_tokens, 300)
    for there, here in zip(path.encode_texts(batch, plan), path.encode_to_host(batch, plan), strict=True):
        assert np.array_equal(there, here)


@pytest.mark.parametrize("mode", [NO_PADDING, PAD_TO_LENGTH, PAD_TO_LONGEST])
@pytest.mark.parametrize("on_the_left", [False, True])
def test_rows_are_padded_as_in_one_batch(mode, on_the_left, no_tokens):
    plan = AROUND._replace(pad_mode=mode, pad_length=9, pad_multiple=4, pad_left=on_the_left, keep_at_most=30)
    given = some_texts(22)
    whole, parts = path_of(no_tokens, None), path_of(no_tokens, 300)
    assert rows_of(parts, given, plan) == rows_of(whole, given, plan)
    counts = [path.encode_texts(TextBatch.of(given), plan).counts.tolist() for path in (whole, parts)]
    assert counts[0] == counts[1]


def test_an_empty_batch_has_no_rows(no_tokens):
    assert rows_of(path_of(no_tokens, None), []) == []


def test_a_hundred_thousand_empty_texts(no_tokens):
    path = path_of(no_tokens, None)
    assert rows_of(path, ["", "a", *[""] * 100_000, "b"])[-1] == plain_ids("b", TABLES, path.encoder.cold)


class Forgetful(EmulatedDevice):
    """Has no memory for a batch of more bytes than `most`."""

    most = 0
    refused = 0

    def launch(self, kernel, grid, block, *arguments):
        if kernel == "look_up_chunks" and len(arguments[0]) > self.most:
            self.refused += 1
            raise MemoryError
        super().launch(kernel, grid, block, *arguments)


def test_where_memory_runs_out_batches_are_halved(no_tokens, monkeypatch):
    monkeypatch.setattr(batches, "LEAST_BYTES", 10)
    device = Forgetful()
    path, given = path_of(no_tokens, 1 << 20, device=device), some_texts(23)
    device.most = max(len(text.encode()) for text in given)
    assert rows_of(path, given) == [plain_ids(text, TABLES, path.encoder.cold) for text in given]
    assert device.refused > 2


class Noting(EmulatedDevice):
    """Notes how many bytes each batch has, and has as much memory as asked for."""

    free = 0
    sizes: tuple[int, ...] = ()

    def launch(self, kernel, grid, block, *arguments):
        if kernel == "cut_words":
            self.sizes = (*self.sizes, len(arguments[0]))
        super().launch(kernel, grid, block, *arguments)

    def free_memory(self):
        return self.free


def test_free_memory_decides_how_large_batches_are(no_tokens, monkeypatch):
    monkeypatch.setattr(batches, "LEAST_BYTES", 10)
    device = Noting()
    path, given = path_of(no_tokens, None, device=device), ["a bc" * 5] * 100
    expected = [plain_ids(text, TABLES, path.encoder.cold) for text in given]
    for most in (10, 200, 1000, 2000, 1 << 20):
        device.free, device.sizes = most * batches.MEMORY_SHARE, ()
        assert rows_of(path, given) == expected
        assert set(device.sizes) == {min(max(most, 20), 2000)}


def test_a_text_that_no_memory_is_enough_for_is_said(no_tokens):
    path = path_of(no_tokens, 1 << 22, device=Forgetful())
    with pytest.raises(DeviceError, match=r"has no memory for a batch of 1,048,576 bytes of text\nhint: .*cpu"):
        rows_of(path, ["a"])


class Refusing(MadeUpModel):
    """Cannot encode chunks with a `!` in them."""

    def encode(self, chunks, flags):
        for row in range(chunks.count):
            if b"!" in chunks.row(row).tobytes():
                raise TextError(row, "is refused", "")
        return super().encode(chunks, flags)


def test_an_error_names_the_row_and_leaves_nothing_behind(no_tokens):
    path = path_of(no_tokens, 40)
    path.encoder = path.encoder._replace(cold=Refusing(0))
    given = some_texts(24)
    good = [text for text in given if "!" not in text]
    row = len(good) // 2
    with pytest.raises(TextError) as raised:
        rows_of(path, [*good[:row], "a! b", *good[row:]])
    assert raised.value.row == row
    assert rows_of(path, good) == [plain_ids(text, TABLES, path.encoder.cold) for text in good]


def test_bytes_that_are_no_utf8_are_named_by_their_row(no_tokens):
    bytes = np.frombuffer("abcä€".encode() + b"x\x80y", np.uint8)
    batch = TextBatch(bytes, np.array([0, 3, 5, 8, 11]), valid=True)
    for batch_bytes in (None, 3):
        with pytest.raises(TextError) as raised:
            path_of(no_tokens, batch_bytes).encode_texts(batch, NOTHING_AROUND)
        assert raised.value.row == 3


def test_a_new_generation_waits_for_the_batch_under_way(no_tokens, monkeypatch):
    monkeypatch.setattr(table, "RENEW_UNITS", 1)
    path, given = path_of(no_tokens, 200, budget=1 << 10), some_texts(25)
    expected = [plain_ids(text, TABLES, path.encoder.cold) for text in given]
    for _pass in range(3):
        assert rows_of(path, given) == expected
    assert path.encoder.table.generation > 3


@pytest.mark.parametrize("place", [0, 3000, 6000])
def test_one_long_row_among_tiny_ones(place, no_tokens):
    path, tiny = path_of(no_tokens, None), [f"{number} a" for number in range(6000)]
    long = "".join(random.Random(place).choices(["ab", " ", "é", "中", ", "], k=220_000))
    given = [*tiny[:place], long, *tiny[place:]]
    assert len(long.encode()) > 300_000
    for _pass in ("cold", "warm"):
        rows = rows_of(path, given)
        assert rows[place] == plain_ids(long, TABLES, path.encoder.cold)
        assert [rows[0 if place else 1], rows[-1 if place < 6000 else -2]] == [
            plain_ids(text, TABLES, path.encoder.cold) for text in (tiny[0], tiny[-1])
        ]


class Spelling(MadeUpModel):
    """An id for each byte of a chunk."""

    def ids_of(self, chunk: bytes, flags: int) -> list[int]:
        return [*chunk]


def test_a_row_without_cuts_is_one_chunk_of_many_ids(no_tokens):
    uncut = TABLES._replace(taken=np.zeros_like(TABLES.taken))
    path = DevicePath(EmulatedDevice(), uncut, Spelling(0), no_tokens, 1 << 16)
    given = ["a b", "".join(random.Random(1).choices("abc é", k=300_000)), "", "c"]
    assert rows_of(path, given) == [plain_ids(text, uncut, path.encoder.cold) for text in given]
