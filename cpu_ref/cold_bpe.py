"""The native cold path of BPE: chunks that were never seen before, each normalized, split by stages and merged.

As in `cpu_ref.cold`, a step runs over a block of chunks before the next one begins.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cpu_ref.cold import append, block_end, buffers_for, largest_block, normalize_chunks, normalized, writable
from cpu_ref.compiled import kernel
from cpu_ref.merge import merge
from cpu_ref.split_stages import split_stages, words_of
from gpu_tok.tables.native import NativeBpe

Bytes = npt.NDArray[np.uint8]
Ids = npt.NDArray[np.int32]
Starts = npt.NDArray[np.int64]


def encode_bpe_chunks(
    bytes: Bytes, starts: Starts, tables: NativeBpe, flags: npt.NDArray[np.uint8]
) -> tuple[Ids, Starts]:
    """The ids of chunks, each with the ends that its flags name: ids int32[n], id_starts int64[chunks + 1].

    bytes: uint8, valid UTF-8; chunk i is `bytes[starts[i]:starts[i + 1]]`. flags: uint8[chunks], those of
    `gpu_tok.tables.ends`. Holds no GIL.
    """
    bytes, starts, flags = writable(bytes), writable(starts), writable(flags)
    code_points = largest_block(starts) * tables.normalizer.expansion
    characters = (code_points + 1) * tables.stages.expansion
    buffers = buffers_for(code_points, characters, characters * tables.model.expansion)
    return encode_bpe_blocks(bytes, starts, flags, tables, buffers)


@kernel
def encode_bpe_blocks(bytes, starts, flags, tables, buffers):
    """What `encode_bpe_chunks` promises, a block of chunks after the other."""
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
        split_stages(
            buffers.code_point,
            text_starts[block],
            flags[begin:end],
            tables.stages,
            buffers.word,
            word_starts[block],
        )
        merge(
            buffers.code_point,
            buffers.word,
            word_starts[block],
            tables.model,
            buffers.ids,
            id_starts[block],
        )
        ids, id_count = append(ids, id_count, buffers.ids, begin, end, id_starts)
        begin = end
    id_starts[chunk_count] = id_count
    return ids[:id_count], id_starts


class Trace(NamedTuple):
    """What each step made of one chunk: the normalized text, the words as the stages left them, and the ids."""

    text: str
    words: tuple[str, ...]
    ids: Ids


def trace(chunk: bytes, flags: int, tables: NativeBpe) -> Trace:
    """One chunk, step by step, by the same kernels as `encode_bpe_chunks`.

    >>> trace(b" cats", 0, compile_native(gpt2))
    Trace(text=' cats', words=('Ġcats',), ids=array([11875], dtype=int32))
    """
    code_point = normalized(np.frombuffer(chunk, np.uint8), tables, flags).copy()
    made, word, word_starts = words_of(
        code_point, np.array([0, len(code_point)]), np.array([flags], np.uint8), tables.stages
    )
    words = tuple(made[start:end].tobytes().decode("utf-32-le") for start, end in word.tolist())
    room = len(made) * tables.model.expansion
    ids, id_starts = np.empty(room, np.int32), np.empty(2, np.int64)
    merge(made, word, word_starts, tables.model, ids, id_starts)
    return Trace(code_point.tobytes().decode("utf-32-le"), words, ids[: id_starts[1]])
