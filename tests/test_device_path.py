"""The steps on a device, run by the emulator: cut, look up, claim, publish, place, gather, against the CPU's arrays.

The made-up model of `test_hot` gives every chunk ids of its bytes and flags, none to forty of them, so whatever was cut
elsewhere, looked up wrongly or put in the wrong place shows.
"""

from __future__ import annotations

import itertools
import random
import zlib

import compare
import numpy as np
import pytest
import texts
import vocabularies
from test_hot import ALL_ENDS, MadeUpModel, encode, encoder_of, plain_cuts, plain_ids, random_tables, sections_of

from gpu_tok import Tokenizer, added_tokens
from gpu_tok.added_tokens import TEXT, Sections
from gpu_tok.batch import Padding, TextBatch, TokenBatch, TypeIds, starts_of
from gpu_tok.emulated import EmulatedDevice
from gpu_tok.on_device import cut, gather, intern, path
from gpu_tok.on_device.batch_table import starts_on
from gpu_tok.on_device.cut import Cuts
from gpu_tok.on_device.intern import DeviceEncoder, Entries
from gpu_tok.on_device.path import encoder_on
from gpu_tok.on_device.report import CHUNKS_SEEN
from gpu_tok.on_device.rooms import Rooms, Shares
from gpu_tok.on_device.text import TILE, Text, upload
from gpu_tok.postprocess import NO_PADDING, PAD_TO_LENGTH, PAD_TO_LONGEST, UNLIMITED, Plan, place, plan_of
from gpu_tok.tables import ends
from gpu_tok.tables.cuts import CutTables
from gpu_tok.tables.postprocess import compile_postprocess

ROOMS = Rooms(1 << 16, 1 << 16, 1 << 16, 1 << 16)


def cut_on(device: EmulatedDevice, text: Text, encoder: DeviceEncoder) -> Cuts:
    return cut.cut_sections(device, text, cut.cut_words(device, text, encoder.cuts), encoder.cuts)


def device_encoder(tables: CutTables, flags: int = 0, budget: int = 1 << 16, seed: int = 0):
    device = EmulatedDevice(seed)
    return device, encoder_on(device, tables, MadeUpModel(flags), budget)


def encode_on(device: EmulatedDevice, sections: Sections, encoder: DeviceEncoder, plan=None) -> list[list[int]]:
    rows = path.encode(device, sections, encoder, plan)
    ids, starts = device.download(rows.ids), device.download(rows.starts)
    return [ids[begin:end].tolist() for begin, end in itertools.pairwise(starts)]


def some_texts(seed: int) -> list[str]:
    return [*texts.random_texts(seed, 20, 80), *texts.TEXTS, "", "", *texts.random_code_points(seed, 10)]


@pytest.mark.parametrize("flags", [0, ALL_ENDS, ends.SECTION_LAST])
@pytest.mark.parametrize("classes", [1, 6, 32])
def test_ids_are_those_of_the_plain_path_cold_and_warm(classes, flags):
    tables = random_tables(classes, classes)
    device, encoder = device_encoder(tables, flags)
    given = some_texts(classes)
    batch = TextBatch.of(given)
    expected = [plain_ids(text, tables, encoder.cold) for text in given]
    for _pass in ("cold", "warm"):
        assert encode_on(device, sections_of(batch), encoder) == expected


@pytest.mark.parametrize("length", [0, 1, 31, 32, 33, TILE - 1, TILE, TILE + 1, 2 * TILE, 33 * TILE + 7])
@pytest.mark.parametrize("share", [0.5, 0.0])
@pytest.mark.parametrize("flags", [0, ALL_ENDS])
def test_texts_of_lengths_around_words_and_tiles(length, share, flags):
    tables = random_tables(7, 4, share)
    device, encoder = device_encoder(tables, flags)
    pick = random.Random(length)
    given = ["".join(pick.choices("ab é", k=length)), "x", "", "".join(pick.choices("ab ", k=length))]
    batch = TextBatch.of(given)
    expected = [plain_ids(text, tables, encoder.cold) for text in given]
    assert encode_on(device, sections_of(batch), encoder) == expected
    assert encode_on(device, sections_of(batch), encoder) == expected


