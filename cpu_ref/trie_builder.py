"""Builds the flattened trie of `gpu_tok.tables.trie_rows`.

A node is a range of sorted pieces that share their first `depth` bytes; its children are the ranges that also share the
next byte. Nodes are placed one after another, each where the slots of all its children are free.
"""

from __future__ import annotations

import numpy as np

from cpu_ref.compiled import inlined, kernel
from gpu_tok.tables.trie_rows import COLUMNS, ID, LINK, NO_PIECE, PARENT

FREE = -1  # in the column PARENT
EMPTY_ROW = (0, FREE, NO_PIECE, 0)
ROOT = -2  # in the column PARENT: taken, and no node leads here
MISSES_BEFORE_SKIPPING = 32  # a region that turned away so many nodes is as good as full


@kernel
def insert_pieces(row, root, bytes, starts, ids):
    """Adds the trie of sorted pieces with its root in slot `root`, behind all that is there; returns rows and end.

    The end leaves room for every byte behind the last link, so a step needs no bounds check.
    """
    row = grown(row, root + 1024)
    row[root, PARENT] = ROOT
    # Nodes yet to be placed: slot, range of pieces, depth. Children go on top, so a subtree stays close together.
    waiting = np.empty((1024, 4), np.int64)
    waiting[0, 0], waiting[0, 1], waiting[0, 2], waiting[0, 3] = root, 0, len(ids), 0
    waiting_count = 1
    labels = np.empty(256, np.int64)
    borders = np.empty(257, np.int64)  # where each child's range begins, and the end of the last
    free = root + 256  # no link is negative: the first child of any label fits here
    search_from, misses, last_link = free, 0, root
    while waiting_count > 0:
        waiting_count -= 1
        node, begin = waiting[waiting_count, 0], waiting[waiting_count, 1]
        end, depth = waiting[waiting_count, 2], waiting[waiting_count, 3]
        if begin < end and starts[begin + 1] - starts[begin] == depth:
            row[node, ID] = ids[begin]
            begin += 1
        if begin == end:
            continue
        count = split_range(bytes, starts, begin, end, depth, labels, borders)
        while row[free, PARENT] != FREE:
            free += 1
        search_from = max(search_from, free)
        link = (free if count == 1 else search_from) - labels[0]
        while True:
            row = grown(row, link + 512)
            if fits(row, link, labels, count):
                break
            link += 1
            misses += 1
            if misses > MISSES_BEFORE_SKIPPING:
                search_from, misses = link + labels[0], 0
        row[node, LINK] = link
        last_link = max(last_link, link)
        if waiting_count + count > len(waiting):
            wider = np.empty((2 * (waiting_count + count), 4), np.int64)
            for place in range(waiting_count):
                for column in range(4):
                    wider[place, column] = waiting[place, column]
            waiting = wider
        for child in range(count - 1, -1, -1):
            slot = link + labels[child]
            row[slot, PARENT] = node
            waiting[waiting_count, 0], waiting[waiting_count, 1] = slot, borders[child]
            waiting[waiting_count, 2], waiting[waiting_count, 3] = borders[child + 1], depth + 1
            waiting_count += 1
    return row, last_link + 256


@inlined
def split_range(bytes, starts, begin, end, depth, labels, borders):
    """Writes the different bytes at `depth` of the pieces `begin:end` and where each begins; returns how many."""
    count = 0
    at = begin
    while at < end:
        label = bytes[starts[at] + depth]
        labels[count] = label
        borders[count] = at
        count += 1
        while at < end and bytes[starts[at] + depth] == label:
            at += 1
    borders[count] = end
    return count


@inlined
def fits(row, link, labels, count):
    """Whether the slots of all children are free."""
    child = 0
    while child < count and row[link + labels[child], PARENT] == FREE:
        child += 1
    return child == count


@inlined
def grown(row, count):
    """These rows, or twice as many with free ones behind when fewer than `count`."""
    if count <= len(row):
        return row
    wider = np.empty((2 * count, COLUMNS), np.int32)
    for slot in range(len(wider)):  # in loops: an assignment to a slice takes seconds to compile
        for column in range(COLUMNS):
            wider[slot, column] = row[slot, column] if slot < len(row) else EMPTY_ROW[column]
    return wider
