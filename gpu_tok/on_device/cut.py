"""bytes -> where chunks begin: kernels/cut.cu."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpu_tok.cut import row_words, run_words, third_bytes
from gpu_tok.on_device import added_tokens
from gpu_tok.on_device.added_tokens import TokenTables
from gpu_tok.on_device.batch_table import starts_on
from gpu_tok.on_device.report import new_report
from gpu_tok.on_device.text import THREADS, TILE, WORD, Text
from gpu_tok.tables.added_tokens import AddedTokenTables
from gpu_tok.tables.cuts import CutTables

CLASSES = 32
BEGINS_TOKEN = 32  # a bit above the class
KINDS = 4  # of pairs of neighbours that a third character may make a cut of


class CutterTables(NamedTuple):
    """On the device. class_of: uint8[0x110000], with BEGINS_TOKEN where an added token may begin; taken: uint32[64],
    a bit for each class that is cut off behind, the rows of 32 classes twice; asked: the same, but not for those that
    `pairs` holds: uint32[words], None where nothing is asked. runs: uint32[65], the struct RunTables, which says what
    of it is asked in good runs only; None where nothing is. kinds: uint8[64], by class, twice too: what `third_bytes`
    says of pairs that begin with it, and in the upper half of pairs that end with it; None where no third character
    makes a cut. tokens: None where there are none."""

    class_of: Any
    taken: Any
    asked: Any
    pairs: Any
    runs: Any
    kinds: Any
    tokens: TokenTables | None


class Words(NamedTuple):
    """What the classes of code points say, whatever the sections: they can be cut by any later. mask, report: as in
    `Cuts`; tile_chunks: int64[tiles], bits of each tile of the mask; tile_tokens: uint8[tiles], 1 where an added token
    may begin, None where there are none."""

    mask: Any
    tile_chunks: Any
    tile_tokens: Any
    report: Any


class Cuts(NamedTuple):
    """mask: uint32[words], a bit for each byte at which a chunk begins; tile_chunk: int64[tiles + 1], chunks before
    each tile; tile_section: int64[tiles + 1], sections that begin before each tile; report: uint64[8]."""

    mask: Any
    tile_chunk: Any
    tile_section: Any
    report: Any


def upload(device: Any, cuts: CutTables, added: AddedTokenTables | None = None) -> CutterTables:
    """The tables of the cut step in the device's memory. added: the tokens that it looks out for."""
    anywhere = row_words(cuts.asked)
    in_runs, begins, inside = run_words(cuts.runs)
    asked = anywhere | in_runs if cuts.runs else anywhere
    taken, asked = (device.upload(np.tile(_padded(words), 2)) for words in (row_words(cuts.taken), asked))
    runs = device.upload(np.concatenate([_padded(anywhere), _padded(begins), inside])) if cuts.runs else None
    class_of = np.ascontiguousarray(cuts.class_of, np.uint8)
    tokens = None
    if added is not None:
        class_of = class_of | BEGINS_TOKEN * added_tokens.opening_code_points(added.begins).astype(np.uint8)
        tokens = added_tokens.upload(device, added)
    pairs = device.upload(cuts.pairs) if len(cuts.pairs) else None
    kinds = None
    if cuts.thirds is not None:
        before, after = third_bytes(cuts.thirds, len(cuts.taken))
        kinds = device.upload(np.tile(_padded(before | after << KINDS), 2))
    return CutterTables(device.upload(class_of), taken, asked, pairs, runs, kinds, tokens)


def _padded(words: np.ndarray) -> np.ndarray:
    """The words or bytes of 32 classes, 0 for those that are not there."""
    return np.pad(words, (0, CLASSES - len(words)))


def cut_words(device: Any, text: Text, tables: CutterTables) -> Words:
    """bytes -> cuts by classes, and in a new report what is no UTF-8 and how many added tokens may begin.

    These are counted over the borders of texts, too: too many at times, never too few, in any tile.
    """
    xp, count = device.xp, len(text.bytes)
    words = -(-count // WORD)
    mask, tile_chunks, report = xp.empty(words, np.uint32), xp.empty(text.tiles, np.int64), new_report(device)
    tile_tokens = None if tables.tokens is None else xp.zeros(text.tiles, np.uint8)
    device.launch("cut_words", device.grid(words, THREADS), THREADS, text.bytes, count, *table_arguments(tables),
                  mask, tile_chunks, tile_tokens, report)  # fmt: skip
    return Words(mask, tile_chunks, tile_tokens, report)


def cut_sections(device: Any, text: Text, words: Words, tables: CutterTables) -> Cuts:
    """Cuts by classes -> where chunks begin. Changes `words`, which sections of these can then be cut by in their turn:
    what the borders of the larger ones ask for holds for those of their parts."""
    xp, count, sections = device.xp, len(text.bytes), len(text.section_start) - 1
    mask, tile_chunks, _tile_tokens, report = words
    device.launch("cut_sections", device.grid(sections, THREADS), THREADS, text.bytes, count, text.section_start,
                  sections, text.closed, *border_arguments(tables), mask, tile_chunks, report)  # fmt: skip
    tile_begin = xp.arange(text.tiles + 1, dtype=np.int64) * TILE
    tile_section = xp.searchsorted(text.section_start[:-1], tile_begin).astype(np.int64)
    return Cuts(mask, starts_on(xp, tile_chunks), tile_section, report)


def table_arguments(tables: CutterTables) -> tuple[Any, ...]:
    """The tables as cut_words takes them."""
    pair_words = 0 if tables.pairs is None else len(tables.pairs)
    cuts = (tables.class_of, tables.taken, tables.asked, tables.pairs, pair_words, tables.runs, tables.kinds)
    tokens = tables.tokens
    if tokens is None:
        return (*cuts, None, 0, None, None)
    return (*cuts, tokens.row, tokens.normalized_root, tokens.begins, tokens.code_point)


def border_arguments(tables: CutterTables) -> tuple[Any, ...]:
    """Of the tables what cut_sections takes."""
    return (tables.class_of, tables.taken, tables.kinds)
