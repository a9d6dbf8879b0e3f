"""Whether cuts are sound: chunks encoded one by one, with the variants that their places ask for, against the whole."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from gpu_tok.tables import ends
from gpu_tok.tables.cuts import CutTables, cuts_between
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.variants import variant

ALL_ENDS = ends.SECTION_FIRST | ends.SECTION_LAST | ends.DOCUMENT_FIRST | ends.SUBSECTION_FIRST


class UnsoundCut(NamedTuple):
    """A text whose chunks do not have the ids of the whole."""

    text: str
    chunks: list[str]
    whole: list[str]
    parts: list[list[str]]


def first_unsound_cut(
    definition: Definition, tables: CutTables, texts: Sequence[str], pairs: np.ndarray | None = None
) -> UnsoundCut | None:
    """The first text that cuts between the class pairs `pairs` (those taken, if none are given) change; None if none.

    A text is one section here, and its own document; texts are encoded without added tokens.
    """
    rows = [chunks_of(text, tables, tables.taken if pairs is None else pairs) for text in texts]
    asked = {(chunk, flags) for chunks in rows for chunk, flags in zip(chunks, flags_of(chunks, tables), strict=True)}
    ids = _encoded(definition, asked)
    expected = variant(definition, ALL_ENDS).encode_batch_fast(list(texts), add_special_tokens=False)
    for text, chunks, whole in zip(texts, rows, expected, strict=True):
        parts = [ids[key] for key in zip(chunks, flags_of(chunks, tables), strict=True)]
        if [*itertools.chain(*parts)] != whole.ids:
            name = definition.reference.id_to_token
            return UnsoundCut(text, chunks, [*map(name, whole.ids)], [[*map(name, part)] for part in parts])
    return None


def chunks_of(text: str, tables: CutTables, pairs: np.ndarray) -> list[str]:
    """A text divided between all neighbours whose classes are a pair, or are asked and the two are not joined."""
    _certified, cuts = cuts_between(np.frombuffer(text.encode("utf-32-le"), np.uint32), tables._replace(taken=pairs))
    begins = [0, *(np.flatnonzero(cuts) + 1).tolist(), len(text)] if text else [0]
    return [text[begin:end] for begin, end in itertools.pairwise(begins)]


def flags_of(chunks: Sequence[str], tables: CutTables) -> list[int]:
    """What each chunk of a text is told about its place."""
    flags = [0] * len(chunks)
    if flags:
        flags[0] |= ends.SECTION_FIRST | ends.DOCUMENT_FIRST | ends.SUBSECTION_FIRST
        flags[-1] |= ends.SECTION_LAST
    return [flag & tables.flags for flag in flags]


def _encoded(definition: Definition, asked: Iterable[tuple[str, int]]) -> dict[tuple[str, int], list[int]]:
    ids = {}
    for flags, keys in itertools.groupby(sorted(asked, key=lambda key: key[1]), key=lambda key: key[1]):
        chunks = [chunk for chunk, _ in keys]
        encodings = variant(definition, flags).encode_batch_fast(chunks, add_special_tokens=False)
        ids |= {(chunk, flags): encoding.ids for chunk, encoding in zip(chunks, encodings, strict=True)}
    return ids


def class_strings(tables: CutTables, count: int, seed: int = 0) -> list[str]:
    """About `count` texts of representatives of the classes: all up to some length, then random longer ones.

    Each class has some representatives, one of them ASCII and one not where it has any; a representative is drawn anew
    for each place. Where a third character decides, half of the longer texts are of such three.
    """
    source = random.Random(seed)
    representatives = [_representatives(tables, number, source) for number in range(len(tables.certified))]
    threes = [[np.flatnonzero(part).tolist() for part in three] for three in tables.thirds or () if three.middle.any()]
    strings: list[str] = []
    for length in itertools.count(1):
        if len(strings) + len(representatives) ** length > count:
            break
        for classes in itertools.product(representatives, repeat=length):
            strings.append("".join(map(source.choice, classes)))
        if len(representatives) == 1 and length > 8:
            break
    while len(strings) < count:
        classes = source.choices(range(len(representatives)), k=source.randint(length, length + 9))
        if threes and len(strings) % 2:
            at = source.randint(0, len(classes))
            classes[at:at] = [source.choice(part) for part in source.choice(threes)]
        strings.append("".join(source.choice(representatives[number]) for number in classes))
    return strings


def _representatives(tables: CutTables, number: int, source: random.Random) -> list[str]:
    members = np.flatnonzero(tables.class_of == number)
    members = members[(members < 0xD800) | (members >= 0xE000)]
    drawn = [source.choice(members), source.choice(members[: len(members) // 4 + 1])]
    for some in (members[members < 0x80], members[members >= 0x80]):
        drawn += [source.choice(some)] if len(some) else []
    return [chr(c) for c in drawn]
