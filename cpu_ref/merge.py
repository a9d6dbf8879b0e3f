"""Ids of words by merging neighbours: normalize -> split -> *merge*. As `BPE::tokenize` of the reference.

Of all neighbours in a word that have a merge, those of the lowest rank are merged first, and of these the leftmost.
Short words search their few candidates for it; long ones keep them in a heap, so their time grows as n log n.
"""

from __future__ import annotations

import numpy as np

from cpu_ref.compiled import inlined, kernel
from cpu_ref.trie import step_code_point
from cpu_ref.utf8 import put_code_point
from gpu_tok.tables.bpe import (
    BUCKET,
    FIRST,
    ID_BITS,
    LAST,
    MULTIPLIER,
    NO_ENTRY,
    NO_RANK,
    PLACE_BITS,
    RANK_BITS,
    SHORT,
)
from gpu_tok.tables.trie_rows import ID, NO_PIECE, WORD_ROOT

LANES = 8  # candidates that are compared at a time
WIDE_ID_BITS, WIDE_RANK_BITS, WIDE_PLACE_BITS = np.uint64(ID_BITS), np.uint64(RANK_BITS), np.uint64(PLACE_BITS)
WIDE_NO_RANK, NO_PAIR = np.uint64(NO_RANK), NO_ENTRY >> np.uint64(RANK_BITS)
NO_CANDIDATE = np.uint64(NO_RANK << PLACE_BITS)
SYMBOL, RANK, BEFORE, BEHIND, COLUMNS = 0, 1, 2, 3, 4  # of a long word: its symbols as a linked list
HEAP_SHIFT = 40  # what waits in the heap is rank << HEAP_SHIFT | place
NOWHERE = np.uint64(SHORT)  # the place before the first symbol of a short word and behind its last


@kernel
def merge(code_point, word, word_starts, model, ids, ends, id_starts):
    """Writes the ids of texts, where each piece ends, and which ids each text has, id_starts.

    code_point: uint32. word: int64[n, 2], rows (start, end) in it; text i has `word_starts[i]:word_starts[i + 1]`.
    model: BpeTables. ids, ends: int32 and int64, room for `model.expansion` a code point.

        word      h u g g i n g        merges  i n, u g, in g, h ug
        by rank   h u g g in g  ->  h ug g in g  ->  h ug g ing  ->  hug g ing
        ends      3   4 7
    """
    word_count = word_starts[len(word_starts) - 1]
    symbol_starts = np.empty(word_count + 1, np.int64)
    write_symbols(code_point, word[:word_count], model, ids, ends, symbol_starts)
    merge_symbols(symbol_starts, word_starts, model, ids, ends, id_starts)


@kernel
def write_symbols(code_point, word, model, ids, ends, symbol_starts):
    """Writes what words are before any merge, where each symbol ends, and which symbols each word has, symbol_starts.

    An unknown character waits for the next known one or the end of the word, so bytes overtake it.

        vocab <unk> a <0xC3> <0xA9>    中éa  ->  <0xC3> <0xA9> <unk> a
    """
    symbol, row_at, unknown_id, fuses_unknown = model.symbol, model.row_at, model.unknown_id, model.fuses_unknown
    byte_id, prefix, suffix = model.byte_id, model.prefix, model.suffix
    takes_words, word_row = model.takes_words, model.word_row
    last_column = np.int64(symbol.shape[1] - 1)
    bytes = np.empty(4, np.uint8)
    count = np.int64(0)
    for index in range(len(word)):
        symbol_starts[index] = count
        start, end = word[index, 0], word[index, 1]
        whole = find_word(code_point, start, end, word_row) if takes_words else np.int64(NO_PIECE)
        if whole != NO_PIECE:
            ids[count], ends[count] = whole, end
            count += 1
            continue
        unknown_end = np.int64(0)  # of the one that waits
        for at in range(start, end):
            place = FIRST * np.int64(at == start) + LAST * np.int64(at + 1 == end)
            found = symbol[row_at[place], min(np.int64(code_point[at]), last_column)]
            if found != NO_PIECE:
                if unknown_end > 0:
                    ids[count], ends[count] = unknown_id, unknown_end
                    count += 1
                    unknown_end = np.int64(0)
                ids[count], ends[count] = found, at + 1
                count += 1
                continue
            byte_count = write_bytes(code_point[at], place, bytes, byte_id, prefix, suffix, ids, count)
            for _ in range(byte_count):
                ends[count] = at + 1
                count += 1
            if byte_count == 0 and unknown_id != NO_PIECE:
                if unknown_end > 0 and not fuses_unknown:
                    ids[count], ends[count] = unknown_id, unknown_end
                    count += 1
                unknown_end = at + 1
        if unknown_end > 0:
            ids[count], ends[count] = unknown_id, unknown_end
            count += 1
    symbol_starts[len(word)] = count


