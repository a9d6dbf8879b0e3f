"""Automata laid out for kernels: the rows of all their states in one array, and the atoms of each in a row of another.

step       - | a row for each state of the first automaton | ... | of the second | ...
a row      an entry for each atom, and one for the end of the text
an entry   bit 0: a match may end before it; the other bits: where the row of the next state begins, 0 if none is
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_tok.tables import unicode
from gpu_tok.tables.atoms import Atoms
from gpu_tok.tables.automaton import NO_STATE, Automaton
from gpu_tok.tables.refusal import CannotCompile
from gpu_tok.tables.rescan import rescans

ACCEPTS, NEXT = 1, 1  # of an entry: the bit of an accept, and by how many bits the next row is shifted
MOST_ATOMS = 256


class Search(NamedTuple):
    """Where an automaton lies. atoms: its row of atom_of. first: where the row of its first state begins in `step`.
    last: how far behind the begin of a row its entry for the end of the text stands."""

    atoms: int
    first: int
    last: int


class Searches:
    """All automata of one tokenizer.

    >>> searches = Searches()
    >>> searches.add(compile_regex("a+"), "pattern"), searches.step().tolist()
    (Search(atoms=0, first=1, last=2), [0, 0, 8, 0, 1, 9, 1])
    """

    def __init__(self) -> None:
        self._atoms: list[Atoms] = []
        self._steps = [np.zeros(1, np.uint32)]  # the first entry belongs to none, so that 0 is no row
        self._size = 1

    def add(self, automaton: Automaton, where: str) -> Search:
        """Raises CannotCompile where a search could take more than linear time, or the atoms are too many."""
        if rescans(automaton):
            raise CannotCompile(where, "a pattern that may read the same characters again and again")
        count = automaton.next_state.shape[1]
        if count > MOST_ATOMS:
            raise CannotCompile(where, f"a pattern that tells {count} classes of characters apart")
        search = Search(self.add_atoms(automaton.atom_of), self._size, count)
        self._steps.append(_entries(automaton, self._size))
        self._size += len(self._steps[-1])
        return search

    def add_atoms(self, atom_of: npt.NDArray[np.generic]) -> int:
        """A row of classes alone; returns its number."""
        self._atoms.append(atom_of.astype(np.uint8))
        return len(self._atoms) - 1

    @property
    def count(self) -> int:
        """How many rows atom_of has."""
        return len(self._atoms)

    def atom_of(self) -> npt.NDArray[np.uint8]:
        """uint8[automata, 0x110000]."""
        return np.array(self._atoms, np.uint8).reshape(len(self._atoms), unicode.CODE_POINTS)

    def step(self) -> npt.NDArray[np.uint32]:
        return np.concatenate(self._steps)


def _entries(automaton: Automaton, offset: int) -> npt.NDArray[np.uint32]:
    """The rows of an automaton's states, one behind the other, where the first one begins at `offset`."""
    atoms = automaton.next_state.shape[1]
    entry = automaton.accepts.astype(np.uint32) * np.uint32(ACCEPTS)
    following = offset + automaton.next_state * (atoms + 1)
    entry[:, :-1] |= np.where(automaton.next_state == NO_STATE, 0, following << NEXT).astype(np.uint32)
    return entry.ravel()
