"""Classes of code points: those that some arrays, or some tables of pairs, do not tell apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gpu_tok.tables.unicode import CODE_POINTS

ClassOf = npt.NDArray[np.integer]
Pairs = npt.NDArray[np.bool_]
SURROGATES = slice(0xD800, 0xE001)  # they never occur: each is of the class of U+D7FF


def joint_classes(arrays: Sequence[npt.NDArray[np.unsignedinteger]]) -> tuple[npt.NDArray[np.uint16], np.ndarray]:
    """Code points with the same value in each array are a class: uint16[0x110000], and the values, [arrays, classes].

    Neighbours mostly are of one class, so that only where runs begin the values are compared.
    """
    changes = np.zeros(CODE_POINTS, bool)
    for array in arrays:
        changes[1:] |= array[1:] != array[:-1]
    changes[SURROGATES] = np.arange(0xD800, 0xE001) == 0xE000
    begins = np.append(0, np.flatnonzero(changes))
    kinds, kind_of = np.unique(np.stack([array[begins] for array in arrays]), axis=1, return_inverse=True)
    return np.repeat(kind_of.ravel().astype(np.uint16), np.diff(begins, append=CODE_POINTS)), kinds


def merge_classes(class_of: ClassOf, tables: Sequence[Pairs], most: int) -> tuple[npt.NDArray[np.uint8], list[Pairs]]:
    """Merges classes that no table tells apart; above `most`, those with the fewest code points also, ASCII counting
    most, and a pair of theirs then holds only if it held for all of them.

    tables: bool[classes, classes] each. Returns uint8[0x110000] and the smaller tables.
    """
    kinds, kind_of = _told_apart(tables)
    kind_of = kind_of.ravel()
    weight = np.bincount(class_of, minlength=len(kind_of))
    weight += CODE_POINTS * np.bincount(class_of[:0x80], minlength=len(kind_of))
    rank = np.argsort(np.argsort(-np.bincount(kind_of, weight), kind="stable"))
    number = np.minimum(rank, most - 1)[kind_of]
    count = min(len(kinds), most)
    merged = []
    for table in tables:
        lost = np.zeros((count, count), bool)
        np.logical_or.at(lost, (number[:, None], number[None, :]), ~table)
        merged.append(~lost)
    return number.astype(np.uint8)[class_of], merged


def count_classes(tables: Sequence[Pairs]) -> int:
    """How many classes some tables tell apart."""
    return len(_told_apart(tables)[0])


def _told_apart(tables: Sequence[Pairs]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """What the tables say of each class, without repetitions, and which of these it is for each class."""
    rows = np.hstack([side for table in tables for side in (table, table.T)])
    return np.unique(rows, axis=0, return_inverse=True)


def bits_of(masks: npt.NDArray[np.uint64], count: int) -> npt.NDArray[np.float32]:
    """Bits of masks as a matrix, float32[masks, count], so that matrix products count common bits."""
    return ((masks[:, None] >> np.arange(count, dtype=np.uint64)) & np.uint64(1)).astype(np.float32)
