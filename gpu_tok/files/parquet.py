"""`.parquet`: a column of texts, or a column of ids."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from gpu_tok.batch import TextBatch
from gpu_tok.errors import FileError
from gpu_tok.files.documents import Documents, Reading, text_errors
from gpu_tok.files.sources import STANDARD_INPUT, Source
from gpu_tok.files.streams import DAMAGED_HINT

READ_AHEAD = 4 << 20  # bytes; without it a whole column of a row group is in memory at once
COLUMN_HINT = "name the column of texts with --text-field; empty texts are written as '', not as null"


def read(source: Source, reading: Reading) -> Iterator[Documents]:
    """The texts of one column, batch by batch; nulls and other types are errors that name the row."""
    row = 0
    for batch, read_bytes in read_columns(source, [reading.text_field, *reading.keep], reading.batch_bytes):
        with text_errors(f"{source.path}, row", row, COLUMN_HINT, f", column {reading.text_field!r}"):
            texts = TextBatch.of(batch.column(0), reading.invalid_utf8)
        columns = pa.Table.from_batches([batch]).select(list(reading.keep)) if reading.keep else None
        yield Documents(texts, columns, read_bytes)
        row += len(texts)


def read_columns(source: Source, names: list[str], batch_bytes: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Batches of some columns, of about `batch_bytes`, with the bytes of the file that they stand for so far."""
    if source.path == STANDARD_INPUT:
        raise FileError("-: Parquet is not read from standard input", "name the file")
    try:
        with pq.ParquetFile(source.path, buffer_size=READ_AHEAD) as file:
            for name in dict.fromkeys(names):
                if name not in file.schema_arrow.names:
                    raise FileError(
                        f"{source.path}: has no column {name!r}",
                        f"its columns: {', '.join(map(repr, file.schema_arrow.names))}",
                    )
            rows = file.metadata.num_rows
            done = 0
            columns = list(dict.fromkeys(names))
            for batch in file.iter_batches(_rows_a_batch(file, batch_bytes), columns=columns):
                done += len(batch)
                yield batch.select(columns), source.size * done // max(1, rows)
    except (OSError, pa.ArrowException) as error:
        raise FileError(f"{source.path}: is no readable Parquet file: {error}", DAMAGED_HINT) from error


def _rows_a_batch(file: pq.ParquetFile, batch_bytes: int) -> int:
    groups = [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]
    widest = max((group.total_byte_size / max(1, group.num_rows) for group in groups), default=1.0)
    return max(1, min(1 << 20, int(batch_bytes / max(1.0, widest))))
