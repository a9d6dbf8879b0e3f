"""A tokenizer's definition: what its `tokenizer.json` says, in the reference's own spelling.

The file is loaded by the reference and written out by it again, so old spellings (`str_rep`, a model without a
`type`, merges as strings) reach the rest of gpu_tok in one form only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson
import tokenizers

from gpu_tok.errors import DefinitionError

Part = dict[str, Any]  # a normalizer, pre-tokenizer, ... as the file spells it
CHILDREN = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
    "decoder": "decoders",
}  # the field in which a `Sequence` has its parts


class Definition:
    """One tokenizer: the reference object and its canonical description.

    >>> definition = Definition.from_file("tokenizer.json")
    >>> definition.model["type"], [part["type"] for part in definition.normalizers]
    ('WordPiece', ['BertNormalizer'])
    """

    def __init__(self, reference: tokenizers.Tokenizer) -> None:
        self.reference = reference
        self.json: Part = orjson.loads(reference.to_str())

    @classmethod
    def from_file(cls, path: str | Path) -> Definition:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            finding = getattr(error, "strerror", None) or error
            raise DefinitionError(f"{path}: cannot be read: {finding}", "name a tokenizer.json file") from error
        return cls.from_str(text, name=str(path))

    @classmethod
    def from_str(cls, text: str, name: str = "tokenizer.json") -> Definition:
        try:
            reference = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # the reference raises bare Exception
            raise DefinitionError(
                f"{name}: the reference (tokenizers {tokenizers.__version__}) does not load it: {error}",
                "gpu_tok reads what the reference reads; check that the file is a whole tokenizer.json",
            ) from error
        return cls(reference)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical description, in hexadecimal."""
        return hashlib.sha256(orjson.dumps(self.json, option=orjson.OPT_SORT_KEYS)).hexdigest()

    @property
    def model(self) -> Part:
        return self.json["model"]

    @property
    def added_tokens(self) -> list[Part]:
        return self.json.get("added_tokens") or []

    @property
    def post_processor(self) -> Part | None:
        return self.json.get("post_processor")

    @property
    def decoder(self) -> Part | None:
        return self.json.get("decoder")

    @property
    def truncation(self) -> Part | None:
        return self.json.get("truncation")

    @property
    def padding(self) -> Part | None:
        return self.json.get("padding")

    def parts(self, name: str) -> list[tuple[str, Part]]:
        """The parts of one of `CHILDREN` in order, nested `Sequence`s unfolded, each with its place in the file.

        >>> [place for place, _part in definition.parts("normalizer")]
        ['normalizer.normalizers[0]', 'normalizer.normalizers[1]']
        """
        return list(_unfold(self.json.get(name), name, CHILDREN[name]))

    @cached_property
    def normalizers(self) -> list[Part]:
        """The parts of the normalizer, in order."""
        return [part for _place, part in self.parts("normalizer")]

    @cached_property
    def pre_tokenizers(self) -> list[Part]:
        """The parts of the pre-tokenizer, in order."""
        return [part for _place, part in self.parts("pre_tokenizer")]

    @cached_property
    def vocab(self) -> dict[str, int]:
        """Piece -> id of the model alone, without added tokens. For Unigram the index is the id; the first of equal
        pieces counts."""
        vocab = self.model["vocab"]
        if isinstance(vocab, dict):
            return vocab
        pieces: dict[str, int] = {}
        for piece_id, (piece, _score) in enumerate(vocab):
            pieces.setdefault(piece, piece_id)
        return pieces


def _unfold(part: Part | None, place: str, children: str) -> Iterator[tuple[str, Part]]:
    if part is None:
        return
    if part["type"] != "Sequence":
        yield place, part
        return
    for at, child in enumerate(part[children]):
        yield from _unfold(child, f"{place}.{children}[{at}]", children)


def added_token(token: Part, special: bool) -> tokenizers.AddedToken:
    """An added token of a definition as an object of the reference."""
    return tokenizers.AddedToken(
        token["content"],
        single_word=token["single_word"],
        lstrip=token["lstrip"],
        rstrip=token["rstrip"],
        normalized=token["normalized"],
        special=special,
    )
