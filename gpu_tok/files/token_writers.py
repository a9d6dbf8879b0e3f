"""Ids to files: Parquet with a list of ids a row, or flat `.npy` arrays."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import BinaryIO, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gpu_tok.batch import TokenBatch
from gpu_tok.errors import FileError
from gpu_tok.files.appearing import appearing, check_place
from gpu_tok.files.documents import join_tables

ROW_GROUP_IDS = 8 << 20  # 32 MB of ids; a row group is held in memory while it is written, and while it is read
MOST_IDS = (1 << 31) - 1  # in one array of `list<int32>`


class TokenWriter(Protocol):
    """Takes rows of ids, and the columns kept beside them, batch by batch."""

    def write(self, rows: TokenBatch, columns: pa.Table | None) -> None: ...
    def finish(self) -> None: ...


@contextmanager
def token_writer(path: str, *, mask: bool = False, keep: tuple[str, ...] = ()) -> Iterator[TokenWriter]:
    """Opens `OUT.parquet` or `OUT.npy` for writing; it appears, whole, when the block is left without an error.

    mask: Parquet gets a column `attention_mask` too, for rows that may be padded.
    """
    check_output(path, keep)
    if path.endswith(".npy"):
        with appearing(starts_path(path), path) as (starts, ids):
            npy = NpyTokens(ids, starts)
            yield npy
            npy.finish()
    else:
        with appearing(path) as (file,), closing(ParquetTokens(file, mask)) as parquet:
            yield parquet
            parquet.finish()


def check_output(path: str, keep: tuple[str, ...] = ()) -> None:
    """Raises `FileError` for an output that could not be written at the end of the work."""
    if not path.endswith((".parquet", ".npy")):
        raise FileError(f"{path}: ids are written as .parquet or .npy", "let the name of the output end in one of them")
    if path.endswith(".npy") and keep:
        raise FileError(f"{path}: a .npy file holds ids alone, no column {keep[0]!r}", "write to a .parquet file")
    taken = {"input_ids", "attention_mask"}.intersection(keep)
    if taken:
        raise FileError(f"{path}: {taken.pop()!r} is a column of ids and cannot be kept too", "leave it out of --keep")
    check_place(path)


def output_paths(path: str) -> list[str]:
    return [path, starts_path(path)] if path.endswith(".npy") else [path]


def starts_path(path: str) -> str:
    """`tokens.npy` -> `tokens.starts.npy`."""
    return os.path.splitext(path)[0] + ".starts.npy"


class ParquetTokens:
    """`input_ids: list<int32>` and the kept columns, in row groups of about `ROW_GROUP_IDS` ids."""

    def __init__(self, file: BinaryIO, mask: bool) -> None:
        self._file = file
        self._mask = mask
        self._held: list[pa.Table] = []
        self._held_ids = 0
        self._writer: pq.ParquetWriter | None = None

    def write(self, rows: TokenBatch, columns: pa.Table | None) -> None:
        table = pa.table({"input_ids": id_lists(rows)})
        if self._mask:
            table = table.append_column("attention_mask", _mask_lists(rows))
        if columns is not None:
            for column in columns.schema:
                table = table.append_column(column, columns[column.name])
        self._held.append(table)
        self._held_ids += len(rows.ids) + len(rows)
        if self._held_ids >= ROW_GROUP_IDS:
            self._write_row_group()

    def finish(self) -> None:
        if self._held or self._writer is None:
            self._write_row_group()
        self.close()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _write_row_group(self) -> None:
        table = join_tables(self._held) if self._held else pa.table({"input_ids": pa.array([], pa.list_(pa.int32()))})
        if self._writer is None:
            self._writer = _parquet_writer(self._file, table)
        try:
            table = table.cast(self._writer.schema)
        except (pa.ArrowException, ValueError) as error:
            raise FileError(
                f"a kept column changes its type within the data: {error}", "keep columns of one type only"
            ) from error
        self._writer.write_table(table, row_group_size=max(1, len(table)))
        self._held, self._held_ids = [], 0


def _parquet_writer(file: BinaryIO, table: pa.Table) -> pq.ParquetWriter:
    """Ids are near to random: with a dictionary, or zstd above level 1, the file is no smaller and takes longer."""
    fields = [field.with_type(pa.string()) if pa.types.is_null(field.type) else field for field in table.schema]
    kept = [name for name in table.column_names if name not in ("input_ids", "attention_mask")]
    return pq.ParquetWriter(
        file,
        pa.schema(fields),
        compression="zstd",
        compression_level=1,
        use_dictionary=kept,
        write_statistics=kept,
    )


def id_lists(rows: TokenBatch) -> pa.ListArray:
    """The ids as `list<int32>`, without a copy."""
    return _lists(rows.starts, rows.ids)


def _mask_lists(rows: TokenBatch) -> pa.ListArray:
    """1 for an id, 0 for padding: `list<uint8>` of the same shape."""
    lengths, counts = rows.lengths, rows.counts
    place = np.arange(len(rows.ids)) - np.repeat(rows.starts[:-1] - rows.starts[0], lengths)
    if rows.padding.side == "left":
        real = place >= np.repeat(lengths - counts, lengths)
    else:
        real = place < np.repeat(counts, lengths)
    return _lists(rows.starts, real.astype(np.uint8))


def _lists(starts: np.ndarray, flat: np.ndarray) -> pa.ListArray:
    offsets = starts - starts[0]
    if offsets[-1] > MOST_IDS:
        raise FileError(
            f"{offsets[-1]:,} ids at once do not fit into a Parquet list",
            "write to a .npy file, or divide the document",
        )
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(flat))


class NpyTokens:
    """All ids one behind the other, `int32`, and where each row starts, `int64[rows + 1]`."""

    def __init__(self, ids: BinaryIO, starts: BinaryIO) -> None:
        self._ids, self._starts = ids, starts
        self._id_count, self._row_count = 0, 0
        ids.write(_header(np.dtype(np.int32), 0))
        starts.write(_header(np.dtype(np.int64), 1))
        starts.write(np.zeros(1, "<i8").tobytes())

    def write(self, rows: TokenBatch, columns: pa.Table | None) -> None:
        self._ids.write(np.ascontiguousarray(rows.ids, "<i4").data)
        starts = (rows.starts[1:] - rows.starts[0] + self._id_count).astype("<i8")
        self._starts.write(starts.tobytes())
        self._id_count += len(rows.ids)
        self._row_count += len(rows)

    def finish(self) -> None:
        for file, kind, count in (
            (self._ids, np.dtype(np.int32), self._id_count),
            (self._starts, np.dtype(np.int64), self._row_count + 1),
        ):
            file.seek(0)
            file.write(_header(kind, count))


def _header(kind: np.dtype, count: int) -> bytes:
    """The head of a `.npy` file of one dimension: 128 bytes for every count, as NumPy leaves room for it to grow."""
    buffer = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(kind.newbyteorder("<"))
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": (count,)})
    head = buffer.getvalue()
    assert len(head) == 128
    return head
