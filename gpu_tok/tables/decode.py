"""The bytes that each id becomes in a decoded text, as flat tables.

Native are decoders that turn each token into text knowing only whether it is the first of its row (`WordPiece`,
`Metaspace`, `Replace`, none at all, and sequences of these), and `ByteLevel`, which glues bytes together and repairs
what is no UTF-8 at the end. For the former the reference's own decoder is asked about every token.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tokenizers

from gpu_tok.tables.definition import Definition
from gpu_tok.tables.refusal import CannotCompile

Rows = npt.NDArray[np.uint64]

INLINE = 15  # bytes that a row itself holds
LONG = 16  # the row says where its bytes lie in the pool
PARTIAL = 32  # no valid UTF-8 by itself: the text has to be looked at again
DROPPED = 64  # no such id, or a special token that is to be skipped: it leaves nothing, not even a space

_BY_TOKEN = {"WordPiece", "Metaspace", "Replace"}  # each token alone, and whether it is the first of its row
_MOST_HOLES = 4_000_000  # rows without a token that a table may have


class DecodeTables(NamedTuple):
    """What ids become: a row of 16 bytes for each id from 0 on.

    rows: uint64[2, ids, 2], for the first token of a text and for all others, or uint64[1, ids, 2] where that is the
    same. Read as little-endian bytes, byte 15 is the code: a length of 0 to 15, or one of the flags above. Under
    `LONG` the first word is the start of the bytes in the pool, the second their count.

        ##ing   i n g . . . . . . . . . . . . 3
        cat     _ c a t . . . . . . . . . . . 4      (rows[1]: one space before)

    pool: uint8[n]. repairs: whether invalid UTF-8 becomes U+FFFD at the end (`ByteLevel`).
    """

    rows: Rows
    pool: npt.NDArray[np.uint8]
    repairs: bool


def compile(definition: Definition) -> DecodeTables:
    """The tables of a definition; raises `CannotCompile` for a decoder that has to see neighbouring tokens.

    >>> tables = compile(Definition.from_file("bert-base-uncased.json"))
    >>> tables.rows[1, 1996].tobytes()[:4]
    b' the'
    """
    kind, tokens, pool = kind_of(definition), _tokens(definition), bytearray()
    if kind == "ByteLevel":
        rows = _rows([None if token is None else byte_level_bytes(token) for token in tokens], pool, repairs=True)
        return DecodeTables(rows[None], _frozen(pool), repairs=True)
    first, rest = _asked(definition.reference.decoder, tokens)
    rows = np.stack([_rows(first, pool), _rows(rest, pool)])
    return DecodeTables(rows, _frozen(pool), repairs=False)


def skip_special(tables: DecodeTables, definition: Definition) -> DecodeTables:
    """The same tables with special tokens dropped: those whose token *reads* as a special one, whatever its id."""
    special = special_tokens(definition)
    ids = [token_id for token_id, token in enumerate(_tokens(definition)) if token in special]
    rows = tables.rows.copy()
    rows[:, ids, 1] = DROPPED << 56
    return tables._replace(rows=rows)


def special_tokens(definition: Definition) -> frozenset[str]:
    """The tokens that decoding skips where special ones are skipped."""
    added = definition.added_tokens
    return frozenset(token["content"] for token in added if token["special"] or _is_skipped(definition, token["id"]))


def kind_of(definition: Definition) -> str:
    """`ByteLevel` or `by token`; raises `CannotCompile` naming the part that is neither."""
    size = _size(definition)
    if size > len(definition.vocab) + len(definition.added_tokens) + _MOST_HOLES:
        raise CannotCompile("decoder", f"ids up to {size - 1:,} are too far apart for a flat table")
    parts = definition.parts("decoder")
    if [part["type"] for _place, part in parts] == ["ByteLevel"]:
        return "ByteLevel"
    if parts and parts[-1][1]["type"] == "Fuse":
        parts = parts[:-1]  # it joins what is joined anyway
    for place, part in parts:
        if part["type"] not in _BY_TOKEN:
            raise CannotCompile(place, f"`{part['type']}` has no kernel here; it runs through the reference")
    return "by token"


def byte_level_bytes(token: str) -> bytes:
    """The bytes that a token of the byte-level alphabet spells, or its UTF-8 if a letter is not of that alphabet.

    >>> byte_level_bytes("Ġcafé"), byte_level_bytes("<a b>")
    (b' caf\\xe9', b'<a b>')
    """
    try:
        return bytes([BYTE_OF[letter] for letter in token])
    except KeyError:
        return token.encode()


def byte_alphabet() -> dict[str, int]:
    """GPT-2's spelling of bytes: printable ones are themselves, the others follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + at): byte for at, byte in enumerate(others)}


BYTE_OF = byte_alphabet()


def _size(definition: Definition) -> int:
    """One more than the greatest id."""
    ids = [*definition.vocab.values(), *(token["id"] for token in definition.added_tokens)]
    pieces = definition.model["vocab"]  # a Unigram model may list a piece twice: the index is the id
    return max(len(pieces) if isinstance(pieces, list) else 0, max(ids, default=-1) + 1)


def _tokens(definition: Definition) -> list[str | None]:
    """The token of each id, as the loaded reference has it: of two tokens with one id, it picked one when it loaded."""
    return [definition.reference.id_to_token(token_id) for token_id in range(_size(definition))]


def _is_skipped(definition: Definition, token_id: int) -> bool:
    """Asks the reference: a token can have been special once and be listed as plain now."""
    decode = definition.reference.decode
    return decode([token_id], skip_special_tokens=True) != decode([token_id], skip_special_tokens=False)


def _asked(
    decoder: tokenizers.decoders.Decoder | None, tokens: list[str | None]
) -> tuple[list[bytes | None], list[bytes | None]]:
    """What each token becomes as the first of a text, and behind another one."""
    if decoder is None:  # tokens are joined by spaces
        encoded = [None if token is None else token.encode() for token in tokens]
        return encoded, [None if token is None else b" " + token for token in encoded]
    before = len(decoder.decode(["x"]))
    first = [None if token is None else decoder.decode([token]).encode() for token in tokens]
    rest = [None if token is None else decoder.decode(["x", token])[before:].encode() for token in tokens]
    return first, rest


def _rows(texts: list[bytes | None], pool: bytearray, repairs: bool = False) -> Rows:
    raw = bytearray()
    for text in texts:
        if text is None:
            raw += bytes(15) + bytes([DROPPED])
            continue
        flag = PARTIAL if repairs and not _is_utf8(text) else 0
        if len(text) <= INLINE:
            raw += text.ljust(15, b"\0") + bytes([len(text) | flag])
        else:
            raw += len(pool).to_bytes(8, "little") + len(text).to_bytes(7, "little") + bytes([LONG | flag])
            pool += text
    return np.frombuffer(raw, "<u8").astype(np.uint64).reshape(-1, 2)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _frozen(pool: bytearray) -> npt.NDArray[np.uint8]:
    return np.frombuffer(bytes(pool), np.uint8).copy()
