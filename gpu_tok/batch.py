"""Batches: texts in, ids out, both as one flat array and the starts of its rows.

Row *i* of any ragged array is `flat[starts[i]:starts[i + 1]]`; no Python object per text exists inside gpu_tok. Arrays
are NumPy's, or CuPy's where a batch lies on a GPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpu_tok import arrays, packing
from gpu_tok.errors import GpuTokError, TextTypeError

Bytes = packing.Bytes
Ids = npt.NDArray[np.int32]
Starts = packing.Starts

Rows = Sequence[bytes]  # named here: within TextBatch `bytes` is a field

NO_STARTS: Starts = np.zeros(1, np.int64)
LAST_ID = 0xFFFFFFFF  # the reference's ids are 32 bits wide


class Ragged(NamedTuple):
    """Rows of different lengths: row *i* is `flat[starts[i]:starts[i + 1]]`."""

    flat: np.ndarray
    starts: Starts

    def row(self, index: int) -> np.ndarray:
        """One row, as a view."""
        return self.flat[self.starts[index] : self.starts[index + 1]]

    @property
    def count(self) -> int:  # type: ignore[override]  # a tuple's own count() means nothing for rows
        """The number of rows."""
        return len(self.starts) - 1


def starts_of(counts: npt.NDArray[Any]) -> Starts:
    """Where each row begins, given how long each row is: an exclusive prefix sum with the total behind it."""
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts


def row_ranges(starts: Starts, size: int, most_rows: int = 1 << 20) -> Iterator[tuple[int, int]]:
    """Ranges of rows of up to `size` elements each; a longer row is a range of its own.

    >>> list(row_ranges(np.array([0, 2, 4, 9]), 5))
    [(0, 2), (2, 3)]
    """
    begin, rows = 0, len(starts) - 1
    while begin < rows:
        fitting = int(np.searchsorted(starts, starts[begin] + size, side="right")) - 1
        end = min(max(fitting, begin + 1), begin + most_rows, rows)
        yield begin, end
        begin = end


@dataclass(frozen=True)
class TextBatch:
    """Texts as UTF-8 in one array.

    >>> TextBatch.of(["the cat", "sat"]).starts
    array([ 0,  7, 10])

    bytes: uint8[n]; starts: int64[texts + 1]. Made by hand, the bytes are taken to be valid UTF-8 only after
    `validated()`; `of()` has already checked what it took in.

    Both may lie on a GPU: CuPy's arrays, and all that has `__cuda_array_interface__` or DLPack (torch's tensors), are
    taken without a copy. Starts that lie elsewhere than the bytes are copied there.
    """

    bytes: Bytes
    starts: Starts
    valid: bool = False

    def __post_init__(self) -> None:
        for name, kind in (("bytes", np.uint8), ("starts", np.int64)):
            array = arrays.taken(getattr(self, name))
            if not hasattr(array, "ndim") or array.dtype != kind or array.ndim != 1:
                raise GpuTokError(
                    f"TextBatch.{name} is not a flat {np.dtype(kind)} array",
                    f"pass numpy.asarray({name}, numpy.{np.dtype(kind)})",
                )
            object.__setattr__(self, name, array)
        object.__setattr__(self, "starts", arrays.beside(self.starts, self.bytes))
        if not (self.valid and self.is_on_gpu):  # what gpu_tok itself has left there is right, and a look costs time
            self._check_starts()

    def _check_starts(self) -> None:
        begin, end, rises = arrays.span_of(self.starts) if len(self.starts) else (0, -1, True)
        if begin < 0 or not 0 <= end <= len(self.bytes):
            raise GpuTokError(
                "TextBatch.starts does not lie within TextBatch.bytes",
                "starts has one entry a text and one more, from 0 to at most len(bytes)",
            )
        if not rises:
            raise GpuTokError("TextBatch.starts goes down", "starts rises from row to row")

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def is_on_gpu(self) -> bool:
        """Are these arrays in the memory of a GPU."""
        return arrays.is_on_gpu(self.bytes)

    @cached_property
    def span(self) -> tuple[int, int]:
        """Where the first text begins and the last one ends; looked at once, for that waits for a GPU."""
        begin, end, _rises = arrays.span_of(self.starts)
        return begin, end

    @property
    def byte_count(self) -> int:
        """Bytes of all texts together."""
        return self.span[1] - self.span[0]

    def to_host(self) -> TextBatch:
        """The same texts in NumPy's arrays; itself if it has them already."""
        if not self.is_on_gpu:
            return self
        return TextBatch(arrays.to_host(self.bytes), arrays.to_host(self.starts), self.valid)

    def text(self, row: int) -> str:
        """One text as a Python string."""
        begin, end = arrays.to_host(self.starts[row : row + 2]).tolist()
        return arrays.to_host(self.bytes[begin:end]).tobytes().decode("utf-8", "replace")

    def to_list(self) -> list[str]:
        """All texts as Python strings."""
        host = self.to_host()
        flat = memoryview(host.bytes.data)
        return [str(flat[begin:end], "utf-8", "replace") for begin, end in itertools.pairwise(host.starts.tolist())]

    @classmethod
    def of(cls, texts: Any, invalid_utf8: Literal["error", "replace"] = "error", check: bool = True) -> TextBatch:
        """Takes texts in any form that `Tokenizer.encode_batch` accepts; raises `TextError` naming the row.

        texts: list[str | bytes], a pyarrow (Large)String/(Large)Binary Array or ChunkedArray, or a TextBatch.
        invalid_utf8: "replace" puts U+FFFD where bytes are no UTF-8, as `bytes.decode(errors="replace")` does. Bytes
        on a GPU are not looked at here, but where they are encoded. check: False leaves all flat arrays to that.
        """
        if invalid_utf8 not in ("error", "replace"):
            raise GpuTokError(f"invalid_utf8={invalid_utf8!r} is none of its values", 'they are "error", "replace"')
        if isinstance(texts, TextBatch):
            return texts.validated(invalid_utf8) if check and not texts.is_on_gpu else texts
        if isinstance(texts, (str, bytes)):
            raise TextTypeError(0, "encode_batch takes a list of texts, not one text", f"pass [{texts[:20]!r}]")
        if isinstance(texts, (pa.Array, pa.ChunkedArray)):
            packed = cls(*packing.from_arrow(texts))
            return packed.validated(invalid_utf8) if check else packed
        if isinstance(texts, (Mapping, Set)) or not isinstance(texts, Iterable):
            raise TextTypeError(0, f"encode_batch takes a list of texts, not {type(texts).__name__}", "pass a list")
        return cls._packed(texts if isinstance(texts, (list, tuple)) else list(texts), invalid_utf8)

    @classmethod
    def _packed(cls, texts: Sequence[Any], invalid_utf8: str) -> TextBatch:
        at_once = packing.from_python(texts)
        if at_once is not None:
            return cls(*at_once, valid=True)
        return cls.joined([packing.utf8_of(row, text, invalid_utf8) for row, text in enumerate(texts)])

    @classmethod
    def joined(cls, rows: Rows, valid: bool = True) -> TextBatch:
        """Rows of UTF-8 laid end to end; they are not checked, so `valid` says what the caller knows."""
        starts = starts_of(np.array([len(row) for row in rows], np.int64))
        return cls(np.frombuffer(b"".join(rows), np.uint8), starts, valid)

    def validated(self, invalid_utf8: Literal["error", "replace"] = "error") -> TextBatch:
        """This batch, or one with U+FFFD in the place of invalid bytes; raises `TextError` for the first bad row."""
        if self.is_on_gpu:
            return self.to_host().validated(invalid_utf8)
        if self.valid:
            return self
        if packing.rows_are_utf8(self.bytes, self.starts):
            return TextBatch(self.bytes, self.starts, valid=True)
        rows = [self.bytes[self.starts[row] : self.starts[row + 1]].tobytes() for row in range(len(self))]
        return self._packed(rows, invalid_utf8)


