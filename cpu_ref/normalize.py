"""Normal forms of code points: *normalize* -> split -> match. The programs are `gpu_tok.tables.normalizer`."""

from __future__ import annotations

import numpy as np

from cpu_ref.compiled import inlined, kernel
from cpu_ref.search import match_end
from gpu_tok.tables.ends import SECTION_FIRST
from gpu_tok.tables.normalizer import (
    ATOMS,
    CLASS,
    CLASSES,
    COMPOSE,
    DELETED,
    FIRST,
    FIRST_FACTOR,
    ITSELF,
    LAST,
    NEEDS_LEFT,
    NEEDS_RIGHT,
    PAIR_SLOTS,
    PREPEND,
    REORDER,
    REPLACE,
    SECOND,
    SECOND_FACTOR,
    TEMPLATE,
)

FEW_MARKS = 32  # no language has longer runs

# Hangul syllables, as the Unicode Standard numbers them (section 3.12): lead, vowel, tail.
SYLLABLE, LEAD, VOWEL, TAIL = 0xAC00, 0x1100, 0x1161, 0x11A7
LEADS, VOWELS, TAILS = 19, 21, 28


@inlined
def normalize(code_point, count, flags, scratch, tables):
    """Normalizes code_point[:count] in place; returns the new count.

    code_point, scratch: uint32, both with room for `count * tables.expansion` code points: a bound on each step's
    result (NFC 4, NFKC 18 for U+FDFA, BERT uncased 8). What scratch holds means nothing, before and after. flags: the
    end flags of the text. tables: NormalizerTables.

        BERT uncased     [T, É, \\t, 中]  count 4
        code_point       [t, e, ' ', ' ', 中, ' ']  returns 6
    """
    seen = 0
    for at in range(count):
        seen |= code_point[at]
    if seen < tables.ascii_end:
        return map_ascii(code_point, count, tables.ascii)
    for number in range(len(tables.steps)):
        step, operand = tables.steps[number], tables.operand[number]
        if step >= 0:
            count = apply_map(code_point, count, scratch, step, tables)
        elif step == REORDER:
            reorder(code_point, count, scratch, tables.combining)
        elif step == COMPOSE:
            count = compose(code_point, count, tables.combining, tables.pair)
        elif step == REPLACE:
            count = replace(code_point, count, scratch, operand, tables)
        elif step == PREPEND:
            if flags & SECTION_FIRST and count > 0:
                count = prepend(code_point, count, operand, tables)
        else:
            count = strip(code_point, count, flags, operand, tables.atom_of[operand[ATOMS]])
    return count


@inlined
def map_ascii(code_point, count, ascii):
    end = 0
    for at in range(count):
        made = ascii[code_point[at]]
        if made != DELETED:
            code_point[end] = made
            end += 1
    return end


@inlined
def apply_map(code_point, count, scratch, number, tables):
    """Replaces each code point by its template in map `number`; returns the new count."""
    end = 0
    for at in range(count):
        mapped = code_point[at]
        slot = tables.slot[number, mapped]
        if slot == 0:
            scratch[end] = mapped
            end += 1
            continue
        for part in range(tables.template_starts[slot], tables.template_starts[slot + 1]):
            scratch[end] = mapped if tables.template[part] == ITSELF else tables.template[part]
            end += 1
    for at in range(end):
        code_point[at] = scratch[at]
    return end


@inlined
def replace(code_point, count, scratch, operand, tables):
    """Writes the template for each match; returns the new count."""
    atom_of, first, last = tables.atom_of[operand[ATOMS]], np.uint32(operand[FIRST]), np.uint16(operand[LAST])
    start, stop = tables.template_starts[operand[TEMPLATE]], tables.template_starts[operand[TEMPLATE] + 1]
    end, at = 0, 0
    while at < count:
        behind = match_end(code_point, at, count, atom_of, tables.step, first, last)
        if behind > at:
            for part in range(start, stop):
                scratch[end] = tables.template[part]
                end += 1
            at = behind
        else:
            scratch[end] = code_point[at]
            end += 1
            at += 1
    for at in range(end):
        code_point[at] = scratch[at]
    return end


