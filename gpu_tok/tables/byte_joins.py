"""Which characters a byte-level BPE may bring into one piece.

A piece that runs across a border between characters began as a merge at that border: of the bytes that end the first
character and those that begin the second one.

    merges    国 人     joins these two
              é E5      joins é and every character that begins with E5
              AD E5     joins every character that ends with AD and every one that begins with E5
              E4 B8     joins nothing: it lies inside a character

Such parts matter only to characters that may still be in parts when the merge comes. A character is *solid* if its own
bytes merge, whatever stands around it, before any merge of a part of it with a neighbour.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tokenizers

from gpu_tok.tables.decode import BYTE_OF, byte_level_bytes
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.joins import all_bytes_in, refuse_other_models
from gpu_tok.tables.pairs import Joinable, unspaced
from gpu_tok.tables.unicode import CODE_POINTS, Property

MOST_OF_A_MERGE = 1 << 17  # pairs; of a merge that joins more, one side is not asked for at all
NEVER = 1 << 40  # a rank behind all others
LEFT, RIGHT = 1, 2  # of a character's kind: where its pairs are all known
LENGTH = 3  # bytes of each character of `unspaced()`
CONTINUED = 6  # bits of a character in each of its bytes but the first

LEADING = {letter for letter, byte in BYTE_OF.items() if 0xE0 <= byte < 0xF0}  # they begin characters of 3 bytes
CONTINUING = {letter for letter, byte in BYTE_OF.items() if 0x80 <= byte < 0xC0}
LONGEST = 4  # bytes of a character

Merge = tuple[str, str]
CodePoints = npt.NDArray[np.int64]


class _Border(NamedTuple):
    """A merge at a border between characters: the bytes of the first and of the second one that it joins."""

    left: bytes
    right: bytes
    rank: int


def byte_joins(definition: Definition) -> Joinable:
    """The pairs of characters that merges join and, with `ignore_merges`, those inside entries.

    >>> joins = byte_joins(cl100k)
    >>> [chr(c) for c in joins.second[joins.first == ord("国")]]
    ['内', '家', '际']

    Raises CannotCompile where more than merges joins characters.
    """
    refuse_other_models(definition)
    model = definition.model
    kind_of = np.zeros(CODE_POINTS, np.uint8)
    kind_of[unspaced() & _spelled(model["vocab"])] = LEFT | RIGHT
    borders = _borders(model["merges"])
    whole = [border for border in borders if len(_character(border.left)) == len(_character(border.right)) == 1]
    pairs = [_pairs([(border.left + border.right).decode() for border in whole])]
    asked = np.flatnonzero(unspaced())
    in_parts = asked[~_solid(asked, model["merges"], borders)]
    pairs += _pairs_of_parts([*{*borders} - {*whole}], in_parts, kind_of)
    if model["ignore_merges"]:
        pairs.append(_keep_entries(model, kind_of))
    first, second = np.hstack(pairs)
    pair = np.sort(first << 32 | second)  # np.unique hashes such numbers, which takes seven times as long
    pair = pair[np.append(True, pair[1:] != pair[:-1])] if len(pair) else pair
    kinds = np.arange(LEFT + RIGHT + 1)
    return Joinable(
        (pair >> 32).astype(np.uint32),
        pair.astype(np.uint32),
        kind_of,
        (kinds[:, None] & LEFT > 0) & (kinds[None, :] & RIGHT > 0),
    )


def _spelled(vocab: dict[str, int]) -> Property:
    """The code points all of whose bytes are entries."""
    held = np.zeros(256, bool)
    held[[byte_level_bytes(piece)[0] for piece in vocab if len(piece) == 1]] = True
    return all_bytes_in(held)


def _borders(merges: Iterable[Merge]) -> list[_Border]:
    """The merges at borders that matter to characters of 3 bytes, each pair of ends once, with its lowest rank."""
    found: dict[tuple[bytes, bytes], int] = {}
    for rank, (left, right) in enumerate(merges):
        if right[0] in LEADING or (left[-1] in CONTINUING and right[0] not in CONTINUING):
            ends = _last(byte_level_bytes(left[-LONGEST:])), _first(byte_level_bytes(right[:LONGEST]))
            if ends[0] and ends[1]:
                found.setdefault(ends, rank)
    return [_Border(*ends, rank) for ends, rank in found.items()]


def _first(piece: bytes) -> bytes:
    """The bytes of the first character, if the piece begins with one; it may have only a part of them."""
    return piece[: _length(piece[0])]


def _last(piece: bytes) -> bytes:
    """The bytes of the last character, if the piece ends with its end; it may have only a part of them.

    >>> _last("中国".encode()), _last("中国".encode()[:5]), _last(b"\xad")
    (b'\xe5\x9b\xbd', b'', b'\xad')
    """
    at = len(piece) - 1
    while at >= 0 and _length(piece[at]) == 0:
        at -= 1
    return piece if at < 0 else piece[at:] if len(piece) - at == _length(piece[at]) else b""


def _length(byte: int) -> int:
    """How many bytes a character has that begins with this one; 0 if none does."""
    return 1 if byte < 0x80 else 0 if byte < 0xC0 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4


def _character(part: bytes) -> str:
    """The character, or nothing if these are not all of its bytes."""
    try:
        return part.decode()
    except UnicodeDecodeError:
        return ""


def _pairs(texts: Iterable[str]) -> npt.NDArray[np.int64]:
    """Neighbours in texts of which both are asked for: int64[2, pairs]."""
    asked = unspaced()
    pairs = [
        (ord(one), ord(other))
        for text in texts
        for one, other in itertools.pairwise(text)
        if asked[ord(one)] and asked[ord(other)]
    ]
    return np.array(pairs, np.int64).reshape(-1, 2).T


def _pairs_of_parts(
    borders: Iterable[_Border], in_parts: CodePoints, kind_of: npt.NDArray[np.uint8]
) -> list[npt.NDArray[np.int64]]:
    """The pairs that fit merges of parts of characters. Where they are too many, `kind_of` loses one side of them."""
    pairs = []
    for border in borders:
        left, right = _fitting(border.left, in_parts, ends=True), _fitting(border.right, in_parts, ends=False)
        if len(left) * len(right) <= MOST_OF_A_MERGE:
            pairs.append(np.stack([np.repeat(left, len(right)), np.tile(right, len(left))]))
        elif len(left) <= len(right):
            kind_of[left] &= RIGHT
        else:
            kind_of[right] &= LEFT
    return pairs


def _fitting(part: bytes, code_points: CodePoints, ends: bool) -> CodePoints:
    """Which of these code points, all of 3 bytes, end (or begin) with a part of a character; or the whole one."""
    character = _character(part)
    if character:
        return np.array([ord(character)] if unspaced()[ord(character)] else [], np.int64)
    value = 0
    for byte in part:
        value = value << CONTINUED | byte & (0x3F if _length(byte) == 0 else 0x0F)
    if ends:
        return code_points[code_points & ((1 << CONTINUED * len(part)) - 1) == value]
    fits = code_points >> CONTINUED * (LENGTH - len(part)) == value
    return code_points[fits & (_length(part[0]) == LENGTH)]


def _solid(code_points: CodePoints, merges: Sequence[Merge], borders: list[_Border]) -> npt.NDArray[np.bool_]:
    """Which code points merge whole before any merge of a part of theirs with a neighbour."""
    disturbed = np.full(CODE_POINTS, NEVER)
    for ends in (True, False):
        lowest: dict[bytes, int] = {}
        for border in borders:
            part = border.left if ends else border.right
            if not _character(part):
                lowest[part] = min(border.rank, lowest.get(part, NEVER))
        for part, rank in lowest.items():
            fitting = _fitting(part, code_points, ends)
            disturbed[fitting] = np.minimum(disturbed[fitting], rank)
    return _ranks_of_wholes(merges)[code_points] < disturbed[code_points]


def _ranks_of_wholes(merges: Iterable[Merge]) -> npt.NDArray[np.int64]:
    """The highest rank that the bytes of a character need to become one piece, if they do: int64[0x110000].

    E4 B8 rank 7, B8 AD rank 9, E4B8 AD rank 8:  中 needs 8, since E4 B8 comes first
    """
    rank_of = {
        (left, right): rank
        for rank, (left, right) in enumerate(merges)
        if right[-1] in CONTINUING and len(left) + len(right) <= LENGTH
    }
    needed = np.full(CODE_POINTS, NEVER)
    for left, right in rank_of:
        character = _character(byte_level_bytes(left + right))
        if len(left + right) == LENGTH and len(character) == 1:
            one, two, three = (*left, *right)
            begin, end = rank_of.get((one, two), NEVER), rank_of.get((two, three), NEVER)
            pair = (one + two, three) if begin < end else (one, two + three)
            needed[ord(character)] = max(min(begin, end), rank_of.get(pair, NEVER))
    return needed


def _keep_entries(model: dict[str, Any], kind_of: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Words that are entries are taken whole, also entries that merges do not make: so the pairs inside these, and no
    cut where a part could be one.

        entry て作, not made of て and 作     て作 is て作, but て作物 is て 作物, so no cut in 作|物
    """
    unmade = [spelled for spelled in map(_character, map(byte_level_bytes, _unmade(model))) if spelled]
    kind_of[[ord(spelled[-1]) for spelled in unmade]] &= RIGHT
    kind_of[[ord(spelled[0]) for spelled in unmade]] &= LEFT
    return _pairs(unmade)


def _unmade(model: dict[str, Any]) -> list[str]:
    """The entries that begin or end with a character that is asked for, and that merges do not make."""
    asked = unspaced()

    def matters(piece: str) -> bool:
        if not piece or (piece[0] not in LEADING and piece[-1] not in CONTINUING):
            return False
        spelled = _character(byte_level_bytes(piece))
        return bool(spelled) and bool(asked[ord(spelled[0])] or asked[ord(spelled[-1])])

    pieces = [*filter(matters, model["vocab"])]
    merging = tokenizers.Tokenizer(tokenizers.models.BPE(model["vocab"], [*map(tuple, model["merges"])]))
    encoded = merging.encode_batch_fast(pieces, add_special_tokens=False)
    return [piece for piece, encoding in zip(pieces, encoded, strict=True) if len(encoding.ids) != 1]
