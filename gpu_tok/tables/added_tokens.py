"""Added tokens as flat tables: a trie for each of the two passes, and filters that find where either can begin.

The reference looks for tokens with `normalized: false` in the raw text, and for those with `normalized: true` in each
normalized section between them. Here the second pass runs on raw bytes too where that comes to the same
(`NATIVE`); elsewhere a section that may hold such a token is found by its code points (`BY_SUSPICION`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cpu_ref.trie_builder import insert_pieces
from gpu_tok.tables import unicode
from gpu_tok.tables.atoms import only
from gpu_tok.tables.definition import Definition, Part
from gpu_tok.tables.preimages import by_image, joining, preimage, vanishing
from gpu_tok.tables.trie import sort_pieces
from gpu_tok.tables.trie_rows import NO_ROWS, WORD_ROOT, Rows
from gpu_tok.tables.unicode import Property
from gpu_tok.tables.variants import normalized_tokens

TEXT = -1  # the id of a section that is text to encode
LSTRIP, RSTRIP, SINGLE_WORD, PASSED_OVER = 1, 2, 4, 8  # what a token asks for
RAW, NORMALIZED, SUSPECT = 1, 2, 4  # what can begin at a pair of bytes
WORD, SPACE, SUSPICIOUS, FOLLOWS, JOINS = 1, 2, 4, 8, 16  # what a code point means beside a token, or for one
MOST_FIRST_BYTES = 8  # that are looked for 64 bytes at a time
NO_PASS, NATIVE, BY_SUSPICION = 0, 1, 2  # how tokens with `normalized: true` are looked for

U8 = npt.NDArray[np.uint8]


class AddedTokenTables(NamedTuple):
    """What the kernels look at.

    row: int32[slots, 4], a trie (`gpu_tok.tables.trie_rows`) whose ids are token numbers, those of raw text below slot
    0, those of normalized text below `normalized_root`. token: int32[tokens, 2], the id and what the token asks for.
    code_point: uint8[0x110000], WORD | SPACE | SUSPICIOUS | FOLLOWS | JOINS. begins: uint8[65536], what can begin with
    two bytes, by `first << 8 | second`: RAW | NORMALIZED | SUSPECT. first_bytes: uint8[n], the first
    bytes of those pairs; none where they are more than MOST_FIRST_BYTES.
    """

    row: Rows
    normalized_root: int
    token: npt.NDArray[np.int32]
    code_point: U8
    begins: U8
    first_bytes: U8


@dataclass(frozen=True)
class AddedTokens:
    """The tables for kernels, which passes are needed, and what decides about a section that a kernel only suspects.

    normalized_contents: the tokens with `normalized: true`, as the normalizer leaves them.
    """

    tables: AddedTokenTables
    count: int
    raw_pass: bool
    normalized_pass: int
    normalized_contents: tuple[str, ...]
    normalizer: Any

    def holds_normalized(self, text: bytes) -> bool:
        """Whether a section of text, UTF-8, holds a token with `normalized: true`."""
        normalized = self.normalizer.normalize_str(text.decode())
        return any(content in normalized for content in self.normalized_contents)


def compile_added_tokens(definition: Definition) -> AddedTokens:
    """The tables of a definition's added tokens.

    >>> compile_added_tokens(gpt2).normalized_pass == NATIVE
    True
    """
    tokens = [token for token in definition.added_tokens if token["content"]]
    normalized = [_normalized(definition, token["content"]) for token in normalized_tokens(definition)]
    way = _normalized_pass(definition, normalized)
    raw_numbers = {token["content"]: at for at, token in enumerate(tokens) if not token["normalized"]}
    numbers = {token["content"]: at for at, token in enumerate(tokens) if token["normalized"]}
    natively = numbers if way == NATIVE else {}
    suspect, behind = _suspects(definition, normalized, way)
    begins = _begins(raw_numbers, natively, suspect, behind)
    tables = AddedTokenTables(
        *_trie(raw_numbers, natively),
        _tokens(tokens, definition.reference.encode_special_tokens),
        _code_points(suspect, behind, way == NATIVE and bool(definition.normalizers)),
        begins.reshape(-1),
        _few_first_bytes(begins),
    )
    normalizer = definition.reference.normalizer
    return AddedTokens(tables, len(tokens), bool(raw_numbers), way, tuple(normalized), normalizer)


def _trie(raw: dict[str, int], normalized: dict[str, int]) -> tuple[Rows, int]:
    """Both sets of tokens in one trie, and the root of the second."""
    row, root = insert_pieces(NO_ROWS, WORD_ROOT, *sort_pieces(raw))
    row, end = insert_pieces(row, root, *sort_pieces(normalized))
    return np.ascontiguousarray(row[:end]), int(root)


def _tokens(tokens: Sequence[Part], encode_special_tokens: bool) -> npt.NDArray[np.int32]:
    rows = [(token["id"], _flags(token, encode_special_tokens)) for token in tokens]
    return np.array(rows, np.int32).reshape(-1, 2)


def _code_points(suspect: Property, behind: Property, composes: bool) -> U8:
    meaning = WORD * unicode.has("added_w").astype(np.uint8)
    meaning |= SPACE * unicode.has("added_s").astype(np.uint8)
    meaning |= SUSPICIOUS * suspect.astype(np.uint8) | FOLLOWS * behind.astype(np.uint8)
    if composes:
        meaning |= JOINS * joining().astype(np.uint8)
    return meaning


def _normalized(definition: Definition, content: str) -> str:
    normalizer = definition.reference.normalizer
    return content if normalizer is None else normalizer.normalize_str(content)


def _flags(token: Part, encode_special_tokens: bool) -> int:
    return (
        LSTRIP * token["lstrip"]
        | RSTRIP * token["rstrip"]
        | SINGLE_WORD * token["single_word"]
        | PASSED_OVER * (token["special"] and encode_special_tokens)
    )


def _normalized_pass(definition: Definition, contents: Sequence[str]) -> int:
    """NATIVE where looking in raw text finds what the reference finds in normalized text.

    Without a normalizer it is the same text. NFC leaves a token alone if its characters are starters that stay as they
    are and are no second of a composition; what may then still differ are neighbours that compose with its last
    character (`joins`) and characters that become one of its own (`suspect`).
    """
    if not contents:
        return NO_PASS
    if not definition.normalizers:
        return NATIVE
    if any(part["type"] != "NFC" for part in definition.normalizers):
        return BY_SUSPICION
    if any(token["single_word"] for token in normalized_tokens(definition)):
        return BY_SUSPICION
    contents_before = [token["content"] for token in normalized_tokens(definition)]
    characters = np.array(sorted({ord(character) for content in contents for character in content}), np.int64)
    stable = ~joining()[characters] & ~_changed_by("nfd")[characters]
    return NATIVE if contents_before == list(contents) and bool(np.all(stable)) else BY_SUSPICION


def _suspects(definition: Definition, contents: Sequence[str], way: int) -> tuple[Property, Property]:
    """Pairs of code points without which no token with `normalized: true` comes about, as first and second ones.

    By suspicion a token is known by the rarest pair of neighbours in it; all code points are suspect where none will
    do. A token that normalizes to nothing is found everywhere by the reference, so every section has to go there.
    Natively, only what NFC does not put together again can come to a token that raw text does not have.
    """
    everything = ~only("")
    if way == NO_PASS or not definition.normalizers:
        return only(""), only("")
    if way == NATIVE:
        changed = _changed_by("nfd") & _changed_by("nfc")
        return changed & by_image("nfd", only("".join(contents))), everything
    gone = vanishing(definition.normalizers)
    first, second = only(""), only("")
    for content in contents:
        found = [preimage(definition.normalizers, only(character)) for character in content]
        behind = [None if gone is None or after is None else after | gone for after in (*found, None)[1:]]
        pairs = [
            (before, everything if after is None or before[ord("\r")] else after)
            for before, after in zip(found, behind, strict=True)
            if before is not None
        ]
        rarest = min(pairs, key=_frequency, default=(everything, everything))
        first |= rarest[0]
        second |= rarest[1]
    return first, second


@cache
def _changed_by(name: str) -> Property:
    changed = only("")
    changed[unicode.image_changes(name)[0]] = True
    return changed


def _frequency(pair: tuple[Property, Property]) -> int:
    """Smaller for what text holds less of: letters, digits and white space weigh most, brackets and bars least."""
    weight = 1
    for code_points in pair:
        members = [chr(code_point) for code_point in np.flatnonzero(code_points[:128]).tolist()]
        weight *= 1 + sum(4 if member.isalnum() or member.isspace() else 1 for member in members)
    return weight


def _begins(raw: dict[str, int], normalized: dict[str, int], suspect: Property, behind: Property) -> U8:
    """What can begin with two bytes: uint8[256, 256]. A suspect that can make its successor too may be the last byte,
    behind which the kernels read a zero."""
    begins = np.zeros((256, 256), np.uint8)
    for contents, kind in ((raw, RAW), (normalized, NORMALIZED)):
        for content in contents:
            opening = content.encode()[:2]
            begins[opening[0], opening[1] if len(opening) > 1 else slice(None)] |= kind
    for byte in _first_bytes(suspect):
        seconds = slice(None) if byte >= 0x80 or behind[byte] else _first_bytes(behind)
        begins[byte, seconds] |= SUSPECT
    return begins


def _few_first_bytes(begins: U8) -> U8:
    first = np.flatnonzero(begins.any(axis=1)).astype(np.uint8)
    return first if len(first) <= MOST_FIRST_BYTES else first[:0]


def _first_bytes(code_points: Property) -> list[int]:
    """The bytes that the UTF-8 forms of a set of code points begin with."""
    members = np.flatnonzero(code_points)
    members = members[(members < 0xD800) | (members > 0xDFFF)]
    first = np.where(
        members < 0x80,
        members,
        np.where(
            members < 0x800,
            0xC0 | members >> 6,
            np.where(members < 0x10000, 0xE0 | members >> 12, 0xF0 | members >> 18),
        ),
    )
    return np.unique(first).tolist()
