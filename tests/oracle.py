"""The oracle: Hugging Face `tokenizers`, asked in the ways that tests need.

Everything here goes through the reference's public API; nothing of gpu_tok is imported.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tokenizers import Tokenizer


@lru_cache(maxsize=8)
def load(definition: str) -> Tokenizer:
    """The reference for the text of a `tokenizer.json`, shared: don't change it; `copy_of` gives one of your own."""
    return Tokenizer.from_str(definition)


def copy_of(reference: Tokenizer) -> Tokenizer:
    return Tokenizer.from_str(reference.to_str())


@lru_cache(maxsize=64)
def plain(definition: str) -> Tokenizer:
    """The reference with the file's truncation and padding switched off."""
    reference = Tokenizer.from_str(definition)
    reference.no_truncation()
    reference.no_padding()
    return reference


@lru_cache(maxsize=64)
def bare(definition: str) -> Tokenizer:
    """The reference without added tokens, post-processor, truncation and padding: what the cold path must equal.

    A vocabulary entry keeps its id; only what is found before normalization is gone.
    """
    return Tokenizer.from_str(changed(definition, added_tokens=[], post_processor=None, truncation=None, padding=None))


def changed(definition: str, **parts: Any) -> str:
    """The definition with some of its top parts replaced: `changed(text, normalizer=None)`."""
    described = json.loads(definition)
    described.update(copy.deepcopy(parts))
    return json.dumps(described)


def encode(reference: Tokenizer, texts: Sequence[str], add_special_tokens: bool = True) -> list[list[int]]:
    """Ids of each text."""
    return [row.ids for row in reference.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)]


def decode(reference: Tokenizer, rows: Sequence[Sequence[int]], skip_special_tokens: bool = True) -> list[str]:
    return [reference.decode(list(row), skip_special_tokens=skip_special_tokens) for row in rows]


def normalize(reference: Tokenizer, text: str) -> str:
    """The text as the normalizer leaves it; unchanged where there is none."""
    return text if reference.normalizer is None else reference.normalizer.normalize_str(text)


def pre_tokenize(reference: Tokenizer, text: str) -> list[str]:
    """The words that the pre-tokenizer makes of a text, taken as normalized already."""
    if reference.pre_tokenizer is None:
        return [text] if text else []
    return [word for word, _span in reference.pre_tokenizer.pre_tokenize_str(text)]


def words(reference: Tokenizer, text: str) -> list[str]:
    """Normalizer, then pre-tokenizer."""
    return pre_tokenize(reference, normalize(reference, text))


def pieces(reference: Tokenizer, text: str, add_special_tokens: bool = False) -> list[str]:
    return reference.encode(text, add_special_tokens=add_special_tokens).tokens
