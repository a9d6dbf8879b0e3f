"""chunks -> entries: the table that outlives batches, within a budget of bytes."""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cpu_ref.cut import CutTable
from cpu_ref.gather import insert
from cpu_ref.hot import MISS_FIELDS, MISS_SECTION, Work, encode_unit
from cpu_ref.intern import (
    IDS_USED,
    KEYS_USED,
    PROBES,
    ROW_BYTES,
    ROWS_USED,
    SPARE,
    InternTable,
    move_rows,
    publish,
)
from cpu_ref.new_chunks import NewChunks, collect
from gpu_tok.added_tokens import Sections
from gpu_tok.batch import Ids, Ragged, Starts
from gpu_tok.cold import ColdPath
from gpu_tok.errors import TextError

FIRST_ROWS = 1 << 16  # 2 MB: an empty table of full size costs more in page faults than all else in a cold batch
GROWTH = 4  # when every fourth row is taken, it grows as much: most chunks are found at the first look
RENEW_SHARE = 0.05  # misses per id above which a full table no longer pays ...
RENEW_UNITS = 16  # ... when it stays so for as many work units


class TableUse(NamedTuple):
    """What a table holds: chunks that were seen, and the memory that they and empty rows take."""

    rows: int = 0
    bytes: int = 0
    generation: int = 0


class Table:
    """What all workers look chunks up in. Any of them may read at any time; one at a time adds rows.

    Arrays that were replaced (the table grew, or a new generation began) stay valid for whoever still reads them.
    Results never depend on what a table holds: a chunk that is not found is encoded again.
    """

    def __init__(self, budget: int) -> None:
        """budget: bytes; half of it for rows, a quarter each for the pools of keys and ids. 0 keeps nothing."""
        self.budget = budget
        rows = budget // 2 // ROW_BYTES
        self._largest = 1 << (rows.bit_length() - 1) if rows >= PROBES else 0
        self._pool_bytes = min(budget // 4, 1 << 31) if self._largest else 0
        self._lock = threading.Lock()
        self.generation = 0
        self._stale_units = 0
        self.arrays = self._empty()

    def learn(self, chunks: NewChunks, ids: Ragged, misses: int, id_count: int) -> None:
        """Adds chunks and their ids. misses, id_count: of the work unit that they come from."""
        if not self._largest:
            return
        with self._lock:
            count = len(chunks.flags)
            next_chunk, left_out = self._publish(0, chunks, ids)
            while next_chunk < count and self._grow():
                next_chunk, left_out = self._publish(next_chunk, chunks, ids)
            is_full = next_chunk < count or left_out > 0
            stale = is_full and misses > RENEW_SHARE * id_count
            self._stale_units = self._stale_units + 1 if stale else 0
            if self._stale_units >= RENEW_UNITS:
                self._begin_generation()

    def clear(self) -> None:
        """Forgets everything: the next batch is cold."""
        with self._lock:
            self._begin_generation()

    def after_fork(self) -> None:
        """In a child process: the lock may have been held by a thread that does not exist here."""
        self._lock = threading.Lock()

    @property
    def rows_used(self) -> int:
        return int(self.arrays.used[ROWS_USED])

    @property
    def use(self) -> TableUse:
        """What it holds now: memory counts all rows, and the used part of the pools."""
        used = self.arrays.used
        size = self.arrays.rows.nbytes + int(used[KEYS_USED]) + 4 * int(used[IDS_USED])
        return TableUse(int(used[ROWS_USED]), size, self.generation)

    @property
    def _capacity(self) -> int:
        return len(self.arrays.rows) * 8 // ROW_BYTES

    def _publish(self, first: int, chunks: NewChunks, ids: Ragged) -> tuple[int, int]:
        limit = self._capacity // (GROWTH if self._capacity < self._largest else 2)
        return publish(self.arrays, chunks, *ids, first, limit)

    def _grow(self) -> bool:
        capacity = min(GROWTH * self._capacity, self._largest)
        if capacity == self._capacity:
            return False
        rows = _rows(capacity)
        move_rows(self.arrays.rows, rows)
        self.arrays = self.arrays._replace(rows=rows)
        return True

    def _begin_generation(self) -> None:
        self.generation += 1
        self._stale_units = 0
        self.arrays = self._empty()

    def _empty(self) -> InternTable:
        keys, ids = np.empty(self._pool_bytes, np.uint8), np.empty(self._pool_bytes // 4 + SPARE, np.int32)
        return InternTable(_rows(min(FIRST_ROWS, self._largest)), keys, ids, np.zeros(3, np.int64))


def _rows(capacity: int) -> npt.NDArray[np.uint64]:
    return np.zeros(ROW_BYTES // 8 * capacity, np.uint64)


class Encoder(NamedTuple):
    """What turns chunks into ids: where they are cut, what is known of them, and who encodes new ones."""

    cut_table: CutTable
    table: Table
    cold: ColdPath


def encode_sections(unit: tuple[int, int], sections: Sections, end_place: Starts, encoder: Encoder) -> Ids:
    """The ids of one work unit: those of known chunks from the table, those of new ones from the cold path.

    unit: first section and one past the last. end_place: int64[sections], written: ids of the unit before the end of
    each section.
    """
    first, last = unit
    byte_count = int(sections.start[last] - sections.start[first])
    room, first_misses = np.empty(byte_count // 3 + 64, np.int32), np.empty((64, MISS_FIELDS), np.int64)
    work = Work(sections.bytes, sections.start, sections.id, sections.flags, end_place)
    ids, id_count, misses, miss_count = encode_unit(
        work, first, last, encoder.cold.flags, encoder.cut_table, encoder.table.arrays, room, first_misses
    )
    if miss_count == 0:
        return ids[:id_count]
    number, chunks = collect(sections.bytes, misses, miss_count)
    try:
        late = encoder.cold.encode(Ragged(chunks.bytes, chunks.starts), chunks.flags)
    except TextError as error:
        raise error.in_row(_row_of(sections, misses[chunks.first[error.row], MISS_SECTION])) from None
    ids = insert(ids, id_count, misses, number, late.flat, late.starts, end_place, first, last)
    encoder.table.learn(chunks, late, miss_count, len(ids))
    return ids


def _row_of(sections: Sections, section: int) -> int:
    return int(np.searchsorted(sections.row_section, section, side="right")) - 1
