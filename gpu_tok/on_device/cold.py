"""new chunks -> ids without the host: normalize -> split -> match of WordPiece, by kernels/cold.cu.

What these kernels do not encode, `gpu_tok.cold` does: other models, and chunks in which added tokens are still to be
found.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpu_tok.on_device.batch_table import Late, Winners
from gpu_tok.tables.native import NativeTables
from gpu_tok.tables.normalizer import COMPOSE, REORDER, NormalizerTables

THREADS = 128  # of a block, as in kernels/cold.cu


class ColdTables(NamedTuple):
    """On the device. native: the tables of `compile_native`; growth: see `growth_of`; host_flags: flags of chunks that
    only the host encodes."""

    native: NativeTables
    growth: int
    host_flags: int


def has_kernels(tables: NormalizerTables) -> bool:
    """Whether the kernels know all steps of a normalizer; if not, the host encodes new chunks.

    The first step must be a map: it is taken straight from the bytes.
    """
    return bool(tables.ascii_end and (tables.steps >= COMPOSE).all() and (tables.steps[:1] == 0).all())


def upload(device: Any, tables: NativeTables, host_flags: int) -> ColdTables:
    """The tables of the cold path in the device's memory: 8 MB for BERT uncased, most of it looked up by code point."""
    assert has_kernels(tables.normalizer)
    native = NativeTables(*(_uploaded(device, part) for part in tables))
    return ColdTables(native, growth_of(tables.normalizer), host_flags)


def _uploaded(device: Any, part: Any) -> Any:
    return part._make(device.upload(field) if isinstance(field, np.ndarray) else field for field in part)


def growth_of(tables: NormalizerTables) -> int:
    """How many code points a chunk needs room for, for each one that the first map has made of it.

    Later maps make more of them, and to sort marks takes a second place for each.

    >>> growth_of(compile_normalizer(definition))   # of bert-base-uncased
    2
    """
    lengths = np.diff(tables.template_starts)
    made = growth = 1
    for step in tables.steps[1:].tolist():
        if step >= 0:
            made *= int(lengths[tables.slot[step]].max())
        growth = max(growth, 2 * made if step == REORDER else made)
    return growth


def run(device: Any, bytes: Any, misses: Any, winners: Winners, tables: ColdTables, arena: Any, report: Any) -> Late:
    """Encodes each winner; waits for nothing. What it could not do is in the report: NEEDS_HOST; or TOO_SMALL, and
    how much room was needed.

    bytes: uint8[n]; misses: int64[2 * room]; arena: uint32[room], which the ids lie in afterwards; report: uint64[8].
    """
    of_winner = normalize(device, bytes, misses, winners, tables, arena, report)
    return match(device, tables, arena, of_winner, report)


def normalize(
    device: Any, bytes: Any, misses: Any, winners: Winners, tables: ColdTables, arena: Any, report: Any
) -> Any:
    """bytes -> normalized code points in the arena; where those of each winner lie and how many, int64[2 * winners]."""
    made, room = tables.native.normalizer, len(winners.winners)
    of_winner = device.xp.empty(2 * room, np.int64)
    device.launch("normalize_chunks", device.grid(room, THREADS), THREADS, bytes, misses, winners.winners,
                  tables.host_flags, made.steps, len(made.steps), made.slot, made.template_starts, made.template,
                  made.combining, made.pair, made.ascii, tables.growth, arena, len(arena), of_winner,
                  report)  # fmt: skip
    return of_winner


def match(device: Any, tables: ColdTables, arena: Any, of_winner: Any, report: Any) -> Late:
    """normalized code points -> ids, in the same place."""
    _normalizer, words, model = tables.native
    device.launch("match_chunks", device.grid(len(of_winner) // 2, THREADS), THREADS, words.class_of,
                  len(words.removed), words.parted, words.removed, model.row, model.continuation_root,
                  model.unknown_id, model.max_characters, arena, len(arena), of_winner, report)  # fmt: skip
    return Late(arena.view(np.int32), of_winner)
