"""The cold path: encodes chunks that are in no table yet, by the best exact grade there is.

Grade 1 is native (`cpu_ref.cold`); grade 3 runs the reference on the derived definition that a chunk's flags ask for.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cpu_ref.cold import encode_chunks
from cpu_ref.cold_bpe import encode_bpe_chunks
from gpu_tok.batch import Ragged, starts_of
from gpu_tok.device import in_forked_child
from gpu_tok.errors import DefinitionError, TextError
from gpu_tok.tables import ends
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.native import NativeBpe, NativeTables, compile_native
from gpu_tok.tables.refusal import CannotCompile
from gpu_tok.tables.variants import flags_that_matter, normalized_tokens, variant

RUNS_BY_REFERENCE = 'it runs through the reference (grade 3) with fallback="reference"'
CHUNKS_A_TASK = 2048  # the reference's threads take a task each; smaller ones cost more than they spread


class ColdPath:
    """Encodes chunks: bytes in, ids out, with each chunk's end flags.

    >>> cold = ColdPath(Definition.from_file("bert-base-uncased.json"))
    >>> cold.grade, cold.encode(chunks, np.zeros(chunks.count, np.uint8)).row(0)
    (1, array([1996], dtype=int32))

    `grade` is 1 (native) or 3 (the reference), `reasons` says why it is not better; chunks with flags of `by_reference`
    are grade 3 in any case. Safe to call from several threads at once, and in a process forked after use.
    """

    def __init__(
        self,
        definition: Definition,
        flags: int | None = None,
        fallback: Literal["reference", "error"] = "reference",
    ) -> None:
        """flags: those that can change what a chunk becomes; None asks the definition."""
        variant(definition, 0)  # refuses what has no one answer, before the first text
        self.definition = definition
        self.flags = flags_that_matter(definition) if flags is None else flags
        self.by_reference = ends.WHOLE if normalized_tokens(definition) else 0
        self.native, self.reasons = _native_tables(definition)
        self.grade = 3 if self.native is None else 1
        if fallback == "error" and self.native is None:
            raise DefinitionError(f"tokenizer.json: {self.reasons[0]}", RUNS_BY_REFERENCE)

    def encode(self, chunks: Ragged, flags: npt.NDArray[np.uint8]) -> Ragged:
        """The ids of each chunk: Ragged uint8 and uint8[rows] -> Ragged int32, in the order of the chunks.

        Raises `TextError` with the chunk's row where the reference refuses a chunk.
        """
        counts = np.zeros(chunks.count, np.int64)
        parts: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]] = []
        asked = flags & np.uint8(self.flags | self.by_reference)
        if self.native is not None:
            rows = np.flatnonzero(asked & self.by_reference == 0)
            ids, counts[rows] = _encode_natively(chunks, rows, asked, self.native)
            parts.append((rows, ids))
            left = np.flatnonzero(asked & self.by_reference != 0)
        else:
            left = np.arange(chunks.count)
        for flag in np.unique(asked[left]).tolist():
            rows = left[asked[left] == flag]
            ids, counts[rows] = self._encode_by_reference(chunks, rows, flag)
            parts.append((rows, ids))
        return _in_order(parts, counts)

    def _encode_by_reference(self, chunks: Ragged, rows: npt.NDArray[np.int64], flags: int) -> tuple[Any, Any]:
        texts = _texts(chunks, rows)
        tokenizer = variant(self.definition, flags)
        try:
            return _encode_texts(tokenizer, texts)
        except BaseException as error:  # a panic of the reference is no Exception
            if not _is_refusal(error):
                raise
        for row, text in zip(rows.tolist(), texts, strict=True):
            try:
                tokenizer.encode(text, add_special_tokens=False)
            except BaseException as error:
                if not _is_refusal(error):
                    raise
                raise TextError(
                    row,
                    f"the reference refuses {text[:40]!r}: {error}",
                    "it is the tokenizer that cannot encode this text; look at its unk_token",
                ) from None
        raise TextError(int(rows[0]), "the reference refused a batch of chunks, but none of them alone")


def _native_tables(definition: Definition) -> tuple[NativeTables | NativeBpe | None, tuple[str, ...]]:
    try:
        return compile_native(definition), ()
    except CannotCompile as refusal:
        return None, (str(refusal),)


def _encode_natively(
    chunks: Ragged, rows: npt.NDArray[np.int64], flags: npt.NDArray[np.uint8], tables: NativeTables | NativeBpe
) -> tuple[Any, Any]:
    if len(rows) != chunks.count:
        chunks, flags = _taken(chunks, rows), flags[rows]
    if isinstance(tables, NativeBpe):
        ids, starts = encode_bpe_chunks(chunks.flat, chunks.starts, tables, flags)
    else:
        ids, starts = encode_chunks(chunks.flat, chunks.starts, tables, flags)
    return ids[starts[0] : starts[-1]], np.diff(starts)


def _is_refusal(error: BaseException) -> bool:
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _encode_texts(tokenizer: Any, texts: list[str]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """The ids of all texts in one array and the count of each.

    Many chunks go through as the words of one pretokenized text, each encoded on its own: one Python object for
    thousands of chunks, 13 instead of 18 microseconds a chunk (llama-3).
    """
    tasks = [texts[at : at + CHUNKS_A_TASK] for at in range(0, len(texts), CHUNKS_A_TASK)]
    if in_forked_child():
        encodings = [tokenizer.encode(task, is_pretokenized=True, add_special_tokens=False) for task in tasks]
    else:
        encodings = tokenizer.encode_batch(tasks, is_pretokenized=True, add_special_tokens=False)
    ids = [np.array(encoding.ids, np.int32) for encoding in encodings]
    counts = [
        np.bincount(np.array(encoding.word_ids, np.int64), minlength=len(task))
        for encoding, task in zip(encodings, tasks, strict=True)
    ]
    return np.concatenate(ids), np.concatenate(counts)


def _texts(chunks: Ragged, rows: npt.NDArray[np.int64]) -> list[str]:
    first, last = int(chunks.starts[0]), int(chunks.starts[-1])
    raw = chunks.flat[first:last].tobytes()
    begins = (chunks.starts[rows] - first).tolist()
    ends_ = (chunks.starts[rows + 1] - first).tolist()
    return [raw[begin:end].decode() for begin, end in zip(begins, ends_, strict=True)]


def _taken(ragged: Ragged, rows: npt.NDArray[np.int64]) -> Ragged:
    """Some rows of a ragged array, in the order of `rows`."""
    counts = ragged.starts[rows + 1] - ragged.starts[rows]
    starts = starts_of(counts)
    places = np.arange(starts[-1]) + np.repeat(ragged.starts[rows] - starts[:-1], counts)
    return Ragged(ragged.flat[places], starts)


def _in_order(parts: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]], counts: Any) -> Ragged:
    """Puts the ids of groups of rows, each in the order of its rows, into the order of all rows."""
    starts = starts_of(counts)
    if len(parts) == 1:
        return Ragged(parts[0][1], starts)
    flat = np.empty(starts[-1], np.int32)
    for rows, ids in parts:
        row_counts = counts[rows]
        begins = starts_of(row_counts)[:-1]
        flat[np.arange(len(ids)) + np.repeat(starts[rows] - begins, row_counts)] = ids
    return Ragged(flat, starts)
