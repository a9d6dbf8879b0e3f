"""Word boundaries of pre-tokenizers that look at one code point at a time, as one table of class pairs.

Each splitter (`Digits`, `Punctuation`, ...) puts every code point in a class and says between which classes it parts
and which it throws away. It decides between two neighbours by their classes alone, and a removed code point is parted
from both its neighbours; so a sequence of splitters parts where any of them does, and is one table again.

Sources: the behaviours are those of `NormalizedString::split` (tokenizers/src/tokenizer/normalizer.rs), the
splitters those of tokenizers/src/pre_tokenizers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_tok.tables import unicode
from gpu_tok.tables.definition import Definition, Part
from gpu_tok.tables.refusal import CannotCompile

MAX_CLASSES = 256


class WordTables(NamedTuple):
    """class_of: uint8[0x110000]. parted: bool[n, n], a word ends between (a, b). removed: bool[n], belongs to no word.

    `removed[c]` implies that c is parted from everything.
    """

    class_of: npt.NDArray[np.uint8]
    parted: npt.NDArray[np.bool_]
    removed: npt.NDArray[np.bool_]


WHOLE = WordTables(np.zeros(unicode.CODE_POINTS, np.uint8), np.zeros((1, 1), np.bool_), np.zeros(1, np.bool_))


def compile_words(definition: Definition) -> WordTables:
    """The word boundaries of a definition; without a pre-tokenizer the whole chunk is one word.

    Raises CannotCompile for the first part that looks at more than two neighbours.
    """
    words = WHOLE
    for place, part in definition.parts("pre_tokenizer"):
        for splitter in splitters_of(part, place):
            words = combine(words, splitter, place)
    return words


def splitters_of(part: Part, place: str) -> list[WordTables]:
    """What one pre-tokenizer does, as one splitter after another."""
    kind = part["type"]
    if kind == "BertPreTokenizer":
        return [split_at("bert_whitespace", "Removed"), split_at("bert_punctuation", "Isolated")]
    if kind == "WhitespaceSplit":
        return [split_at("white", "Removed")]
    if kind == "Whitespace":
        return [split_by_kind("whitespace_w", "whitespace_s")]
    if kind == "Punctuation":
        return [split_at("punctuation", part["behavior"])]
    if kind == "Digits":
        return [split_at("numeric", "Isolated" if part["individual_digits"] else "Contiguous")]
    if kind == "CharDelimiterSplit":
        return [split_matches(np.arange(unicode.CODE_POINTS) == ord(part["delimiter"]), "Removed")]
    raise CannotCompile(place, f"`{kind}` does more than look at the kinds of two neighbours")


def split_at(name: str, behavior: str) -> WordTables:
    return split_matches(unicode.has(name), behavior)


def split_matches(matched: npt.NDArray[np.bool_], behavior: str) -> WordTables:
    """A splitter that parts at single code points; `behavior` says what becomes of them.

    >>> split_matches(unicode.has("numeric"), "MergedWithNext").parted      # rows: the left one is none, is one
    array([[False,  True],
           [False,  True]])
    """
    left = np.array([[False, False], [True, True]])
    right = left.T
    parted = {
        "Removed": left | right,
        "Isolated": left | right,
        "Contiguous": left ^ right,
        "MergedWithPrevious": left,
        "MergedWithNext": right,
    }[behavior]
    return WordTables(matched.astype(np.uint8), parted, np.array([False, behavior == "Removed"]))


def split_by_kind(word: str, space: str) -> WordTables:
    r"""The splitter `\w+|[^\w\s]+`: runs of word characters, runs of others, white space removed."""
    class_of = np.where(unicode.has(word), 0, np.where(unicode.has(space), 2, 1)).astype(np.uint8)
    parted = ~np.eye(3, dtype=np.bool_)
    parted[2, 2] = True
    return WordTables(class_of, parted, np.array([False, False, True]))


def combine(first: WordTables, second: WordTables, place: str) -> WordTables:
    """Both splitters as one: its classes are the pairs of classes that occur."""
    width = len(second.removed)
    pair = first.class_of.astype(np.int64) * width + second.class_of
    present = np.flatnonzero(np.bincount(pair))
    if len(present) > MAX_CLASSES:
        raise CannotCompile(place, f"the pre-tokenizer tells {len(present)} classes of characters apart")
    number = np.zeros(present[-1] + 1, np.uint8)
    number[present] = np.arange(len(present))
    a, b = present // width, present % width
    parted = np.ascontiguousarray(first.parted[np.ix_(a, a)] | second.parted[np.ix_(b, b)])
    return WordTables(number[pair], parted, first.removed[a] | second.removed[b])
