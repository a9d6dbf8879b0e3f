"""entries -> ids at their places, with truncation, padding and special tokens: kernels/gather.cu."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpu_tok.batch import Padded, Padding, TypeIds, width_of
from gpu_tok.on_device.batch_table import Late, starts_on
from gpu_tok.on_device.cut import Cuts
from gpu_tok.on_device.intern import SPAN, Entries, spans_of
from gpu_tok.on_device.table import DeviceTable
from gpu_tok.on_device.text import THREADS, WARP, Text
from gpu_tok.postprocess import UNLIMITED, Plan, lengths_of

PIECE = 4096  # ids of a long list that a block copies; kernels/gather.cu


class Places(NamedTuple):
    """span_id: int64[spans + 1], ids before each span; section_place: int64[sections + 1], ids before each section."""

    span_id: Any
    section_place: Any


class DeviceRows(NamedTuple):
    """The batch as it leaves, on the device. ids: int32[room], of which `starts[-1]` hold something; starts:
    int64[rows + 1]; counts: int64[rows], how many ids of each row are not padding; text_counts: int64[rows], how many
    each text has when nothing is left out or put around them."""

    ids: Any
    starts: Any
    counts: Any
    text_counts: Any


def place_sections(
    device: Any, text: Text, cuts: Cuts, found: Entries, late: Late | None, table: DeviceTable
) -> Places:
    """Where the ids of spans and sections begin, when all are written one behind the other."""
    if late is not None:
        device.launch("count_late", device.grid(WARP * spans_of(text), THREADS), THREADS, len(text.bytes), cuts.mask,
                      cuts.tile_chunk, text.section_start, cuts.tile_section, table.rows, found.entries, late.of_miss,
                      cuts.report, found.span_ids, found.section_before)  # fmt: skip
    span_id = starts_on(device.xp, found.span_ids)
    section_place = span_id[text.section_start // SPAN]
    section_place[:-1] += found.section_before
    section_place[-1:] = span_id[-1:]
    return Places(span_id, section_place)


def run(
    device: Any, text: Text, cuts: Cuts, found: Entries, late: Late | None, places: Places, table: DeviceTable,
    plan: Plan | None, id_room: int,
) -> DeviceRows:  # fmt: skip
    """entries -> ids at their places, with what `plan` leaves out and puts around them.

    id_room: ids of all rows, padding included, that there is room for. Waits for nothing: the report says how many
    there are, and whether they found room. What `plan` refuses is looked at by nobody here.
    """
    xp, row_place = device.xp, places.section_place[text.row_section]
    layout = _lay_out(device, row_place, plan)
    ids, pieces, piece_count = xp.empty(id_room, np.int32), _room_for_pieces(xp, id_room), xp.zeros(1, np.uint64)
    span_row = None
    if layout.rows is not None:
        span_row = xp.searchsorted(row_place, places.span_id, side="right").astype(np.int64)
    late_of_miss, late_ids = (None, None) if late is None else (late.of_miss, late.ids)
    device.launch("gather_ids", device.grid(WARP * spans_of(text), THREADS), THREADS, found.entries, cuts.tile_chunk,
                  text.tiles, places.span_id, table.rows, table.ids, late_of_miss, late_ids, layout.rows,
                  len(layout.counts), span_row, layout.starts[-1:], ids, id_room, pieces, piece_count,
                  cuts.report)  # fmt: skip
    device.launch("gather_long", device.grid(len(pieces) * THREADS, THREADS), THREADS, pieces, piece_count, table.ids,
                  late_ids, ids)  # fmt: skip
    if plan is not None and layout.rows is not None:
        _fill_rows(device, layout, plan, cuts.report, ids)
    return DeviceRows(ids, layout.starts, layout.counts, layout.text_counts)


def _room_for_pieces(xp: Any, id_room: int) -> Any:
    """Three words for each piece of a long list: fewer than two for as many ids as a piece may have."""
    return xp.empty((2 * id_room // PIECE + 1, 3), np.int64)


class _Layout(NamedTuple):
    """The rows of the output; rows: int64[rows, 4], `RowPlace` of kernels/gather.cu, or None where ids stay where they
    are when all are written one behind the other."""

    starts: Any
    counts: Any
    text_counts: Any
    rows: Any


def _lay_out(device: Any, row_place: Any, plan: Plan | None) -> _Layout:
    xp = device.xp
    counts = row_place[1:] - row_place[:-1]
    plain = plan is None or (len(plan.prefix) + len(plan.suffix) == 0 and plan.keep_at_most == UNLIMITED)
    if plan is None or (plain and plan.pad_mode == 0):
        return _Layout(row_place, counts, counts, None)
    kept, lengths = lengths_of(counts, plan)
    starts = starts_on(xp, lengths)
    around = len(plan.prefix) + len(plan.suffix)
    row_start = starts[:-1] + len(plan.prefix)
    if plan.pad_left:
        row_start = row_start + (lengths - kept - around)
    first_kept = row_place[1:] - kept if plan.keep_last else row_place[:-1]
    rows = xp.stack([row_place[1:], row_start - first_kept, row_start, row_start + kept], axis=1)
    return _Layout(starts, kept + around, counts, rows)


def _fill_rows(device: Any, layout: _Layout, plan: Plan, report: Any, ids: Any) -> None:
    rows = len(layout.counts)
    prefix, suffix = device.upload(plan.prefix), device.upload(plan.suffix)
    device.launch("fill_rows", device.grid(rows * WARP, THREADS), THREADS, layout.starts, layout.rows, rows, prefix,
                  len(prefix), suffix, len(suffix), plan.pad_id, report, ids)  # fmt: skip


def to_padded(
    device: Any, ids: Any, starts: Any, counts: Any, type_ids: TypeIds, padding: Padding, length: int | None = None,
    pad_to_multiple_of: int | None = None, each_type_id: Any = None,
) -> Padded:  # fmt: skip
    """Rows on the device, padded or not -> rectangles there, as `TokenBatch.to_padded` lays them out.

    ids, each_type_id: int32[n]; starts: int64[rows + 1]; counts: int64[rows]. Waits for the longest row's length.
    """
    xp, rows = device.xp, len(starts) - 1
    width = width_of(int(xp.diff(starts).max()) if rows else 0, length, pad_to_multiple_of)
    shape = (rows, width)
    padded = Padded(xp.empty(shape, np.int32), xp.empty(shape, np.int32), xp.empty(shape, np.int32))
    prefix, suffix = (device.upload(np.array(part, np.int32)) for part in (type_ids.prefix, type_ids.suffix))
    device.launch("pad_rows", device.grid(rows * width, THREADS), THREADS, ids, starts, counts, rows, width,
                  int(padding.side == "left"), padding.pad_id, each_type_id, prefix, len(prefix), type_ids.text, suffix,
                  len(suffix), padding.pad_type_id, *padded)  # fmt: skip
    return padded
