"""counts -> places: where the ids of each text go."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_tok.batch import Starts, starts_of


class SectionPlaces(NamedTuple):
    """section_row: the text of each section; section_offset: ids of the same text that come before it;
    row_counts: ids of each text. All int64."""

    section_row: Starts
    section_offset: Starts
    row_counts: Starts


def section_counts(end_place: Starts, units: list[tuple[int, int]]) -> npt.NDArray[np.int64]:
    """Ids of each section, from where they end within their work unit."""
    counts = np.diff(end_place, prepend=0)
    firsts = [first for first, _last in units]
    counts[firsts] = end_place[firsts]
    return counts


def of_sections(counts: npt.NDArray[np.int64], row_section: Starts) -> SectionPlaces:
    """Adds up the ids of sections text by text.

    counts: int64[sections]; row_section: int64[texts + 1], the first section of each text.

    >>> of_sections(np.array([2, 1, 4]), np.array([0, 2, 2, 3])).row_counts
    array([3, 0, 4])
    """
    section_start = starts_of(counts)
    row_start = section_start[row_section]
    sections_of_row = np.diff(row_section)
    section_row = np.repeat(np.arange(len(sections_of_row)), sections_of_row)
    section_offset = section_start[:-1] - np.repeat(row_start[:-1], sections_of_row)
    return SectionPlaces(section_row, section_offset, np.diff(row_start))
