"""Special tokens, truncation and padding change where ids go, not the ids: one plan for a batch, and the places."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_tok.errors import TextError
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.postprocess import (
    Pad,
    Template,
    Truncation,
    resolve_padding,
    resolve_truncation,
)

UNLIMITED = -1
NO_PADDING, PAD_TO_LONGEST, PAD_TO_LENGTH = 0, 1, 2


class Plan(NamedTuple):
    """What is written for each text, as arrays and numbers that a kernel takes.

        keep_at_most 3, keep_last False, pad_mode PAD_TO_LENGTH, pad_length 7
        text         5 6 7 8
        row          101 5 6 7 102 0 0        prefix, kept ids, suffix, padding

    prefix, suffix: int32[]. keep_at_most: ids of a text that stay, or UNLIMITED; `keep_last` keeps the end of a text
    (truncation on the left). `refuses`: a text with more ids than that makes the reference fail.
    """

    prefix: npt.NDArray[np.int32]
    suffix: npt.NDArray[np.int32]
    keep_at_most: int
    keep_last: bool
    pad_mode: int
    pad_length: int
    pad_multiple: int
    pad_id: int
    pad_left: bool
    refuses: bool


def resolve(
    definition: Definition,
    truncation: bool | None = None,
    max_length: int | None = None,
    padding: Literal["longest", "max_length", False] | None = None,
    pad_to_multiple_of: int | None = None,
    pad_id: int | None = None,
) -> tuple[Truncation | None, Pad | None]:
    """Truncation and padding for the arguments of `encode_batch`.

    With padding="max_length", `max_length` is the length of the rows; it cuts only where truncation is on.
    """
    cut_length = None if padding == "max_length" and not truncation and not definition.truncation else max_length
    cut = resolve_truncation(definition, truncation, cut_length)
    return cut, resolve_padding(definition, padding, max_length, pad_to_multiple_of, pad_id)


def plan_of(template: Template, cut: Truncation | None, pad: Pad | None) -> Plan:
    """Template, truncation and padding as one plan."""
    keep = UNLIMITED if cut is None else _kept_length(cut, template)
    mode = NO_PADDING if pad is None else PAD_TO_LONGEST if pad.length is None else PAD_TO_LENGTH
    pad = pad or Pad()
    return Plan(
        np.array(template.prefix, np.int32),
        np.array(template.suffix, np.int32),
        keep,
        cut is not None and cut.side == "left",
        mode,
        pad.length or 0,
        pad.multiple,
        pad.pad_id,
        pad.side == "left",
        cut is not None and keep > 0 and (cut.strategy == "only_second" or cut.stride >= keep),
    )


def _kept_length(cut: Truncation, template: Template) -> int:
    """A `max_length` smaller than the special tokens cuts nothing: so does the reference (0.23.3)."""
    length = cut.max_length - template.added
    return length if length >= 0 else UNLIMITED


def place(counts: npt.NDArray[np.int64], plan: Plan) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """How many ids of each text are kept, and how long its row is with special tokens and padding.

    >>> place(np.array([4, 1]), plan)
    (array([3, 1]), array([7, 7]))

    counts: int64[rows], the ids of each text. Raises `TextError` for the first text that the reference would refuse.
    """
    refuse_cut(counts, plan)
    return lengths_of(counts, plan)


def refuse_cut(counts: npt.NDArray[np.int64], plan: Plan) -> None:
    """Raises `TextError` for the first text that the reference would refuse to truncate."""
    if plan.refuses and np.any(counts > plan.keep_at_most):
        row = int(np.flatnonzero(counts > plan.keep_at_most)[0])
        raise TextError(
            row,
            f"has {counts[row]} ids and cannot be truncated to {plan.keep_at_most}: the file's truncation is "
            "`only_second`, or its stride is not smaller than that",
            "pass truncation=False, or a larger max_length",
        )


def lengths_of(counts: Any, plan: Plan) -> tuple[Any, Any]:
    """`place` without the refusal. Arrays of a device stay there, and nothing waits for them."""
    kept = counts if plan.keep_at_most == UNLIMITED else np.minimum(counts, plan.keep_at_most)
    lengths = kept + (len(plan.prefix) + len(plan.suffix))
    if plan.pad_mode == NO_PADDING or len(lengths) == 0:
        return kept, lengths
    width = lengths.max() if plan.pad_mode == PAD_TO_LONGEST else plan.pad_length
    if plan.pad_multiple > 0:
        width = -(-width // plan.pad_multiple) * plan.pad_multiple
    return kept, np.maximum(lengths, width)