@inlined
def find_word(code_point, start, end, row):
    """The id of the piece that is the whole word, or NO_PIECE."""
    node = np.int64(WORD_ROOT)
    for at in range(start, end):
        node = step_code_point(row, node, code_point[at])
        if node < 0:
            return np.int64(NO_PIECE)
    return np.int64(row[node, ID])


@inlined
def write_bytes(letter, place, bytes, byte_id, prefix, suffix, ids, count):
    """Writes the ids of a character's bytes, with what stands around it; returns how many, 0 if a byte has no piece."""
    length = put_code_point(bytes, 0, letter)
    begin = np.int64(0) if place & FIRST else -len(prefix)
    end = length + len(suffix) if place & LAST else length
    for at in range(begin, end):
        byte = prefix[len(prefix) + at] if at < 0 else bytes[at] if at < length else suffix[at - length]
        if byte_id[byte] == NO_PIECE:
            return np.int64(0)
        ids[count + at - begin] = byte_id[byte]
    return end - begin


@kernel
def merge_symbols(symbol_starts, word_starts, model, ids, ends, id_starts):
    """Merges the symbols of words, in place: ids, ends and id_starts as `merge` has them."""
    entry, hash_shift, merged_id, short = model.entry, model.hash_shift, model.merged_id, model.short
    longest = np.int64(0)
    for index in range(word_starts[len(word_starts) - 1]):
        longest = max(longest, symbol_starts[index + 1] - symbol_starts[index])
    room = longest if longest > short else 0
    node, heap = np.empty((room, COLUMNS), np.int32), np.empty(2 * room, np.int64)
    symbol, candidate = np.empty(SHORT + 1, np.uint64), np.empty(SHORT + 1, np.uint64)
    before, behind = np.empty(SHORT + 1, np.uint64), np.empty(SHORT + 1, np.uint64)
    for at in range(SHORT + 1):
        candidate[at] = NO_CANDIDATE
    count = np.int64(0)
    for text in range(len(word_starts) - 1):
        id_starts[text] = count
        for index in range(word_starts[text], word_starts[text + 1]):
            start, symbol_count = symbol_starts[index], symbol_starts[index + 1] - symbol_starts[index]
            if symbol_count > short:
                count = merge_long(start, symbol_count, entry, hash_shift, merged_id, node, heap, ids, ends, count)
                continue
            merge_short(start, symbol_count, entry, hash_shift, merged_id, symbol, candidate, before, behind, ids)
            at = np.int64(0)
            while at < symbol_count:
                after = min(np.int64(behind[at]), symbol_count)
                ids[count], ends[count] = symbol[at], ends[start + after - 1]
                count += 1
                at = after
    id_starts[len(word_starts) - 1] = count


@inlined
def rank_of(entry, hash_shift, pair):
    """The rank of a pair, or NO_RANK. All are uint64: of a signed index the sign would be tested."""
    key = pair << WIDE_RANK_BITS
    at = (pair * MULTIPLIER >> np.uint64(hash_shift)) * np.uint64(BUCKET)
    while True:
        # What is left of an entry without its pair is a rank; of another one it is more than any.
        last = entry[at + np.uint64(3)]
        least = min(
            min(entry[at] ^ key, entry[at + np.uint64(1)] ^ key), min(entry[at + np.uint64(2)] ^ key, last ^ key)
        )
        if (last == NO_ENTRY) | (least <= WIDE_NO_RANK):
            return min(least, WIDE_NO_RANK)
        at = (at + np.uint64(BUCKET)) & np.uint64(len(entry) - 1)


