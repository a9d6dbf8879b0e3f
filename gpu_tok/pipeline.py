"""The path of a batch, step under step."""

from __future__ import annotations

import numpy as np

from gpu_tok import added_tokens, cut, gather, intern, positions
from gpu_tok.batch import TextBatch
from gpu_tok.device import Workers
from gpu_tok.postprocess import Plan

SMALLEST_UNIT, LARGEST_UNIT = 1 << 20, 1 << 22  # bytes
UNITS_A_WORKER = 4  # at least, if they are not the smallest: one is done soon after the other then


def encode(
    text: TextBatch, tokens: added_tokens.AddedTokens, encoder: intern.Encoder, plan: Plan, workers: Workers
) -> gather.Rows:
    """texts -> ids, exactly the reference's."""
    sections = added_tokens.run(text, tokens, workers)  # text -> sections, between added tokens
    size = unit_bytes(int(text.starts[-1] - text.starts[0]), workers.count)
    sections = cut.divide_long(sections, encoder.cut_table, size)
    units = cut.units_of(sections, size, ramp=encoder.table.rows_used == 0)
    end_place = np.zeros(len(sections.id), np.int64)

    def encode_unit(unit: tuple[int, int]) -> np.ndarray:  # section -> chunks -> table entries -> ids
        return intern.encode_sections(unit, sections, end_place, encoder)

    parts = workers.map(encode_unit, units)
    counts = positions.section_counts(end_place, units)
    places = positions.of_sections(counts, sections.row_section)  # where the ids of each text go
    return gather.run(parts, units, end_place, places, plan, workers)


def unit_bytes(byte_count: int, workers: int) -> int:
    """About what one worker encodes at a time.

    As much as can be: each unit with new chunks has to bring the tables of the cold path back into the caches. But
    workers that share want to end at the same time.
    """
    if workers == 1:
        return LARGEST_UNIT
    return min(max(byte_count // (UNITS_A_WORKER * workers), SMALLEST_UNIT), LARGEST_UNIT)
