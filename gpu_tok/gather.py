"""ids of work units -> the batch: everything to its place, with special tokens, truncation and padding."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cpu_ref.gather import fill_rows, place_sections
from gpu_tok.batch import Ids, Starts, starts_of
from gpu_tok.device import Workers
from gpu_tok.positions import SectionPlaces
from gpu_tok.postprocess import UNLIMITED, Plan, place

ROWS_A_TASK = 1 << 16


class Rows(NamedTuple):
    """The batch as it leaves: ids, starts, and how many ids of each row are not padding."""

    ids: Ids
    starts: Starts
    counts: Starts


def run(
    parts: list[Ids],
    units: list[tuple[int, int]],
    end_place: Starts,
    places: SectionPlaces,
    plan: Plan,
    workers: Workers,
) -> Rows:
    """Writes the ids of all units (`parts`) and what `plan` puts around them."""
    kept, row_lengths = place(places.row_counts, plan)
    starts = starts_of(row_lengths)
    around = len(plan.prefix) + len(plan.suffix)
    if around == 0 and plan.keep_at_most == UNLIMITED and np.array_equal(kept, row_lengths):
        return Rows(_joined(parts, workers), starts, kept)
    padding = row_lengths - kept - around
    text_start = starts[:-1] + len(plan.prefix) + (padding if plan.pad_left else 0)
    keep_begin = places.row_counts - kept if plan.keep_last else np.zeros_like(kept)
    ids = np.empty(starts[-1], np.int32)

    def place_unit(index: int) -> None:
        place_sections(parts[index], end_place, *units[index], places.section_row, places.section_offset, keep_begin,
                       kept, text_start, ids)  # fmt: skip

    def fill(first_row: int) -> None:
        last_row = min(first_row + ROWS_A_TASK, len(kept))
        fill_rows(starts, text_start, kept, plan.prefix, plan.suffix, plan.pad_id, first_row, last_row, ids)

    workers.map(place_unit, range(len(parts)))
    workers.map(fill, range(0, len(kept), ROWS_A_TASK))
    return Rows(ids, starts, kept + around)


def _joined(parts: list[npt.NDArray[np.int32]], workers: Workers) -> Ids:
    if len(parts) == 1:
        return parts[0]
    starts = starts_of(np.array([len(part) for part in parts], np.int64))
    joined = np.empty(starts[-1], np.int32)

    def copy(index: int) -> None:
        joined[starts[index] : starts[index + 1]] = parts[index]

    workers.map(copy, range(len(parts)))
    return joined
