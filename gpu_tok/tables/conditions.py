"""What a cut between two characters must fulfil: of each step of a normalizer, and of what sees the text behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_tok.tables.classes import ClassOf, Pairs, bits_of, joint_classes, merge_classes
from gpu_tok.tables.images import ANY, CodePoints, Step, identity
from gpu_tok.tables.unicode import CODE_POINTS, Property

MOST_ATOMS = 64  # as many as a uint64 has bits


class Condition(NamedTuple):
    """A pair (a, b) is fine unless an atom of a's left mask and an atom of b's right mask are a forbidden pair.

    left, right: uint64[0x110000]. forbidden: bool[atoms, atoms].
    """

    left: npt.NDArray[np.uint64]
    right: npt.NDArray[np.uint64]
    forbidden: Pairs


class Chain:
    """The steps of a normalizer, one after the other, and the conditions that they make."""

    def __init__(self) -> None:
        self.first = self.last = identity()
        self.present: Property = np.ones(CODE_POINTS, bool)
        self.stripped_left: Property = np.zeros(CODE_POINTS, bool)
        self.stripped_right: Property = np.zeros(CODE_POINTS, bool)
        self.conditions: list[Condition] = []

    def add(self, step: Step) -> None:
        if step.atom_of is not None and step.splits is not None:
            self.conditions.append(self.condition(step.atom_of, ~step.splits))
        if step.minds_left is not None:
            self.act_on_the_left(step.minds_left)
        if step.minds_right is not None:
            self.act_on_the_right(step.minds_right)
        if step.strips_left is not None:
            self.stripped_left |= self.last.may_be(step.strips_left, self.present)
        if step.strips_right is not None:
            self.stripped_right |= self.first.may_be(step.strips_right, self.present)
        self.first, self.last = self.first.then(step.first), self.last.then(step.last)
        self.present = self.present & ~step.replaced
        self.present[step.made] = True

    def condition(self, atom_of: ClassOf, forbidden: Pairs) -> Condition:
        """No cut where a possible last and a possible first character are a forbidden pair."""
        small_atom_of, (allowed,) = merge_classes(atom_of, [~forbidden], MOST_ATOMS)
        left = self.last.masks(small_atom_of, self.present)
        return Condition(left, self.first.masks(small_atom_of, self.present), ~allowed)

    def known(self) -> Condition:
        """A cut only where the left side ends as it is, and the right side begins as it is or with one of a set."""
        same = np.arange(CODE_POINTS)
        left = (self.last.code_point == same) & (self.last.set_of == 0)
        right = (self.first.code_point == same) & (self.first.set_of != ANY)
        forbidden = np.array([[True, True], [True, False]])
        return Condition(_bits(left), _bits(right), forbidden)

    def begins_with(self, second: CodePoints, among: Property) -> tuple[CodePoints, CodePoints]:
        """Which characters `among` some may begin with what others are: (place in `second`, character).

        NFC    second [ば]    -> ([0], [は]): は may become ば
        """
        owners = np.flatnonzero(among & (self.first.set_of > 0))
        sets = [self.first.sets[number] for number in self.first.set_of[owners]]
        owner = np.repeat(owners, [len(members) for members in sets])
        member = np.concatenate([np.zeros(0, np.uint32), *sets])
        order = np.argsort(second, kind="stable")
        begin, end = (np.searchsorted(second[order], member, side) for side in ("left", "right"))
        count = end - begin
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        return order[np.repeat(begin, count) + within], np.repeat(owner, count).astype(np.uint32)

    def act_on_the_left(self, characters: Property) -> None:
        """Something acts on such characters at the left end of a section. So where the right side may begin with
        them, nothing may be left of the left side: the right side would have this end, and its chunk not know."""
        gone = self.stripped_left | (self.last.set_of == ANY)
        self.conditions.append(_not_both(gone, self.first.may_be(characters, self.present)))

    def act_on_the_right(self, characters: Property) -> None:
        gone = self.stripped_right | (self.first.set_of == ANY)
        self.conditions.append(_not_both(self.last.may_be(characters, self.present), gone))


def never() -> Condition:
    """No pair fulfils it."""
    anything = np.ones(CODE_POINTS, np.uint64)
    return Condition(anything, anything, np.ones((1, 1), bool))


def _not_both(left: Property, right: Property) -> Condition:
    """Not a left side of one set and a right side of the other."""
    return Condition(_bits(left), _bits(right), np.array([[False, False], [False, True]]))


def _bits(held: Property) -> npt.NDArray[np.uint64]:
    """A mask of atom 1 where a set holds, of atom 0 elsewhere."""
    return np.array([1, 2], np.uint64)[held.astype(np.uint8)]


def fulfilling_pairs(kinds: Sequence[Sequence[Condition]]) -> tuple[npt.NDArray[np.uint16], list[Pairs]]:
    """Classes of raw code points that no condition tells apart, and for each list which pairs of them fulfil all of it.

    Returns uint16[0x110000] and bool[classes, classes] each. Conditions that lists share are looked at once.
    """
    conditions = {id(condition): condition for kind in kinds for condition in kind}
    masks = [mask for condition in conditions.values() for mask in (condition.left, condition.right)]
    class_of, mask_of = joint_classes([*masks, np.zeros(CODE_POINTS, np.uint64)])
    fulfilled = {
        number: _fulfilled(condition, left, right)
        for (number, condition), left, right in zip(conditions.items(), mask_of[:-1:2], mask_of[1:-1:2], strict=True)
    }
    every = np.ones((mask_of.shape[1],) * 2, bool)
    return class_of, [np.logical_and.reduce([every, *(fulfilled[id(one)] for one in kind)]) for kind in kinds]


def _fulfilled(condition: Condition, left: npt.NDArray[np.uint64], right: npt.NDArray[np.uint64]) -> Pairs:
    """Which pairs of classes fulfil a condition; left, right: the mask of each class."""
    atoms = len(condition.forbidden)
    return bits_of(left, atoms) @ condition.forbidden.astype(np.float32) @ bits_of(right, atoms).T == 0
