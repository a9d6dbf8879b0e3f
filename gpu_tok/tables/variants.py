"""The derived definitions E of a tokenizer: what the reference is run with on a chunk.

A chunk is encoded without added tokens, truncation, padding and post-processor, and without everything that acts only
at an end which the chunk does not have (`gpu_tok.tables.ends`).
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import orjson
import tokenizers

from gpu_tok.errors import DefinitionError
from gpu_tok.tables import ends
from gpu_tok.tables.definition import Definition, Part, added_token

_made: WeakKeyDictionary[Definition, dict[int, tokenizers.Tokenizer]] = WeakKeyDictionary()


def variant(definition: Definition, flags: int) -> tokenizers.Tokenizer:
    """The definition that a chunk with these end flags is encoded by. It shares the reference's model.

    >>> variant(llama_2, ends.SECTION_FIRST).encode("the", add_special_tokens=False).tokens
    ['▁the']
    >>> variant(llama_2, 0).encode("the", add_special_tokens=False).tokens
    ['the']

    With `ends.WHOLE` the added tokens with `normalized: true` stay. Raises `DefinitionError` where the same text may
    have different ids each time (BPE dropout).
    """
    variants = _made.setdefault(definition, {})
    flags &= flags_that_matter(definition) | (ends.WHOLE if normalized_tokens(definition) else 0)
    if flags not in variants:
        variants[flags] = _make(definition, flags)
    return variants[flags]


def flags_that_matter(definition: Definition) -> int:
    """The end flags that change something in this definition; `WHOLE` is not among them.

    >>> flags_that_matter(gpt2), flags_that_matter(llama_2) == ends.SECTION_FIRST
    (0, True)
    """
    return sum(
        flag
        for flag in (ends.SECTION_FIRST, ends.SECTION_LAST, ends.DOCUMENT_FIRST, ends.SUBSECTION_FIRST)
        if parts_for(definition, 0) != parts_for(definition, flag)
    )


def parts_for(definition: Definition, flags: int) -> tuple[Part | None, Part | None]:
    """The normalizer and the pre-tokenizer for a chunk with these end flags, as `tokenizer.json` spells them."""
    normalizer = _normalizer(definition.json.get("normalizer"), flags)
    pre_tokenizer, _splits = _pre_tokenizer(definition.json.get("pre_tokenizer"), flags, False)
    return normalizer, pre_tokenizer


def normalized_tokens(definition: Definition) -> list[Part]:
    """The added tokens that are looked for in normalized text."""
    return [token for token in definition.added_tokens if token["normalized"]]


def _normalizer(part: Part | None, flags: int) -> Part | None:
    if part is None:
        return None
    if part["type"] == "Sequence":
        children = [_normalizer(child, flags) for child in part["normalizers"]]
        return {**part, "normalizers": [child for child in children if child is not None]}
    if part["type"] == "Prepend" and not flags & ends.SECTION_FIRST:
        return None
    if part["type"] == "Strip":
        return {
            **part,
            "strip_left": part["strip_left"] and bool(flags & ends.SECTION_FIRST),
            "strip_right": part["strip_right"] and bool(flags & ends.SECTION_LAST),
        }
    return part


def _pre_tokenizer(part: Part | None, flags: int, split_before: bool) -> tuple[Part | None, bool]:
    """The part for these flags, and whether its input or its output is already in pieces.

    Behind an earlier splitter `Metaspace` and `add_prefix_space` act on every piece, wherever the chunk stands.
    """
    if part is None:
        return None, split_before
    kind = part["type"]
    if kind == "Sequence":
        children = []
        for child in part["pretokenizers"]:
            derived, split_before = _pre_tokenizer(child, flags, split_before)
            children.append(derived)
        return {**part, "pretokenizers": children}, split_before
    starts = split_before or bool(flags & ends.SUBSECTION_FIRST)
    if kind == "Metaspace":
        scheme = part["prepend_scheme"]
        keeps = flags & ends.DOCUMENT_FIRST if scheme == "first" else starts
        derived = {key: value for key, value in part.items() if key not in ("add_prefix_space", "str_rep")}
        return {**derived, "prepend_scheme": scheme if keeps else "never"}, split_before or part["split"]
    if kind == "ByteLevel":
        derived = {**part, "add_prefix_space": part["add_prefix_space"] and starts}
        return derived, split_before or part.get("use_regex", True)
    return part, True


def _make(definition: Definition, flags: int) -> tokenizers.Tokenizer:
    dropout = definition.model.get("dropout")
    if dropout:
        raise DefinitionError(
            f"tokenizer.json: model.dropout is {dropout}: the same text has different ids each time",
            'set "dropout" to null in the file for encoding; it belongs to training',
        )
    tokenizer = tokenizers.Tokenizer(definition.reference.model)
    normalizer, pre_tokenizer = _built(*parts_for(definition, flags))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    if flags & ends.WHOLE:
        _add_normalized_tokens(tokenizer, definition)
    return tokenizer


def _built(normalizer: Part | None, pre_tokenizer: Part | None) -> tuple[Any, Any]:
    """The parts as the reference's objects."""
    empty_model = {"type": "BPE", "vocab": {}, "merges": []}
    text = orjson.dumps({"normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "model": empty_model})
    tokenizer = tokenizers.Tokenizer.from_str(text.decode())
    return tokenizer.normalizer, tokenizer.pre_tokenizer


def _add_normalized_tokens(tokenizer: tokenizers.Tokenizer, definition: Definition) -> None:
    """Adds the tokens that are looked for in normalized text, under their ids.

    The reference numbers added tokens in the order of their coming, so all of them are added; those with
    `normalized: false` have been found before, so they are made special and special ones are passed over
    (`encode_special_tokens`).
    """
    hidden = definition.reference.encode_special_tokens
    tokenizer.encode_special_tokens = True
    tokenizer.add_tokens(
        [
            added_token(token, special=not token["normalized"] or (token["special"] and hidden))
            for token in definition.added_tokens
        ]
    )
    for token in definition.added_tokens:
        if tokenizer.token_to_id(token["content"]) != token["id"]:
            raise DefinitionError(
                f"tokenizer.json: added token {token['content']!r} has id {token['id']}, which the reference does not "
                f"give it again (tokenizers {tokenizers.__version__})",
                "save the tokenizer with the reference once more: its ids are then in order",
            )
