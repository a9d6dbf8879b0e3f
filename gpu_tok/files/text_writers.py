"""Texts to files: `.jsonl`, `.txt` (both also with `.gz` or `.zst` behind) or `.parquet`."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from typing import Any, BinaryIO, Protocol

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from gpu_tok.batch import TextBatch
from gpu_tok.errors import FileError
from gpu_tok.files.appearing import appearing, check_place
from gpu_tok.files.sources import CODECS, TEXT_KINDS, kind_of


@contextlib.contextmanager
def text_writer(path: str, text_field: str = "text", separator: str | None = None) -> Iterator[TextWriter]:
    """Opens a file of texts for writing; it appears, whole, when the block is left without an error."""
    check_output(path)
    kind, codec = kind_of(path, TEXT_KINDS)
    with appearing(path) as (file,), contextlib.ExitStack() as stack:
        if kind == "parquet":
            yield stack.enter_context(contextlib.closing(ParquetTexts(file, text_field)))
            return
        out = stack.enter_context(contextlib.closing(_packed(file, codec))) if codec else file
        yield JsonTexts(out, text_field) if kind == "jsonl" else PlainTexts(out, path, separator)


def check_output(path: str) -> None:
    """Raises `FileError` for an output that could not be written at the end of the work."""
    if kind_of(path, TEXT_KINDS)[0] is None:
        raise FileError(
            f"{path}: texts are written as .jsonl, .txt or .parquet",
            f"let the name of the output end in one of them ({' or '.join(CODECS)} may follow .jsonl and .txt)",
        )
    check_place(path)


def _packed(file: BinaryIO, codec: str) -> pa.CompressedOutputStream:
    """Packs what goes into a file. Closing it closes what lies below, so that is a second handle of the file."""
    return pa.CompressedOutputStream(pa.PythonFile(os.fdopen(os.dup(file.fileno()), "wb"), "w"), codec)


class TextWriter(Protocol):
    """Takes texts batch by batch."""

    def write(self, texts: TextBatch) -> None: ...


class JsonTexts:
    """An object a line with one field."""

    def __init__(self, out: Any, text_field: str) -> None:
        self._out, self._text_field = out, text_field

    def write(self, texts: TextBatch) -> None:
        lines = (orjson.dumps({self._text_field: text}, option=orjson.OPT_APPEND_NEWLINE) for text in texts.to_list())
        self._out.write(b"".join(lines))


class PlainTexts:
    """A text a line, or with a separator behind each."""

    def __init__(self, out: Any, path: str, separator: str | None) -> None:
        self._out, self._path = out, path
        self._separator = b"\n" if separator is None else separator.encode()
        self._row = 0

    def write(self, texts: TextBatch) -> None:
        flat = texts.bytes.tobytes()
        for begin, end in itertools.pairwise(texts.starts.tolist()):
            if self._separator and flat.find(self._separator, begin, end) >= 0:
                raise FileError(
                    f"{self._path}: text {self._row} holds {self._separator.decode()!r}, which parts the texts",
                    "write to a .jsonl file, or name another separator with --separator",
                )
            self._out.write(flat[begin:end] + self._separator)
            self._row += 1


class ParquetTexts:
    """One column of texts."""

    def __init__(self, file: BinaryIO, text_field: str) -> None:
        self._schema = pa.schema([(text_field, pa.large_string())])
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd", compression_level=3)

    def write(self, texts: TextBatch) -> None:
        starts = texts.starts - texts.starts[0]
        flat = np.ascontiguousarray(texts.bytes[texts.starts[0] : texts.starts[-1]])
        column = pa.Array.from_buffers(pa.large_string(), len(texts), [None, pa.py_buffer(starts), pa.py_buffer(flat)])
        self._writer.write_table(pa.table([column], schema=self._schema))

    def close(self) -> None:
        self._writer.close()
