"""The path of a batch on a device, step under step; written once for every device that has `xp` and `launch`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpu_tok import batch_table
from gpu_tok.added_tokens import TEXT, Sections
from gpu_tok.batch_table import Late, starts_on
from gpu_tok.cold import ColdPath
from gpu_tok.device_table import DeviceTable
from gpu_tok.errors import TextError
from gpu_tok.postprocess import UNLIMITED, Plan, place
from gpu_tok.tables import ends
from gpu_tok.tables.cuts import CutTables

THREADS = 256
WORD, TILE = 32, 1024  # bytes of text; kernels/tile.cuh
CLASSES = 32
ROOM_SHARE = 0.3  # chunks a byte that there is room for at first; when it is not enough, the look-up is done again
CHUNKS_SEEN, MISSES_SEEN, FIRST_BAD, REPORT_WORDS = 0, 1, 4, 8
ALL_GOOD = 2**64 - 1
MOST_MISSES = 1 << 30  # their numbers share a word with two bits that say what an entry is


class DeviceEncoder(NamedTuple):
    """What turns chunks into ids on a device. class_of: uint8[0x110000], taken: uint32[32], on the device."""

    class_of: Any
    taken: Any
    table: DeviceTable
    cold: ColdPath


class Text(NamedTuple):
    """Sections on the device. bytes: uint8[n]; section_start: int64[sections + 1]; kind: int32[sections], a token's id
    or the complement of a section's flags, None where neither matters; closed: uint8[sections], sections that are not
    cut, or None; row_section: int64[rows + 1]; tiles: how many."""

    bytes: Any
    section_start: Any
    kind: Any
    closed: Any
    row_section: Any
    tiles: int


class Cuts(NamedTuple):
    """mask: uint32[words], a bit for each byte at which a chunk begins; tile_chunk: int64[tiles + 1], chunks before
    each tile; tile_section: int64[tiles + 1], sections that begin before each tile; report: uint64[8]."""

    mask: Any
    tile_chunk: Any
    tile_section: Any
    report: Any


class Entries(NamedTuple):
    """entries: uint32[chunks]; tile_ids: int64[tiles]; section_before: int64[sections], ids of its tile before each
    section; misses: int64[2 * n], of which miss_count hold something."""

    entries: Any
    tile_ids: Any
    section_before: Any
    misses: Any
    chunk_count: int
    miss_count: int


class Places(NamedTuple):
    """tile_id: int64[tiles + 1], ids before each tile; section_place: int64[sections + 1], ids before each section."""

    tile_id: Any
    section_place: Any


class DeviceRows(NamedTuple):
    """The batch as it leaves, on the device: ids: int32[n]; starts: int64[rows + 1]; counts: int64[rows], how many ids
    of each row are not padding."""

    ids: Any
    starts: Any
    counts: Any


def encoder_on(device: Any, cuts: CutTables, cold: ColdPath, table_bytes: int) -> DeviceEncoder:
    """Uploads the tables of the cut step and makes an empty persistent table."""
    words = np.zeros(CLASSES, np.uint32)
    classes = len(cuts.taken)
    words[:classes] = (cuts.taken.astype(np.uint64) << np.arange(classes, dtype=np.uint64)).sum(axis=1)
    class_of = device.upload(np.ascontiguousarray(cuts.class_of, np.uint8))
    return DeviceEncoder(class_of, device.upload(words), DeviceTable(device, table_bytes), cold)


def encode(device: Any, sections: Sections, encoder: DeviceEncoder, plan: Plan | None = None) -> DeviceRows:
    """sections -> ids, exactly the reference's."""
    text = upload(device, sections, encoder.cold.flags)
    cuts = cut(device, text, encoder)
    found = look_up(device, text, cuts, encoder)
    late = encode_new(device, text, cuts, found, encoder) if found.miss_count else None
    places = place_sections(device, text, cuts, found, late, encoder.table)
    rows = gather(device, text, cuts, found, late, places, encoder.table, plan)
    encoder.table.note(found.miss_count, found.chunk_count)
    return rows


