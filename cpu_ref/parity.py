"""The hash by which ids of whole data sets are compared."""

from __future__ import annotations

import numpy as np

from cpu_ref.compiled import kernel

FNV_START = 0xCBF29CE484222325
_FNV_PRIME = np.uint64(0x100000001B3)
_BYTE = np.uint64(0xFF)


def fnv1a(ids, state):
    """FNV-1a, 64 bits, over ids (int32[n]) as little-endian words, going on from `state`: uint64, first FNV_START."""
    return np.uint64(_fnv1a(ids, np.uint64(state)))  # as Python's own number, half of all states are no int64


@kernel
def _fnv1a(ids, state):
    for at in range(len(ids)):
        word = np.uint64(np.uint32(ids[at]))
        for byte in range(4):
            state = (state ^ (word >> np.uint64(8 * byte) & _BYTE)) * _FNV_PRIME
    return state
