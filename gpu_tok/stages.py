"""The reference's stages one by one: sections, normalized text, words, pieces.

The reference shows only what comes out at the end. So it is run with its own added tokens, normalizer and
pre-tokenizer, but with a model that knows no word: `Unigram` then gives each word back as one unknown token, spelled as
it came in, with its place in the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import tokenizers

from gpu_tok.tables.definition import Definition, added_token

_NO_TEXT_HAS_THIS = "\ue000\uf8ff\ue000"  # the one piece that a Unigram model must have
_UNKNOWN = 0


@dataclass(frozen=True)
class Word:
    """What the pre-tokenizer made, as the reference spells it, and the pieces that the model found in it.

    start, end: bytes of the original text.
    """

    text: str
    start: int
    end: int
    pieces: tuple[str, ...]
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Section:
    """A part of a text between added tokens, or an added token (`added_id` says which; it has no words).

    start, end: bytes of the original text; an added token's include the white space that it swallows.
    """

    text: str
    start: int
    end: int
    normalized: str
    words: tuple[Word, ...]
    added_id: int | None = None


class _Found(NamedTuple):
    """A token of the probe: an added token, or the text of a whole section or word."""

    text: str
    begin: int
    end: int
    added: str | None
    word_index: int | None


class ReferenceStages:
    """Asks the reference about each stage. Made once a definition; cheap until it is first asked.

    >>> [section.normalized for section in ReferenceStages(bert).sections("Héllo[SEP]World")]
    ['hello', '[SEP]', 'world']
    """

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self._added_ids = {token["content"]: token["id"] for token in definition.added_tokens}

    @cached_property
    def whole(self) -> tokenizers.Tokenizer:
        """The reference without truncation and padding."""
        if self.definition.truncation is None and self.definition.padding is None:
            return self.definition.reference
        reference = tokenizers.Tokenizer.from_str(self.definition.reference.to_str())
        reference.encode_special_tokens = self.definition.reference.encode_special_tokens
        reference.no_truncation()
        reference.no_padding()
        return reference

    def ids(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The reference's ids of a whole text."""
        return self.whole.encode(text, add_special_tokens=add_special_tokens).ids

    def sections(self, text: str) -> list[Section]:
        """All stages of a text: its sections, with normalized text, words, pieces and ids."""
        byte_of = [0, *accumulate(len(letter.encode()) for letter in text)]
        pieces, ids = self._pieces(text)
        words: list[list[Word]] = [[]]
        for found in _ask(self._words, text):
            if found.added is not None:
                words.append([])
                continue
            at, place = found.word_index, (byte_of[found.begin], byte_of[found.end])
            words[-1].append(Word(found.text, *place, tuple(pieces.get(at, ())), tuple(ids.get(at, ()))))
        sections: list[Section] = []
        normalized, begin = "", 0
        gaps = iter(words)
        for found in [*_ask(self._sections, text), _Found("", len(text), len(text), "", -1)]:
            if found.added is None:
                normalized += found.text
                continue
            of_gap = tuple(next(gaps))
            if begin < found.begin or normalized:
                place = (byte_of[begin], byte_of[found.begin])
                sections.append(Section(text[begin : found.begin], *place, normalized, of_gap))
            if found.added:
                place = (byte_of[found.begin], byte_of[found.end])
                added_id = self._added_ids[found.added]
                sections.append(Section(text[found.begin : found.end], *place, found.added, (), added_id))
            normalized, begin = "", found.end
        return sections

    def _pieces(self, text: str) -> tuple[dict[int | None, list[str]], dict[int | None, list[int]]]:
        """Pieces and ids of each word, by the word's index."""
        encoding = self.whole.encode(text, add_special_tokens=False)
        pieces: dict[int | None, list[str]] = {}
        ids: dict[int | None, list[int]] = {}
        for word, piece, piece_id in zip(encoding.word_ids, encoding.tokens, encoding.ids, strict=True):
            pieces.setdefault(word, []).append(piece)
            ids.setdefault(word, []).append(piece_id)
        return pieces, ids

    @cached_property
    def _sections(self) -> tokenizers.Tokenizer:
        return _probe(self.definition, splits=False)

    @cached_property
    def _words(self) -> tokenizers.Tokenizer:
        return _probe(self.definition, splits=True)


def _probe(definition: Definition, splits: bool) -> tokenizers.Tokenizer:
    """The definition with a model that gives every word back."""
    probe = tokenizers.Tokenizer(tokenizers.models.Unigram([(_NO_TEXT_HAS_THIS, 0.0)], _UNKNOWN, False))
    if definition.reference.normalizer is not None:
        probe.normalizer = definition.reference.normalizer
    if splits and definition.reference.pre_tokenizer is not None:
        probe.pre_tokenizer = definition.reference.pre_tokenizer
    probe.encode_special_tokens = definition.reference.encode_special_tokens
    probe.add_tokens([added_token(token, token["special"]) for token in definition.added_tokens])
    return probe


def _ask(probe: tokenizers.Tokenizer, text: str) -> list[_Found]:
    encoding = probe.encode(text, add_special_tokens=False)
    tokens = zip(encoding.tokens, encoding.offsets, encoding.ids, encoding.word_ids, strict=True)
    return [
        _Found(token, begin, end, None if token_id == _UNKNOWN else probe.id_to_token(token_id), word)
        for token, (begin, end), token_id, word in tokens
    ]
