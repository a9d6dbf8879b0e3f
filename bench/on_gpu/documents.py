"""Batches of any size from texts that are few.

What is drawn repeats: it has no more different words than the texts it is drawn from, so a table of seen chunks holds
all of them, and only *warm* figures are taken of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from gpu_tok.batch import Ragged, TextBatch, starts_of


def drawn_rows(byte_counts: np.ndarray, byte_count: float, seed: int = 0) -> np.ndarray:
    """Which texts to take for a batch of `byte_count` bytes: all in random order, then all in another, and so on."""
    source, rows, size = np.random.default_rng(seed), [], 0
    while size < byte_count:
        order = source.permutation(len(byte_counts))
        ends = size + np.cumsum(byte_counts[order])
        needed = int(np.searchsorted(ends, byte_count)) + 1
        rows.append(order[:needed])
        size = int(ends[min(needed, len(order)) - 1])
    return np.concatenate([*rows, np.zeros(0, np.int64)]).astype(np.int64)


def take(batch: TextBatch, rows: np.ndarray) -> TextBatch:
    """These rows of a batch, in this order.

    >>> take(TextBatch.of(["a", "bc"]), np.array([1, 0, 1])).to_list()
    ['bc', 'a', 'bc']
    """
    return TextBatch(*take_rows(Ragged(batch.bytes, batch.starts), rows), valid=batch.valid)


def take_rows(ragged: Ragged, rows: np.ndarray) -> Ragged:
    flat, begins, ends = ragged.flat, ragged.starts[:-1][rows], ragged.starts[1:][rows]
    width = flat.dtype.itemsize
    whole = memoryview(np.ascontiguousarray(flat)).cast("B")
    parts = (whole[begin:end] for begin, end in zip((begins * width).tolist(), (ends * width).tolist(), strict=True))
    return Ragged(np.frombuffer(b"".join(parts), flat.dtype), starts_of(ends - begins))


def short_documents(texts: Sequence[str], count: int, characters: int = 256) -> list[str]:
    """So many documents of `characters` characters, pieces of the texts one after the other, over and over."""
    pieces = [text[at : at + characters] for text in texts for at in range(0, len(text), characters)]
    return list(itertools.islice(itertools.cycle(pieces), count))
