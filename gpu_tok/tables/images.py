"""What a normalizer can make of the two sides of a cut, for each code point.

A normalizer is a chain of steps. Seen from a cut `x a | b y`, a step says two things:

- between which characters it can be cut: `step(x a b y) == step(x a) + step(b y)` whatever x and y are;
- what the sides then begin and end with: the *ends* of a (last characters) and of b (first characters).

    NFC              'は|゙' no cut: U+3099 composes;  'は|a': the left side ends with は, the right begins with a, á, ...
    BertNormalizer   'a|中': the left side ends with a, the right begins with ' ';  DEL: with anything

The ends of most code points are one character; what depends on the neighbours is a set of them, and a code point that
may be deleted has the set ANY, since what stands behind it (or before it) may be anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_tok.batch import Ragged, starts_of
from gpu_tok.tables.unicode import CODE_POINTS, Property

CodePoints = npt.NDArray[np.uint32]
ANY = -1  # the set of all characters that a text can hold at this step
NOTHING: Property = np.zeros(CODE_POINTS, bool)
NO_MORE: CodePoints = np.zeros(0, np.uint32)


class Ends(NamedTuple):
    """What the text made of each code point can begin with (or end with).

    code_point: uint32[0x110000], one possibility. set_of: int32[0x110000], the number of a set of further ones: 0 for
    none, ANY, or an index in `sets`.
    """

    code_point: CodePoints
    set_of: npt.NDArray[np.int32]
    sets: tuple[CodePoints, ...] = (NO_MORE,)

    def then(self, step: Ends) -> Ends:
        """The ends after one more step."""
        if self is identity():
            return step
        if step is identity():
            return self
        more = step.set_of[self.code_point]
        anything = (self.set_of == ANY) | (more == ANY)
        set_of = np.where(anything, np.int32(ANY), np.int32(0))
        several = np.flatnonzero(~anything & ((self.set_of | more) != 0))
        both = self.set_of[several].astype(np.int64) << 32 | more[several]
        kinds, kind_of = np.unique(both, return_inverse=True)
        numbering = _Sets()
        numbers = [numbering.number(self._after(kind >> 32, kind & 0xFFFFFFFF, step)) for kind in kinds.tolist()]
        if numbers:
            set_of[several] = np.array(numbers, np.int32)[kind_of]
        return Ends(step.code_point[self.code_point], set_of, numbering.sets())

    def _after(self, before: int, more: int, step: Ends) -> CodePoints | None:
        """The set that comes of a set before a step and of what the step adds; None for ANY."""
        members = self.sets[before]
        added = np.unique(step.set_of[members])
        if (added == ANY).any():
            return None
        return np.unique(np.concatenate([step.code_point[members], step.sets[more], *(step.sets[n] for n in added)]))

    def masks(self, atom_of: npt.NDArray[np.unsignedinteger], present: Property) -> npt.NDArray[np.uint64]:
        """The atoms of all possibilities as bits: uint64[0x110000]. present: what ANY stands for."""
        bit_of = np.uint64(1) << np.arange(64, dtype=np.uint64)
        bits = bit_of[atom_of[self.code_point]]
        several = np.flatnonzero(self.set_of)
        if len(several):
            members = [atom_of[held] for held in (*self.sets, present)]  # ANY is -1: the last one
            of_set = np.array([np.bitwise_or.reduce(bit_of[atoms], initial=np.uint64(0)) for atoms in members])
            bits[several] |= of_set[self.set_of[several]]
        return bits

    def may_be(self, characters: Property, present: Property) -> Property:
        """Which code points some of these characters are possible ends of: bool[0x110000]."""
        return (self.masks(characters.astype(np.uint8), present) & np.uint64(2)) > 0


class _Sets:
    """Numbers sets as they come; equal ones have one number."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {b"": 0}
        self._sets: list[CodePoints] = [NO_MORE]

    def number(self, members: CodePoints | None) -> int:
        if members is None:
            return ANY
        members = np.unique(members).astype(np.uint32)
        found = self._numbers.setdefault(members.tobytes(), len(self._sets))
        if found == len(self._sets):
            self._sets.append(members)
        return found

    def sets(self) -> tuple[CodePoints, ...]:
        return tuple(self._sets)


@lru_cache(maxsize=1)
def identity() -> Ends:
    """Each code point stays what it is."""
    return Ends(np.arange(CODE_POINTS, dtype=np.uint32), np.zeros(CODE_POINTS, np.int32))


def ends_of(
    changed: Sequence[int] | npt.NDArray[np.integer] = (),
    made: Sequence[int] | npt.NDArray[np.integer] = (),
    vanishing: Property | None = None,
    several: dict[int, CodePoints] | None = None,
) -> Ends:
    """Ends where `changed` code points become `made` ones, `vanishing` ones may be deleted, and `several` maps code
    points to further possibilities."""
    code_point, set_of = identity().code_point.copy(), np.zeros(CODE_POINTS, np.int32)
    code_point[np.asarray(changed, np.int64)] = made
    numbering = _Sets()
    for owner, members in (several or {}).items():
        set_of[owner] = numbering.number(members)
    if vanishing is not None:
        set_of[vanishing] = ANY
    return Ends(code_point, set_of, numbering.sets())


@dataclass(frozen=True)
class Step:
    """One step of a normalizer, seen from a cut.

    first, last: the ends of a text that begins (ends) with a code point.
    replaced, made: code points that are never left in the text, and those that the step brings in.
    atom_of, splits: bool[n, n]; [a, b] says that the step can be cut between atoms a and b.
    minds_left: characters on which something that acts at the left end of a section (`Prepend`, `Strip`) would act,
    if the section began with them; minds_right: the same at the right end. strips_left, strips_right: characters
    that the step deletes at that end.
    """

    where: str
    first: Ends
    last: Ends
    replaced: Property = field(default_factory=lambda: NOTHING)
    made: CodePoints = field(default_factory=lambda: NO_MORE)
    atom_of: npt.NDArray[np.uint8] | None = None
    splits: npt.NDArray[np.bool_] | None = None
    minds_left: Property | None = None
    minds_right: Property | None = None
    strips_left: Property | None = None
    strips_right: Property | None = None


def by_code_point(where: str, changed: npt.NDArray[np.integer], rows: Ragged) -> Step:
    """A step that looks at one code point at a time and makes row i of `changed[i]`; an empty row deletes it."""
    counts = np.diff(rows.starts)
    kept = changed[counts > 0]
    vanishing = NOTHING.copy()
    vanishing[changed[counts == 0]] = True
    first = ends_of(kept, rows.flat[rows.starts[:-1][counts > 0]], vanishing)
    last = ends_of(kept, rows.flat[rows.starts[1:][counts > 0] - 1], vanishing)
    replaced = NOTHING.copy()
    replaced[changed] = True
    return Step(where, first, last, replaced, np.unique(rows.flat))


def deletes(where: str, deleted: Property) -> Step:
    ends = ends_of(vanishing=deleted)
    return Step(where, ends, ends, deleted)


def ragged(rows: Sequence[Sequence[int]]) -> Ragged:
    """Rows of code points as a flat array and its starts."""
    flat = np.array([code_point for row in rows for code_point in row], np.uint32)
    return Ragged(flat, starts_of(np.array([len(row) for row in rows], np.int64)))
