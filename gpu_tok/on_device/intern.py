"""chunks -> entries of the persistent table: kernels/intern.cu; new chunks go to the cold path."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpu_tok.added_tokens import AddedTokens
from gpu_tok.cold import ColdPath
from gpu_tok.errors import TextError
from gpu_tok.on_device import batch_table, native
from gpu_tok.on_device.batch_table import Late, Winners
from gpu_tok.on_device.cut import Cuts, CutterTables
from gpu_tok.on_device.native import DeviceTables
from gpu_tok.on_device.report import MISSES_SEEN, NEEDS_HOST, WINNERS_SEEN, spoil_if
from gpu_tok.on_device.rooms import Rooms, Shares
from gpu_tok.on_device.table import DeviceTable
from gpu_tok.on_device.text import THREADS, TILE, WARP, Text, row_at

SPAN = 2 * TILE  # bytes of text that a warp looks up: kernels/tile.cuh
MOST_UNUSED = 7  # entries behind those of a span


class DeviceEncoder(NamedTuple):
    """What turns chunks into ids on a device. native: the tables of the kernels that encode new chunks; None where only
    the host can."""

    cuts: CutterTables
    table: DeviceTable
    cold: ColdPath
    native: DeviceTables | None
    shares: Shares
    added: AddedTokens | None


class Entries(NamedTuple):
    """entries: uint32[n], those of a span from `entry_at` of kernels/tile.cuh on; span_ids: int64[spans];
    section_before: int64[sections], ids of its span before each section; misses: int64[2 * room], the new chunks, as
    many as the report says."""

    entries: Any
    span_ids: Any
    section_before: Any
    misses: Any


def spans_of(text: Text) -> int:
    """How many spans a text has."""
    return -(-len(text.bytes) // SPAN)


def look_up(device: Any, text: Text, cuts: Cuts, encoder: DeviceEncoder, rooms: Rooms) -> Entries:
    """chunks -> entries of the persistent table, and a list of the chunks that it does not hold.

    Waits for nothing: the report says how many chunks and misses there are, and whether they found room.
    """
    xp, table, spans = device.xp, encoder.table, spans_of(text)
    entries = xp.empty(rooms.chunks + MOST_UNUSED * spans, np.uint32)
    misses = xp.empty(2 * rooms.misses, np.int64)
    span_ids, section_before = xp.empty(spans, np.int64), xp.zeros(len(text.section_start) - 1, np.int64)
    device.launch("look_up_chunks", device.grid(WARP * spans, THREADS), THREADS, text.bytes, len(text.bytes),
                  cuts.mask, cuts.tile_chunk, text.section_start, cuts.tile_section, text.kind, encoder.cold.flags,
                  table.rows, table.capacity, table.keys, entries, rooms.chunks, span_ids, section_before, misses,
                  rooms.misses, cuts.report)  # fmt: skip
    return Entries(entries, span_ids, section_before, misses)


def encode_new(
    device: Any, text: Text, cuts: Cuts, found: Entries, encoder: DeviceEncoder, rooms: Rooms
) -> Late | None:
    """Encodes each distinct new chunk once, and keeps it for later batches; None where the host is needed for that.

    Then the report says so, if there are new chunks.
    """
    report = cuts.report
    if encoder.native is None:
        spoil_if(report, MISSES_SEEN, NEEDS_HOST)
        return None
    winners = batch_table.claim(device, text.bytes, found.misses, report)
    arena = device.xp.empty(rooms.work, np.uint32)
    late = native.run(device, text.bytes, found.misses, winners, encoder.native, arena, report)
    return _keep(device, text, found, winners, late, encoder, report)


def encode_on_host(device: Any, text: Text, cuts: Cuts, found: Entries, encoder: DeviceEncoder) -> Late:
    """As `encode_new`, by the host: waits for the chunks' bytes."""
    cuts.report[WINNERS_SEEN] = 0
    winners = batch_table.claim(device, text.bytes, found.misses, cuts.report)
    count = int(device.download(cuts.report)[WINNERS_SEEN])
    chunks, flags = batch_table.bring(device, text.bytes, found.misses, winners, count)
    try:
        ids = encoder.cold.encode(chunks, flags)
    except TextError as error:
        start = found.misses[2 * int(winners.winners[error.row])]
        raise error.in_row(row_at(device, text, int(start))) from None
    return _keep(device, text, found, winners, batch_table.upload_ids(device, ids), encoder, cuts.report)


def _keep(
    device: Any, text: Text, found: Entries, winners: Winners, late: Late, encoder: DeviceEncoder, report: Any
) -> Late:
    """Gives the ids of winners to all misses, and to the table."""
    late = batch_table.settle(device, winners, late, report)
    batch_table.publish(device, text.bytes, found.misses, winners, late, encoder.table, report)
    return late
