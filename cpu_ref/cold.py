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
from gpu_tok.tables.native import NativeTables
from gpu_tok.tables.normalizer import DELETED

BLOCK_BYTES = 1 << 15


def encode_chunks(
    bytes: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], tables: NativeTables
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """The ids of chunks, each encoded as a text of its own: ids int32[n], id_starts int64[chunks + 1].

    bytes: uint8, valid UTF-8; chunk i is `bytes[starts[i]:starts[i + 1]]`. Holds no GIL.
    """
    return encode_blocks(writable(bytes), writable(starts), tables)


def writable(array: Any) -> Any:
    """This array, or a copy: kernels would be compiled once more for one that is read-only."""
    return array if array.flags.writeable and array.flags.c_contiguous else array.copy()


@kernel
def encode_blocks(bytes, starts, tables):
    """What `encode_chunks` promises, a block of chunks after the other."""
    chunk_count = len(starts) - 1
    ids = np.empty(max((starts[chunk_count] - starts[0]) // 2, BLOCK_BYTES), np.int32)
    id_starts = np.zeros(chunk_count + 1, np.int64)
    room = 0
    begin = 0
    while begin < chunk_count:
        end = begin + 1
        while end < chunk_count and starts[end + 1] - starts[begin] <= BLOCK_BYTES:
            end += 1
        needed = (starts[end] - starts[begin]) * tables.normalizer.expansion
        if needed > room or begin == 0:
            room = max(needed, BLOCK_BYTES)
            code_point, scratch = np.empty(room, np.uint32), np.empty(room, np.uint32)
            word, block_ids, ends = np.empty((room, 2), np.int64), np.empty(room, np.int32), np.empty(room, np.int64)
        text_starts = np.empty(end - begin + 1, np.int64)
        word_starts, block_id_starts = np.empty_like(text_starts), np.empty_like(text_starts)
        normalize_chunks(bytes, starts[begin : end + 1], tables.normalizer, scratch, code_point, text_starts)
        split(code_point, text_starts, tables.words, word, word_starts)
        match(code_point, word, word_starts, tables.model, block_ids, ends, block_id_starts)
        id_count = id_starts[begin]
        ids = with_room(ids, id_count, id_count + block_id_starts[end - begin])
        for at in range(block_id_starts[end - begin]):  # in loops: an assignment to a slice takes seconds to compile
            ids[id_count + at] = block_ids[at]
        for chunk in range(end - begin + 1):
            id_starts[begin + chunk] = id_count + block_id_starts[chunk]
        begin = end
    return ids[: id_starts[chunk_count]], id_starts


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
def normalize_chunks(bytes, starts, tables, scratch, code_point, text_starts):
    """Writes the normalized code points of chunks, uint32, and where each chunk's begin, text_starts.

    scratch, code_point: uint32, room for `tables.expansion` code points a byte. tables: NormalizerTables.
    """
    ascii = tables.ascii
    count = 0
    for chunk in range(len(starts) - 1):
        text_start = count
        text_starts[chunk] = count
        at, end = starts[chunk], starts[chunk + 1]
        while at < end and bytes[at] < 0x80:
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
        count = text_start + normalize(code_point[text_start:], count - text_start, scratch, tables)
    text_starts[len(starts) - 1] = count


class Stages(NamedTuple):
    """What each step made of one text. code_point: uint32[n], the normalized text. word: int64[words, 2], rows (start,
    end) in it. id_starts: int64[words + 1], which ids each word has; ids: int32[m]; ends: int64[m], where each piece
    ends in the normalized text."""

    code_point: npt.NDArray[np.uint32]
    word: npt.NDArray[np.int64]
    id_starts: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int32]
    ends: npt.NDArray[np.int64]

    @property
    def text(self) -> str:
        """The normalized text."""
        return self.code_point.tobytes().decode("utf-32-le")


def stages(chunk: bytes, tables: NativeTables) -> Stages:
    """One chunk, step by step, by the same kernels as `encode_chunks`.

    >>> made = stages("Unaffable!".encode(), compile_native(definition))    # of bert-base-uncased
    >>> made.text, made.word.tolist(), made.ids.tolist(), made.ends.tolist()
    ('unaffable!', [[0, 9], [9, 10]], [14477, 20961, 3468, 999], [2, 5, 9, 10])
    """
    room = max(len(chunk) * tables.normalizer.expansion, 1)
    code_point, scratch = np.empty(room, np.uint32), np.empty(room, np.uint32)
    text_starts, word_starts = np.zeros(2, np.int64), np.zeros(2, np.int64)
    starts = np.array([0, len(chunk)], np.int64)
    flat = np.frombuffer(chunk, np.uint8)
    normalize_chunks(writable(flat), starts, tables.normalizer, scratch, code_point, text_starts)
    word, ids, ends = np.empty((room, 2), np.int64), np.empty(room, np.int32), np.empty(room, np.int64)
    split(code_point, text_starts, tables.words, word, word_starts)
    word_count = int(word_starts[1])
    id_starts = np.zeros(word_count + 1, np.int64)
    match(code_point, word, np.arange(word_count + 1), tables.model, ids, ends, id_starts)
    id_count = int(id_starts[-1])
    return Stages(code_point[: text_starts[1]], word[:word_count], id_starts, ids[:id_count], ends[:id_count])
