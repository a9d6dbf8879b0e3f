"""Rows of ids from files, to decode them."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from gpu_tok.batch import LAST_ID, Ragged, row_ranges
from gpu_tok.errors import FileError
from gpu_tok.files.parquet import read_columns
from gpu_tok.files.sources import Source
from gpu_tok.files.streams import DAMAGED_HINT
from gpu_tok.files.threads import ahead
from gpu_tok.files.token_writers import starts_path


@dataclass(frozen=True)
class TokenRows:
    """Rows of ids, and how many bytes of the files had been read when they were there."""

    rows: Ragged
    read: int


def read_tokens(
    sources: list[Source], ids_field: str = "input_ids", batch_ids: int = 4 << 20
) -> Generator[TokenRows, None, None]:
    """The rows of some files in order, about `batch_ids` ids at a time, read on a thread of its own."""
    return ahead(_pieces(sources, ids_field, batch_ids))


def _pieces(sources: list[Source], ids_field: str, batch_ids: int) -> Iterator[TokenRows]:
    before = 0
    for source in sources:
        row = 0
        pieces = _read_npy(source, batch_ids) if source.kind == "npy" else _read_parquet(source, ids_field, batch_ids)
        for piece in pieces:
            _check_ids(source, piece.rows, row)
            row += piece.rows.count
            yield TokenRows(piece.rows, before + piece.read)
        before += source.size


def _check_ids(source: Source, rows: Ragged, first_row: int) -> None:
    """Raises `FileError` for the first id that is none: a mark like -100, or what does not fit into 32 bits."""
    if rows.flat.min(initial=0) >= 0 and rows.flat.max(initial=0) <= LAST_ID:
        return
    at = int(np.flatnonzero((rows.flat < 0) | (rows.flat > LAST_ID))[0])
    row = int(np.searchsorted(rows.starts, at, side="right")) - 1
    raise FileError(
        f"{source.path}, row {first_row + row}: {rows.flat[at]} at {at - rows.starts[row]} is no id",
        "ids are whole numbers from 0; drop marks like -100 (for positions without a label) first",
    )


def _read_parquet(source: Source, ids_field: str, batch_ids: int) -> Iterator[TokenRows]:
    row = 0
    for batch, read in read_columns(source, [ids_field], batch_ids * 4):
        column = batch.column(0)
        yield TokenRows(_ragged(source, ids_field, column, row), read)
        row += len(column)


def _ragged(source: Source, ids_field: str, column: pa.Array, first_row: int) -> Ragged:
    if isinstance(column, pa.FixedSizeListArray):
        column = column.cast(pa.large_list(column.type.value_type))
    if not isinstance(column, (pa.ListArray, pa.LargeListArray)) or not pa.types.is_integer(column.type.value_type):
        raise FileError(
            f"{source.path}: the column {ids_field!r} is of type {column.type}, not a list of whole numbers",
            "name the column of ids with --ids-field",
        )
    if column.null_count or column.flatten().null_count:
        row = next(row for row, ids in enumerate(column.to_pylist()) if ids is None or None in ids)
        raise FileError(f"{source.path}, row {first_row + row}: the ids in {ids_field!r} are null, or some of them")
    starts = np.asarray(column.offsets).astype(np.int64)
    return Ragged(np.asarray(column.flatten()), starts - starts[0])


def _read_npy(source: Source, batch_ids: int) -> Iterator[TokenRows]:
    ids = _open(source.path)
    if ids.ndim == 2:
        starts = np.arange(len(ids) + 1, dtype=np.int64) * ids.shape[1]
        ids = ids.reshape(-1)
    else:
        starts = _open_starts(source.path, len(ids))
    rows = len(starts) - 1
    for begin, end in row_ranges(starts, batch_ids):
        flat = np.array(ids[starts[begin] : starts[end]])
        yield TokenRows(Ragged(flat, np.asarray(starts[begin : end + 1] - starts[begin])), source.size * end // rows)


def _open(path: str) -> np.ndarray:
    try:
        array: np.ndarray = np.load(path, mmap_mode="r") if os.path.getsize(path) > 128 else np.load(path)
    except (OSError, ValueError, EOFError) as error:
        finding = getattr(error, "strerror", None) or "it does not begin, or go on, as one"
        raise FileError(f"{path}: is no readable .npy file: {finding}", DAMAGED_HINT) from error
    if array.dtype.kind not in "iu" or array.ndim not in (1, 2):
        raise FileError(
            f"{path}: holds {array.dtype}{list(array.shape)}", "ids are whole numbers, flat or a row a text"
        )
    return array


def _open_starts(path: str, id_count: int) -> np.ndarray:
    beside = starts_path(path)
    if not os.path.exists(beside):
        raise FileError(
            f"{path}: there is no {beside}", "where the rows start stands in a file of its own beside the ids"
        )
    starts = np.asarray(_open(beside)).astype(np.int64)
    if starts.ndim != 1 or len(starts) == 0 or starts[0] != 0 or starts[-1] != id_count or np.any(np.diff(starts) < 0):
        raise FileError(
            f"{beside}: does not belong to {path}", f"starts rise from 0 to the number of ids, {id_count:,}"
        )
    return starts
