"""Rows of ids in any form -> flat ids and starts, to decode."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_tok import arrays
from gpu_tok.batch import Ragged, TokenBatch, starts_of
from gpu_tok.errors import GpuTokError, IdError

ID_TYPES = (np.int32, np.int64)


def ragged_ids(rows: Any) -> Ragged:
    """Ids to decode, int32 or int64, and starts (int64): on the GPU if they are there, else on the host.

    rows: a TokenBatch, a list of lists, flat arrays, a 2-D array, an Arrow list array, or flat ids and starts (Ragged).
    """
    if isinstance(rows, TokenBatch):
        return Ragged(rows.ids, rows.starts)
    if isinstance(rows, Ragged):
        return _checked(rows)
    if isinstance(rows, (pa.Array, pa.ChunkedArray)):
        return _from_arrow(rows)
    rows = arrays.taken(rows)
    if getattr(rows, "ndim", None) == 2:
        with arrays.its_gpu(rows):
            starts = arrays.module_of(rows).arange(rows.shape[0] + 1, dtype=np.int64) * rows.shape[1]
            return Ragged(_whole_numbers(0, rows.reshape(-1)), starts)
    each = [_whole_numbers(row, _row(ids)) for row, ids in enumerate(_iterable(rows))]
    starts = starts_of(np.array([len(ids) for ids in each], np.int64))
    if not each:
        return Ragged(np.zeros(0, np.int64), starts)
    there = next(filter(arrays.is_on_gpu, each), each[0])
    with arrays.its_gpu(there):
        flat = arrays.module_of(there).concatenate([arrays.beside(ids, there) for ids in each])
        return Ragged(flat, arrays.beside(starts, there))


def _checked(rows: Ragged) -> Ragged:
    """Flat ids and starts that somebody else made."""
    flat = arrays.taken(rows.flat)
    starts = arrays.taken(rows.starts)
    starts = arrays.beside(starts if arrays.is_on_gpu(starts) else np.asarray(starts, np.int64), flat)
    with arrays.its_gpu(flat):
        flat = _whole_numbers(0, flat if arrays.is_on_gpu(flat) else np.asarray(flat))
        starts = starts.astype(np.int64)
    begin, end, rises = arrays.span_of(starts) if len(starts) else (-1, 0, False)
    if begin < 0 or end > len(flat) or not rises:
        raise IdError("starts of rows do not rise, or do not lie within the ids", "they go from 0 to at most len(ids)")
    return Ragged(flat, starts)


def _iterable(rows: Any) -> Iterable[Any]:
    if isinstance(rows, (str, bytes)) or not isinstance(rows, Iterable):
        raise GpuTokError("decode_batch takes rows of ids", "pass a list of lists of int, or what encode_batch gave")
    return rows


def _row(ids: Any) -> Any:
    ids = arrays.taken(ids)
    return ids if arrays.is_on_gpu(ids) else np.asarray(ids)


def _whole_numbers(row: int, array: Any) -> Any:
    if array.ndim == 1 and array.size == 0:
        return array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise IdError(
            f"row {row} is not a flat row of whole numbers", "decode_batch takes one row of ids a text: [[1, 2], [3]]"
        )
    if arrays.is_on_gpu(array) and array.dtype in ID_TYPES:  # not twice the memory there
        return arrays.module_of(array).ascontiguousarray(array)
    return array.astype(np.int64)


def _from_arrow(rows: pa.Array | pa.ChunkedArray) -> Ragged:
    if isinstance(rows, pa.ChunkedArray):
        rows = rows.combine_chunks() if rows.num_chunks != 1 else rows.chunk(0)
    if isinstance(rows, pa.FixedSizeListArray):
        rows = rows.cast(pa.large_list(rows.type.value_type))
    if not isinstance(rows, (pa.ListArray, pa.LargeListArray)):
        raise IdError(f"an Arrow array of {rows.type} holds no rows of ids", "pass a list array, one list a text")
    if rows.null_count:
        row = next(index for index, ids in enumerate(rows) if not ids.is_valid)
        raise IdError(f"row {row} is null", "drop nulls first: array.drop_null()")
    starts = np.asarray(rows.offsets).astype(np.int64)
    return Ragged(_whole_numbers(0, np.asarray(rows.values)), starts)
