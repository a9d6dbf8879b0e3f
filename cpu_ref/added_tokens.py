"""Finds added tokens: divides sections of text at them, as the reference's `AddedVocabulary` does.

text        a b < x > c d        token <x>, id 7
sections    a b|<x>|  c d
id           -1|  7|   -1
"""

from __future__ import annotations

import numpy as np

from cpu_ref.compiled import inlined, kernel
from cpu_ref.machine import address_of, equal_mask, load_u8, trailing_zeros
from cpu_ref.utf8 import code_point_at, code_point_length
from gpu_tok.tables.added_tokens import (
    FOLLOWS,
    JOINS,
    LSTRIP,
    NORMALIZED,
    PASSED_OVER,
    RSTRIP,
    SINGLE_WORD,
    SPACE,
    SUSPECT,
    SUSPICIOUS,
    TEXT,
    WORD,
)
from gpu_tok.tables.ends import DOCUMENT_FIRST, SECTION_FIRST, SECTION_LAST, SUBSECTION_FIRST, WHOLE
from gpu_tok.tables.trie_rows import ID, LINK, PARENT, WORD_ROOT

# One type for all whole numbers: every other one would compile the helpers once more.
I64 = np.int64
START, END, TOKEN_ID, FLAGS, COLUMNS = 0, 1, 2, 3, 4  # the columns of a table of sections
SUSPECTED = 128  # in FLAGS: the host has still to see whether this section holds a `normalized` token
NO_TOKEN = -1
REFUSED = -1
BLOCK, BLOCK_SHIFT = 64, 6
AT, TEXT_FROM, TOKEN_START, TOKEN_END, WHITE_FROM, WHITE_END, STATE_SIZE = 0, 1, 2, 3, 4, 5, 6  # where a search stands


@kernel
def mark_places(bytes, begin, end, begins, first_bytes, places):
    """Marks the bytes at which anything may begin, a bit each; returns how many blocks have one.

    places: uint64[blocks], a word for each 64 bytes. first_bytes: uint8[n], looked for 64 bytes at a time; where there
    are none, each pair of bytes is looked up in `begins`.

        bytes       a b < x > c [ d        tokens <x> and [MASK]
        places      0 0 1 0 0 0 0 0        `[` can begin one, but `[d` cannot
    """
    address, kinds = address_of(bytes), len(first_bytes)
    whole = (end - begin) // BLOCK if kinds > 0 else 0
    count = 0
    for block in range(whole):
        at = begin + block * BLOCK
        candidates = equal_mask(address + at, first_bytes[0])
        for index in range(1, kinds):
            candidates |= equal_mask(address + at, first_bytes[index])
        found = np.uint64(0)
        while candidates:
            lowest = candidates & (~candidates + np.uint64(1))
            place = at + np.int64(trailing_zeros(candidates))
            candidates ^= lowest
            if begins[pair_at(address, place, end)]:
                found |= lowest
        places[block] = found
        count += found != 0
    for block in range(whole, len(places)):
        at = begin + block * BLOCK
        found = np.uint64(0)
        for offset in range(min(BLOCK, end - at)):
            if begins[pair_at(address, at + offset, end)]:
                found |= np.uint64(1) << np.uint64(offset)
        places[block] = found
        count += found != 0
    return count


@inlined
def pair_at(address, place, end):
    """Two bytes as an index of `begins`; behind the last one stands a zero."""
    following = np.int64(load_u8(address + place + 1)) if place + 1 < end else 0
    return np.int64(load_u8(address + place)) << 8 | following


@inlined
def next_place(bytes, at, end, kind, base, places, begins):
    """The first place from `at` where something of this kind may begin; `end` if nowhere. Blocks begin at `base`."""
    if at >= end:
        return end
    address = address_of(bytes)
    block, last_block = (at - base) >> BLOCK_SHIFT, (end - 1 - base) >> BLOCK_SHIFT
    left = places[block] & ~np.uint64(0) << np.uint64((at - base) & (BLOCK - 1))
    while True:
        while left == 0:
            if block == last_block:
                return end
            block += 1
            left = places[block]
        at = base + (block << BLOCK_SHIFT) + np.int64(trailing_zeros(left))
        if at >= end:
            return end
        if begins[pair_at(address, at, end)] & kind:
            return at
        left &= left - np.uint64(1)


@inlined
def longest_match(bytes, at, end, row, root):
    """The number of the longest token that begins at `at`, and where it ends; NO_TOKEN if none does."""
    node, token, token_end = root, NO_TOKEN, at
    for place in range(at, end):
        slot = row[node, LINK] + int(bytes[place])
        if row[slot, PARENT] != node:
            break
        node = slot
        if row[node, ID] >= 0:
            token, token_end = row[node, ID], place + 1
    return token, token_end


@inlined
def code_point_before(bytes, at):
    """Where the code point that ends at `at` begins."""
    at -= 1
    while bytes[at] & 0xC0 == 0x80:
        at -= 1
    return at


@inlined
def stands_alone(bytes, begin, end, token_start, token_end, code_point):
    """Whether no word character touches a token, within the section `begin:end`."""
    if token_start > begin and code_point[code_point_at(bytes, code_point_before(bytes, token_start))] & WORD:
        return False
    return token_end == end or not code_point[code_point_at(bytes, token_end)] & WORD


@inlined
def white_start(bytes, at, lowest, code_point):
    """Where the white space that ends at `at` begins, not before `lowest`."""
    while at > lowest:
        before = code_point_before(bytes, at)
        if not code_point[code_point_at(bytes, before)] & SPACE:
            break
        at = before
    return max(at, lowest)