def test_chunks_begin_where_the_plain_path_cuts():
    tables = random_tables(3)
    device, encoder = device_encoder(tables)
    given = some_texts(3)
    batch = TextBatch.of(given)
    text = upload(device, sections_of(batch), 0)
    cuts = cut_on(device, text, encoder)
    bits = np.unpackbits(device.download(cuts.mask).view(np.uint8), bitorder="little")
    lengths = [len(chunk.encode()) for text in given for chunk in plain_cuts(text, tables)]
    assert np.flatnonzero(bits).tolist() == starts_of(np.array(lengths))[:-1].tolist()
    assert cuts.tile_chunk.tolist() == [int(bits[: TILE * tile].sum()) for tile in range(text.tiles + 1)]


def test_entries_stand_for_the_ids_of_their_chunks():
    tables = random_tables(4)
    device, encoder = device_encoder(tables, budget=1 << 18)
    given = some_texts(4)
    sections = sections_of(TextBatch.of(given))
    encode_on(device, sections, encoder)
    text = upload(device, sections, 0)
    cuts = cut_on(device, text, encoder)
    found = intern.look_up(device, text, cuts, encoder, ROOMS)
    chunks = [chunk.encode() for text in given for chunk in plain_cuts(text, tables)]
    kept = encoder.table.to_host()
    assert cuts.report[CHUNKS_SEEN] == len(chunks)
    for chunk, entry in zip(chunks, entries_in_order(found, cuts), strict=True):
        expected = encoder.cold.ids_of(chunk, 0)
        assert _ids_of_entry(entry, kept) == (None if len(chunk) > 256 else expected)


