"""What readers give: some documents of a data set, in order."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from gpu_tok.batch import TextBatch, starts_of
from gpu_tok.errors import FileError, TextError


@dataclass(frozen=True)
class Reading:
    """How data files are read.

    separator: what parts the documents of a `.txt` file; None: a document a line; "": the file is one document.
    keep: further columns or fields that go along. batch_bytes: bytes of text that are held at a time, about.
    """

    text_field: str = "text"
    keep: tuple[str, ...] = ()
    separator: str | None = None
    invalid_utf8: Literal["error", "replace"] = "error"
    batch_bytes: int = 16 << 20


@dataclass(frozen=True)
class Documents:
    """Texts, the columns kept beside them, and how many bytes of the files had been read when they were there."""

    texts: TextBatch
    columns: pa.Table | None
    read: int


@contextmanager
def text_errors(place: str, first: int, hint: str, part: str = "") -> Iterator[None]:
    """Turns the `TextError` of a row into a `FileError` that names the row as its file counts it.

    place, part: what stands before and behind the number; first: the number of row 0.
    """
    try:
        yield
    except TextError as error:
        raise FileError(f"{place} {first + error.row}{part}: {error.detail}", hint) from error


def merge(pieces: Iterable[Documents], batch_bytes: int) -> Generator[Documents, None, None]:
    """Puts small pieces (of many small files) together until they hold about `batch_bytes`; large ones stay alone."""
    held: list[Documents] = []
    held_bytes = 0
    for piece in pieces:
        if held and held_bytes + piece.texts.byte_count > batch_bytes:
            yield _join(held)
            held, held_bytes = [], 0
        held.append(piece)
        held_bytes += piece.texts.byte_count
    if held:
        yield _join(held)


def _join(pieces: list[Documents]) -> Documents:
    if len(pieces) == 1:
        return pieces[0]
    flat = np.concatenate([piece.texts.bytes[piece.texts.starts[0] : piece.texts.starts[-1]] for piece in pieces])
    starts = starts_of(np.concatenate([np.diff(piece.texts.starts) for piece in pieces]))
    tables = [piece.columns for piece in pieces if piece.columns is not None]
    return Documents(TextBatch(flat, starts, valid=True), join_tables(tables) if tables else None, pieces[-1].read)


def join_tables(tables: list[pa.Table]) -> pa.Table:
    """One table of several; a column without any value takes the type that it has elsewhere."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise FileError(
            f"a kept column changes its type from file to file: {error}", "keep columns of one type only"
        ) from error
