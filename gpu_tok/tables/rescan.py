"""Does a search for a pattern take time linear in the text, or can it read the same characters again and again?

An attempt that reads on behind its last accept reads in vain, and the next attempt begins with the same characters.
That costs little while only one attempt at a time reads far in vain: in `\\s*[\\r\\n]+|\\s+` the first branch runs over
the spaces behind a newline, and then the second branch takes them all. `a+b` on `aaaa` is the other kind: each `a`
begins an attempt that runs to the end.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpu_tok.tables.automaton import BEGIN, NO_STATE, Automaton

Pair = tuple[int, int]


def rescans(automaton: Automaton) -> bool:
    """Whether two attempts, one begun where the other one may have ended, can both read on without bound in vain.

    >>> rescans(compile_regex("a+b")), rescans(compile_regex(r"\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"))
    (True, False)
    """
    vain = _in_vain(automaton)
    endless = _endless(vain)
    if not endless.any():
        return False
    seen = _begun(automaton)
    waiting = [*seen]
    behind: dict[Pair, set[Pair]] = {}
    while waiting:
        pair = waiting.pop()
        reached = _pairs(vain[pair[0]], automaton.next_state[pair[1]])
        behind[pair] = _pairs(vain[pair[0]], vain[pair[1]])
        waiting += reached - seen
        seen |= reached
    return _has_cycle(behind)


def _in_vain(automaton: Automaton) -> npt.NDArray[np.int32]:
    """The steps without an accept before them that may be followed by none either: int32[states, atoms], else NO_STATE.

    Possessive `a++` accepts only behind the last a, but then surely: its steps are not in vain.
    """
    next_state, fails = automaton.next_state, ~automaton.succeeds()
    return np.where(~automaton.accepts[:, :-1] & fails[next_state], next_state, np.int32(NO_STATE))


def _pairs(first: npt.NDArray[np.int32], second: npt.NDArray[np.int32]) -> set[Pair]:
    """Where two attempts get to that read the same atom, by atom; without those that end there."""
    return {pair for pair in zip(first.tolist(), second.tolist(), strict=True) if NO_STATE not in pair}


def _endless(vain: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """The states from which some text is read for ever without an accept: bool[states]."""
    endless = np.ones(len(vain), bool)
    while True:
        left = (endless[vain] & (vain != NO_STATE)).any(axis=1)
        if (left == endless).all():
            return endless
        endless = left


def _begun(automaton: Automaton) -> set[Pair]:
    """The states of two attempts one character behind the place where the second one begins: where the first one may
    have ended, or one behind its own beginning."""
    next_state = automaton.next_state
    ends = automaton.accepts[:, :-1].copy()
    ends[next_state[BEGIN][next_state[BEGIN] != NO_STATE]] = True
    return set().union(
        *(_pairs(np.where(end, row, NO_STATE), next_state[BEGIN]) for end, row in zip(ends, next_state, strict=True))
    )


def _has_cycle(behind: dict[Pair, set[Pair]]) -> bool:
    """Takes away what leads nowhere, until nothing is left or all that is left goes on."""
    while True:
        ended = {pair for pair, following in behind.items() if not following}
        if not ended:
            return bool(behind)
        behind = {pair: following - ended for pair, following in behind.items() if pair not in ended}
