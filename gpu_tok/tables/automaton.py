"""A pattern as a deterministic automaton whose states keep the order of the matcher's choices.

A backtracking matcher tries its choices in an order and takes the first that leads to a match. An ordered list of
threads does the same in one pass: all threads read a character together, and when one accepts, those behind it are
dropped. Such a list is a state here, and reading the next atom (or the end of the text) settles two things at once:
whether a match may end *before* that atom, which can hang on a look-ahead, and which state comes behind it.

    ' ?a+|\\s+(?!\\S)|\\s+'      state            next = ' '        next = a         next = b or end
    begin                        <all branches>   -> state 1        -> state 2       no match
    state 1, behind ' '          a+, (?!), \\s+    -> state 3        -> state 2       accept
    state 2, behind a            a+               accept           -> state 2, accept   accept

The last accept that was met is the match, once no thread is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_tok.tables.atoms import Atoms
from gpu_tok.tables.unicode import Property

BEGIN = 0  # the state in which each attempt to match begins
NO_STATE = -1  # no thread is left
MOST_WORK = 400_000  # states times instructions: some seconds

State = tuple[int, ...]
Triples = npt.NDArray[np.bool_]  # [atoms, atoms, atoms]


class Read(NamedTuple):
    """An instruction: read a character of a set."""

    set: int
    then: int


class Fork(NamedTuple):
    """An instruction: try these in order."""

    choices: tuple[int, ...]


class Ahead(NamedTuple):
    """An instruction: the next character must be of a set; if negative, must not (the end of the text is fine)."""

    set: int
    negative: bool
    then: int


class Accept(NamedTuple):
    """An instruction: a match may end here."""


Instruction = Read | Fork | Ahead | Accept


class Runs(NamedTuple):
    """Which cuts change no match if it is known what stands before a run of some atoms, as `Automaton.runs` says.

    inside: bool[atoms], those that make runs. begins: bool[atoms, atoms]; [a, b]: behind an a, a good run begins with
    b. harmless: bool[atoms, atoms]; [a, b]: a cut is harmless if a is in a good run.
    """

    inside: npt.NDArray[np.bool_]
    begins: npt.NDArray[np.bool_]
    harmless: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Automaton:
    """A matcher over atoms. State 0 (BEGIN) is where an attempt begins.

    atom_of: uint8 or uint16[0x110000].
    next_state: int32[states, atoms], NO_STATE where no thread reads the atom.
    accepts: bool[states, atoms + 1]: a match may end before that atom; the last column is the end of the text.
    """

    atom_of: Atoms
    next_state: npt.NDArray[np.int32]
    accepts: npt.NDArray[np.bool_]

    def find_matches(self, text: str) -> list[tuple[int, int]]:
        """All matches, in characters, as a search from left to right finds them.

        >>> compile_regex(r"\\s+(?!\\S)|a").find_matches("a   a")
        [(0, 1), (1, 3), (4, 5)]
        """
        next_state, accepts = self.next_state.tolist(), self.accepts.tolist()
        code_point = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        atoms = [*self.atom_of[code_point].tolist(), self._atoms]
        matches, start = [], 0
        while start < len(text):
            end, at, state = start, start, BEGIN
            while state != NO_STATE:
                if accepts[state][atoms[at]]:
                    end = at
                if at == len(text):
                    break
                state = next_state[state][atoms[at]]
                at += 1
            if end > start:
                matches.append((start, end))
            start = max(end, start + 1)
        return matches

    def independent(self) -> npt.NDArray[np.bool_]:
        """Between which atoms a text may be cut without changing a match: bool[atoms, atoms].

        [a, b] holds if in every state behind an a, reading b leaves no thread and settles the same about accepting as
        the end of the text does. Then every attempt that begins left of the cut ends as it would without the right
        side, so that an attempt begins at the cut, as it would without the left side.
        """
        unmoved = self._unmoved()
        return np.array([unmoved[behind].all(0) for behind in self._states_behind])

    def independent_if_behind(self) -> Triples:
        r"""Between which atoms a text may be cut if it is known what stands behind: bool[atoms, atoms, atoms].

        [a, b, c] says of a cut between a and b what `independent` does, if a c stands behind the b: reading b settles
        the same about accepting as the end of the text does, and all threads that are left end at c, none accepting.

            \s+(?!\S)|\s+    "  x": the last space before an x is a match of its own
        """
        settled = self.accepts[:, :-1] == self.accepts[:, -1:]
        ends = np.vstack([~self.accepts[:, :-1] & (self.next_state == NO_STATE), np.ones(self._atoms, bool)])
        unmoved = settled[:, :, None] & ends[self.next_state]
        return np.array([unmoved[behind].all(0) for behind in self._states_behind])

    def independent_if_before(self) -> Triples:
        r"""Between which atoms a text may be cut if it is known what stands before: bool[atoms, atoms, atoms].

        [z, a, b] says of a cut between a and b what `independent` does, if a z stands before the a. So it holds in
        every state behind z and a, and in the one behind an a with which an attempt begins, if one can there.

            [^a]?a+|[^a]+    "..a": behind two points neither is the first character of the a
        """
        unmoved = np.vstack([self._unmoved(), np.ones(self._atoms, bool)])
        begun = unmoved[self.next_state[BEGIN]]
        begins = self._attempts_begin()
        return np.array(
            [
                unmoved[self.next_state[behind]].all(0) & (begun | ~begins[atom][:, None])
                for atom, behind in enumerate(self._states_behind)
            ]
        )

    def harmless(self) -> npt.NDArray[np.bool_]:
        """Between which atoms a cut changes no match but one that runs across it: bool[atoms, atoms].

        [a, b] holds if a match that runs across is two matches in the parts, and every other stays. So in every state
        behind an a that does not end as `independent` says: the left part ends a match here; reading b leads where an
        attempt that begins with b is; and if that fails, the match ends here in the whole, too.

            \\p{L}+  a|b      \\p{N}{1,3}  not 1|2: behind one digit two more may follow, at the beginning three
        """
        return np.array([self._harmless_in[behind].all(0) for behind in self._states_behind])

    def runs(self, weight: npt.NDArray[np.int64]) -> Runs:
        """Cuts that are harmless in a *good* run only. It is one of some atoms, and behind each of its characters every
        attempt that passes is in a state to which a text of these atoms alone leads that ends with this one.

            [Lu Lo]*[Ll Lo]+    runs of Lo: a cut between two of them is harmless behind Lu or at the beginning, since
                                any state there is one that Lo alone lead to; behind Ll it is not

        A run stays good: an attempt that began before it and one that begins within it both go on from such a state
        to such a state. It begins well behind an a if from any state behind an a, reading b ends all attempts or leads
        to such a state. weight: int64[atoms], of how many characters that matter each atom is. Any atoms would be
        sound; taken are, from the heaviest on, those by which no more is lost than won.
        """
        inside = np.zeros(len(weight), bool)
        won, best = 0, Runs(inside, *(np.zeros((len(weight),) * 2, bool) for _ in range(2)))
        for atom in np.argsort(-weight, kind="stable")[: np.count_nonzero(weight)]:
            tried = self._runs_of(np.append(np.flatnonzero(best.inside), atom))
            if (score := int(weight @ tried.harmless @ weight)) >= won:
                won, best = score, tried
        return best

    def _runs_of(self, atoms: npt.NDArray[np.int64]) -> Runs:
        """Good runs if they are of these atoms."""
        good, before = np.zeros(len(self.next_state) + 1, bool), -1
        good[[BEGIN, NO_STATE]] = True
        while good.sum() > before:
            before = good.sum()
            good[self.next_state[good[:-1]][:, atoms]] = True
        inside = np.zeros(self._atoms, bool)
        inside[atoms] = True
        begins, harmless = (np.zeros((len(inside), len(inside)), bool) for _ in range(2))
        for atom in atoms:
            behind = np.append(np.unique(self.next_state[good[:-1], atom]), NO_STATE)
            harmless[atom] = self._harmless_in[behind[behind != NO_STATE]].all(0)
            stays_good = np.isin(self._group_of[self.next_state[:, atom]], self._group_of[behind])
            begins[:, atom] = [stays_good[states].all() for states in self._states_behind]
        return Runs(inside, begins, harmless)

    def never_inside(self) -> npt.NDArray[np.bool_]:
        """Atoms that no match can hold: bool[atoms]."""
        return (self.next_state == NO_STATE).all(0)

    def always_inside(self) -> npt.NDArray[np.bool_]:
        """Atoms that lie in a match whatever stands around them: bool[atoms].

        An attempt begins at each character that no earlier match holds; here it must succeed for any text behind.
        """
        return self.succeeds()[self.next_state[BEGIN]]

    def succeeds(self) -> npt.NDArray[np.bool_]:
        """From which states every text meets an accept before the threads end: bool[states + 1]; never from NO_STATE,
        which as an index is the last place."""
        fails, before = np.append(~self.accepts[:, -1], True), 0
        while fails.sum() > before:
            before = fails.sum()
            fails[:-1] |= (~self.accepts[:, :-1] & fails[self.next_state]).any(axis=1)
        return ~fails

    def _attempts_begin(self) -> npt.NDArray[np.bool_]:
        """Between which atoms an attempt may begin: bool[atoms, atoms], [z, a] says with an a behind a z.

        One does where a match may end, or where the attempt that began with the z may have failed.
        """
        succeeds = self.succeeds()
        ends = self.accepts[:, :-1] & ~succeeds[self.next_state]
        fails = ~succeeds[self.next_state[BEGIN]]
        return np.array([ends[behind].any(0) for behind in self._states_behind]) | fails[:, None]

    def _unmoved(self) -> npt.NDArray[np.bool_]:
        """In which states an atom ends an attempt as the end of the text does: bool[states, atoms]."""
        return (self.accepts[:, :-1] == self.accepts[:, -1:]) & (self.next_state == NO_STATE)

    @property
    def _atoms(self) -> int:
        return self.next_state.shape[1]

    @cached_property
    def _harmless_in(self) -> npt.NDArray[np.bool_]:
        """In which states a cut before an atom is harmless: bool[states, atoms]."""
        group = self._group_of
        alike = (group[self.next_state] == group[self.next_state[BEGIN]]) & (self.next_state != NO_STATE)
        ends_here = self.accepts[:, :-1] | self.succeeds()[self.next_state]
        return self._unmoved() | (self.accepts[:, -1:] & alike & ends_here)

    @cached_property
    def _group_of(self) -> npt.NDArray[np.int64]:
        """A number for each state, the same for those that no text behind tells apart: int64[states + 1].

        The last is for NO_STATE, which as an index is the last place.
        """
        rows = np.vstack([self.accepts, np.zeros((1, self.accepts.shape[1]), bool)])
        behind = np.vstack([self.next_state, np.full((1, self.next_state.shape[1]), NO_STATE)])
        group, count = np.zeros(len(rows), np.int64), 0
        while True:
            known = np.column_stack([group, rows, group[behind]])
            group = np.unique(known, axis=0, return_inverse=True)[1].ravel()
            if group.max() + 1 == count:
                return group
            count = int(group.max()) + 1

    @cached_property
    def _states_behind(self) -> list[npt.NDArray[np.int32]]:
        reached = [np.unique(column) for column in self.next_state.T]
        return [states[states != NO_STATE] for states in reached]


def determine(
    instructions: list[Instruction], begin: int, atom_of: Atoms, members: Property, refuse: Callable[[str], Exception]
) -> Automaton:
    """Makes the automaton of a pattern's instructions.

    members: bool[sets, atoms]. `refuse` makes the exception for a pattern with too many states, or one that can match
    the empty text (the search steps over such matches by rules of its own).
    """
    atoms = members.shape[1]
    number: dict[State, int] = {(begin,): BEGIN}
    states: list[State] = [(begin,)]
    next_state, accepts = [], []
    for state in states:  # grows as it runs
        row, accepted = [], []
        for atom in range(atoms + 1):
            behind, accepting = _advance(instructions, state, members, atom)
            accepted.append(accepting)
            if atom < atoms:
                if behind and behind not in number:
                    number[behind] = len(states)
                    states.append(behind)
                row.append(number[behind] if behind else NO_STATE)
        if len(states) * len(instructions) > MOST_WORK:
            raise refuse("a pattern with too many states")
        next_state.append(row)
        accepts.append(accepted)
    if any(accepts[BEGIN]):
        raise refuse("a pattern that can match the empty text")
    return Automaton(atom_of, np.array(next_state, np.int32), np.array(accepts, bool))


def _advance(instructions: list[Instruction], state: State, members: Property, atom: int) -> tuple[State, bool]:
    """One step of all threads, in order: the threads behind the atom, and whether one accepts before it."""
    at_end = atom == members.shape[1]
    behind: dict[int, None] = {}
    seen: set[int] = set()
    waiting = [*reversed(state)]
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue  # an earlier thread is here already and is tried first
        seen.add(at)
        instruction = instructions[at]
        if isinstance(instruction, Fork):
            waiting += reversed(instruction.choices)
        elif isinstance(instruction, Accept):
            return tuple(behind), True
        else:
            held = not at_end and bool(members[instruction.set, atom])
            if isinstance(instruction, Read):
                if held:
                    behind.setdefault(instruction.then)
            elif held != instruction.negative:
                waiting.append(instruction.then)
    return tuple(behind), False
