"""The path of a batch, step under step."""

from __future__ import annotations

import numpy as np

from gpu_tok import added_tokens, cut, gather, intern, positions
from gpu_tok.batch import TextBatch
from gpu_tok.device import Workers
from gpu_tok.postprocess import Plan

UNIT_BYTES = 1 << 20  # about what one worker encodes at a time


def encode(
    text: TextBatch, tokens: added_tokens.AddedTokens, encoder: intern.Encoder, plan: Plan, workers: Workers
) -> gather.Rows:
    """texts -> ids, exactly the reference's."""
    sections = added_tokens.run(text, tokens, workers)  # text -> sections, between added tokens
    sections = cut.divide_long(sections, encoder.cut_table, UNIT_BYTES)
    units = cut.units_of(sections, UNIT_BYTES, ramp=encoder.table.rows_used == 0)
    end_place = np.zeros(len(sections.id), np.int64)

    def encode_unit(unit: tuple[int, int]) -> np.ndarray:  # section -> chunks -> table entries -> ids
        return intern.encode_sections(unit, sections, end_place, encoder)

    parts = workers.map(encode_unit, units)
    counts = positions.section_counts(end_place, units)
    places = positions.of_sections(counts, sections.row_section)  # where the ids of each text go
    return gather.run(parts, units, end_place, places, plan, workers)
