"""bytes -> where chunks begin: kernels/cut.cu."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpu_tok.on_device import added_tokens
from gpu_tok.on_device.added_tokens import TokenTables
from gpu_tok.on_device.batch_table import starts_on
from gpu_tok.on_device.report import ALL_GOOD, FIRST_BAD, REPORT_WORDS
from gpu_tok.on_device.text import THREADS, TILE, WORD, Text
from gpu_tok.tables.added_tokens import AddedTokenTables
from gpu_tok.tables.cuts import CutTables

CLASSES = 32
BEGINS_TOKEN = 32  # a bit above the class


class CutterTables(NamedTuple):
    """On the device. class_of: uint8[0x110000], with BEGINS_TOKEN where an added token may begin; taken: uint32[64],
    a bit for each class that may stand behind, the rows of 32 classes twice. tokens: None where there are none."""

    class_of: Any
    taken: Any
    tokens: TokenTables | None


class Cuts(NamedTuple):
    """mask: uint32[words], a bit for each byte at which a chunk begins; tile_chunk: int64[tiles + 1], chunks before
    each tile; tile_section: int64[tiles + 1], sections that begin before each tile; report: uint64[8]."""

    mask: Any
    tile_chunk: Any
    tile_section: Any
    report: Any


def upload(device: Any, cuts: CutTables, added: AddedTokenTables | None = None) -> CutterTables:
    """The tables of the cut step in the device's memory. added: the tokens that it looks out for."""
    words = np.zeros(CLASSES, np.uint32)
    classes = len(cuts.taken)
    words[:classes] = (cuts.taken.astype(np.uint64) << np.arange(classes, dtype=np.uint64)).sum(axis=1)
    taken = device.upload(np.tile(words, 2))
    class_of = np.ascontiguousarray(cuts.class_of, np.uint8)
    if added is None:
        return CutterTables(device.upload(class_of), taken, None)
    class_of = class_of | BEGINS_TOKEN * added_tokens.opening_code_points(added.begins).astype(np.uint8)
    return CutterTables(device.upload(class_of), taken, added_tokens.upload(device, added))


def run(device: Any, text: Text, tables: CutterTables, report: Any = None) -> Cuts:
    """bytes -> where chunks begin, and in the report what is no UTF-8 and how many added tokens may begin.

    report: uint64[8], zeros but for FIRST_BAD, which is ALL_GOOD; None makes one. TOKENS_SEEN counts over the borders
    of texts, too: too many at times, never too few.
    """
    xp, count, sections = device.xp, len(text.bytes), len(text.section_start) - 1
    words = -(-count // WORD)
    if report is None:
        report = xp.zeros(REPORT_WORDS, np.uint64)
        report[FIRST_BAD] = ALL_GOOD
    mask, tile_chunks = xp.empty(words, np.uint32), xp.empty(text.tiles, np.int64)
    section_count = xp.full(1, sections, np.int64)
    device.launch("cut_words", device.grid(words, THREADS), THREADS, text.bytes, count, tables.class_of,
                  tables.taken, *token_arguments(tables.tokens), mask, tile_chunks, report)  # fmt: skip
    device.launch("cut_sections", device.grid(sections, THREADS), THREADS, text.bytes, text.section_start,
                  section_count, text.closed, mask, tile_chunks, report)  # fmt: skip
    tile_begin = xp.arange(text.tiles + 1, dtype=np.int64) * TILE
    tile_section = xp.searchsorted(text.section_start[:-1], tile_begin).astype(np.int64)
    return Cuts(mask, starts_on(xp, tile_chunks), tile_section, report)


def token_arguments(tokens: TokenTables | None) -> tuple[Any, ...]:
    """What cut_words is told about added tokens."""
    return (None, 0, None, None) if tokens is None else (tokens.row, tokens.normalized_root, tokens.begins,
                                                         tokens.code_point)  # fmt: skip
