"""Added tokens first: divides texts into sections of text and token ids, before any chunk is cut."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_tok.batch import Bytes, Starts
from gpu_tok.errors import TextError
from gpu_tok.tables import ends
from gpu_tok.tables.added_tokens import NO_PASS, NORMALIZED, RAW, AddedTokens

TEXT = -1  # the id of a section that is text to encode
_Table = npt.NDArray[np.int64]  # sections as rows: start, end, id, flags

WHOLE_TEXT = ends.SECTION_FIRST | ends.SECTION_LAST | ends.DOCUMENT_FIRST | ends.SUBSECTION_FIRST


class Sections(NamedTuple):
    """Sections of text and tokens, in the order of the texts; those of text *i* are `row_start[i]:row_start[i + 1]`.

    start, end: int64[n], bytes. id: int32[n], a token's id, or TEXT for text to encode. flags: uint8[n], the end flags
    of a section of text (`gpu_tok.tables.ends`); with WHOLE it goes to the cold path undivided. row_start:
    int64[rows + 1]. An empty text has one empty section.
    """

    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    id: npt.NDArray[np.int32]
    flags: npt.NDArray[np.uint8]
    row_start: Starts


def find_sections(bytes: Bytes, starts: Starts, added: AddedTokens) -> Sections:
    """Divides texts at their added tokens; raises `TextError` for a text that the reference cannot divide.

    >>> find_sections(batch.bytes, batch.starts, compile_added_tokens(bert)).id    # "the [MASK] sat"
    array([ -1, 103,  -1], dtype=int32)
    """
    rows = len(starts) - 1
    table = np.empty((rows, 4), np.int64)
    table[:, 0], table[:, 1], table[:, 2], table[:, 3] = starts[:-1], starts[1:], TEXT, WHOLE_TEXT
    row_start = np.arange(rows + 1, dtype=np.int64)
    if added.count and rows:
        from cpu_ref.added_tokens import BLOCK, mark_blocks

        base, end = int(starts[0]), int(starts[-1])
        hits = np.empty(-(-(end - base) // BLOCK), np.uint8)
        if mark_blocks(bytes, base, end, added.tables.begins, added.tables.block_patterns, hits):
            if added.raw_pass:
                table, row_start = _divide(bytes, table, RAW, base, hits, added, row_start)
            if added.normalized_pass != NO_PASS:
                table, row_start = _divide(bytes, table, NORMALIZED, base, hits, added, row_start)
                _settle_suspects(bytes, table, added)
    ids, flags = table[:, 2].astype(np.int32), table[:, 3].astype(np.uint8)
    return Sections(table[:, 0].copy(), table[:, 1].copy(), ids, flags, row_start)


def _divide(
    bytes: Bytes, table: _Table, kind: int, base: int, hits: Bytes, added: AddedTokens, row_start: Starts
) -> tuple[_Table, Starts]:
    """One pass: the table of sections divided at the tokens of this kind, and where the rows now begin."""
    from cpu_ref.added_tokens import divide

    first = np.empty(len(table) + 1, np.int64)
    room = len(table) + len(table) // 8 + 64
    while True:
        divided = np.empty((room, 4), np.int64)
        count, refused = divide(bytes, table, kind, base, hits, added.tables, first, divided)
        if refused >= 0:
            raise TextError(
                int(np.searchsorted(row_start, refused, side="right")) - 1,
                "its added tokens overlap in a way that the reference cannot split: it panics",
                "a token with `lstrip` begins in white space that a token with `rstrip` before it has eaten",
            )
        if count <= room:
            return divided[:count], first[row_start]
        room = count


def _settle_suspects(bytes: Bytes, table: _Table, added: AddedTokens) -> None:
    """Normalizes the sections that may hold a token, and marks as WHOLE those that do."""
    from cpu_ref.added_tokens import SUSPECTED

    for at in np.flatnonzero(table[:, 3] & SUSPECTED).tolist():
        start, end, _id, flags = table[at].tolist()
        normalized = added.normalizer.normalize_str(bytes[start:end].tobytes().decode())
        holds = any(content in normalized for content in added.normalized_contents)
        table[at, 3] = flags & ~SUSPECTED | (ends.WHOLE if holds else 0)
