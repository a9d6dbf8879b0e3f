"""bytes -> where chunks begin: kernels/cut.cu."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpu_tok.on_device.batch_table import starts_on
from gpu_tok.on_device.report import ALL_GOOD, FIRST_BAD, REPORT_WORDS
from gpu_tok.on_device.text import THREADS, TILE, WORD, Text
from gpu_tok.tables.cuts import CutTables

CLASSES = 32


class CutterTables(NamedTuple):
    """On the device. class_of: uint8[0x110000]; taken: uint32[32], a bit for each class that may stand behind."""

    class_of: Any
    taken: Any


class Cuts(NamedTuple):
    """mask: uint32[words], a bit for each byte at which a chunk begins; tile_chunk: int64[tiles + 1], chunks before
    each tile; tile_section: int64[tiles + 1], sections that begin before each tile; report: uint64[8]."""

    mask: Any
    tile_chunk: Any
    tile_section: Any
    report: Any


def upload(device: Any, cuts: CutTables) -> CutterTables:
    """The tables of the cut step in the device's memory."""
    words = np.zeros(CLASSES, np.uint32)
    classes = len(cuts.taken)
    words[:classes] = (cuts.taken.astype(np.uint64) << np.arange(classes, dtype=np.uint64)).sum(axis=1)
    return CutterTables(device.upload(np.ascontiguousarray(cuts.class_of, np.uint8)), device.upload(words))


def run(device: Any, text: Text, tables: CutterTables) -> Cuts:
    """bytes -> where chunks begin."""
    xp, count, sections = device.xp, len(text.bytes), len(text.section_start) - 1
    words = -(-count // WORD)
    mask, report = xp.empty(words, np.uint32), xp.zeros(REPORT_WORDS, np.uint64)
    report[FIRST_BAD] = ALL_GOOD
    first_bad = report[FIRST_BAD : FIRST_BAD + 1]
    section_count, tile_chunks = xp.full(1, sections, np.int64), xp.empty(text.tiles, np.int64)
    device.launch("cut_words", device.grid(words, THREADS), THREADS, text.bytes, count, tables.class_of,
                  tables.taken, mask, first_bad)  # fmt: skip
    device.launch("cut_sections", device.grid(sections, THREADS), THREADS, text.bytes, text.section_start,
                  section_count, text.closed, mask, first_bad)  # fmt: skip
    device.launch("count_chunks", device.grid(text.tiles * WORD, THREADS), THREADS, mask, words, tile_chunks)
    tile_begin = xp.arange(text.tiles + 1, dtype=np.int64) * TILE
    tile_section = xp.searchsorted(text.section_start[:-1], tile_begin).astype(np.int64)
    return Cuts(mask, starts_on(xp, tile_chunks), tile_section, report)