@dataclass(frozen=True)
class TypeIds:
    """Which `token_type_ids` a row has: those of the special tokens before and after, and of the text between."""

    prefix: tuple[int, ...] = ()
    text: int = 0
    suffix: tuple[int, ...] = ()


@dataclass(frozen=True)
class Padding:
    """How rows are filled up: what is written, and on which side."""

    pad_id: int = 0
    pad_type_id: int = 0
    side: Literal["left", "right"] = "right"


class Padded(NamedTuple):
    """Rectangles, int32[rows, width], as a model takes them."""

    input_ids: Ids
    attention_mask: Ids
    token_type_ids: Ids


@dataclass(frozen=True)
class TokenBatch:
    """The ids of a batch of texts, one row a text, in the order of the texts.

    ids: int32[n]; starts: int64[rows + 1]. `counts` says how many ids of each row are not padding (int64[rows]).
    each_type_id: int32[n], where `type_ids` cannot say which type each id has. device: what the arrays lie on and
    rectangles are laid out on, None for the CPU.

    A batch of a GPU stays there, as CuPy's arrays, which other libraries take without a copy:
    `torch.from_dlpack(batch.ids)`. `to_host()` brings it back.
    """

    ids: Ids
    starts: Starts
    counts: Starts
    type_ids: TypeIds = field(default_factory=TypeIds)
    padding: Padding = field(default_factory=Padding)
    each_type_id: Ids | None = None
    device: Any = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"TokenBatch({len(self):,} rows, {int(self.starts[-1] - self.starts[0]):,} ids)"

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, row: int) -> Ids: ...
    @overload
    def __getitem__(self, row: slice) -> TokenBatch: ...
    def __getitem__(self, row: int | slice) -> Ids | TokenBatch:
        """The ids of one row (a view), or the batch of several rows."""
        if isinstance(row, slice):
            begin, end, step = row.indices(len(self))
            if step != 1:
                raise GpuTokError("a batch is sliced in steps of 1 only", "take rows one by one")
            end = max(begin, end)
            first, last = self._span(begin, end)
            with arrays.its_gpu(self.starts):
                starts = self.starts[begin : end + 1] - first
            types = None if self.each_type_id is None else self.each_type_id[first:last]
            return replace(
                self,
                ids=self.ids[first:last],
                starts=starts,
                counts=self.counts[begin:end],
                each_type_id=types,
            )
        index = row + len(self) if row < 0 else row
        if not 0 <= index < len(self):
            raise IndexError(f"row {row} of a batch of {len(self)}")
        first, last = self._span(index, index + 1)
        return self.ids[first:last]

    def _span(self, begin: int, end: int) -> tuple[int, int]:
        """Where the ids of rows begin and end, as numbers of the host."""
        return int(self.starts[begin]), int(self.starts[end])

    def __iter__(self) -> Iterator[Ids]:
        starts = arrays.to_host(self.starts).tolist()
        return (self.ids[begin:end] for begin, end in itertools.pairwise(starts))

    def __getstate__(self) -> dict[str, Any]:
        """Pickles with NumPy's arrays: it may be another machine that reads it."""
        return vars(self.to_host())

    @property
    def lengths(self) -> Starts:
        """Ids in each row, padding included: int64[rows]."""
        with arrays.its_gpu(self.starts):
            return self.starts[1:] - self.starts[:-1]

    def to_host(self) -> TokenBatch:
        """The same batch in NumPy's arrays; itself if it is on the CPU already."""
        if self.device is None:
            return self
        ids, starts, counts = map(arrays.to_host, (self.ids, self.starts, self.counts))
        types = None if self.each_type_id is None else arrays.to_host(self.each_type_id)
        return TokenBatch(ids, starts, counts, self.type_ids, self.padding, types)

    def to_list(self) -> list[list[int]]:
        """The ids of all rows as Python lists, padding included."""
        flat, starts = self.ids.tolist(), self.starts.tolist()
        return [flat[begin:end] for begin, end in itertools.pairwise(starts)]

    def to_arrow(self) -> pa.LargeListArray:
        """The rows as an Arrow `large_list<int32>` array, without a copy on the CPU."""
        host = self.to_host()
        return pa.LargeListArray.from_arrays(pa.array(host.starts), pa.array(host.ids))

    def to_padded(self, length: int | None = None, pad_to_multiple_of: int | None = None) -> Padded:
        """Lays the rows out as rectangles of the longest row's width; nothing is cut off.

        length: at least this width. pad_to_multiple_of: the width is rounded up to a multiple of it. The pad id, its
        type id and the side are those of the batch's `padding`. On a GPU the rectangles stay there.
        """
        if self.device is not None:
            from gpu_tok.on_device.gather import to_padded

            with self.device.running():
                return to_padded(
                    self.device, self.ids, self.starts, self.counts, self.type_ids, self.padding, length,
                    pad_to_multiple_of, self.each_type_id,
                )  # fmt: skip
        width = width_of(int(self.lengths.max(initial=0)), length, pad_to_multiple_of)
        left = self.padding.side == "left"
        column = np.arange(width)[None, :]
        row_lengths, counts = self.lengths[:, None], self.counts[:, None]
        begin = width - row_lengths if left else np.zeros_like(row_lengths)
        stored = (column >= begin) & (column < begin + row_lengths)
        input_ids = np.full((len(self), width), self.padding.pad_id, np.int32)
        input_ids[stored] = self.ids[self.starts[0] : self.starts[-1]]
        place = column - (width - counts) if left else column  # the place within the row, counted without padding
        real = (place >= 0) & (place < counts)
        types = np.full((len(self), width), self.padding.pad_type_id, np.int32)
        if self.each_type_id is not None:
            types[stored] = self.each_type_id
        else:
            self._write_type_ids(types, real, place)
        return Padded(input_ids, real.astype(np.int32), types)

    def _write_type_ids(self, types: Ids, real: npt.NDArray[np.bool_], place: Starts) -> None:
        types[real] = self.type_ids.text
        for at, type_id in enumerate(self.type_ids.prefix):
            types[real & (place == at)] = type_id
        for at, type_id in enumerate(reversed(self.type_ids.suffix)):
            types[real & (place == self.counts[:, None] - 1 - at)] = type_id


def width_of(longest: int, length: int | None, multiple: int | None) -> int:
    """The width of a rectangle for rows of up to `longest` ids: at least `length`, and a multiple of `multiple`.

    >>> width_of(5, None, 4)
    8
    """
    width = max(longest, length or 0)
    return -(-width // multiple) * multiple if multiple else width
