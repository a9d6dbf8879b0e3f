"""Added tokens first: divides texts into sections of text and token ids, before any chunk is cut."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cpu_ref.added_tokens import BLOCK, SUSPECTED, divide, mark_places
from gpu_tok.batch import Bytes, Starts, TextBatch, row_ranges, starts_of
from gpu_tok.device import Workers
from gpu_tok.errors import TextError
from gpu_tok.tables import ends
from gpu_tok.tables.added_tokens import NO_PASS, NORMALIZED, RAW, TEXT, AddedTokens

RANGE_BYTES = 1 << 20  # of texts that one worker looks through at a time
Places = npt.NDArray[np.uint64]  # a bit for each byte: may a token begin here
_Table = npt.NDArray[np.int64]  # sections as rows: start, end, id, flags

WHOLE_TEXT = ends.SECTION_FIRST | ends.SECTION_LAST | ends.DOCUMENT_FIRST | ends.SUBSECTION_FIRST


class SectionSpans(NamedTuple):
    """Where sections of text and tokens lie, in the order of the texts; two of them may cover the same bytes.

    start, end: int64[n], bytes. id: int32[n], a token's id, or TEXT for text to encode. flags: uint8[n], the end flags
    of a section of text (`gpu_tok.tables.ends`); with WHOLE it goes to the cold path undivided. row_section:
    int64[rows + 1], the first section of each text. An empty text has one empty section.
    """

    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    id: npt.NDArray[np.int32]
    flags: npt.NDArray[np.uint8]
    row_section: Starts


class Sections(NamedTuple):
    """Sections that lie one behind the other: section *i* is `bytes[start[i]:start[i + 1]]`.

    bytes: uint8, read-only (kernels are compiled for one kind of array); start: int64[n + 1]; id, flags, row_section as
    in `SectionSpans`.
    """

    bytes: Bytes
    start: Starts
    id: npt.NDArray[np.int32]
    flags: npt.NDArray[np.uint8]
    row_section: Starts


def find_sections(bytes: Bytes, starts: Starts, added: AddedTokens) -> SectionSpans:
    """Divides texts at their added tokens; raises `TextError` for a text that the reference cannot divide.

    >>> find_sections(batch.bytes, batch.starts, compile_added_tokens(bert)).id    # "the [MASK] sat"
    array([ -1, 103,  -1], dtype=int32)
    """
    return _sections_at(bytes, starts, added, _places_of(bytes, starts, added))


def _sections_at(bytes: Bytes, starts: Starts, added: AddedTokens, places: Places | None) -> SectionSpans:
    """The sections of texts in which tokens may begin at `places` only."""
    rows = len(starts) - 1
    table = np.empty((rows, 4), np.int64)
    table[:, 0], table[:, 1], table[:, 2], table[:, 3] = starts[:-1], starts[1:], TEXT, WHOLE_TEXT
    row_section = np.arange(rows + 1, dtype=np.int64)
    if places is not None:
        base = int(starts[0])
        if added.raw_pass:
            table, row_section = _divide(bytes, table, RAW, base, places, added, row_section)
        if added.normalized_pass != NO_PASS:
            table, row_section = _divide(bytes, table, NORMALIZED, base, places, added, row_section)
            _settle_suspects(bytes, table, added)
    ids, flags = table[:, 2].astype(np.int32), table[:, 3].astype(np.uint8)
    return SectionSpans(table[:, 0].copy(), table[:, 1].copy(), ids, flags, row_section)


def _places_of(bytes: Bytes, starts: Starts, added: AddedTokens) -> Places | None:
    """Where a token may begin, a bit for each byte of the texts; None if nowhere."""
    if added.count == 0 or len(starts) == 1:
        return None
    begin, end = int(starts[0]), int(starts[-1])
    places = np.empty(-(-(end - begin) // BLOCK), np.uint64)
    marked = mark_places(bytes, begin, end, added.tables.begins, added.tables.first_bytes, places)
    return places if marked else None


def _divide(
    bytes: Bytes, table: _Table, kind: int, base: int, places: Places, added: AddedTokens, row_section: Starts
) -> tuple[_Table, Starts]:
    """One pass: the table of sections divided at the tokens of this kind, and where the rows now begin."""
    first = np.empty(len(table) + 1, np.int64)
    room = len(table) + len(table) // 8 + 64
    while True:
        divided = np.empty((room, 4), np.int64)
        count, refused = divide(bytes, table, kind, base, places, added.tables, first, divided)
        if refused >= 0:
            raise TextError(
                int(np.searchsorted(row_section, refused, side="right")) - 1,
                "its added tokens overlap in a way that the reference cannot split: it panics",
                "a token with `lstrip` begins in white space that a token with `rstrip` before it has eaten",
            )
        if count <= room:
            return divided[:count], first[row_section]
        room = count


def _settle_suspects(bytes: Bytes, table: _Table, added: AddedTokens) -> None:
    """Normalizes the sections that may hold a token, and marks as WHOLE those that do."""
    for at in np.flatnonzero(table[:, 3] & SUSPECTED).tolist():
        start, end, _id, flags = table[at].tolist()
        holds = added.holds_normalized(bytes[start:end].tobytes())
        table[at, 3] = flags & ~SUSPECTED | (ends.WHOLE if holds else 0)


def run(text: TextBatch, added: AddedTokens, workers: Workers) -> Sections:
    """The sections of a batch. Most texts hold no added token, so a quick look over all bytes comes first."""
    starts = np.require(text.starts, requirements=["C", "W"])
    bytes = text.bytes.view()
    bytes.flags.writeable = False
    ranges = list(row_ranges(starts, RANGE_BYTES))

    def look(rows: tuple[int, int]) -> Places | None:
        return _places_of(bytes, starts[rows[0] : rows[1] + 1], added)

    def divide_range(rows: tuple[tuple[int, int], Places | None]) -> SectionSpans:
        (first, last), places = rows
        try:
            return _sections_at(bytes, starts[first : last + 1], added, places)
        except TextError as error:
            raise error.in_row(error.row + first) from None

    seen = workers.map(look, ranges) if added.count else []
    if all(places is None for places in seen):
        rows = len(starts) - 1
        ids, flags = np.full(rows, TEXT, np.int32), np.full(rows, WHOLE_TEXT, np.uint8)
        return Sections(bytes, starts, ids, flags, np.arange(rows + 1, dtype=np.int64))
    return _joined(bytes, workers.map(divide_range, zip(ranges, seen, strict=True)))


def _joined(bytes: Bytes, parts: list[SectionSpans]) -> Sections:
    """All parts behind one another. Where the reference covers text twice (`rstrip` ate what is a token), the bytes
    are copied so that sections do not overlap."""
    start, end, ids, flags = (np.concatenate([part[field] for part in parts]) for field in range(4))
    row_counts = np.concatenate([np.diff(part.row_section) for part in parts])
    edges = np.append(start, end[-1:])
    if not np.array_equal(edges[1:], end):
        edges = starts_of(end - start)
        bytes = np.concatenate([bytes[begin:end] for begin, end in zip(start, end, strict=True)])
        bytes.flags.writeable = False
    return Sections(bytes, edges, ids, flags, starts_of(row_counts))
