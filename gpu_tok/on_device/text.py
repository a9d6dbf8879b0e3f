"""Texts and their sections in the memory of a device."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpu_tok.added_tokens import TEXT, Sections
from gpu_tok.tables import ends

THREADS = 256  # of a block, for all kernels of the path
WORD, TILE = 32, 1024  # bytes of text; kernels/tile.cuh


class Text(NamedTuple):
    """Sections on the device. bytes: uint8[n]; section_start: int64[sections + 1]; kind: int32[sections], a token's id
    or the complement of a section's flags, None where neither matters; closed: uint8[sections], sections that are not
    cut, or None; row_section: int64[rows + 1]; tiles: how many."""

    bytes: Any
    section_start: Any
    kind: Any
    closed: Any
    row_section: Any
    tiles: int


def upload(device: Any, sections: Sections, flag_mask: int) -> Text:
    """Sections to the device. flag_mask: the end flags that the tokenizer's keys need."""
    first, last = int(sections.start[0]), int(sections.start[-1])
    whole, token = sections.flags & ends.WHOLE != 0, sections.id != TEXT
    closed = (whole | token).astype(np.uint8)
    is_closed = bool(closed.any())
    kind = np.where(token, sections.id, ~sections.flags.astype(np.int32))
    return Text(
        device.upload(sections.bytes[first:last]),
        device.upload(sections.start - first),
        device.upload(kind) if is_closed or flag_mask else None,
        device.upload(closed) if is_closed else None,
        device.upload(np.asarray(sections.row_section)),
        -(-(last - first) // TILE),
    )


def row_at(device: Any, text: Text, at: int) -> int:
    """The row of the text that a byte is in."""
    start, row_section = device.download(text.section_start), device.download(text.row_section)
    section = int(np.searchsorted(start, at, side="right")) - 1
    return int(np.searchsorted(row_section, section, side="right")) - 1
