"""A tokenizer's definition: what its `tokenizer.json` says, in the reference's own spelling.

The file is loaded by the reference and written out by it again, so old spellings (`str_rep`, a model without a
`type`, merges as strings) reach the rest of gpu_tok in one form only.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson
import tokenizers

from gpu_tok.errors import DefinitionError


class Definition:
    """One tokenizer: the reference object and its canonical description.

    >>> definition = Definition.from_file("tokenizer.json")
    >>> definition.model["type"], [part["type"] for part in definition.normalizers]
    ('WordPiece', ['BertNormalizer'])
    """

    def __init__(self, reference: tokenizers.Tokenizer) -> None:
        self.reference = reference
        self.json: dict[str, Any] = orjson.loads(reference.to_str())

    @classmethod
    def from_file(cls, path: str | Path) -> Definition:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DefinitionError(f"{path}: cannot be read: {error}", "name a tokenizer.json file") from error
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
    def model(self) -> dict[str, Any]:
        return self.json["model"]

    @property
    def added_tokens(self) -> list[dict[str, Any]]:
        return self.json.get("added_tokens") or []

    @property
    def post_processor(self) -> dict[str, Any] | None:
        return self.json.get("post_processor")

    @property
    def decoder(self) -> dict[str, Any] | None:
        return self.json.get("decoder")

    @property
    def truncation(self) -> dict[str, Any] | None:
        return self.json.get("truncation")

    @property
    def padding(self) -> dict[str, Any] | None:
        return self.json.get("padding")

    @cached_property
    def normalizers(self) -> list[dict[str, Any]]:
        """The normalizer as a flat list of parts, in order; nested `Sequence`s are unfolded."""
        return _unfold(self.json.get("normalizer"), "normalizers")

    @cached_property
    def pre_tokenizers(self) -> list[dict[str, Any]]:
        """The pre-tokenizer as a flat list of parts, in order; nested `Sequence`s are unfolded."""
        return _unfold(self.json.get("pre_tokenizer"), "pretokenizers")

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


def _unfold(part: dict[str, Any] | None, inner: str) -> list[dict[str, Any]]:
    if part is None:
        return []
    if part["type"] != "Sequence":
        return [part]
    return [leaf for child in part[inner] for leaf in _unfold(child, inner)]
