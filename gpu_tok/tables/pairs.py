"""Pairs of characters that a model may bring into one piece, as a filter that the cut step asks.

Where the classes of two characters leave it open, the pair itself is looked up: a bit of the filter for each pair that
may be joined, at the place that its hash names. Another pair may have the same bit: then a cut is lost, and no more.

    merges  中 国, 国 人     bits set  hash(中, 国), hash(国, 人)     '中国人民'  ->  中国人 | 民
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_tok.tables.classes import Pairs
from gpu_tok.tables.unicode import CODE_POINTS, Property

CodePoints = npt.NDArray[np.uint32]
Filter = npt.NDArray[np.uint32]
NO_PAIRS: Filter = np.zeros(0, np.uint32)
MULTIPLIER = 0x9E3779B1  # 2^32 divided by the golden ratio: neighbouring pairs land far apart
BITS_A_PAIR = 16  # one pair in so many seems joined and is not
LEAST_WORDS, MOST_WORDS = 1 << 9, 1 << 17  # 2 KB and 512 KB

# Scripts written without spaces, and the punctuation among them: there words are long and new.
UNSPACED = (
    range(0x0E00, 0x10A0),  # Thai, Lao, Tibetan, Myanmar
    range(0x1780, 0x1800),  # Khmer
    range(0x1950, 0x19E0),  # Tai Le, New Tai Lue
    range(0x1A20, 0x1AB0),  # Tai Tham
    range(0x2E80, 0xD7B0),  # Han, kana, Hangul, ...
    range(0xF900, 0xFB00),
    range(0xFE30, 0xFE50),
    range(0xFF00, 0xFFF0),
)


class Joinable(NamedTuple):
    """What a model does with neighbours that are both of `unspaced()`.

    first, second: uint32[pairs], characters that it may bring into one piece. kind_of: uint8[0x110000], 0 for those of
    which nothing is known. open: bool[kinds, kinds]; [a, b]: those of kinds a and b, in this order, are apart unless
    they are among the pairs.
    """

    first: CodePoints
    second: CodePoints
    kind_of: npt.NDArray[np.uint8]
    open: Pairs


@lru_cache(maxsize=1)
def unspaced() -> Property:
    """The characters between which pairs are asked for: bool[0x110000]. All have 3 bytes."""
    held = np.zeros(CODE_POINTS, bool)
    for script in UNSPACED:
        held[script.start : script.stop] = True
    return held


def make_filter(first: CodePoints, second: CodePoints) -> Filter:
    """The bits of pairs: uint32[words]; both below 0x10000.

    >>> pairs = make_filter(np.array([ord("中")]), np.array([ord("国")]))
    >>> may_join(np.array([ord("中"), ord("国")]), np.array([ord("国"), ord("中")]), pairs)
    array([ True, False])
    """
    words = LEAST_WORDS
    while words < MOST_WORDS and 32 * words < BITS_A_PAIR * len(first):
        words *= 2
    pairs = np.zeros(words, np.uint32)
    word, bit = _places(first, second, words)
    np.bitwise_or.at(pairs, word, np.uint32(1) << bit)
    return pairs


def may_join(first: CodePoints, second: CodePoints, pairs: Filter) -> npt.NDArray[np.bool_]:
    """Whether pairs may be joined, as cpu_ref/cut.py and kernels/cut.cu ask."""
    if len(pairs) == 0:
        return np.zeros(len(first), bool)
    word, bit = _places(first, second, len(pairs))
    return (pairs[word] >> bit & np.uint32(1)) == 1


def _places(first: CodePoints, second: CodePoints, words: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """The word and the bit of each pair: the top bits of its hash, and those below them."""
    pair = first.astype(np.uint64) << np.uint64(16) | second.astype(np.uint64) & np.uint64(0xFFFF)
    place = (pair * np.uint64(MULTIPLIER) & np.uint64(0xFFFFFFFF)) * np.uint64(words)
    return (place >> np.uint64(32)).astype(np.int64), (place >> np.uint64(27) & np.uint64(31)).astype(np.uint32)
