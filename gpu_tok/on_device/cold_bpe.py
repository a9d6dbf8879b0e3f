"""new chunks -> ids without the host: normalize -> split by stages -> merge of BPE, by kernels/cold_bpe.cu."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_tok.on_device.batch_table import Late, Winners
from gpu_tok.on_device.cold import THREADS, growth_of, later_steps, normalizer_arguments, opening_of, uploaded
from gpu_tok.tables.native import NativeBpe
from gpu_tok.tables.normalizer import ITSELF, PREPEND, REPLACE, NormalizerTables
from gpu_tok.tables.pair_entries import BUCKET
from gpu_tok.tables.trie_rows import NO_PIECE
from gpu_tok.tables.unicode import CODE_POINTS
from gpu_tok.tables.word_stages import AT_START, KIND, NOTHING, PREFIX, REPLACEMENT, SPLIT, TO_BYTES, WordStages

MOST_BYTES = 4  # of UTF-8, of one code point


class Work(NamedTuple):
    """How much room a chunk needs. opening, growth: see `cold`. There are (n + added) * factor symbols at most, where n
    is how many code points the first map makes, or, in_bytes, how many bytes these have."""

    opening: int
    growth: int
    in_bytes: bool
    added: int
    factor: int


class BpeColdTables(NamedTuple):
    """On the device. native: the tables of `compile_native`; host_flags: flags of chunks that only the host encodes."""

    native: NativeBpe
    work: Work
    host_flags: int


def upload(device: Any, tables: NativeBpe, host_flags: int) -> BpeColdTables:
    """The tables of the cold path in the device's memory: 2 MB for GPT-2, 9 MB for Qwen 3."""
    native = NativeBpe(*(uploaded(device, part) for part in tables))
    return BpeColdTables(native, work_of(tables), host_flags)


def work_of(tables: NativeBpe) -> Work:
    """Bounds of what the steps make of a chunk.

    >>> work_of(compile_native(gpt2))   # a symbol for each byte
    Work(opening=0, growth=1, in_bytes=True, added=0, factor=1)
    """
    weight = weights(tables)
    opening, later = _made_by_normalizer(tables.normalizer, weight)
    added, factor = _made_by_stages(tables.stages, weight)
    in_bytes = bool(weight.max() > 1)
    passes = int((tables.stages.stage[:, KIND] == TO_BYTES).sum()) + (tables.model.expansion > 1)
    for_bytes = 2 ** max(passes - 1, 0) * max(tables.model.expansion - MOST_BYTES + 1, 1)
    normalizer = tables.normalizer
    return Work(opening_of(normalizer), growth_of(normalizer), in_bytes, opening + added, later * factor * for_bytes)


def weights(tables: NativeBpe) -> npt.NDArray[np.int64]:
    """How many symbols a code point can become, which stages or the model take for bytes once: int64[0x110000]."""
    weight = np.ones(CODE_POINTS, np.int64)
    for first in (0x80, 0x800, 0x10000):
        weight[first:] += 1
    if (tables.stages.stage[:, KIND] == TO_BYTES).any():
        return weight
    if tables.model.expansion == 1:
        return np.ones(CODE_POINTS, np.int64)
    known = np.flatnonzero((tables.model.symbol != NO_PIECE).all(axis=0))
    weight[known] = 1
    return weight


def _made_by_normalizer(tables: NormalizerTables, weight: npt.NDArray[np.int64]) -> tuple[int, int]:
    """What is prepended, and how much all steps but a first map make of a text, by weight."""
    is_itself = tables.template == ITSELF
    parts = np.where(is_itself, 0, weight[np.where(is_itself, 0, tables.template)])
    fixed, itself = (_sums(each, tables.template_starts) for each in (parts, is_itself.astype(np.int64)))
    opening, factor = 0, 1
    for step, template in later_steps(tables):
        if step >= 0:
            slot = tables.slot[step]
            made = fixed[slot] + itself[slot] * weight
            factor *= max(1, int((-(-made // weight)).max()))
        elif step == REPLACE:
            factor *= max(1, int(fixed[template]))
        elif step == PREPEND:
            opening += int(fixed[template])
    return opening, factor


def _sums(flat: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The sum of each row."""
    through = np.concatenate([[0], np.cumsum(flat)])
    return through[starts[1:]] - through[starts[:-1]]


def _made_by_stages(stages: WordStages, weight: npt.NDArray[np.int64]) -> tuple[int, int]:
    """What prefixes add to a text, and how much prefixes of each word and replacements make of it, by weight."""
    added, factor, splits = 0, 1, False
    for stage in stages.stage:
        if stage[KIND] == SPLIT:
            splits = True
        elif stage[KIND] != TO_BYTES:
            prefix, replacement = (0 if part == NOTHING else int(weight[part]) for part in stage[[PREFIX, REPLACEMENT]])
            factor *= max(replacement, 1)
            if splits and not stage[AT_START]:
                factor *= 1 + prefix
            else:
                added += prefix
    return added, factor


def run(device: Any, bytes: Any, misses: Any, winners: Winners, tables: BpeColdTables, arena: Any, report: Any) -> Late:
    """Encodes each winner, as `cold.run` does."""
    of_winner = normalize(device, bytes, misses, winners, tables, arena, report)
    split(device, misses, winners, tables, arena, of_winner, report)
    return merge(device, tables, arena, of_winner, report)


def normalize(
    device: Any, bytes: Any, misses: Any, winners: Winners, tables: BpeColdTables, arena: Any, report: Any
) -> Any:
    """bytes -> normalized code points in the arena; where those of each winner lie and how many, int64[2 * winners]."""
    work, room = tables.work, len(winners.winners)
    of_winner = device.xp.empty(2 * room, np.int64)
    device.launch("normalize_bpe_chunks", device.grid(room, THREADS), THREADS, bytes, misses, winners.winners,
                  tables.host_flags, *normalizer_arguments(tables.native.normalizer), work.opening, work.growth,
                  int(work.in_bytes), work.added, work.factor, tables.native.model.short, arena, len(arena),
                  of_winner, report)  # fmt: skip
    return of_winner


def split(
    device: Any, misses: Any, winners: Winners, tables: BpeColdTables, arena: Any, of_winner: Any, report: Any
) -> None:
    """normalized code points -> characters of words, in the same place, with the highest bit where a word begins."""
    stages = tables.native.stages
    device.launch("split_chunks", device.grid(len(of_winner) // 2, THREADS), THREADS, misses, winners.winners,
                  stages.stage, len(stages.stage), stages.atom_of, stages.step, stages.byte_character, arena,
                  len(arena), of_winner, report)  # fmt: skip


def merge(device: Any, tables: BpeColdTables, arena: Any, of_winner: Any, report: Any) -> Late:
    """characters of words -> ids, in the same place."""
    model, grid = tables.native.model, device.grid(len(of_winner) // 2, THREADS)
    merges = (model.entry, len(model.entry) // BUCKET, model.hash_shift, model.merged_id, model.short)
    around = (model.prefix, len(model.prefix), model.suffix, len(model.suffix))
    device.launch("merge_chunks", grid, THREADS, model.symbol, model.symbol.shape[1], model.row_at, model.byte_id,
                  *around, int(model.expansion > 1), model.unknown_id, int(model.fuses_unknown),
                  int(model.takes_words), model.word_row, *merges, arena, of_winner, report)  # fmt: skip
    device.launch("merge_long_chunks", grid, THREADS, *merges, arena, of_winner, report)
    return Late(arena.view(np.int32), of_winner)
