"""entries -> ids at their places, with truncation, padding and special tokens: kernels/gather.cu."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpu_tok.batch import Padded, Padding, TypeIds, width_of
from gpu_tok.on_device.batch_table import Late, starts_on
from gpu_tok.on_device.cut import Cuts
from gpu_tok.on_device.intern import Entries
from gpu_tok.on_device.table import DeviceTable
from gpu_tok.on_device.text import THREADS, TILE, WORD, Text
from gpu_tok.postprocess import UNLIMITED, Plan, lengths_of


class Places(NamedTuple):
    """tile_id: int64[tiles + 1], ids before each tile; section_place: int64[sections + 1], ids before each section."""

    tile_id: Any
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
    """Where the ids of tiles and sections begin, when all are written one behind the other."""
    if late is not None:
        device.launch("count_late", device.grid(text.tiles * WORD, THREADS), THREADS, len(text.bytes), cuts.mask,
                      cuts.tile_chunk, text.section_start, cuts.tile_section, table.rows, found.entries, late.of_miss,
                      cuts.report, found.tile_ids, found.section_before)  # fmt: skip
    tile_id = starts_on(device.xp, found.tile_ids)
    section_place = tile_id[text.section_start // TILE]
    section_place[:-1] += found.section_before
    section_place[-1:] = tile_id[-1:]
    return Places(tile_id, section_place)


def run(
    device: Any, text: Text, cuts: Cuts, found: Entries, late: Late | None, places: Places, table: DeviceTable,
    plan: Plan | None, id_room: int,
) -> DeviceRows:  # fmt: skip
    """entries -> ids at their places, with what `plan` leaves out and puts around them.

    id_room: ids of all rows, padding included, that there is room for. Waits for nothing: the report says how many
    there are, and whether they found room. What `plan` refuses is looked at by nobody here.
    """
    row_place = places.section_place[text.row_section]
    layout = _lay_out(device, row_place, plan)
    ids = device.xp.empty(id_room, np.int32)
    is_plain = layout.row_start is None
    tile_row = None if is_plain else device.xp.searchsorted(row_place, places.tile_id, side="right").astype(np.int64)
    late_of_miss, late_ids = (None, None) if late is None else (late.of_miss, late.ids)
    device.launch("gather_ids", device.grid(text.tiles * WORD, THREADS), THREADS, found.entries, cuts.tile_chunk,
                  places.tile_id, text.tiles, table.rows, table.ids, late_of_miss, late_ids, tile_row,
                  None if is_plain else row_place, layout.keep_begin, layout.kept, layout.row_start,
                  layout.starts[-1:], ids, id_room, cuts.report)  # fmt: skip
    done = DeviceRows(ids, layout.starts, layout.counts, layout.text_counts)
    if is_plain or plan is None:
        return done
    rows = len(layout.starts) - 1
    prefix, suffix = device.upload(plan.prefix), device.upload(plan.suffix)
    device.launch("fill_rows", device.grid(rows * WORD, THREADS), THREADS, layout.starts, layout.row_start, layout.kept,
                  rows, prefix, len(prefix), suffix, len(suffix), plan.pad_id, cuts.report, ids)  # fmt: skip
    return done


class _Layout(NamedTuple):
    starts: Any
    counts: Any
    text_counts: Any
    keep_begin: Any
    kept: Any
    row_start: Any


def _lay_out(device: Any, row_place: Any, plan: Plan | None) -> _Layout:
    """The rows of the output; keep_begin, kept and row_start are None where they are `row_place` itself."""
    xp = device.xp
    counts = row_place[1:] - row_place[:-1]
    plain = plan is None or (len(plan.prefix) + len(plan.suffix) == 0 and plan.keep_at_most == UNLIMITED)
    if plan is None or (plain and plan.pad_mode == 0):
        return _Layout(row_place, counts, counts, None, None, None)
    kept, lengths = lengths_of(counts, plan)
    starts = starts_on(xp, lengths)
    around = len(plan.prefix) + len(plan.suffix)
    row_start = starts[:-1] + len(plan.prefix)
    if plan.pad_left:
        row_start = row_start + (lengths - kept - around)
    keep_begin = counts - kept if plan.keep_last else xp.zeros_like(kept)
    return _Layout(starts, kept + around, counts, keep_begin, kept, row_start)


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
