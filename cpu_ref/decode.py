"""Ids to bytes: count what each row becomes, then write it where a prefix sum has placed it.

Kernels work on a range of rows [begin, end), so that ranges run on a thread pool; rows of other ranges stay untouched.
"""

from __future__ import annotations

import numpy as np

from cpu_ref.compiled import inlined, kernel
from cpu_ref.machine import address_of, load_u8, load_u64, store_u64
from gpu_tok.tables.decode import DROPPED, INLINE, LONG, PARTIAL

_LAST_ID = 0xFFFFFFFF  # the reference's ids are 32 bits wide
_TOP_BITS = np.uint64(0x8080808080808080)
_CODE_SHIFT = np.uint64(56)
_COUNT_MASK = np.uint64(0x00FFFFFFFFFFFFFF)


@kernel
def count_bytes(ids, starts, rows, begin, end, counts, heads, partial):
    """How many bytes each row becomes; returns the first row that has an impossible id, or -1.

    ids: i32|i64[n]; starts: i64[n + 1]; rows: u64[1|2, ids, 2] (gpu_tok.tables.decode). Writes counts: i64[n];
    heads: i64[n], one past the first token that leaves something, which is looked up in rows[0] and the others not;
    and partial: bool[n], whether a token of the row is no UTF-8 by itself.
    """
    size, others = rows.shape[1], len(rows) - 1
    for row in range(begin, end):
        total, flags, which = 0, 0, 0
        heads[row] = starts[row + 1]
        for at in range(starts[row], starts[row + 1]):
            token_id = np.int64(ids[at])
            if token_id < 0 or token_id > _LAST_ID:
                return row
            if token_id >= size:
                continue
            word = rows[which, token_id, 1]
            code = np.int64(word >> _CODE_SHIFT)
            if code >= DROPPED:
                continue
            if at < heads[row]:
                heads[row], which = at + 1, others
            flags |= code
            total += np.int64(word & _COUNT_MASK) if code & LONG else code & INLINE
        counts[row] = total
        partial[row] = flags & PARTIAL != 0
    return -1


@kernel
def write_bytes(ids, starts, heads, rows, pool, begin, end, places, out):
    """Writes each row at its place; 16 bytes at a time, of which the next token overwrites what was too much.

    places: i64[n + 1], where each row's bytes go in `out`; the last bytes of the range are written one by one, for
    what follows belongs to another range.
    """
    size, base, limit = rows.shape[1], address_of(out), places[end]
    for row in range(begin, end):
        to = places[row]
        for part in range(2):
            which = part if len(rows) == 2 else 0
            for at in range(heads[row] if part else starts[row], starts[row + 1] if part else heads[row]):
                token_id = np.int64(ids[at])
                if token_id >= size:
                    continue
                low, high = rows[which, token_id, 0], rows[which, token_id, 1]
                code = np.int64(high >> _CODE_SHIFT)
                count = code & INLINE
                if code & LONG:
                    count = np.int64(high & _COUNT_MASK)
                    for byte in range(count):
                        out[to + byte] = pool[np.int64(low) + byte]
                elif to + 16 <= limit:
                    store_u64(base + to, low)
                    store_u64(base + to + 8, high)
                else:
                    for byte in range(count):
                        word = low if byte < 8 else high
                        out[to + byte] = np.uint8(word >> np.uint64(8 * (byte & 7)) & np.uint64(0xFF))
                to += count


@kernel
def count_repaired(bytes, places, partial, begin, end, counts):
    """How many bytes each row has once invalid parts are U+FFFD; returns how many rows have one.

    bytes: u8[n] at places: i64[n + 1]; only rows marked in `partial` are read, and valid ones are unmarked.
    """
    base, bad_rows = address_of(bytes), 0
    for row in range(begin, end):
        if not partial[row]:
            continue
        at, last = base + places[row], base + places[row + 1]
        total, bad = 0, False
        while at < last:
            length = 8 if at + 8 <= last and load_u64(at) & _TOP_BITS == 0 else _part_length(at, last)
            bad |= length < 0
            total += length if length > 0 else 3
            at += abs(length)
        counts[row] = total
        partial[row] = bad
        bad_rows += bad
    return bad_rows


@kernel
def write_repaired(bytes, places, partial, begin, end, new_places, out):
    """Copies rows to their new places, with U+FFFD for each maximal invalid part of those marked in `partial`."""
    base = address_of(bytes)
    for row in range(begin, end):
        at, last, to = places[row], places[row + 1], new_places[row]
        if not partial[row]:
            for byte in range(last - at):  # in a loop: an assignment to a slice takes seconds to compile
                out[to + byte] = bytes[at + byte]
            continue
        while at < last:
            length = _part_length(base + at, base + last)
            if length > 0:
                for byte in range(length):
                    out[to + byte] = bytes[at + byte]
                to += length
            else:
                out[to], out[to + 1], out[to + 2] = 0xEF, 0xBF, 0xBD
                to += 3
            at += abs(length)


@inlined
def _part_length(at, last):
    """The length of the code point at the address `at`, or minus the length of a maximal invalid part.

    The parts are those of Unicode's table 3-7 (the longest start of what could have become a code point), which is
    what Rust's `from_utf8_lossy` replaces. Addresses, not arrays: counting an array's users at each call would cost
    more than the look at its bytes.
    """
    lead = load_u8(at)
    if lead < 0x80:
        return 1
    if lead < 0xC2 or lead > 0xF4:
        return -1
    low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
    high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
    if at + 1 >= last or load_u8(at + 1) < low or load_u8(at + 1) > high:
        return -1
    length = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    for more in range(2, length):
        if at + more >= last or load_u8(at + more) & 0xC0 != 0x80:
            return -more
    return length
