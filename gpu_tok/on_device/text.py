"""Texts and their sections in the memory of a device."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpu_tok.added_tokens import TEXT, WHOLE_TEXT, Sections
from gpu_tok.tables import ends

THREADS = 256  # of a block, for all kernels of the path
WARP = 32
WORD, TILE = 32, 1024  # bytes of text; kernels/tile.cuh


class Text(NamedTuple):
    """Sections on the device. bytes: uint8[n]; section_start: int64[sections + 1]; kind: int32[sections], a token's id
    or the complement of a section's flags, None where neither matters; closed: uint8[sections], sections that are not
    cut, or None; row_section: int64[rows + 1]; tiles: how many. is_divided: False where each row is one section so far,
    and nobody has looked for added tokens."""

    bytes: Any
    section_start: Any
    kind: Any
    closed: Any
    row_section: Any
    tiles: int
    is_divided: bool = True


def of_rows(device: Any, bytes: Any, row_start: Any, flag_mask: int) -> Text:
    """Texts on the device, each taken for one section. bytes: uint8[n]; row_start: int64[rows + 1], from 0 to n.

    flag_mask: the end flags that the tokenizer's keys need.
    """
    xp, rows = device.xp, len(row_start) - 1
    kind = xp.full(rows, ~WHOLE_TEXT, np.int32) if flag_mask else None
    row_section = xp.arange(rows + 1, dtype=np.int64)
    tiles = -(-len(bytes) // TILE)
    return Text(aligned(device, bytes), row_start, kind, None, row_section, tiles, False)


def aligned(device: Any, bytes: Any) -> Any:
    """The bytes, or a copy of them at an address where kernels can read 16 at once."""
    bytes = device.xp.ascontiguousarray(bytes)
    return bytes if device.address(bytes) % 16 == 0 else device.copy(bytes)


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
