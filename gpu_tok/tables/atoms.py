"""Atoms: the classes of code points that some sets cannot tell apart.

>>> atom_of, members = atoms_of([only("ab"), only("b")])
>>> atom_of[[ord(c) for c in "xab"]], members
(array([0, 1, 2], dtype=uint8), array([[False, True, True], [False, False, True]]))
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gpu_tok.tables.unicode import CODE_POINTS, Property

Atoms = npt.NDArray[np.unsignedinteger]


def atoms_of(sets: Sequence[Property]) -> tuple[Atoms, Property]:
    """Numbers the classes from 0, in the order of their smallest code point.

    sets: each bool[0x110000]. Returns the atom of each code point, uint8 or uint16[0x110000], and which atoms each set
    holds, bool[sets, atoms].
    """
    atom_of = np.zeros(CODE_POINTS, np.int64)
    for held in sets:
        halves = 2 * atom_of + held
        used = np.bincount(halves, minlength=2) > 0
        atom_of = (np.cumsum(used) - 1)[halves]
    representative = representatives(atom_of)
    by_code_point = np.argsort(representative)
    number = np.empty_like(by_code_point)
    number[by_code_point] = np.arange(len(number))
    members = np.array([held[representative[by_code_point]] for held in sets], bool)
    dtype = np.uint8 if len(number) <= 256 else np.uint16
    return number[atom_of].astype(dtype), members.reshape(len(sets), len(number))


def representatives(atom_of: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """The smallest code point of each atom: int64[atoms]."""
    smallest = np.empty(int(atom_of.max()) + 1, np.int64)
    smallest[atom_of[::-1]] = np.arange(CODE_POINTS)[::-1]  # of equal places the last one written stays
    return smallest


def only(characters: str) -> Property:
    """The set of these characters: bool[0x110000].

    >>> np.flatnonzero(only("ab")).tolist()
    [97, 98]
    """
    held = np.zeros(CODE_POINTS, bool)
    held[[ord(c) for c in characters]] = True
    return held
