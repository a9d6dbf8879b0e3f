"""Walks the flattened trie of `gpu_tok.tables.trie_rows`."""

from __future__ import annotations

import numpy as np

from cpu_ref.compiled import inlined
from gpu_tok.tables.trie_rows import LINK, PARENT


@inlined
def step(row, node, byte):
    """The node that `byte` leads to, or -1."""
    slot = row[node, LINK] + byte
    return slot if row[slot, PARENT] == node else -1


@inlined
def step_code_point(row, node, code_point):
    """The node that a code point's UTF-8 bytes lead to, or -1.

    >>> step_code_point(row, WORD_ROOT, ord("é"))     # the node behind C3 A9
    """
    code_point = np.int64(code_point)  # one type for all steps
    if code_point < 0x80:
        return step(row, node, code_point)
    if code_point < 0x800:
        node = step(row, node, 0xC0 | code_point >> 6)
    else:
        if code_point < 0x10000:
            node = step(row, node, 0xE0 | code_point >> 12)
        else:
            node = step(row, node, 0xF0 | code_point >> 18)
            if node >= 0:
                node = step(row, node, 0x80 | code_point >> 12 & 0x3F)
        if node >= 0:
            node = step(row, node, 0x80 | code_point >> 6 & 0x3F)
    return step(row, node, 0x80 | code_point & 0x3F) if node >= 0 else -1
