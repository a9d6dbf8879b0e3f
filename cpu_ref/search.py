"""Matches of patterns in code points. How automata are laid out is `gpu_tok.tables.searches`."""

from __future__ import annotations

import numpy as np

from cpu_ref.compiled import inlined
from gpu_tok.tables.searches import ACCEPTS, NEXT


@inlined
def match_end(code_point, at, end, atom_of, step, first, last):
    """Where the match that begins at `at` ends; `at` itself if none begins there.

    code_point: uint32, the text ends at `end`. atom_of: uint8[0x110000]. step: uint32. first, last: of a `Search`, in
    unsigned types: then numba leaves out what a negative index would need, a third of the time.
    """
    found = at
    row = np.int64(step[np.int64(first) + np.int64(atom_of[code_point[at]])]) >> NEXT
    while row != 0:
        at += 1
        entry = np.int64(step[row + np.int64(atom_of[code_point[at]] if at < end else last)])
        if entry & ACCEPTS:
            found = at
        row = entry >> NEXT
    return found
