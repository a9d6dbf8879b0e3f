r"""Cuts between two characters that a third one decides: the one behind them, or the one before.

    \s+(?!\S)|\s+     "␣␣x" is  ␣ | ␣x,  "␣␣" is one word: a cut between two spaces if an x stands behind
    [^a]?a+|[^a]+     "..a" is  .. | a,  ".a" is one word: a cut between a point and an a if a point stands before

They are derived from the automaton of a pattern (`gpu_tok.tables.automaton.Automaton`), and all three characters are in
one section. The one in the middle is ASCII, so that the places of all are known without looking far.

Such cuts may be taken together with all others, in some order. One that minds what is behind is sound for all texts
before it, one that minds what is before for all behind it; so each must only be taken before the cut that would take
its third character away, the next one on that side. They never wait for each other in a circle: somewhere in it one
would wait for its right neighbour and this one for it, so that the same three characters would be of both kinds, and no
character is the middle one of both. Other cuts wait for none: those asked in good runs (`gpu_tok.tables.runs`) mind
what stands before, but a run with which a text begins is a good one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_tok.tables.automaton import Triples
from gpu_tok.tables.classes import Pairs

ASCII = 0x80

Set = npt.NDArray[np.bool_]


class Three(NamedTuple):
    """Three characters in a row, each one of a set of classes: bool[classes] each."""

    first: Set
    middle: Set
    last: Set

    def or_nothing(self) -> Three:
        """The same, but all False if one of the sets is empty: then no such three are in any text."""
        every = all(part.any() for part in self)
        return Three(*(part & every for part in self))


class Thirds(NamedTuple):
    """behind: a cut between the first and the middle one, since the last stands behind them. before: one between the
    middle one and the last, since the first stands before them. Each is all False if there are no such cuts.

    No class is the middle one of both, or of the former and the last one of the latter.
    """

    behind: Three
    before: Three

    @classmethod
    def of(cls, behind: Three, before: Three) -> Thirds | None:
        """With what is left of `before` besides the other; None if nothing is left at all."""
        behind = behind.or_nothing()
        left = Three(before.first, before.middle & ~behind.middle, before.last & ~behind.middle).or_nothing()
        return cls(behind, left) if behind.middle.any() or left.middle.any() else None


def cuts_by_thirds(
    code_point: npt.NDArray[np.uint32], class_of: npt.NDArray[np.uint8], thirds: Thirds
) -> npt.NDArray[np.bool_]:
    """Between which neighbours of a section a third one makes a cut: bool[n - 1]. class_of: uint8[n], their classes."""
    cuts = np.zeros(max(len(code_point) - 1, 0), bool)
    if len(code_point) < 3:
        return cuts
    cuts[:-1] = _stand(code_point, class_of, thirds.behind)
    cuts[1:] |= _stand(code_point, class_of, thirds.before)
    return cuts


def _stand(code_point: npt.NDArray[np.uint32], class_of: npt.NDArray[np.uint8], three: Three) -> Set:
    """Where such three begin: bool[n - 2]."""
    middle = three.middle[class_of] & (code_point < ASCII)
    return three.first[class_of[:-2]] & middle[1:-1] & three.last[class_of[2:]]


def rectangles(triples: Triples, middles: Set) -> tuple[Pairs, Pairs]:
    """For each middle one the most first and last ones that all go together: bool[n, n] each, [a, b] and [b, c].

    triples: bool[n, n, n], [a, b, c].
    """
    left, right = (np.zeros(triples.shape[:2], bool) for _ in range(2))
    for middle in np.flatnonzero(middles):
        table = triples[:, middle]
        fitting = np.array([(table | ~row).all(axis=1) for row in table])  # [a, a']: a' has all that a has
        largest = np.argmax(fitting.sum(axis=1) * table.sum(axis=1))
        if table[largest].any():
            left[:, middle], right[middle] = fitting[largest], table[largest]
    return left, right


def largest_three(left: Pairs, right: Pairs, weight: npt.NDArray[np.int64]) -> Three:
    """Of first and last ones for each middle one, [a, b] and [b, c], those of one middle, and all middles that these go
    with: the ones with the most combinations. weight: int64[n], how many characters each counts for."""
    goes_with = np.array(  # [b, b']: with what goes with b
        [
            (left | ~first[:, None]).all(axis=0) & (right | ~last).all(axis=1)
            for first, last in zip(left.T, right, strict=True)
        ]
    )
    score = (weight @ left) * (goes_with @ weight) * (right @ weight)
    best = int(np.argmax(score))
    return Three(left[:, best], goes_with[best] & (score[best] > 0), right[best])
