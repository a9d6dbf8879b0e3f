"""Ids to text as they come: what `decode_batch` makes of a row, in pieces, each as soon as it is certain.

Each part of the decoder is a filter: tokens go in, and those come out that no later token can change. What a part holds
back is little, and its work for a token does not grow with the text:

    ByteLevel     the bytes of a character that has begun
    ByteFallback  a run of byte tokens, until it ends or cannot be UTF-8 any more: one bad byte turns all into U+FFFD
    BPEDecoder    one token, for the last loses its suffix
    Strip         behind `Fuse`, as many characters as it may take from the end

A part that says nothing before it has seen all (`Replace` behind `Fuse`) holds everything until `finish`.
"""

from __future__ import annotations

import codecs
import operator
import re
from collections.abc import Iterable
from typing import Any, Protocol

import orjson
import tokenizers

from gpu_tok.batch import LAST_ID
from gpu_tok.errors import IdError
from gpu_tok.tables.decode import byte_level_bytes, special_tokens
from gpu_tok.tables.definition import Definition, Part

_BAD = "\ufffd"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2}|\+[0-9A-Fa-f])>")


class DecodeStream:
    """The text of one row of ids, piece by piece; `Tokenizer.decode_stream` makes it.

    >>> stream = tok.decode_stream()
    >>> [stream.step(token_id) for token_id in (8582, 99, 250, 0)], stream.finish()  # GPT-2: three parts of 🦜, and '!'
    (['', '', '🦜', '!'], '')

    All pieces joined are `decode_batch([ids])[0]`, however the ids are divided into steps, and no piece has a part of a
    character. A stream belongs to one thread.
    """

    def __init__(self, definition: Definition, skip_special_tokens: bool = True) -> None:
        self._definition = definition
        self._token_of = definition.reference.id_to_token
        self._skipped = special_tokens(definition) if skip_special_tokens else frozenset()
        self._filters = _filters_of(definition)

    def step(self, ids: Any) -> str:
        """What becomes certain by the next id, or ids: an int, or any row of ints, an array of a GPU included.

        Ids without a token leave nothing, as in `decode_batch`. Raises `IdError` for one that cannot be, and then none
        of these ids counts.
        """
        tokens = [token for token in map(self._token_of, _as_ids(ids)) if token is not None]
        tokens = [token for token in tokens if token not in self._skipped]
        for part in self._filters:
            tokens = part.step(tokens)
        return "".join(tokens)

    def finish(self) -> str:
        """The rest: what only the end of the text makes certain. Then the stream begins a new text."""
        tokens: list[str] = []
        for part in self._filters:
            tokens = part.step(tokens) + part.finish()
        self._filters = _filters_of(self._definition)
        return "".join(tokens)


class Filter(Protocol):
    """A part of a decoder. Behind `Fuse` and `ByteLevel` the tokens are pieces of a single one."""

    def step(self, tokens: list[str]) -> list[str]:
        """What comes out for sure once these tokens have come in."""

    def finish(self) -> list[str]:
        """What comes out when no token comes any more."""


class Alone:
    """Turns each token into text knowing only whether it is the first: `WordPiece`, `Metaspace`, `Replace`, `Strip`."""

    def __init__(self, decoder: tokenizers.decoders.Decoder) -> None:
        self._decode = decoder.decode
        self._before = len(self._decode(["x"]))
        self._is_first = True

    def step(self, tokens: list[str]) -> list[str]:
        texts = [self._decode(["x", token])[self._before :] for token in tokens]
        if tokens and self._is_first:
            self._is_first, texts[0] = False, self._decode([tokens[0]])
        return texts

    def finish(self) -> list[str]:
        return []


class Spaced:
    """No decoder: tokens are joined by spaces."""

    def __init__(self) -> None:
        self._space = ""

    def step(self, tokens: list[str]) -> list[str]:
        texts = []
        for token in tokens:
            texts.append(self._space + token)
            self._space = " "
        return texts

    def finish(self) -> list[str]:
        return []