def upload(device: Any, sections: Sections, flag_mask: int) -> Text:
    """Sections to the device. flag_mask: the end flags that the tokenizer's keys need."""
    first, last = int(sections.start[0]), int(sections.start[-1])
    whole, token = sections.flags & ends.WHOLE != 0, sections.id != TEXT
    closed = (whole | token).astype(np.uint8)
    is_closed = bool(closed.any())
    kind = np.where(token, sections.id, ~sections.flags.astype(np.int32))
    return Text(
        device.upload(sections.bytes[first:last]),
        device.upload(sections.start - first),
        device.upload(kind) if is_closed or flag_mask else None,
        device.upload(closed) if is_closed else None,
        device.upload(np.asarray(sections.row_section)),
        -(-(last - first) // TILE),
    )


def cut(device: Any, text: Text, encoder: DeviceEncoder) -> Cuts:
    """bytes -> where chunks begin."""
    xp, count, sections = device.xp, len(text.bytes), len(text.section_start) - 1
    words = -(-count // WORD)
    mask, report = xp.empty(words, np.uint32), xp.zeros(REPORT_WORDS, np.uint64)
    report[FIRST_BAD] = ALL_GOOD
    first_bad = report[FIRST_BAD : FIRST_BAD + 1]
    section_count, tile_chunks = xp.full(1, sections, np.int64), xp.empty(text.tiles, np.int64)
    device.launch("cut_words", device.grid(words, THREADS), THREADS, text.bytes, count, encoder.class_of,
                  encoder.taken, mask, first_bad)  # fmt: skip
    device.launch("cut_sections", device.grid(sections, THREADS), THREADS, text.bytes, text.section_start,
                  section_count, text.closed, mask, first_bad)  # fmt: skip
    device.launch("count_chunks", device.grid(text.tiles * WORD, THREADS), THREADS, mask, words, tile_chunks)
    tile_begin = xp.arange(text.tiles + 1, dtype=np.int64) * TILE
    tile_section = xp.searchsorted(text.section_start[:-1], tile_begin).astype(np.int64)
    return Cuts(mask, starts_on(xp, tile_chunks), tile_section, report)


def look_up(device: Any, text: Text, cuts: Cuts, encoder: DeviceEncoder) -> Entries:
    """chunks -> entries of the persistent table, and a list of the chunks that it does not hold."""
    entry_room = miss_room = int(ROOM_SHARE * len(text.bytes)) + 64
    while True:
        found = _look_up(device, text, cuts, encoder, entry_room, miss_room)
        if found.chunk_count <= entry_room and found.miss_count <= miss_room:
            return found
        entry_room, miss_room = max(entry_room, found.chunk_count), max(miss_room, found.miss_count)


def _look_up(device: Any, text: Text, cuts: Cuts, encoder: DeviceEncoder, entry_room: int, miss_room: int) -> Entries:
    xp, table = device.xp, encoder.table
    entries, misses = xp.empty(entry_room, np.uint32), xp.empty(2 * miss_room, np.int64)
    tile_ids, section_before = xp.empty(text.tiles, np.int64), xp.zeros(len(text.section_start) - 1, np.int64)
    cuts.report[:FIRST_BAD] = 0
    device.launch("look_up_chunks", device.grid(text.tiles * WORD, THREADS), THREADS, text.bytes, len(text.bytes),
                  cuts.mask, cuts.tile_chunk, text.section_start, cuts.tile_section, text.kind, encoder.cold.flags,
                  table.rows, table.capacity, table.keys, entries, entry_room, tile_ids, section_before, misses,
                  miss_room, cuts.report)  # fmt: skip
    report = device.download(cuts.report)
    if int(report[FIRST_BAD]) != ALL_GOOD:
        row = _row_at(device, text, int(report[FIRST_BAD]))
        raise TextError(row, "is not UTF-8, or a section begins inside a character", 'pass invalid_utf8="replace"')
    if int(report[MISSES_SEEN]) > MOST_MISSES:
        raise TextError(0, f"and the texts behind it have {report[MISSES_SEEN]} new chunks", "pass fewer texts at once")
    return Entries(entries, tile_ids, section_before, misses, int(report[CHUNKS_SEEN]), int(report[MISSES_SEEN]))


def encode_new(device: Any, text: Text, cuts: Cuts, found: Entries, encoder: DeviceEncoder) -> Late:
    """Encodes each distinct new chunk once, on the host, and keeps it for later batches."""
    winners = batch_table.claim(device, text.bytes, found.misses, found.miss_count, cuts.report)
    try:
        ids = encoder.cold.encode(winners.chunks, winners.flags)
    except TextError as error:
        start = found.misses[2 * int(winners.winners[error.row])]
        raise error.in_row(_row_at(device, text, int(start))) from None
    late = batch_table.settle(device, winners, ids, cuts.report)
    batch_table.publish(device, text.bytes, found.misses, winners, late, encoder.table)
    return late


def _row_at(device: Any, text: Text, at: int) -> int:
    """The row of the text that a byte is in."""
    start, row_section = device.download(text.section_start), device.download(text.row_section)
    section = int(np.searchsorted(start, at, side="right")) - 1
    return int(np.searchsorted(row_section, section, side="right")) - 1


def place_sections(
    device: Any, text: Text, cuts: Cuts, found: Entries, late: Late | None, table: DeviceTable
) -> Places:
    """Where the ids of tiles and sections begin, when all are written one behind the other."""
    if late is not None:
        device.launch("count_late", device.grid(text.tiles * WORD, THREADS), THREADS, len(text.bytes), cuts.mask,
                      cuts.tile_chunk, text.section_start, cuts.tile_section, table.rows, found.entries, late.of_miss,
                      found.tile_ids, found.section_before)  # fmt: skip
    tile_id = starts_on(device.xp, found.tile_ids)
    section_place = tile_id[text.section_start // TILE]
    section_place[:-1] += found.section_before
    section_place[-1:] = tile_id[-1:]
    return Places(tile_id, section_place)


def gather(
    device: Any, text: Text, cuts: Cuts, found: Entries, late: Late | None, places: Places, table: DeviceTable,
    plan: Plan | None,
) -> DeviceRows:  # fmt: skip
    """entries -> ids at their places, with what `plan` leaves out and puts around them."""
    row_place = places.section_place[text.row_section]
    layout = _lay_out(device, row_place, plan)
    ids = device.xp.empty(int(layout.starts[-1]), np.int32)
    is_plain = layout.row_start is None
    tile_row = None if is_plain else device.xp.searchsorted(row_place, places.tile_id, side="right").astype(np.int64)
    late_of_miss, late_ids = (None, None) if late is None else (late.of_miss, late.ids)
    device.launch("gather_ids", device.grid(text.tiles * WORD, THREADS), THREADS, found.entries, cuts.tile_chunk,
                  places.tile_id, text.tiles, table.rows, table.ids, late_of_miss, late_ids, tile_row,
                  None if is_plain else row_place, layout.keep_begin, layout.kept, layout.row_start, ids,
                  len(ids))  # fmt: skip
    if is_plain or plan is None:
        return DeviceRows(ids, layout.starts, layout.counts)
    rows = len(layout.starts) - 1
    prefix, suffix = device.upload(plan.prefix), device.upload(plan.suffix)
    device.launch("fill_rows", device.grid(rows * WORD, THREADS), THREADS, layout.starts, layout.row_start, layout.kept,
                  rows, prefix, len(prefix), suffix, len(suffix), plan.pad_id, ids)  # fmt: skip
    return DeviceRows(ids, layout.starts, layout.counts)


class _Layout(NamedTuple):
    starts: Any
    counts: Any
    keep_begin: Any
    kept: Any
    row_start: Any


def _lay_out(device: Any, row_place: Any, plan: Plan | None) -> _Layout:
    """The rows of the output; keep_begin, kept and row_start are None where they are `row_place` itself."""
    xp = device.xp
    counts = row_place[1:] - row_place[:-1]
    plain = plan is None or (len(plan.prefix) + len(plan.suffix) == 0 and plan.keep_at_most == UNLIMITED)
    if plan is None or (plain and plan.pad_mode == 0):
        return _Layout(row_place, counts, None, None, None)
    kept, lengths = place(counts, plan)
    starts = starts_on(xp, lengths)
    around = len(plan.prefix) + len(plan.suffix)
    row_start = starts[:-1] + len(plan.prefix)
    if plan.pad_left:
        row_start = row_start + (lengths - kept - around)
    keep_begin = counts - kept if plan.keep_last else xp.zeros_like(kept)
    return _Layout(starts, kept + around, keep_begin, kept, row_start)
