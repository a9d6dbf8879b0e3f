"""Ids of words by merging neighbours: normalize -> split -> *merge*. As `BPE::tokenize` of the reference.

Of all neighbours in a word that have a merge, those of the lowest rank are merged first, and of these the leftmost.
Short words search their few candidates for it; long ones keep them in a heap, so their time grows as n log n. Most
words are of few letters, and have tables of their own.
"""

from __future__ import annotations

import numpy as np

from cpu_ref.compiled import inlined, kernel
from cpu_ref.lanes import LANES, load_row, store_row
from cpu_ref.machine import address_of
from cpu_ref.merge_letters import find_words, merge_letters
from cpu_ref.merge_short import WIDE_ID_BITS, merge_short, rank_of, room_for_short
from cpu_ref.trie import step_code_point
from cpu_ref.utf8 import put_code_point
from gpu_tok.tables.bpe import FIRST, LAST
from gpu_tok.tables.pair_entries import NO_RANK
from gpu_tok.tables.trie_rows import ID, NO_PIECE, WORD_ROOT

SYMBOL, RANK, BEFORE, BEHIND, COLUMNS = 0, 1, 2, 3, 4  # of a long word: its symbols as a linked list
HEAP_SHIFT = 40  # what waits in the heap is rank << HEAP_SHIFT | place


@kernel
def merge(code_point, word, word_starts, model, ids, id_starts):
    """Writes the ids of texts, and which ids each text has, id_starts.

    code_point: uint32. word: int64[n, 2], rows (start, end) in it, none before the end of the last; text i has
    `word_starts[i]:word_starts[i + 1]`. model: BpeTables. ids: int32, room for `model.expansion` a code point.

        word      h u g g i n g        merges  i n, u g, in g, h ug
        by rank   h u g g in g  ->  h ug g in g  ->  h ug g ing  ->  hug g ing

    First the ids of a word stand where its code points do, times `expansion`; then they close up.
    """
    word_count = word_starts[len(word_starts) - 1]
    word = word[:word_count]
    id_count, other = np.empty(word_count, np.int64), np.empty(word_count, np.int64)
    if len(model.letters.id_of) > 0:
        waiting = np.empty(word_count, np.int64)
        waiting_count, other_count = find_words(
            code_point, word, model.letters, model.expansion, ids, id_count, waiting, other
        )
        other_count = merge_letters(
            code_point, word, waiting[:waiting_count], model.letters, model.expansion, ids, id_count, other, other_count
        )
    else:
        other_count = word_count
        for index in range(word_count):
            other[index] = index
    if other_count > 0:
        write_symbols(code_point, word, other[:other_count], model, ids, id_count)
        merge_symbols(word, other[:other_count], model, ids, id_count)
    close_up(word, word_starts, model.expansion, ids, id_count, id_starts)


@kernel
def close_up(word, word_starts, expansion, ids, id_count, id_starts):
    """Moves the ids of all words to the front, and writes which each text has."""
    address, count = address_of(ids), np.int64(0)
    for text in range(len(word_starts) - 1):
        id_starts[text] = count
        for index in range(word_starts[text], word_starts[text + 1]):
            place, more = word[index, 0] * expansion, id_count[index]
            if more <= LANES:
                store_row(address + 4 * count, load_row(address + 4 * place, more), more)
            else:
                for at in range(more):
                    ids[count + at] = ids[place + at]
            count += more
    id_starts[len(word_starts) - 1] = count


@kernel
def write_symbols(code_point, word, other, model, ids, id_count):
    """Writes what some words are before any merge: their symbols where their ids shall be, and how many, id_count.

    other: int64, the numbers of the words. An unknown character waits for the next known one or the end of the word, so
    bytes overtake it.

        vocab <unk> a <0xC3> <0xA9>    中éa  ->  <0xC3> <0xA9> <unk> a
    """
    symbol, row_at, unknown_id, fuses_unknown = model.symbol, model.row_at, model.unknown_id, model.fuses_unknown
    byte_id, prefix, suffix = model.byte_id, model.prefix, model.suffix
    takes_words, word_row, expansion = model.takes_words, model.word_row, model.expansion
    last_column = np.int64(symbol.shape[1] - 1)
    bytes = np.empty(4, np.uint8)
    for index in other:
        start, end = word[index, 0], word[index, 1]
        count = start * expansion
        whole = find_word(code_point, start, end, word_row) if takes_words else np.int64(NO_PIECE)
        if whole != NO_PIECE:
            ids[count], id_count[index] = whole, 1
            continue
        waits = False  # an unknown character
        for at in range(start, end):
            place = FIRST * np.int64(at == start) + LAST * np.int64(at + 1 == end)
            found = symbol[row_at[place], min(np.int64(code_point[at]), last_column)]
            if found != NO_PIECE:
                if waits:
                    ids[count] = unknown_id
                    count += 1
                    waits = False
                ids[count] = found
                count += 1
                continue
            byte_count = write_bytes(code_point[at], place, bytes, byte_id, prefix, suffix, ids, count)
            count += byte_count
            if byte_count == 0 and unknown_id != NO_PIECE:
                if waits and not fuses_unknown:
                    ids[count] = unknown_id
                    count += 1
                waits = True
        if waits:
            ids[count] = unknown_id
            count += 1
        id_count[index] = count - start * expansion


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
def merge_symbols(word, other, model, ids, id_count):
    """Merges the symbols of some words where they stand; id_count: how many symbols each has, and then how many ids."""
    entry, hash_shift, merged_id, short = model.entry, model.hash_shift, model.merged_id, model.short
    longest = np.int64(0)
    for index in other:
        longest = max(longest, id_count[index])
    room = longest if longest > short else 0
    node, heap = np.empty((room, COLUMNS), np.int32), np.empty(2 * room, np.int64)
    symbol, candidate, before, behind = room_for_short()
    for index in other:
        start, count = word[index, 0] * model.expansion, id_count[index]
        if count > short:
            id_count[index] = merge_long(start, count, entry, hash_shift, merged_id, node, heap, ids)
            continue
        merge_short(start, count, entry, hash_shift, merged_id, symbol, candidate, before, behind, ids)
        at = made = np.int64(0)
        while at < count:
            ids[start + made] = symbol[at]
            made += 1
            at = np.int64(behind[at])
        id_count[index] = made


@kernel
def merge_long(start, count, entry, hash_shift, merged_id, node, heap, ids):
    """Merges one word of any length, the symbols of ids from start on, in place; returns how many ids it has.

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
    at = made = np.int64(0)
    while at < count:
        ids[start + made] = node[at, SYMBOL]
        made += 1
        at = np.int64(node[at, BEHIND])
    return made


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
