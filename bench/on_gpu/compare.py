"""Rows beside rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from gpu_tok.batch import Ragged, TextBatch, TokenBatch


def rows_of(batch: TokenBatch) -> Ragged:
    """Ids on the host."""
    host = batch.to_host()
    return Ragged(host.ids, host.starts)


def bytes_of(batch: TextBatch) -> Ragged:
    """Texts on the host."""
    host = batch.to_host()
    return Ragged(host.bytes, host.starts)


def as_rows(rows: Sequence[Sequence[int]] | Sequence[bytes], dtype: Any) -> Ragged:
    arrays = [np.frombuffer(row, dtype) if isinstance(row, bytes) else np.array(row, dtype) for row in rows]
    starts = np.cumsum([0, *map(len, arrays)])
    return Ragged(np.concatenate([*arrays, np.zeros(0, dtype)]), starts)


def same(ours: Ragged, expected: Ragged) -> bool:
    """Have both the same rows; starts may begin anywhere."""
    return first_difference(ours, expected) is None


def first_difference(ours: Ragged, expected: Ragged) -> dict[str, Any] | None:
    """The first row that differs, and where in it; None where there is none.

    >>> first_difference(as_rows([[1, 2], [3]], np.int32), as_rows([[1, 2], [4]], np.int32))
    {'row': 1, 'position': 0, 'found': 3, 'expected': 4}
    """
    if ours.count != expected.count:
        return {"row": None, "position": None, "found": f"{ours.count} rows", "expected": f"{expected.count} rows"}
    if np.array_equal(ours.starts - ours.starts[0], expected.starts - expected.starts[0]):
        flat = ours.flat[ours.starts[0] : ours.starts[-1]], expected.flat[expected.starts[0] : expected.starts[-1]]
        if np.array_equal(*flat):
            return None
    spans = zip(pairwise(ours.starts.tolist()), pairwise(expected.starts.tolist()), strict=True)
    for row, (own, right) in enumerate(spans):
        found, wanted = ours.flat[slice(*own)], expected.flat[slice(*right)]
        if not np.array_equal(found, wanted):
            length = min(len(found), len(wanted))
            parts = np.flatnonzero(found[:length] != wanted[:length])
            at = int(parts[0]) if len(parts) else length
            return {"row": row, "position": at, "found": _at(found, at), "expected": _at(wanted, at)}
    return None


def _at(row: np.ndarray, position: int) -> int | None:
    return int(row[position]) if position < len(row) else None
