"""text -> work units: the tables of the cut step, and where long texts are divided."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from cpu_ref.cut import BEFORE_CUT, BEFORE_FIRST, BEHIND_CUT, BEHIND_LAST, CutTable, next_cut
from gpu_tok.added_tokens import TEXT, Sections
from gpu_tok.batch import Bytes, starts_of
from gpu_tok.tables import ends
from gpu_tok.tables.classes import Pairs
from gpu_tok.tables.cuts import CutTables
from gpu_tok.tables.runs import Runs
from gpu_tok.tables.thirds import Thirds

LANES_OF_BYTE = 8  # bits of a *before* or *after* byte
FIRST_UNIT = 1 << 16  # bytes of the first work unit when nothing is known yet


def lay_out(tables: CutTables) -> CutTable:
    """The cuts as the kernel reads them: words for each class, and lanes for ASCII where they fit."""
    taken = np.ascontiguousarray(tables.taken, np.bool_)
    lanes = _lanes(tables.class_of[:128], taken)
    before, after = lanes if lanes is not None else np.zeros((2, len(taken)), np.uint8)
    values = np.stack([before, after])[:, tables.class_of[:128]]
    asked_in_runs, run_begins, in_run = run_words(tables.runs)
    third_before, third_after = third_bytes(tables.thirds, len(taken))
    third_values = np.stack([third_before, third_after])[:, tables.class_of[:128] if tables.thirds else []]
    return CutTable(
        class_of=np.ascontiguousarray(tables.class_of, np.uint8),
        taken=row_words(taken),
        before=before,
        asked=row_words(tables.asked),
        pairs=tables.pairs,
        asked_in_runs=asked_in_runs,
        run_begins=run_begins,
        in_run=in_run,
        values=values.reshape(-1),
        ranges=_ranges(values.T).reshape(-1),
        has_lanes=np.array([lanes is not None], np.int64),
        third_before=third_before,
        third_after=third_after,
        third_values=third_values.reshape(-1),
        third_ranges=_ranges(third_values.T).reshape(-1),
    )


def run_words(runs: Runs | None) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """asked and begins as `row_words`, and inside as one such row; all empty where there are no runs."""
    if runs is None:
        nothing = np.zeros(0, np.uint32)
        return nothing, nothing, nothing
    return row_words(runs.asked), row_words(runs.begins), row_words(runs.inside[None, :])


def third_bytes(thirds: Thirds | None, classes: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """A *before* and an *after* byte for each class, uint8[classes] each: which pairs a third character may make a cut
    of. Two neighbours are a pair of a kind if the *before* of one and the *after* of the next share its bit.

        BEHIND_CUT    first, middle of `Thirds.behind`       BEHIND_LAST   middle, last
        BEFORE_FIRST  first, middle of `Thirds.before`       BEFORE_CUT    middle, last

    Both are empty if there are no such cuts.
    """
    before, after = np.zeros((2, classes if thirds else 0), np.uint8)
    if thirds:
        (first, middle, last), others = thirds
        before |= first * BEHIND_CUT | middle * BEHIND_LAST
        after |= middle * BEHIND_CUT | last * BEHIND_LAST
        before |= others.first * BEFORE_FIRST | others.middle * BEFORE_CUT
        after |= others.middle * BEFORE_FIRST | others.last * BEFORE_CUT
    return before, after


def row_words(table: Pairs) -> npt.NDArray[np.uint32]:
    """Each row of a table of at most 32 classes as the bits of a word: uint32[classes]."""
    return (table.astype(np.uint64) << np.arange(table.shape[1], dtype=np.uint64)).sum(axis=1).astype(np.uint32)


def _lanes(ascii_class: np.ndarray, taken: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """A *before* and an *after* byte for each class, or None if there are too few lanes.

    A class has the lanes that together are cut off behind the classes that it is cut off behind.

        cut off behind   a   b   a and b
        after            1   2   3            before   a 1   b 2
    """
    before, after = np.zeros(len(taken), np.uint8), np.zeros(len(taken), np.uint8)
    columns = np.unique(taken[:, np.unique(ascii_class)], axis=1).T
    lanes: list[np.ndarray] = []
    for column in sorted(columns, key=np.count_nonzero):
        within = [lane for lane in lanes if not (lane & ~column).any()]
        if not np.array_equal(np.logical_or.reduce([np.zeros_like(column), *within]), column):
            lanes.append(column)
    if len(lanes) > LANES_OF_BYTE:
        return None
    for number, lane in enumerate(lanes):
        before[lane] |= 1 << number
    for a_class in np.unique(ascii_class):
        column = taken[:, a_class]
        after[a_class] = sum(1 << number for number, lane in enumerate(lanes) if not (lane & ~column).any())
    return before, after


def _ranges(values: np.ndarray) -> np.ndarray:
    """Runs of equal value pairs among the 128 ASCII bytes, those of zeros left out: (first, how many, values)."""
    if len(values) == 0:
        return np.zeros((0, 4), np.uint8)
    change = np.flatnonzero((values[1:] != values[:-1]).any(axis=1)) + 1
    first = np.concatenate([[0], change])
    last = np.concatenate([change - 1, [127]])
    runs = np.column_stack([first, last - first + 1, values[first]])
    return runs[values[first].any(axis=1)].astype(np.uint8)


def divide_long(sections: Sections, table: CutTable, unit_bytes: int) -> Sections:
    """Divides sections of more than two units at cuts, so that one huge text keeps all workers busy.

    The parts keep the end flags of the ends that they have.
    """
    lengths = np.diff(sections.start)
    divisible = (sections.id == TEXT) & (sections.flags & ends.WHOLE == 0)
    long = np.flatnonzero((lengths > 2 * unit_bytes) & divisible)
    if len(long) == 0:
        return sections
    start = sections.start.tolist()
    inside = [_cuts_every(sections.bytes, start[at], start[at + 1], table, unit_bytes) for at in long.tolist()]
    counts = np.ones(len(lengths), np.int64)
    counts[long] += [len(cuts) for cuts in inside]
    first = starts_of(counts)
    flags = np.repeat(sections.flags, counts)
    edges = np.empty(first[-1] + 1, np.int64)
    edges[first] = sections.start
    for index, cuts in zip(long, inside, strict=True):
        begin, end = first[index], first[index + 1]
        edges[begin + 1 : end] = cuts
        flags[begin + 1 : end] &= ends.SECTION_LAST
        flags[begin : end - 1] &= ~np.uint8(ends.SECTION_LAST)
    return Sections(sections.bytes, edges, np.repeat(sections.id, counts), flags, first[sections.row_section])


def _cuts_every(bytes: Bytes, begin: int, end: int, table: CutTable, step: int) -> list[int]:
    cuts = []
    at = next_cut(bytes, begin + step, end, table)
    while at >= 0:
        cuts.append(at)
        at = next_cut(bytes, at + step, end, table) if at + step < end else -1
    return cuts


def units_of(sections: Sections, unit_bytes: int, ramp: bool) -> list[tuple[int, int]]:
    """Work units: ranges of sections of about `unit_bytes`, none empty.

    ramp: begin with small ones and double them, so that an empty table has learnt the frequent chunks before the
    large ones come.
    """
    start = sections.start
    edges = np.arange(start[0], start[-1], unit_bytes)
    if ramp:
        sizes = np.minimum(unit_bytes, FIRST_UNIT << np.arange(20))
        early = start[0] + np.cumsum(sizes[sizes < unit_bytes])
        edges = np.concatenate([start[:1], early, np.arange(early[-1] + unit_bytes, start[-1], unit_bytes)])
    firsts = np.unique(np.append(np.searchsorted(start[:-1], edges[edges < start[-1]]), len(start) - 1))
    firsts[0] = 0
    return [(int(first), int(last)) for first, last in itertools.pairwise(firsts)]
