"""Which code points of a raw text can lead to a given character in the normalized text.

One-sided: a code point too many only costs time, one too few would be wrong. So every context is allowed for
(compositions, clusters, replacements); None says that the character may come from anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from gpu_tok.tables import unicode
from gpu_tok.tables.atoms import only
from gpu_tok.tables.charsmap import read_charsmap
from gpu_tok.tables.definition import Part
from gpu_tok.tables.unicode import Property


def preimage(normalizers: Sequence[Part], wanted: Property) -> Property | None:
    """Every code point from which the normalizers, in order, can make one of those wanted, whatever stands beside it.

    >>> np.flatnonzero(preimage([{"type": "Lowercase"}], only("k"))).tolist()
    [75, 107, 8490]
    """
    for part in reversed(normalizers):
        before = _before(part, wanted)
        if before is None:
            return None
        wanted = before
    return wanted


def _before(part: Part, wanted: Property) -> Property | None:
    kind = part["type"]
    if kind in ("Strip", "StripAccents"):
        return wanted
    if kind == "Lowercase":
        return by_image("lowercase", wanted)
    if kind in ("NFD", "NFKD"):
        return by_image(kind.lower(), wanted)
    if kind in ("NFC", "NFKC"):
        return by_image("nfd" if kind == "NFC" else "nfkd", wanted | _image_of("nfd", wanted))
    if kind == "Nmt":
        return None if wanted[ord(" ")] else wanted
    if kind == "Prepend":
        return None if np.any(wanted & only(part["prepend"])) else wanted
    if kind == "Replace":
        return _before_replace(part, wanted)
    if kind == "BertNormalizer":
        return _before_bert(part, wanted)
    if kind == "Precompiled":
        return _before_precompiled(part, wanted)
    return None


def vanishing(normalizers: Sequence[Part]) -> Property | None:
    """Every code point that may leave nothing of its own right behind an ASCII character other than CR; None says that
    all may. (Behind others it may also be dropped with the rest of a grapheme cluster.)

    >>> np.flatnonzero(vanishing([{"type": "Replace", "pattern": {"String": "ab"}, "content": ""}])).tolist()
    [97, 98]
    """
    gone = only("")
    for at, part in reversed(list(enumerate(normalizers))):
        if part["type"] == "Precompiled" and any(not _keeps_ascii(earlier) for earlier in normalizers[:at]):
            return None
        own = _deletes(part)
        before = _before(part, gone)
        if own is None or before is None:
            return None
        gone = own | before
    return gone


def _keeps_ascii(part: Part) -> bool:
    """Whether what a part makes of an ASCII character is ASCII."""
    return part["type"] != "ByteLevel" and part.get("content", "").isascii()


def _deletes(part: Part) -> Property | None:
    kind = part["type"]
    if kind in ("Lowercase", "Strip", "Prepend"):
        return only("")
    if kind in ("NFC", "NFD", "NFKC", "NFKD"):
        return joining()
    if kind == "StripAccents":
        return unicode.has("accent")
    if kind == "BertNormalizer":
        return unicode.has("bert_deleted") | unicode.has("bert_mark") | joining()
    if kind == "Replace":
        if part["content"]:
            return only("")
        return only(part["pattern"]["String"]) if "String" in part["pattern"] else None
    if kind == "Precompiled":
        return _dropped_by_precompiled(part)
    return None


def _dropped_by_precompiled(part: Part) -> Property | None:
    """The rest of a cluster is dropped behind a known beginning; of ASCII only LF goes on one of ASCII, that of CR."""
    try:
        charsmap = read_charsmap(part["precompiled_charsmap"])
    except ValueError:
        return None
    dropped = only("".join(key for key, value in charsmap.items() if not value))
    dropped[0x80:] = True
    return dropped


@cache
def joining() -> Property:
    """Code points that can compose with, or move in front of others behind, the character before them."""
    nfd = unicode.image("nfd")
    behind = np.ones(len(nfd.flat), bool)
    behind[nfd.starts[:-1][np.diff(nfd.starts) > 0]] = False
    joins = only("")
    joins[nfd.flat[behind]] = True
    return joins | (unicode.combining_class() != 0)


def by_image(name: str, wanted: Property) -> Property:
    """The code points whose image holds one of those wanted."""
    image = unicode.image(name)
    hits = np.flatnonzero(wanted[image.flat])
    found = only("")
    found[np.searchsorted(image.starts, hits, side="right") - 1] = True
    return found


def _image_of(name: str, members: Property) -> Property:
    image = unicode.image(name)
    found = only("")
    found[image.flat[np.repeat(members, np.diff(image.starts))]] = True
    return found


def _before_replace(part: Part, wanted: Property) -> Property | None:
    if not np.any(wanted & only(part["content"])):
        return wanted
    literal = part["pattern"].get("String")
    return wanted | only(literal) if literal else None


def _before_bert(part: Part, wanted: Property) -> Property | None:
    if wanted[ord(" ")]:
        return None
    if part["lowercase"]:
        wanted = by_image("lowercase", wanted)
    strips = part["lowercase"] if part["strip_accents"] is None else part["strip_accents"]
    return by_image("nfd", wanted) if strips else wanted


def _before_precompiled(part: Part, wanted: Property) -> Property | None:
    try:
        charsmap = read_charsmap(part["precompiled_charsmap"])
    except ValueError:
        return None
    wanted_ones = {
        chr(code_point) for code_point in np.flatnonzero(wanted).tolist() if not 0xD800 <= code_point <= 0xDFFF
    }
    openings = [key[0] for key, value in charsmap.items() if key and not wanted_ones.isdisjoint(value)]
    return wanted | only("".join(openings))
