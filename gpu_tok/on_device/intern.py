"""chunks -> entries of the persistent table: kernels/intern.cu; new chunks go to the cold path."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpu_tok.cold import ColdPath
from gpu_tok.errors import TextError
from gpu_tok.on_device import batch_table
from gpu_tok.on_device.batch_table import Late
from gpu_tok.on_device.cut import Cuts, CutterTables
from gpu_tok.on_device.report import ALL_GOOD, CHUNKS_SEEN, FIRST_BAD, MISSES_SEEN, OVERFLOW, WINNERS_SEEN
from gpu_tok.on_device.table import DeviceTable
from gpu_tok.on_device.text import THREADS, WORD, Text, row_at

ROOM_SHARE = 0.3  # chunks a byte that there is room for at first; when it is not enough, the look-up is done again
MOST_MISSES = 1 << 30  # their numbers share a word with two bits that say what an entry is


class DeviceEncoder(NamedTuple):
    """What turns chunks into ids on a device."""

    cuts: CutterTables
    table: DeviceTable
    cold: ColdPath


class Rooms(NamedTuple):
    """How many chunks and misses there is room for. misses: at most MOST_MISSES."""

    chunks: int
    misses: int


class Entries(NamedTuple):
    """entries: uint32[chunks]; tile_ids: int64[tiles]; section_before: int64[sections], ids of its tile before each
    section; misses: int64[2 * n], of which miss_count hold something."""

    entries: Any
    tile_ids: Any
    section_before: Any
    misses: Any
    chunk_count: int = 0
    miss_count: int = 0


def look_up(device: Any, text: Text, cuts: Cuts, encoder: DeviceEncoder, rooms: Rooms) -> Entries:
    """chunks -> entries of the persistent table, and a list of the chunks that it does not hold.

    Waits for nothing: the report says how many chunks and misses there are, and whether they found room.
    """
    xp, table = device.xp, encoder.table
    entries, misses = xp.empty(rooms.chunks, np.uint32), xp.empty(2 * rooms.misses, np.int64)
    tile_ids, section_before = xp.empty(text.tiles, np.int64), xp.zeros(len(text.section_start) - 1, np.int64)
    device.launch("look_up_chunks", device.grid(text.tiles * WORD, THREADS), THREADS, text.bytes, len(text.bytes),
                  cuts.mask, cuts.tile_chunk, text.section_start, cuts.tile_section, text.kind, encoder.cold.flags,
                  table.rows, table.capacity, table.keys, entries, rooms.chunks, tile_ids, section_before, misses,
                  rooms.misses, cuts.report)  # fmt: skip
    return Entries(entries, tile_ids, section_before, misses)


def look_up_all(device: Any, text: Text, cuts: Cuts, encoder: DeviceEncoder) -> Entries:
    """`look_up` with as much room as it needs; waits for the report."""
    rooms = Rooms(*2 * [int(ROOM_SHARE * len(text.bytes)) + 64])
    while True:
        found = look_up(device, text, cuts, encoder, rooms)
        report = device.download(cuts.report)
        if int(report[FIRST_BAD]) != ALL_GOOD:
            row = row_at(device, text, int(report[FIRST_BAD]))
            raise TextError(row, "is not UTF-8, or a section begins inside a character", 'pass invalid_utf8="replace"')
        needed = Rooms(int(report[CHUNKS_SEEN]), int(report[MISSES_SEEN]))
        if needed.misses > MOST_MISSES:
            finding = f"and the texts behind it have {needed.misses} new chunks"
            raise TextError(0, finding, "pass fewer texts at once")
        if not report[OVERFLOW]:
            return found._replace(chunk_count=needed.chunks, miss_count=needed.misses)
        rooms = Rooms(*map(max, rooms, needed))
        cuts.report[:FIRST_BAD] = cuts.report[OVERFLOW:] = 0


def encode_new(device: Any, text: Text, cuts: Cuts, found: Entries, encoder: DeviceEncoder) -> Late:
    """Encodes each distinct new chunk once, on the host, and keeps it for later batches."""
    winners = batch_table.claim(device, text.bytes, found.misses, cuts.report)
    count = int(device.download(cuts.report)[WINNERS_SEEN])
    chunks, flags = batch_table.bring(device, text.bytes, found.misses, winners, count)
    try:
        ids = encoder.cold.encode(chunks, flags)
    except TextError as error:
        start = found.misses[2 * int(winners.winners[error.row])]
        raise error.in_row(row_at(device, text, int(start))) from None
    late = batch_table.settle(device, winners, batch_table.upload_ids(device, ids), cuts.report)
    batch_table.publish(device, text.bytes, found.misses, winners, late, encoder.table, cuts.report)
    return late
