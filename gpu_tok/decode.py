"""Ids back to text: lengths, prefix sum, gather; the reference where a decoder has no native form."""

from __future__ import annotations

import threading

import numpy as np

from cpu_ref import decode as kernels
from gpu_tok.batch import LAST_ID, Ragged, TextBatch, row_ranges, starts_of
from gpu_tok.device import Workers, in_forked_child
from gpu_tok.on_device.decode import bad_id
from gpu_tok.tables import decode as tables
from gpu_tok.tables.decode import DecodeTables
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.refusal import CannotCompile

_UNIT = 1 << 18  # ids that one work unit decodes: about a megabyte of text
_ALONE = Workers(1)


class Decoder:
    """Decodes rows of ids exactly as the reference's `decode_batch` does.

    grade: 1 where the tables of `gpu_tok.tables.decode` say all, 3 where the reference decodes; reasons: why 3.
    """

    def __init__(self, definition: Definition) -> None:
        self._definition = definition
        self._tables: dict[bool, DecodeTables] = {}
        self._lock = threading.Lock()
        self.reasons: tuple[str, ...] = ()
        try:
            tables.kind_of(definition)
        except CannotCompile as refusal:
            self.reasons = (str(refusal),)
        self.grade = 3 if self.reasons else 1

    def decode(self, rows: Ragged, skip_special_tokens: bool = True, workers: Workers = _ALONE) -> list[str]:
        """One Python string a row; rows as for `decode_bytes`."""
        return self.decode_bytes(rows, skip_special_tokens, workers).to_list()

    def decode_bytes(self, rows: Ragged, skip_special_tokens: bool = True, workers: Workers = _ALONE) -> TextBatch:
        """The texts of rows of ids, as ragged UTF-8 bytes.

        rows: flat int32|int64 ids and starts. Ids without a token leave nothing, as in the reference; negative ones
        and those beyond 32 bits, which it refuses, raise `IdError` naming the row.
        """
        if self.grade == 3:
            return self._decode_by_reference(rows, skip_special_tokens)
        return _gather(rows, self.tables_for(skip_special_tokens), workers)

    def tables_for(self, skip_special_tokens: bool) -> DecodeTables:
        """What each id becomes; grade 1 only."""
        with self._lock:  # made at the first use: encoding alone needs none
            if not self._tables:
                every = tables.compile(self._definition)
                self._tables = {False: every, True: tables.skip_special(every, self._definition)}
            return self._tables[skip_special_tokens]

    def _decode_by_reference(self, rows: Ragged, skip_special_tokens: bool) -> TextBatch:
        _check_ids(rows)
        texts: list[bytes] = []
        for begin, end in row_ranges(rows.starts, _UNIT, _UNIT):
            ids = [rows.row(row).tolist() for row in range(begin, end)]
            texts += [text.encode() for text in self._ask_reference(ids, skip_special_tokens)]
        return TextBatch.joined(texts)

    def _ask_reference(self, rows: list[list[int]], skip_special_tokens: bool) -> list[str]:
        reference = self._definition.reference
        if in_forked_child():  # where the reference's threads do not exist
            return [reference.decode(row, skip_special_tokens=skip_special_tokens) for row in rows]
        return reference.decode_batch(rows, skip_special_tokens=skip_special_tokens)


def _gather(rows: Ragged, tables: DecodeTables, workers: Workers) -> TextBatch:
    ids, starts, units = rows.flat, rows.starts, list(row_ranges(rows.starts, _UNIT, _UNIT))
    counts, heads = np.zeros(rows.count, np.int64), np.zeros(rows.count, np.int64)
    partial = np.zeros(rows.count, np.bool_)

    def count(unit: tuple[int, int]) -> int:
        return kernels.count_bytes(ids, starts, tables.rows, *unit, counts, heads, partial)

    bad_rows = [row for row in workers.map(count, units) if row >= 0]
    if bad_rows:
        raise bad_id(rows, min(bad_rows))
    places = starts_of(counts)
    text = np.empty(int(places[-1]), np.uint8)

    def write(unit: tuple[int, int]) -> None:
        kernels.write_bytes(ids, starts, heads, tables.rows, tables.pool, *unit, places, text)

    workers.map(write, units)
    if tables.repairs and partial.any():
        text, places = _repair(text, places, partial, counts, units, workers)
    return TextBatch(text, places, valid=True)


def _repair(
    text: np.ndarray,
    places: np.ndarray,
    partial: np.ndarray,
    counts: np.ndarray,
    units: list[tuple[int, int]],
    workers: Workers,
) -> tuple[np.ndarray, np.ndarray]:
    """Puts U+FFFD where bytes are no UTF-8; most batches have no such place and stay as they are."""

    def count(unit: tuple[int, int]) -> int:
        return kernels.count_repaired(text, places, partial, *unit, counts)

    if not any(workers.map(count, units)):
        return text, places
    new_places = starts_of(counts)
    repaired = np.empty(int(new_places[-1]), np.uint8)

    def write(unit: tuple[int, int]) -> None:
        kernels.write_repaired(text, places, partial, *unit, new_places, repaired)

    workers.map(write, units)
    return repaired, new_places


def _check_ids(rows: Ragged) -> None:
    used = rows.flat[rows.starts[0] : rows.starts[-1]]
    if len(used) and (used.min() < 0 or used.max() > LAST_ID):
        at = int(rows.starts[0]) + int(np.argmax((used < 0) | (used > LAST_ID)))
        raise bad_id(rows, int(np.searchsorted(rows.starts, at, side="right")) - 1)
