"""What the reference thinks of every code point: properties, images, combining classes, compositions.

Python, Oniguruma and the reference's crates have different versions of Unicode, so nothing here comes from a library
of ours: `python -m gpu_tok.tables.make_unicode` asks the reference about every code point and writes `unicode.npz`.

>>> has("re_L")[ord("é")], image("lowercase").row(ord("İ"))
(True, array([105, 775], dtype=uint32))

The code points D800-DFFF (surrogates) never occur in a text; they have no property and are their own image.

Properties, `has(name)`:

    bert_deleted bert_space bert_cjk bert_mark   BertNormalizer: clean_text deletes it, clean_text makes it ' ',
                                                 handle_chinese_chars pads it with spaces, strip_accents deletes it
    bert_punctuation bert_whitespace             BertPreTokenizer: a word of its own, deleted
    accent                                       StripAccents deletes it
    white numeric punctuation                    WhitespaceSplit, Digits, Punctuation
    whitespace_w whitespace_s                    the \\w and \\s of the pre-tokenizer Whitespace
    added_w added_s                              the \\w of `single_word`, the \\s that `lstrip` and `rstrip` eat
    re_s re_w re_d re_L re_Lu re_Han ...         \\s \\w \\d \\p{L} \\p{Lu} \\p{Han} of `Split` with a `Regex`
    starter seconds                              combining class 0; the second of some composition
    joins_left joins_right                       in one grapheme cluster with a letter before, behind it

Images, `image(name)`: `lowercase`, `nfd`, `nfkd`, `nfc`, `nfkc`: what the normalizer makes of that code point alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Regex, pre_tokenizers

from gpu_tok.batch import Ragged, starts_of

CODE_POINTS = 0x110000
PATH = Path(__file__).with_name("unicode.npz")

Property = npt.NDArray[np.bool_]


@cache
def has(name: str) -> Property:
    r"""Which code points have a property: bool[0x110000], read-only.

    Any `re_X` that is not stored is asked of the reference as `\p{X}` (about a second; ValueError if it knows no X).
    """
    member = f"has_{name}"
    if member in _stored().files:
        lengths = _stored()[member]
        return _frozen(np.repeat(np.arange(len(lengths)) % 2 == 1, lengths))
    if name.startswith("re_"):
        return matched_by(rf"\p{{{name[3:]}}}")
    raise KeyError(f"no property {name!r} in {PATH.name}")


@lru_cache(maxsize=64)
def matched_by(pattern: str) -> Property:
    r"""Which code points a pattern of one character matches, as `Split` sees it: bool[0x110000], read-only.

    >>> matched_by(r"[[:punct:]&&\p{ASCII}]").sum()
    32

    Asks the reference (about a second). Raises ValueError where Oniguruma does not take the pattern.
    """
    try:
        split = pre_tokenizers.Split(Regex(pattern), "removed")
    except Exception as error:  # the reference raises bare Exception
        raise ValueError(f"{pattern}: {error}") from error
    matched = np.zeros(CODE_POINTS, bool)
    for asked in blocks():
        matched[asked] = True
        for _word, (begin, end) in split.pre_tokenize_str("".join(map(chr, asked))):
            matched[asked[begin:end]] = False
    return _frozen(matched)


def code_points() -> npt.NDArray[np.int64]:
    """Every code point that a text can hold, ascending: all but the surrogates."""
    return np.r_[0:0xD800, 0xE000:CODE_POINTS]


def blocks(size: int = 0x8000) -> Iterator[npt.NDArray[np.int64]]:
    """The same in pieces of which the reference is asked at a time."""
    every = code_points()
    return (every[begin : begin + size] for begin in range(0, len(every), size))


@cache
def image(name: str) -> Ragged:
    """What a normalizer makes of each code point alone: row *c* is the image of code point c, uint32; read-only."""
    changed, rows = image_changes(name)
    counts = np.ones(CODE_POINTS, np.int64)
    counts[changed] = np.diff(rows.starts)
    starts = starts_of(counts)
    flat = np.zeros(starts[-1], np.uint32)
    flat[starts[:-1][counts > 0]] = np.arange(CODE_POINTS, dtype=np.uint32)[counts > 0]
    flat[np.repeat(starts[changed] - rows.starts[:-1], np.diff(rows.starts)) + np.arange(len(rows.flat))] = rows.flat
    return Ragged(_frozen(flat), _frozen(starts))


def image_changes(name: str) -> tuple[npt.NDArray[np.int64], Ragged]:
    """The code points that are not their own image, ascending, int64[n], and their images, n rows of uint32."""
    changed = np.cumsum(_stored()[f"image_{name}_steps"], dtype=np.int64)
    return changed, Ragged(_stored()[f"image_{name}"], starts_of(_stored()[f"image_{name}_counts"]))


@cache
def combining_class() -> npt.NDArray[np.uint8]:
    """The order in which marks stand behind their base: uint8[0x110000]; 0 for those that never move.

    Not Unicode's numbers but their ranks (under 64), which is all that reordering and composition look at. A code
    point that NFD takes apart has the class of its first part.
    """
    return _frozen(np.repeat(_stored()["combining_class"], _stored()["combining_class_lengths"]))


@cache
def compositions() -> npt.NDArray[np.uint32]:
    """The pairs that NFC joins: uint32[n, 3], rows (first, second, composed), sorted by first, then by second.

    Hangul syllables are left out: theirs is arithmetic.
    """
    return _frozen(_stored()["compositions"])


def made_by() -> str:
    """The version of `tokenizers` that was asked."""
    return str(_stored()["reference"])


@cache
def _stored() -> Any:
    """The members, unpacked when asked for; from memory, since forked processes would share a file's position."""
    return np.load(BytesIO(PATH.read_bytes()))


def _frozen(array: Any) -> Any:
    """Arrays are shared through a cache: nobody may write to them."""
    array.setflags(write=False)
    return array
