r"""Runs of characters in which pairs are asked for only if the run is *good*: it began behind a fitting neighbour.

    [Lu Lo]*[Ll Lo]+    a中国Bc  is  a中国 Bc   in parts  a中 | 国Bc    a word of the second part is none of the whole
                        A中国Bc  is  A中国Bc    in parts  A中 | 国Bc    one word is two: only the model could mind

Which neighbours fit is derived from the automaton of the pattern (`gpu_tok.tables.automaton.Automaton.runs`). A run
goes on for LONGEST_RUN characters at most, so that so many steps back from any place it is known what run that is in.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_tok.tables.classes import Pairs

LONGEST_RUN = 256  # characters


class Runs(NamedTuple):
    """Over classes of code points.

    asked: bool[classes, classes]; [a, b]: the pair is asked for if a is in a good run. begins: bool[classes, classes];
    [a, b]: behind a, a good run begins with b. inside: bool[classes], what goes on with a run; all have 3 bytes.
    """

    asked: Pairs
    begins: Pairs
    inside: npt.NDArray[np.bool_]


def are_in_good_runs(class_of: npt.NDArray[np.uint8], runs: Runs) -> npt.NDArray[np.bool_]:
    """Which characters of a section are in good runs: bool[n]. class_of: uint8[n], the class of each.

    The first one has no neighbour, and so a good one.
    """
    at = np.arange(len(class_of))
    inside = runs.inside[class_of]
    begins = np.append(inside[:1], runs.begins[class_of[:-1], class_of[1:]])
    began = np.maximum.accumulate(np.where(begins | ~inside, at, 0))
    return inside & begins[began] & (at - began < LONGEST_RUN)
