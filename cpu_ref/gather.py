"""ids of chunks -> ids of texts: late ids are put in, and every text's ids go to their place in the output."""

from __future__ import annotations

import numpy as np

from cpu_ref.compiled import inlined, kernel
from cpu_ref.hot import MISS_PLACE, MISS_SECTION
from cpu_ref.intern import SPARE, copy_ids
from cpu_ref.machine import address_of


@kernel
def insert(ids, id_count, misses, number, late_ids, late_starts, section_end_place, first_section, last_section):
    """Puts the ids that the cold path made where the hot path left gaps; returns int32[all].

    ids: int32, `id_count` of them and SPARE behind. number: int32[misses], the row of late_ids, late_starts (int32,
    int64[rows + 1]) that each miss takes.
    section_end_place: int64[sections], moved along.

        ids, gap at 1      7 9        late  4 4
        result             7 4 4 9
    """
    total = id_count
    for miss in range(len(number)):
        total += late_starts[number[miss] + 1] - late_starts[number[miss]]
    result = np.empty(total + SPARE, np.int32)
    from_address, to_address, late_address = address_of(ids), address_of(result), address_of(late_ids)
    source, place, miss = np.int64(0), np.int64(0), 0
    for section in range(first_section, last_section):
        while miss < len(number) and misses[miss, MISS_SECTION] <= section:
            place, source = _copy(from_address, source, misses[miss, MISS_PLACE], to_address, place)
            begin, end = late_starts[number[miss]], late_starts[number[miss] + 1]
            if end + 3 <= len(late_ids):
                copy_ids(late_address + 4 * begin, to_address + 4 * place, end - begin)
            else:
                for at in range(begin, end):
                    result[place + at - begin] = late_ids[at]
            place += end - begin
            miss += 1
        place, source = _copy(from_address, source, section_end_place[section], to_address, place)
        section_end_place[section] = place
    return result[:total]


@inlined
def _copy(from_address, source, source_end, to_address, place):
    """Copies the ids up to source_end, sixteen at a time, and so some behind them to where the next ones go."""
    for at in range(0, 4 * (source_end - source), 64):
        copy_ids(from_address + 4 * source + at, to_address + 4 * place + at, 16)
    return place + source_end - source, source_end


@kernel
def place_sections(ids, section_end_place, first_section, last_section, section_row, section_offset, keep_begin,
                   keep_count, text_start, output):  # fmt: skip
    """Copies the ids of a unit's sections to where their texts' ids belong.

    section_row: int64[sections], the text of a section; section_offset: int64[sections], how many ids of the same text
    come before it. keep_begin, keep_count: int64[texts], which ids of a text are kept; text_start: int64[texts], where
    the first kept one goes in `output` (int32).
    """
    source = 0
    for section in range(first_section, last_section):
        source_end = section_end_place[section]
        row = section_row[section]
        begin = max(section_offset[section], keep_begin[row])
        end = min(section_offset[section] + source_end - source, keep_begin[row] + keep_count[row])
        shift = source - section_offset[section]
        place = text_start[row] - keep_begin[row]
        for at in range(begin, end):
            output[place + at] = ids[shift + at]
        source = source_end


@kernel
def fill_rows(starts, text_start, keep_count, prefix, suffix, pad_id, first_row, last_row, output):
    """Writes what stands around the ids of each text: special tokens, and padding up to the row's ends."""
    for row in range(first_row, last_row):
        begin = text_start[row] - len(prefix)
        for at in range(starts[row], begin):
            output[at] = pad_id
        for at in range(len(prefix)):
            output[begin + at] = prefix[at]
        end = text_start[row] + keep_count[row]
        for at in range(len(suffix)):
            output[end + at] = suffix[at]
        for at in range(end + len(suffix), starts[row + 1]):
            output[at] = pad_id