@inlined
def white_end(bytes, at, end, code_point, state):
    """Where the white space that begins at `at` ends. The last answer is kept: matches may lie in what it covers."""
    if state[WHITE_FROM] <= at < state[WHITE_END]:
        return state[WHITE_END]
    state[WHITE_FROM] = at
    while at < end and code_point[code_point_at(bytes, at)] & SPACE:
        at += code_point_length(bytes[at])
    state[WHITE_END] = at
    return at


@inlined
def next_token(bytes, begin, end, kind, base, places, tables, state):
    """Finds the next token of the section `begin:end`; writes TOKEN_START and TOKEN_END, returns its number.

    A match that `single_word` or `encode_special_tokens` discards has still swallowed its text. What `rstrip` eats is
    searched on, and a token found there begins inside it: text may so be covered twice, as in the reference.
    """
    root = tables.normalized_root if kind == NORMALIZED else WORD_ROOT
    while True:
        at = next_place(bytes, state[AT], end, kind, base, places, tables.begins)
        if at >= end:
            return NO_TOKEN
        token, token_end = longest_match(bytes, at, end, tables.row, root)
        if token == NO_TOKEN:
            state[AT] = at + 1
            continue
        state[AT] = token_end
        asked = tables.token[token, 1]
        if asked & PASSED_OVER:
            continue
        if asked & SINGLE_WORD and not stands_alone(bytes, begin, end, at, token_end, tables.code_point):
            continue
        state[TOKEN_START] = white_start(bytes, at, state[TEXT_FROM], tables.code_point) if asked & LSTRIP else at
        state[TOKEN_END] = token_end
        if asked & RSTRIP:
            state[TOKEN_END] = white_end(bytes, token_end, end, tables.code_point, state)
        return token


@inlined
def holds_suspect(bytes, begin, end, base, places, tables):
    """Whether a raw section has a pair of code points by which a `normalized` token may come about.

    A suspect that is not ASCII, or can make its successor too, needs none.
    """
    at = next_place(bytes, begin, end, I64(SUSPECT), base, places, tables.begins)
    while at < end:
        code_point = code_point_at(bytes, at)
        meaning = tables.code_point[code_point]
        if meaning & SUSPICIOUS:
            if code_point >= 0x80 or meaning & FOLLOWS:
                return True
            if at + 1 < end and tables.code_point[code_point_at(bytes, at + 1)] & FOLLOWS:
                return True
        at = next_place(bytes, at + 1, end, I64(SUSPECT), base, places, tables.begins)
    return False


@inlined
def ends_of(start, end, section_start, section_end, section_flags, kind):
    """The flags of what is left of a section as text: a raw section, or a sub-section where tokens are normalized."""
    flags = I64(SUBSECTION_FIRST)
    if start == section_start:
        flags |= section_flags & (SECTION_FIRST | DOCUMENT_FIRST)
    if end == section_end:
        flags |= section_flags & SECTION_LAST
    return flags if kind == NORMALIZED else flags | SECTION_FIRST | SECTION_LAST


@inlined
def put(divided, count, start, end, token_id, flags):
    """Writes a section if there is room, and counts it either way."""
    if count < len(divided):
        divided[count, START] = start
        divided[count, END] = end
        divided[count, TOKEN_ID] = token_id
        divided[count, FLAGS] = flags
    return count + 1


@inlined
def divide_section(bytes, section, kind, base, places, tables, state, divided, count):
    """Writes the texts and tokens of one section; returns the new count, or REFUSED where the reference panics."""
    begin, end, flags = section[START], section[END], section[FLAGS]
    state[AT] = state[TEXT_FROM] = begin
    state[WHITE_FROM] = state[WHITE_END] = -1
    first = count
    while True:
        token = next_token(bytes, begin, end, kind, base, places, tables, state)
        if token == NO_TOKEN:
            break
        at, text_from, start, stop = state[AT], state[TEXT_FROM], state[TOKEN_START], state[TOKEN_END]
        if kind == NORMALIZED and at < end and tables.code_point[code_point_at(bytes, at)] & JOINS:
            return put(divided, first, begin, end, I64(TEXT), flags | WHOLE)
        if start > stop:
            return REFUSED
        if text_from < start:
            left = ends_of(text_from, start, begin, end, flags, kind)
            count = put(divided, count, text_from, start, I64(TEXT), left)
        if start < stop:
            count = put(divided, count, start, stop, I64(tables.token[token, 0]), I64(0))
        state[TEXT_FROM] = stop
    text_from = state[TEXT_FROM]
    if text_from != end or begin == end:
        left = ends_of(text_from, end, begin, end, flags, kind)
        count = put(divided, count, text_from, end, I64(TEXT), left)
    return count


@kernel
def divide(bytes, sections, kind, base, places, tables, first, divided):
    """Divides all sections of text at the tokens of one kind; returns the new number and the section refused, or -1.

    bytes: uint8[n]; sections, divided: int64[sections, COLUMNS]; places: uint64[blocks] from `mark_places`, the first
    of which begins at `base`; first: int64[sections + 1], where the parts of each section begin. The number may be
    larger than `divided` has room for: then it is called again with more.
    """
    state = np.zeros(STATE_SIZE, np.int64)
    count = I64(0)
    for index in range(len(sections)):
        first[index] = count
        section = sections[index]
        start, end, token_id, flags = section[START], section[END], section[TOKEN_ID], section[FLAGS]
        if token_id != TEXT:
            count = put(divided, count, start, end, token_id, flags)
        elif kind == NORMALIZED and holds_suspect(bytes, start, end, base, places, tables):
            count = put(divided, count, start, end, I64(TEXT), flags | SUSPECTED)
        else:
            count = divide_section(bytes, section, kind, base, places, tables, state, divided, count)
            if count == REFUSED:
                return 0, index
    first[len(sections)] = count
    return count, -1