def entries_in_order(found: Entries, cuts: Cuts) -> list[int]:
    """Without what lies between those of two spans."""
    tile_chunk = cuts.tile_chunk.tolist()
    span_chunk = [*tile_chunk[:-1:2], tile_chunk[-1]]
    begins = [(chunks + 7 * span) // 8 * 8 for span, chunks in enumerate(span_chunk)]
    counts = [end - begin for begin, end in itertools.pairwise(span_chunk)]
    pairs = zip(begins, counts, strict=False)
    return [entry for begin, count in pairs for entry in found.entries[begin : begin + count].tolist()]


def _ids_of_entry(entry: int, table) -> list[int] | None:
    if entry >> 30 == 3:
        return [entry & (1 << 30) - 1]
    if entry >> 30 == 2:
        return None
    words = table.rows[4 * entry + 2 : 4 * entry + 4].view(np.uint32)
    count = int(words[3] & 0x7FFFFFFF)
    in_pool = words[3] >> 31
    return (table.ids[words[1] : words[1] + count] if in_pool else words[:count].astype(np.int32)).tolist()


def test_sections_begin_where_the_ids_before_them_end():
    tables = random_tables(5)
    device, encoder = device_encoder(tables)
    given = some_texts(5)
    text = upload(device, sections_of(TextBatch.of(given)), 0)
    cuts = cut_on(device, text, encoder)
    found = intern.look_up(device, text, cuts, encoder, ROOMS)
    late = intern.encode_on_host(device, text, cuts, found, encoder)
    places = gather.place_sections(device, text, cuts, found, late, encoder.table)
    counts = [len(plain_ids(text, tables, encoder.cold)) for text in given]
    assert places.section_place.tolist() == starts_of(np.array(counts)).tolist()


@pytest.mark.parametrize("budget", [0, 1, 1 << 10, 1 << 12, 1 << 16, 1 << 20])
def test_any_budget_of_the_table_gives_the_same_ids(budget):
    tables = random_tables(4)
    device, encoder = device_encoder(tables, ALL_ENDS, budget)
    for seed in range(3):
        given = some_texts(seed)
        expected = [plain_ids(text, tables, encoder.cold) for text in given]
        assert encode_on(device, sections_of(TextBatch.of(given)), encoder) == expected


@pytest.mark.parametrize("seed", range(1, 7))
def test_any_order_of_threads_gives_the_same_ids(seed):
    tables = random_tables(9)
    device, encoder = device_encoder(tables, budget=1 << 13, seed=seed)
    given = some_texts(9)
    expected = [plain_ids(text, tables, encoder.cold) for text in given]
    for _pass in ("cold", "warm"):
        assert encode_on(device, sections_of(TextBatch.of(given)), encoder) == expected


def test_a_chunk_goes_to_the_cold_path_once():
    tables = random_tables(5)
    device, encoder = device_encoder(tables, budget=1 << 20)
    sections = sections_of(TextBatch.of(some_texts(5) * 3))
    encode_on(device, sections, encoder)
    assert len(encoder.cold.encoded) == len(set(encoder.cold.encoded)) > 100
    encoder.cold.encoded.clear()
    encode_on(device, sections, encoder)
    assert all(len(chunk) > 256 for chunk in encoder.cold.encoded)
    encoder.table.clear()
    encode_on(device, sections, encoder)
    assert len(encoder.cold.encoded) > 100


class Tight(Shares):
    """Room for less than any batch needs, whatever the batches before it needed."""

    def rooms(self, byte_count: int, extra_ids: int = 0) -> Rooms:
        return Rooms(1, 1, 1, 1)


def test_what_there_was_no_room_for_is_done_again():
    tables = random_tables(6, share=1.0)
    device, encoder = device_encoder(tables)
    encoder = encoder._replace(shares=Tight())
    given = some_texts(6)
    expected = [plain_ids(text, tables, encoder.cold) for text in given]
    for _pass in ("cold", "warm"):
        assert encode_on(device, sections_of(TextBatch.of(given)), encoder) == expected


class LongLists(MadeUpModel):
    """Chunks of which some have thousands of ids, and short ones around them."""

    def ids_of(self, chunk: bytes, flag: int) -> list[int]:
        count = {0: 4095, 1: 4096, 2: 4097, 3: 8192, 4: 30_000, 5: 33}.get(zlib.crc32(chunk) % 40, 1)
        return list(range(len(chunk), len(chunk) + count))


@pytest.mark.parametrize("plan", [None, "cut to the last 5000"])
def test_lists_of_thousands_of_ids_are_copied_by_several_blocks(plan):
    plan = AROUND._replace(keep_at_most=5000, keep_last=True, pad_id=9) if plan else PLAIN
    tables = random_tables(6)
    device = EmulatedDevice()
    encoder = encoder_on(device, tables, LongLists(), 1 << 23)
    given = texts.random_texts(6, 12, 60)
    rows = [plain_ids(text, tables, encoder.cold) for text in given]
    assert max(map(len, rows)) > 60_000
    for _pass in ("cold", "warm"):
        assert encode_on(device, sections_of(TextBatch.of(given)), encoder, plan) == laid_out(rows, plan)


@pytest.mark.parametrize("flags", [0, ALL_ENDS])
def test_added_tokens_and_whole_sections_are_not_cut(flags):
    tables = random_tables(8)
    device, encoder = device_encoder(tables, flags)
    pick = random.Random(8)
    pieces = []
    for text in some_texts(8):
        own = [(text, TEXT, ALL_ENDS), ("[X] y" * pick.randrange(1, 40), 7, 0), ("<s>", 3, 0), ("", TEXT, ALL_ENDS)]
        own += [("whole " * pick.randrange(400), TEXT, ALL_ENDS | ends.WHOLE), (text[::-1], TEXT, ends.SECTION_LAST)]
        pick.shuffle(own)
        pieces.append(own[: pick.randrange(len(own) + 1)])
    expected = [
        [
            x
            for piece, id_, flag in own
            for x in ([id_] if id_ != TEXT else plain_ids(piece, tables, encoder.cold, flag))
        ]
        for own in pieces
    ]
    flat = [piece for own in pieces for piece in own]
    sections = Sections(
        TextBatch.of(["".join(piece for piece, _id, _flags in flat)]).bytes,
        starts_of(np.array([len(piece.encode()) for piece, _id, _flags in flat])),
        np.array([id_ for _piece, id_, _flags in flat], np.int32),
        np.array([flag for _piece, _id, flag in flat], np.uint8),
        starts_of(np.array([len(own) for own in pieces])),
    )
    for _pass in ("cold", "warm"):
        assert encode_on(device, sections, encoder) == expected


def test_a_table_filled_by_the_cpu_is_read_on_a_device_and_the_other_way():
    tables = random_tables(10)
    given = some_texts(10)
    batch = TextBatch.of(given)
    expected = [plain_ids(text, tables, MadeUpModel()) for text in given]
    on_cpu = encoder_of(tables, budget=1 << 20)
    device, encoder = device_encoder(tables, budget=1 << 20)
    encode_on(device, sections_of(batch), encoder)
    on_cpu.table.arrays = encoder.table.to_host()
    assert encode(batch, sections_of(batch), on_cpu) == expected
    assert all(len(chunk) > 256 for chunk in on_cpu.cold.encoded)

    _device, second = device_encoder(tables, budget=1 << 20)
    second.table.load(on_cpu.table.arrays)
    assert encode_on(device, sections_of(batch), second) == expected
    assert all(len(chunk) > 256 for chunk in second.cold.encoded)


def test_many_empty_texts_have_no_ids():
    tables = random_tables(2)
    device, encoder = device_encoder(tables)
    given = [""] * 5000 + ["some text"] + [""] * 5000
    expected = [plain_ids(text, tables, encoder.cold) for text in given]
    assert encode_on(device, sections_of(TextBatch.of(given)), encoder) == expected
    assert encode_on(device, sections_of(TextBatch.of([])), encoder) == []


@pytest.mark.parametrize("name", vocabularies.names(sources=("own",)))
def test_real_tokenizers_give_the_ids_of_the_reference(name, definition_text, reference):
    tok = Tokenizer.from_str(definition_text(name), workers=1)
    if not tok.is_divisible:
        pytest.skip("its texts go to the reference whole")
    device = EmulatedDevice()
    encoder = encoder_on(device, tok.cuts, tok.cold, 1 << 18)
    plan = plan_of(compile_postprocess(tok.definition), None, None)
    given = [text for text in texts.TEXTS if len(text) < 5000]
    for _pass in ("cold", "warm"):
        sections = added_tokens.run(TextBatch.of(given), tok.added_tokens, tok.workers)
        compare.assert_same_ids(reference(name), given, encode_on(device, sections, encoder, plan))


NOTHING = np.zeros(0, np.int32)
PLAIN = Plan(NOTHING, NOTHING, UNLIMITED, False, NO_PADDING, 0, 0, 0, False, False)
AROUND = PLAIN._replace(prefix=np.array([101, 102], np.int32), suffix=np.array([103], np.int32))
PLANS = {
    "special tokens": AROUND,
    "only a suffix": PLAIN._replace(suffix=np.arange(40, dtype=np.int32)),
    "cut to 5": PLAIN._replace(keep_at_most=5),
    "cut to the last 5": AROUND._replace(keep_at_most=5, keep_last=True),
    "cut to nothing": AROUND._replace(keep_at_most=0),
    "padded to the longest": AROUND._replace(pad_mode=PAD_TO_LONGEST, pad_id=9),
    "padded to the longest, nothing else": PLAIN._replace(pad_mode=PAD_TO_LONGEST, pad_id=9),
    "padded on the left": AROUND._replace(pad_mode=PAD_TO_LENGTH, pad_length=50, pad_multiple=8, pad_left=True),
    "cut within a chunk of 40 ids, padded": PLAIN._replace(keep_at_most=33, pad_mode=PAD_TO_LONGEST, pad_id=7),
}


def laid_out(rows: list[list[int]], plan: Plan) -> list[list[int]]:
    """Rows as the plan says, one by one."""
    _kept, lengths = place(np.array([len(row) for row in rows]), plan)
    done = []
    for row, length in zip(rows, lengths.tolist(), strict=True):
        keep = len(row) if plan.keep_at_most == UNLIMITED else min(plan.keep_at_most, len(row))
        ids = row[len(row) - keep :] if plan.keep_last else row[:keep]
        ids = [*plan.prefix.tolist(), *ids, *plan.suffix.tolist()]
        padding = [plan.pad_id] * (length - len(ids))
        done.append(padding + ids if plan.pad_left else ids + padding)
    return done


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("share", [0.4, 0.02])
def test_rows_are_laid_out_as_planned(plan, share):
    tables = random_tables(11, share=share)
    device, encoder = device_encoder(tables)
    given = ["", *some_texts(11), ""]
    expected = laid_out([plain_ids(text, tables, encoder.cold) for text in given], plan)
    assert encode_on(device, sections_of(TextBatch.of(given)), encoder, plan) == expected
    assert encode_on(device, sections_of(TextBatch.of([])), encoder, plan) == []


def rows_to_pad(seed: int, padding: Padding, type_ids: TypeIds) -> TokenBatch:
    """Rows of up to 2,000 ids, some of them with padding already."""
    pick = random.Random(seed)
    lengths = [pick.choice((0, 1, 2, 3, 31, 32, 33, 100, pick.randrange(2000))) for _row in range(pick.randrange(9))]
    counts = [pick.choice((length, pick.randrange(length + 1))) for length in lengths]
    ids, each = (np.array(pick.choices(range(1, 50), k=sum(lengths)), np.int32) for _array in range(2))
    each_type_id = each if pick.random() < 0.3 else None
    return TokenBatch(ids, starts_of(np.array(lengths)), np.array(counts, np.int64), type_ids, padding, each_type_id)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("type_ids", [TypeIds(), TypeIds((5,), 6, (7,)), TypeIds((1, 2, 3), 4, (5, 6))])
def test_rectangles_are_those_of_the_cpu(side, type_ids):
    for seed in range(12):
        batch = rows_to_pad(seed, Padding(9, 8, side), type_ids)
        device = EmulatedDevice(seed)
        arrays = [device.upload(array) for array in (batch.ids, batch.starts, batch.counts)]
        for length, multiple in ((None, None), (3000, None), (40, 64)):
            rows = (*arrays, type_ids, batch.padding, length, multiple, batch.each_type_id)
            for found, expected in zip(gather.to_padded(device, *rows), batch.to_padded(length, multiple), strict=True):
                assert found.dtype == expected.dtype
                assert found.shape == expected.shape
                assert found.tolist() == expected.tolist()


BEYOND = (1 << 31) - 5  # what lies before nobody touches: memory that is not there


@pytest.mark.parametrize("plan", [None, AROUND])
def test_ids_go_to_places_beyond_what_32_bits_hold(plan, monkeypatch):
    tables, batch = random_tables(32), TextBatch.of(some_texts(32))
    device, encoder = device_encoder(tables)
    near = path.encode(device, sections_of(batch), encoder, plan)
    monkeypatch.setattr(gather, "starts_on", lambda xp, counts: starts_on(xp, counts) + BEYOND)
    far = path.encode(device, sections_of(batch), encoder, plan)
    assert far.starts.tolist() == (near.starts + BEYOND).tolist()
    assert far.ids[BEYOND:].tolist() == near.ids.tolist()
    rows = (TypeIds((1,), 0, (1,)), Padding(3))
    for here, there in zip(*(gather.to_padded(device, *found[:3], *rows) for found in (near, far)), strict=True):
        assert here.tolist() == there.tolist()


@pytest.mark.slow
def test_places_beyond_what_32_bits_hold():
    tables = random_tables(31)
    device, encoder = device_encoder(tables)
    token = np.full((1 << 31) + 5, ord("a"), np.uint8)
    behind = some_texts(31)
    part = TextBatch.of(behind)
    sections = Sections(
        np.concatenate([token, part.bytes]),
        np.concatenate([[0], len(token) + part.starts]),
        np.array([7, *[TEXT] * len(part)], np.int32),
        np.array([0, *[ALL_ENDS] * len(part)], np.uint8),
        np.arange(len(part) + 2),
    )
    assert encode_on(device, sections, encoder) == [[7], *(plain_ids(text, tables, encoder.cold) for text in behind)]
