"""new chunks -> ids without the host: normalize -> split -> match of WordPiece, by kernels/cold.cu.

What these kernels do not encode, `gpu_tok.cold` does: other models, and chunks in which added tokens are still to be
found.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpu_tok.on_device.batch_table import Late, Winners
from gpu_tok.tables.native import NativeTables
from gpu_tok.tables.normalizer import PREPEND, REORDER, REPLACE, TEMPLATE, NormalizerTables

THREADS = 128  # of a block, as in kernels/cold.cu


class ColdTables(NamedTuple):
    """On the device. native: the tables of `compile_native`; opening, growth: see `opening_of` and `growth_of`;
    host_flags: flags of chunks that only the host encodes."""

    native: NativeTables
    opening: int
    growth: int
    host_flags: int


def upload(device: Any, tables: NativeTables, host_flags: int) -> ColdTables:
    """The tables of the cold path in the device's memory: 8 MB for BERT uncased, most of it looked up by code point."""
    native = NativeTables(*(uploaded(device, part) for part in tables))
    return ColdTables(native, opening_of(tables.normalizer), growth_of(tables.normalizer), host_flags)


def uploaded(device: Any, part: Any) -> Any:
    """The same tables with their arrays in the device's memory. part: a NamedTuple."""
    return part._make(device.upload(field) if isinstance(field, np.ndarray) else field for field in part)


def growth_of(tables: NormalizerTables) -> int:
    """How many code points a chunk needs room for, for each one that the first map has made of it.

    Later steps make more of them, and to sort marks takes a second place for each.

    >>> growth_of(compile_normalizer(definition))   # of bert-base-uncased
    2
    """
    lengths = np.diff(tables.template_starts)
    made = growth = 1
    for step, template in later_steps(tables):
        if step >= 0:
            made *= int(lengths[tables.slot[step]].max())
        elif step == REPLACE:
            made *= max(1, int(lengths[template]))
        growth = max(growth, 2 * made if step == REORDER else made)
    return growth


def opening_of(tables: NormalizerTables) -> int:
    """How many code points are prepended to a chunk that begins a section."""
    lengths = np.diff(tables.template_starts)
    return sum(int(lengths[template]) for step, template in later_steps(tables) if step == PREPEND)


def later_steps(tables: NormalizerTables) -> list[tuple[int, int]]:
    """The steps with their templates, without a map that is the first: what that makes is counted."""
    steps = list(zip(tables.steps.tolist(), tables.operand[:, TEMPLATE].tolist(), strict=True))
    return steps[1:] if steps and steps[0][0] >= 0 else steps


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
    room = len(winners.winners)
    of_winner = device.xp.empty(2 * room, np.int64)
    device.launch("normalize_chunks", device.grid(room, THREADS), THREADS, bytes, misses, winners.winners,
                  tables.host_flags, *normalizer_arguments(tables.native.normalizer), tables.opening, tables.growth,
                  arena, len(arena), of_winner, report)  # fmt: skip
    return of_winner


def normalizer_arguments(tables: NormalizerTables) -> tuple[Any, ...]:
    """A program as kernels take it."""
    ascii = tables.ascii if tables.ascii_end else None
    return (tables.steps, len(tables.steps), tables.slot, tables.template_starts, tables.template, tables.combining,
            tables.pair, ascii, tables.operand, tables.atom_of, tables.step)  # fmt: skip


def match(device: Any, tables: ColdTables, arena: Any, of_winner: Any, report: Any) -> Late:
    """normalized code points -> ids, in the same place."""
    _normalizer, words, model = tables.native
    device.launch("match_chunks", device.grid(len(of_winner) // 2, THREADS), THREADS, words.class_of,
                  len(words.removed), words.parted, words.removed, model.row, model.continuation_root,
                  model.unknown_id, model.max_characters, arena, len(arena), of_winner, report)  # fmt: skip
    return Late(arena.view(np.int32), of_winner)
