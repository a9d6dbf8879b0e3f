"""Texts whose post-processor has no native form: the reference encodes them whole."""

from __future__ import annotations

import numpy as np
import tokenizers

from gpu_tok.batch import Padding, TextBatch, TokenBatch, starts_of
from gpu_tok.device import reference_without_threads
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.postprocess import Pad, Truncation


def encode_whole(
    definition: Definition, text: TextBatch, add_special_tokens: bool, cut: Truncation | None, pad: Pad | None
) -> TokenBatch:
    """The batch as the reference's `encode_batch` gives it (grade 3 for the whole path)."""
    reference = tokenizers.Tokenizer.from_str(definition.reference.to_str())
    reference.encode_special_tokens = definition.reference.encode_special_tokens
    reference.no_truncation()
    reference.no_padding()
    if cut is not None:
        reference.enable_truncation(cut.max_length, stride=cut.stride, strategy=cut.strategy, direction=cut.side)
    if pad is not None:
        reference.enable_padding(
            direction=pad.side, pad_id=pad.pad_id, pad_type_id=pad.pad_type_id, length=pad.length,
            pad_to_multiple_of=pad.multiple or None,
        )  # fmt: skip
    with reference_without_threads():
        encodings = reference.encode_batch(text.to_list(), add_special_tokens=add_special_tokens)
    ids = np.array([token_id for encoding in encodings for token_id in encoding.ids], np.int32)
    types = np.array([type_id for encoding in encodings for type_id in encoding.type_ids], np.int32)
    starts = starts_of(np.array([len(encoding.ids) for encoding in encodings], np.int64))
    counts = np.array([sum(encoding.attention_mask) for encoding in encodings], np.int64)
    fill = pad or Pad()
    return TokenBatch(
        ids, starts, counts, padding=Padding(fill.pad_id, fill.pad_type_id, fill.side), each_type_id=types
    )