class Letters:
    """`ByteLevel`: letters spell bytes, and those that are no UTF-8 become U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def step(self, tokens: list[str]) -> list[str]:
        return [self._decoder.decode(b"".join(map(byte_level_bytes, tokens)))]

    def finish(self) -> list[str]:
        return [self._decoder.decode(b"", final=True)]


class Bytes:
    """`ByteFallback`: a run of tokens as <0xE4> is a text if all of it is UTF-8, else U+FFFD for each of them."""

    def __init__(self) -> None:
        self._run, self._is_bad = bytearray(), False
        self._check = codecs.getincrementaldecoder("utf-8")("strict")

    def step(self, tokens: list[str]) -> list[str]:
        made: list[str] = []
        for token in tokens:
            byte = _BYTE_TOKEN.fullmatch(token)
            made += self._add(int(byte[1], 16)) if byte else [*self.finish(), token]
        return made

    def _add(self, byte: int) -> list[str]:
        self._run.append(byte)
        if not self._is_bad:
            try:
                self._check.decode(bytes([byte]))
            except UnicodeDecodeError:
                self._is_bad = True
        if not self._is_bad:
            return []
        bad_count = len(self._run)
        self._run.clear()
        return [_BAD] * bad_count

    def finish(self) -> list[str]:
        is_whole = not self._check.getstate()[0]
        made = [self._run.decode()] if is_whole and self._run else [_BAD] * len(self._run)
        self.__init__()  # type: ignore[misc]
        return made


class Suffixed:
    """`BPEDecoder`: a suffix becomes a space, and nothing in the last token."""

    def __init__(self, suffix: str) -> None:
        self._suffix, self._held = suffix, list[str]()

    def step(self, tokens: list[str]) -> list[str]:
        waiting = self._held + tokens
        self._held = waiting[-1:]
        return [token.replace(self._suffix, " ") for token in waiting[:-1]]

    def finish(self) -> list[str]:
        return [token.replace(self._suffix, "") for token in self._held]


class Distinct:
    """`CTC`: equal neighbours are one token, and those that leave nothing are none."""

    def __init__(self, decoder: tokenizers.decoders.Decoder) -> None:
        self._decode = decoder.decode
        self._last: str | None = None

    def step(self, tokens: list[str]) -> list[str]:
        made = []
        for token in tokens:
            if token != self._last:
                made.append(self._decode([token]))
            self._last = token
        return [text for text in made if text]

    def finish(self) -> list[str]:
        return []


class Fused:
    """`Fuse`: from here on tokens are pieces of one."""

    def step(self, tokens: list[str]) -> list[str]:
        return tokens

    def finish(self) -> list[str]:
        return []


class Stripped:
    """`Strip` behind `Fuse`: up to `start` times its character goes from the beginning, `stop` times from the end."""

    def __init__(self, content: str, start: int, stop: int) -> None:
        self._content, self._start, self._stop = content, start, stop
        self._held = 0  # times the character, which may be the last ones

    def step(self, tokens: list[str]) -> list[str]:
        text = "".join(tokens)
        while text and self._start:
            if text[0] != self._content:
                self._start = 0
            else:
                self._start, text = self._start - 1, text[1:]
        text = self._content * self._held + text
        self._held = min(self._stop, len(text) - len(text.rstrip(self._content)))
        return [text[: len(text) - self._held]]

    def finish(self) -> list[str]:
        return []


class Held:
    """Any part that has to see everything before it says anything."""

    def __init__(self, decoder: tokenizers.decoders.Decoder, is_fused: bool) -> None:
        self._decode, self._is_fused = decoder.decode, is_fused
        self._tokens: list[str] = []

    def step(self, tokens: list[str]) -> list[str]:
        self._tokens += tokens
        return []

    def finish(self) -> list[str]:
        return [self._decode(["".join(self._tokens)] if self._is_fused else self._tokens)]


_ALONE = {"WordPiece", "Metaspace", "Replace", "Strip"}


def _filters_of(definition: Definition) -> list[Filter]:
    if definition.decoder is None:
        return [Spaced()]
    filters: list[Filter] = []
    is_fused = False
    for _place, part in definition.parts("decoder"):
        filters.append(_filter_behind_fuse(part) if is_fused else _filter_of(part))
        is_fused |= part["type"] in ("Fuse", "ByteLevel")
    return filters


def _filter_of(part: Part) -> Filter:
    kind = part["type"]
    if kind in _ALONE:
        return Alone(_decoder_of(part))
    if kind == "ByteLevel":
        return Letters()
    if kind == "ByteFallback":
        return Bytes()
    if kind == "BPEDecoder":
        return Suffixed(part["suffix"])
    if kind == "CTC":
        return Distinct(_decoder_of(part))
    return Fused() if kind == "Fuse" else Held(_decoder_of(part), is_fused=False)


def _filter_behind_fuse(part: Part) -> Filter:
    if part["type"] == "Strip":
        return Stripped(part["content"], part["start"], part["stop"])
    return Fused() if part["type"] == "Fuse" else Held(_decoder_of(part), is_fused=True)


def _decoder_of(part: Part) -> tokenizers.decoders.Decoder:
    """One part of a decoder as an object of the reference."""
    model = {"type": "BPE", "vocab": {}, "merges": []}
    described = orjson.dumps({"version": "1.0", "added_tokens": [], "model": model, "decoder": part})
    return tokenizers.Tokenizer.from_str(described.decode()).decoder


def _as_ids(ids: Any) -> list[int]:
    ids = ids.tolist() if hasattr(ids, "tolist") else ids
    row = list(ids) if isinstance(ids, Iterable) else [ids]
    numbers = [operator.index(token_id) for token_id in row]
    for at, token_id in enumerate(numbers):
        if not 0 <= token_id <= LAST_ID:
            raise IdError(
                f"step: the id {token_id} at {at} is not between 0 and {LAST_ID}",
                "drop such marks first (-100 is a common one for positions without a label)",
            )
    return numbers
