"""The native cold path: chunks that were never seen before, each normalized, split and matched, many in one call.

Texts are code points (uint32) between the steps. A step runs over a block of chunks before the next one begins: within
one loop nothing is called or counted, and a block's buffers stay in the cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cpu_ref.compiled import inlined, kernel
from cpu_ref.match import match
from cpu_ref.normalize import normalize
from cpu_ref.split import split
from cpu_ref.utf8 import code_point_at, code_point_length
from gpu_tok.tables.native import NativeBpe, NativeTables
from gpu_tok.tables.normalizer import DELETED
from gpu_tok.tables.words import WordTables

Bytes = npt.NDArray[np.uint8]
Ids = npt.NDArray[np.int32]
Starts = npt.NDArray[np.int64]

BLOCK_BYTES = 1 << 12  # what the steps write for so many stays in the first and second cache level
LONG_BYTES = 1 << 20  # a chunk of more bytes has buffers of its own
WINDOW = 1 << 20  # code points of a long chunk that are split and matched at a time


def encode_chunks(bytes: Bytes, starts: Starts, tables: NativeTables, flags: Bytes | None = None) -> tuple[Ids, Starts]:
    """The ids of chunks, each encoded as a text of its own: ids int32[n], id_starts int64[chunks + 1].

    bytes: uint8, valid UTF-8; chunk i is `bytes[starts[i]:starts[i + 1]]`. flags: uint8[chunks], the end flags of each
    (`gpu_tok.tables.ends`); None for none. Holds no GIL.
    """
    flags = np.zeros(len(starts) - 1, np.uint8) if flags is None else writable(flags)
    bytes, starts = writable(bytes), writable(starts)
    block_bytes = largest_block(starts)
    if block_bytes <= LONG_BYTES:
        room = block_bytes * tables.normalizer.expansion
        return encode_blocks(bytes, starts, flags, tables, buffers_for(room, room, room, ends=room))
    rows = []
    borders = np.flatnonzero(np.diff(starts) > LONG_BYTES).tolist()
    for begin, end in zip([-1, *borders], [*borders, len(starts) - 1], strict=True):
        if begin >= 0:
            ids = encode_long(bytes[starts[begin] : starts[begin + 1]], tables, int(flags[begin]))
            rows.append((ids, np.array([0, len(ids)])))
        rows.append(encode_chunks(bytes, starts[begin + 1 : end + 1], tables, flags[begin + 1 : end]))
    counts = np.concatenate([np.diff(id_starts) for _ids, id_starts in rows])
    return np.concatenate([ids for ids, _starts in rows]), np.concatenate([[0], np.cumsum(counts)])


def encode_long(chunk: Bytes, tables: NativeTables, flags: int) -> Ids:
    """The ids of one chunk: normalized at once, then split and matched by windows, each up to a border of words."""
    code_point = normalized(chunk, tables, flags)
    parts = [np.zeros(0, np.int32)]
    begin = 0
    while begin < len(code_point):
        end = next_border(code_point, begin + WINDOW, tables.words)
        parts.append(split_and_match(code_point[begin:end], tables).ids)
        begin = end
    return np.concatenate(parts)


def next_border(code_point: npt.NDArray[np.uint32], at: int, words: WordTables) -> int:
    """Where, at `at` (1 or more) or behind, two neighbours are parted; the end of the text if nowhere."""
    while at < len(code_point):
        kinds = words.class_of[code_point[at - 1 : at + 1023]]
        parted = np.flatnonzero(words.parted[kinds[:-1], kinds[1:]])
        if len(parted):
            return at + int(parted[0])
        at += len(kinds) - 1
    return len(code_point)


def largest_block(starts: Starts) -> int:
    """The most bytes that a block of these chunks may have: BLOCK_BYTES, or those of a longer chunk."""
    return max(int(np.diff(starts).max(initial=0)), min(BLOCK_BYTES, int(starts[-1] - starts[0])))


class Buffers(NamedTuple):
    """Room for what the steps make of one block: code points, words (start, end), ids, and where each id ends."""

    code_point: npt.NDArray[np.uint32]
    scratch: npt.NDArray[np.uint32]
    word: npt.NDArray[np.int64]
    ids: Ids
    ends: npt.NDArray[np.int64]


def buffers_for(normalized: int, characters: int, ids: int, ends: int = 0) -> Buffers:
    """normalized: code points that the normalizer may make; characters: those that words may hold; ends: 0 if none are
    asked for."""
    return Buffers(
        np.empty(characters, np.uint32),
        np.empty(normalized, np.uint32),
        np.empty((characters, 2), np.int64),
        np.empty(ids, np.int32),
        np.empty(ends, np.int64),
    )


def writable(array: Any) -> Any:
    """This array, or a copy: kernels would be compiled once more for one that is read-only."""
    return array if array.flags.writeable and array.flags.c_contiguous else array.copy()


@kernel
def encode_blocks(bytes, starts, flags, tables, buffers):
    """What `encode_chunks` promises, a block of chunks after the other."""
    chunk_count = len(starts) - 1
    ids = np.empty((starts[chunk_count] - starts[0]) // 2 + 1, np.int32)
    id_starts = np.empty(chunk_count + 1, np.int64)
    text_starts, word_starts = np.empty(chunk_count + 1, np.int64), np.empty(chunk_count + 1, np.int64)
    id_count, begin = np.int64(0), 0
    while begin < chunk_count:
        end = block_end(starts, begin)
        block = slice(begin, end + 1)
        normalize_chunks(
            bytes,
            starts[block],
            flags[begin:end],
            tables.normalizer,
            buffers.scratch,
            buffers.code_point,
            text_starts[block],
        )
        split(buffers.code_point, text_starts[block], tables.words, buffers.word, word_starts[block])
        match(
            buffers.code_point,
            buffers.word,
            word_starts[block],
            tables.model,
            buffers.ids,
            buffers.ends,
            id_starts[block],
        )
        ids, id_count = append(ids, id_count, buffers.ids, begin, end, id_starts)
        begin = end
    id_starts[chunk_count] = id_count
    return ids[:id_count], id_starts


@inlined
def block_end(starts, begin):
    """One past the last chunk of the block that begins with `begin`: BLOCK_BYTES at most, but for a chunk of more."""
    end = begin + 1
    while end < len(starts) - 1 and starts[end + 1] - starts[begin] <= BLOCK_BYTES:
        end += 1
    return end


@inlined
def append(ids, id_count, made, begin, end, id_starts):
    """Puts the ids of the chunks [begin, end) behind the `id_count` of those before, and moves their starts there.

    made, id_starts: as the last step left them, from 0 on. Returns the ids and their new count.
    """
    count = id_count + id_starts[end]
    ids = with_room(ids, id_count, count)
    for at in range(id_count, count):  # in loops: an assignment to a slice takes seconds to compile
        ids[at] = made[at - id_count]
    for chunk in range(begin, end):
        id_starts[chunk] += id_count
    return ids, count


@inlined
def with_room(ids, count, needed):
    """These ids, or a copy of the first `count` with more room."""
    if needed <= len(ids):
        return ids
    wider = np.empty(2 * needed, np.int32)
    for at in range(count):
        wider[at] = ids[at]
    return wider


@kernel
def normalize_chunks(bytes, starts, flags, tables, scratch, code_point, text_starts):
    """Writes the normalized code points of chunks, uint32, and where each chunk's begin, text_starts.

    scratch, code_point: uint32, room for `tables.expansion` code points a byte. tables: NormalizerTables.
    """
    ascii, ascii_end = tables.ascii, tables.ascii_end
    count = 0
    for chunk in range(len(starts) - 1):
        text_start = count
        text_starts[chunk] = count
        at, end = starts[chunk], starts[chunk + 1]
        while at < end and bytes[at] < ascii_end:
            made = ascii[bytes[at]]
            code_point[count] = made
            count += np.int64(made != DELETED)
            at += 1
        if at == end:
            continue
        at, count = starts[chunk], text_start
        while at < end:
            code_point[count] = code_point_at(bytes, at)
            count += 1
            at += code_point_length(bytes[at])
        count = text_start + normalize(code_point[text_start:], count - text_start, flags[chunk], scratch, tables)
    text_starts[len(starts) - 1] = count


class Trace(NamedTuple):
    """What each step made of one text. code_point: uint32[n], the normalized text. word: int64[words, 2], rows (start,
    end) in it. id_starts: int64[words + 1], which ids each word has; ids: int32[m]; ends: int64[m], where each piece
    ends in the normalized text."""

    code_point: npt.NDArray[np.uint32]
    word: npt.NDArray[np.int64]
    id_starts: Starts
    ids: Ids
    ends: npt.NDArray[np.int64]

    @property
    def text(self) -> str:
        """The normalized text."""
        return self.code_point.tobytes().decode("utf-32-le")


def trace(text: str | bytes, tables: NativeTables) -> Trace:
    """One text, step by step, by the same kernels as `encode_chunks`.

    >>> made = trace("Unaffable!", compile_native(definition))    # of bert-base-uncased
    >>> made.text, made.word.tolist(), made.ids.tolist(), made.ends.tolist()
    ('unaffable!', [[0, 9], [9, 10]], [14477, 20961, 3468, 999], [2, 5, 9, 10])
    """
    chunk = np.frombuffer(text.encode() if isinstance(text, str) else text, np.uint8)
    return split_and_match(normalized(chunk, tables).copy(), tables)


def normalized(chunk: Bytes, tables: NativeTables | NativeBpe, flags: int = 0) -> npt.NDArray[np.uint32]:
    """The normalized code points of one chunk with these end flags."""
    room = len(chunk) * tables.normalizer.expansion
    code_point, scratch = np.empty(room, np.uint32), np.empty(room, np.uint32)
    text_starts = np.zeros(2, np.int64)
    starts, chunk_flags = np.array([0, len(chunk)]), np.array([flags], np.uint8)
    normalize_chunks(writable(chunk), starts, chunk_flags, tables.normalizer, scratch, code_point, text_starts)
    return code_point[: text_starts[1]]


def split_and_match(code_point: npt.NDArray[np.uint32], tables: NativeTables) -> Trace:
    """The words and pieces of one normalized text."""
    count = len(code_point)
    word, ids, ends = np.empty((count, 2), np.int64), np.empty(count, np.int32), np.empty(count, np.int64)
    word_starts = np.zeros(2, np.int64)
    split(code_point, np.array([0, count]), tables.words, word, word_starts)
    word_count = int(word_starts[1])
    id_starts = np.zeros(word_count + 1, np.int64)
    match(code_point, word, np.arange(word_count + 1), tables.model, ids, ends, id_starts)
    id_count = int(id_starts[-1])
    return Trace(code_point, word[:word_count], id_starts, ids[:id_count].copy(), ends[:id_count])
