"""Ids back to text on a device: lengths, prefix sum, gather; the kernels are in kernels/decode.cu.

Ids come and bytes go as arrays of the device. The host waits once, for the size of the output; a second and third time
where byte-level tokens may have left what is no UTF-8.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpu_tok.batch import LAST_ID, Ragged
from gpu_tok.errors import IdError
from gpu_tok.tables.decode import DecodeTables

# As in kernels/decode.cu.
_THREADS = 256
_TILE_IDS = 512
_TILE_BYTES = 4096
_BAD_ID, _BYTES, _DOUBTFUL = 0, 1, 2  # words of the report


class _Tiles(NamedTuple):
    """Tiles of ids or of bytes. row: int64[total + 1], the first row that begins in a tile or behind it; grid: blocks
    for a kernel that does a tile a block."""

    total: int
    row: Any
    grid: int


def upload(device: Any, tables: DecodeTables) -> DecodeTables:
    """The same tables in the device's memory."""
    return tables._replace(rows=device.upload(tables.rows), pool=device.upload(tables.pool))


def decode_on(device: Any, tables: DecodeTables, ids: Any, starts: Any) -> tuple[Any, Any]:
    """Decodes rows of ids that are on the device: UTF-8 (uint8[n]) and where each row begins (int64[rows + 1]).

    To be called inside `device.running()`. tables: on the device (`upload`). ids: int32|int64[n]; starts:
    int64[rows + 1], rising. Ids without a token leave nothing; negative ones and those beyond 32 bits raise `IdError`
    naming the row.

    >>> device = EmulatedDevice()
    >>> out, places = decode_on(device, upload(device, tables), np.array([1996, 4937]), np.array([0, 2]))
    >>> bytes(out), places
    (b'the cat', array([0, 7]))
    """
    xp, tiles = device.xp, _tiles(device, starts, len(ids), _TILE_IDS)
    batch = (ids, ids.dtype.itemsize, starts, len(starts) - 1, tables.rows, tables.rows.shape[1])
    heads = _find_heads(device, batch) if len(tables.rows) == 2 else None

    tile_bytes, report = xp.empty(tiles.total, np.int64), xp.zeros(3, np.uint64)
    device.launch("count_bytes", tiles.grid, _THREADS, *batch, heads, tiles.total, tile_bytes, report)
    found = device.download(report)
    if found[_BAD_ID]:
        raise bad_id(*_row_of(device, ids, starts, int(~found[_BAD_ID])))

    out, out_starts = xp.empty(int(found[_BYTES]), np.uint8), xp.empty(len(starts), np.int64)
    places = _places(xp, tile_bytes)
    device.launch(
        "write_bytes", tiles.grid, _THREADS, *batch, heads, tables.pool, tiles.total, places, tiles.row, out_starts, out
    )
    return _repair(device, out, out_starts) if tables.repairs and found[_DOUBTFUL] else (out, out_starts)


def _find_heads(device: Any, batch: tuple[Any, ...]) -> Any:
    """A bit for each id: is it the first of its row that leaves something."""
    ids, rows = batch[0], batch[3]
    heads = device.xp.zeros(len(ids) // 32 + 1, np.uint32)
    device.launch("find_heads", device.grid(rows, _THREADS), _THREADS, *batch, heads)
    return heads


def _repair(device: Any, text: Any, starts: Any) -> tuple[Any, Any]:
    """Puts U+FFFD where bytes are no UTF-8; most batches have no such place and stay as they are."""
    xp, tiles = device.xp, _tiles(device, starts, len(text), _TILE_BYTES)
    marks = xp.zeros(len(text) // 32 + 2, np.uint32)
    device.launch("mark_starts", device.grid(len(starts), _THREADS), _THREADS, starts, len(starts) - 1, marks)

    tile_bytes, report = xp.empty(tiles.total, np.int64), xp.zeros(3, np.uint64)
    batch = (text, marks, len(text))
    device.launch("count_repaired", tiles.grid, _THREADS, *batch, tiles.total, tile_bytes, report)
    found = device.download(report)
    if not found[_DOUBTFUL]:
        return text, starts

    out, out_starts = xp.empty(int(found[_BYTES]), np.uint8), xp.empty_like(starts)
    places = _places(xp, tile_bytes)
    device.launch(
        "write_repaired", tiles.grid, _THREADS, *batch, starts, tiles.total, places, tiles.row, out_starts, out
    )
    return out, out_starts


def _tiles(device: Any, starts: Any, size: int, tile_size: int) -> _Tiles:
    """Tiles of [0, size], whose last place holds no element but may be where rows begin."""
    xp, count = device.xp, size // tile_size + 1
    row = xp.searchsorted(starts, xp.arange(count + 1, dtype=np.int64) * tile_size)
    return _Tiles(count, row, device.grid(count * _THREADS, _THREADS))


def _places(xp: Any, tile_bytes: Any) -> Any:
    """Where each tile's bytes begin."""
    return xp.cumsum(tile_bytes) - tile_bytes


def _row_of(device: Any, ids: Any, starts: Any, place: int) -> tuple[Ragged, int]:
    """The rows, on the host, and the one that has the id at `place`."""
    rows = Ragged(device.download(ids), device.download(starts))
    return rows, int(np.searchsorted(rows.starts, place, side="right")) - 1


def bad_id(rows: Ragged, row: int) -> IdError:
    """The error for the first impossible id of a row."""
    ids = rows.row(row)
    at = int(np.argmax((ids < 0) | (ids > LAST_ID)))
    return IdError(
        f"row {row}: the id {ids[at]} at {at} is not between 0 and {LAST_ID}",
        "drop such marks first (-100 is a common one for positions without a label)",
    )