@inlined
def prepend(code_point, count, operand, tables):
    start, stop = tables.template_starts[operand[TEMPLATE]], tables.template_starts[operand[TEMPLATE] + 1]
    for at in range(count - 1, -1, -1):
        code_point[at + stop - start] = code_point[at]
    for part in range(start, stop):
        code_point[part - start] = tables.template[part]
    return count + stop - start


@inlined
def strip(code_point, count, flags, operand, is_white):
    """Takes white space from the ends that the text has; returns the new count."""
    start = 0
    while flags & operand[NEEDS_LEFT] and start < count and is_white[code_point[start]]:
        start += 1
    while flags & operand[NEEDS_RIGHT] and count > start and is_white[code_point[count - 1]]:
        count -= 1
    for at in range(start, count):
        code_point[at - start] = code_point[at]
    return count - start


@inlined
def reorder(code_point, count, scratch, combining):
    """Sorts each run of marks (combining class not 0) by class, stably.

    code_point   a \u0307 \u0323 b        class 0 230 220 0
    becomes      a \u0323 \u0307 b
    """
    marks = 0  # directly before `at`
    for at in range(count + 1):
        if at < count and combining[code_point[at]] & CLASS != 0:
            marks += 1
            continue
        if marks > 1:
            sort_marks(code_point, at - marks, at, scratch, combining)
        marks = 0


@inlined
def sort_marks(code_point, start, end, scratch, combining):
    """Few marks by insertion; many by a pass for each class: linear, and without counters to allocate."""
    if end - start <= FEW_MARKS:
        for at in range(start + 1, end):
            mark = code_point[at]
            place = at
            while place > start and combining[code_point[place - 1]] & CLASS > combining[mark] & CLASS:
                code_point[place] = code_point[place - 1]
                place -= 1
            code_point[place] = mark
        return
    for at in range(start, end):
        scratch[at] = code_point[at]
    place = start
    for rank in range(1, CLASSES):
        for at in range(start, end):
            if combining[scratch[at]] & CLASS == rank:
                code_point[place] = scratch[at]
                place += 1


@inlined
def compose(code_point, count, combining, pair):
    """Joins each base with the marks behind it where a composed code point exists; returns the new count.

    A mark is blocked from its base by one of the same or a higher class between them, and by any other base.
    """
    end = 0
    base = -1  # where in the output the last base stands
    left_class = -1  # of what stands left of the next code point; -1 if that is the base itself
    for at in range(count):
        right = code_point[at]
        right_class = int(combining[right] & CLASS)
        if base >= 0 and left_class < right_class and combining[right] & SECOND:
            composed = composition(code_point[base], right, pair)
            if composed != 0:
                code_point[base] = composed
                continue
        if right_class == 0:
            base, left_class = end, -1
        else:
            left_class = right_class
        code_point[end] = right
        end += 1
    return end


@inlined
def composition(first, second, pair):
    """The code point that a pair composes to, or 0."""
    left, right = int(first), int(second)
    if VOWEL <= right < VOWEL + VOWELS:
        if LEAD <= left < LEAD + LEADS:
            return SYLLABLE + ((left - LEAD) * VOWELS + right - VOWEL) * TAILS
        return 0
    if TAIL < right < TAIL + TAILS:
        syllable = left - SYLLABLE
        if 0 <= syllable < LEADS * VOWELS * TAILS and syllable % TAILS == 0:
            return left + right - TAIL
        return 0
    at = (left * FIRST_FACTOR + right * SECOND_FACTOR) & (PAIR_SLOTS - 1)
    while pair[at, 0] != 0:
        if pair[at, 0] == left and pair[at, 1] == right:
            return int(pair[at, 2])
        at = (at + 1) & (PAIR_SLOTS - 1)
    return 0


@kernel
def normalize_text(code_point, flags, tables):
    """What the normalizer makes of a text with these end flags: uint32[n] in, uint32 out, a new array."""
    buffer = np.empty(len(code_point) * tables.expansion, np.uint32)
    scratch = np.empty(len(buffer), np.uint32)
    for at in range(len(code_point)):
        buffer[at] = code_point[at]
    return buffer[: normalize(buffer, len(code_point), flags, scratch, tables)]