@inlined
def merge_short(start, count, entry, hash_shift, merged_id, symbol, candidate, before, behind, ids):
    """Merges one word of at most SHORT symbols, those of ids from start on; symbol and behind list what is left.

    candidate: uint64[SHORT + 1], the rank of each symbol with the one behind, and below it its place: the least is the
    next merge. Before and after, none is below NO_CANDIDATE. before, behind: uint64[SHORT + 1], the symbols as a list.
    """
    for at in range(count):
        symbol[at], before[at], behind[at] = ids[start + at], at - 1, at + 1
        if at > 0:
            pair = symbol[at - 1] << WIDE_ID_BITS | symbol[at]
            candidate[at - 1] = rank_of(entry, hash_shift, pair) << WIDE_PLACE_BITS | np.uint64(at - 1)
    before[0] = behind[max(count - 1, 0)] = NOWHERE
    while True:
        least = NO_CANDIDATE
        for at in range(0, count, LANES):
            low = min(min(candidate[at], candidate[at + 1]), min(candidate[at + 2], candidate[at + 3]))
            high = min(min(candidate[at + 4], candidate[at + 5]), min(candidate[at + 6], candidate[at + 7]))
            least = min(least, min(low, high))
        if least == NO_CANDIDATE:
            break
        left = least & np.uint64(SHORT - 1)
        merged = np.uint64(merged_id[least >> WIDE_PLACE_BITS])
        gone, neighbour = behind[left], before[left]
        right = behind[gone]
        symbol[left], behind[left], before[right] = merged, right, left
        candidate[gone] = NO_CANDIDATE
        # At an end of the word always the same bucket is looked up, instead of a branch that is hard to foresee.
        pair = merged << WIDE_ID_BITS | symbol[right] if right != NOWHERE else NO_PAIR
        candidate[left] = rank_of(entry, hash_shift, pair) << WIDE_PLACE_BITS | left
        pair = symbol[neighbour] << WIDE_ID_BITS | merged if neighbour != NOWHERE else NO_PAIR
        candidate[neighbour] = rank_of(entry, hash_shift, pair) << WIDE_PLACE_BITS | neighbour


@kernel
def merge_long(start, count, entry, hash_shift, merged_id, node, heap, ids, ends, id_count):
    """Merges one word of any length, the symbols of ids from start on, and writes its ids; returns the new id_count.

    node: int32[count, COLUMNS]. heap: int64[2 * count], rank << HEAP_SHIFT | place of every pair that has had a merge.
    What comes out of it counts if the pair that now stands there becomes the same piece.
    """
    waiting = np.int64(0)
    for at in range(count):
        rank = np.int64(NO_RANK)
        if at + 1 < count:
            pair = np.uint64(ids[start + at]) << WIDE_ID_BITS | np.uint64(ids[start + at + 1])
            rank = np.int64(rank_of(entry, hash_shift, pair))
        node[at, SYMBOL], node[at, RANK] = ids[start + at], rank
        node[at, BEFORE], node[at, BEHIND] = at - 1, at + 1
        if rank != NO_RANK:
            heap[waiting] = rank << HEAP_SHIFT | at
            waiting += 1
    for at in range(waiting // 2 - 1, -1, -1):
        sink(heap, waiting, at, heap[at])
    while waiting > 0:
        rank, left = heap[0] >> HEAP_SHIFT, heap[0] & ((1 << HEAP_SHIFT) - 1)
        waiting -= 1
        if waiting > 0:
            sink(heap, waiting, 0, heap[waiting])
        there, merged = node[left, RANK], merged_id[rank]
        if there == NO_RANK or (there != rank and merged_id[there] != merged):
            continue
        gone = np.int64(node[left, BEHIND])
        right, neighbour = np.int64(node[gone, BEHIND]), np.int64(node[left, BEFORE])
        node[left, SYMBOL], node[left, BEHIND], node[left, RANK], node[gone, RANK] = merged, right, NO_RANK, NO_RANK
        if right < count:
            node[right, BEFORE] = left
            waiting = renew(entry, hash_shift, node, left, right, heap, waiting)
        if neighbour >= 0:
            waiting = renew(entry, hash_shift, node, neighbour, left, heap, waiting)
    at = np.int64(0)
    while at < count:
        ids[id_count], ends[id_count] = node[at, SYMBOL], ends[start + node[at, BEHIND] - 1]
        id_count += 1
        at = np.int64(node[at, BEHIND])
    return id_count


@inlined
def renew(entry, hash_shift, node, left, right, heap, waiting):
    """Looks a new pair up, and puts it into the heap if it has a merge; returns how many wait there."""
    pair = np.uint64(node[left, SYMBOL]) << WIDE_ID_BITS | np.uint64(node[right, SYMBOL])
    rank = np.int64(rank_of(entry, hash_shift, pair))
    node[left, RANK] = rank
    if rank == NO_RANK:
        return waiting
    waits = rank << HEAP_SHIFT | left
    at = waiting
    while at > 0 and heap[(at - 1) // 2] > waits:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = waits
    return waiting + 1


@inlined
def sink(heap, count, at, waits):
    """Puts an entry where `at` is, or as far below as it belongs; the least of `count` stays on top."""
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count:
            child += np.int64(heap[child + 1] < heap[child])
        if heap[child] >= waits:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = waits
