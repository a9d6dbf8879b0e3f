"""Texts in batches of a size that fits the device, two of them under way at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np

from gpu_tok import arrays
from gpu_tok.added_tokens import AddedTokens
from gpu_tok.batch import Padding, TextBatch, TypeIds, row_ranges
from gpu_tok.cold import ColdPath
from gpu_tok.copies import Copy
from gpu_tok.errors import DeviceError, TextError
from gpu_tok.on_device.gather import DeviceRows, to_padded
from gpu_tok.on_device.path import Batch, begin, encoder_on, end
from gpu_tok.on_device.text import of_rows
from gpu_tok.postprocess import NO_PADDING, PAD_TO_LENGTH, PAD_TO_LONGEST, Plan
from gpu_tok.tables.cuts import CutTables

MOST_BYTES = 1 << 30  # of texts in a batch
LEAST_BYTES = 1 << 20  # of a batch that is not halved any more when memory runs out
MEMORY_SHARE = 32  # bytes of memory that there must be for a byte of text, with two batches under way
T = TypeVar("T")


class _Rows(NamedTuple):
    """The rows [begin, end) of a batch, whose bytes are [first, last)."""

    begin: int
    end: int
    first: int
    last: int


class _Part(NamedTuple):
    """Rows of a batch under way. copies: to the device; kept until nobody reads there any more."""

    rows: _Rows
    batch: Batch
    copies: tuple[Copy, ...]


class DevicePath:
    """The path of one tokenizer on one device. Threads may share it: they take turns.

    >>> path = DevicePath(EmulatedDevice(), cuts, cold, added, table_bytes=1 << 27)
    >>> rows = path.encode_texts(TextBatch.of(["the cat"]), plan)
    >>> rows.ids, rows.starts
    (array([1996, 4937], dtype=int32), array([0, 2]))

    batch_bytes: how many bytes of text go to the device at once; None asks its free memory. The ids are the same.
    """

    def __init__(
        self,
        device: Any,
        cuts: CutTables,
        cold: ColdPath,
        added: AddedTokens,
        table_bytes: int,
        batch_bytes: int | None = None,
    ) -> None:
        self.device = device
        self.batch_bytes = batch_bytes
        self._lock = threading.Lock()
        with device.running():
            self.encoder = encoder_on(device, cuts, cold, table_bytes, added)

    def encode_texts(self, batch: TextBatch, plan: Plan) -> DeviceRows:
        """texts, on the host or on the device -> rows of ids on the device."""
        with self._lock, self.device.running():
            parts = self._encode(batch, _unpadded(plan), lambda rows: rows)
            joined = _joined(self.device.xp, parts)
            return self._padded(joined, plan) if plan.pad_mode == PAD_TO_LONGEST else joined

    def encode_to_host(self, batch: TextBatch, plan: Plan) -> DeviceRows:
        """As `encode_texts`, with the rows on the host: those of one part are copied while the next is encoded."""
        if plan.pad_mode == PAD_TO_LONGEST:
            rows = self.encode_texts(batch, plan)
            with self.device.running():
                return DeviceRows(*map(self.device.download, rows))
        with self._lock, self.device.running():
            parts = self._encode(batch, plan, lambda rows: [self.device.fetch(array) for array in rows])
            return _joined(np, [DeviceRows(*[copy.wait() for copy in copies]) for copies in parts])

    def _encode(self, batch: TextBatch, plan: Plan, take: Callable[[DeviceRows], T]) -> list[T]:
        """What `take` makes of each part of the batch. Where memory runs out, parts are halved from there on."""
        size = self.batch_bytes or self._fitting_bytes()
        taken: list[T] = []
        row = 0
        while True:
            try:
                for row_end, rows in self._under_way(batch, row, size, plan):
                    taken.append(take(rows))
                    row = row_end
                return taken
            except MemoryError as error:
                self.device.release_memory()
                if size <= LEAST_BYTES:
                    raise _out_of_memory(self.device, batch, row, size) from error
                size //= 2
            except BaseException:
                self.device.synchronize()  # a batch that is given up must not be half done when its memory goes
                raise

    def _under_way(self, batch: TextBatch, row: int, size: int, plan: Plan) -> Iterator[tuple[int, DeviceRows]]:
        """The parts from `row` on, each with its end, in order; the next is enqueued before one is waited for."""
        before: _Part | None = None
        for rows in _ranges(batch, row, size):
            if self.encoder.table.is_stale:  # entries of a batch under way name its rows
                if before is not None:
                    yield self._ended(before)
                    before = None
                self.encoder.table.clear()
            part = self._begun(batch, rows, plan)
            if before is not None:
                yield self._ended(before)
            before = part
        if before is not None:
            yield self._ended(before)

    def _begun(self, batch: TextBatch, rows: _Rows, plan: Plan) -> _Part:
        """Enqueues some rows of a batch."""
        bytes = batch.bytes[rows.first : rows.last]
        starts = batch.starts[rows.begin : rows.end + 1] - rows.first
        copies: tuple[Copy, ...] = ()
        if not batch.is_on_gpu:
            copies = self.device.stage(bytes), self.device.stage(starts)
            bytes, starts = (copy.array for copy in copies)
        text = of_rows(self.device, bytes, starts, self.encoder.cold.flags)
        rooms = self.encoder.shares.rooms(len(text.bytes), _extra_ids(plan, rows.end - rows.begin))
        return _Part(rows, begin(self.device, text, self.encoder, plan, rooms), copies)

    def _ended(self, part: _Part) -> tuple[int, DeviceRows]:
        try:
            return part.rows.end, end(self.device, part.batch, self.encoder)
        except TextError as error:
            raise error.in_row(error.row + part.rows.begin) from None

    def _padded(self, rows: DeviceRows, plan: Plan) -> DeviceRows:
        """Rows filled up to the longest of all parts."""
        padding = Padding(plan.pad_id, side="left" if plan.pad_left else "right")
        ids = to_padded(
            self.device, rows.ids, rows.starts, rows.counts, TypeIds(), padding, pad_to_multiple_of=plan.pad_multiple
        ).input_ids
        starts = self.device.xp.arange(len(rows.counts) + 1, dtype=np.int64) * ids.shape[1]
        return rows._replace(ids=ids.reshape(-1), starts=starts)

    def _fitting_bytes(self) -> int:
        return max(LEAST_BYTES, min(MOST_BYTES, self.device.free_memory() // MEMORY_SHARE))


def _unpadded(plan: Plan) -> Plan:
    """The plan for parts: how long the longest row of all is, none of them knows."""
    return plan._replace(pad_mode=NO_PADDING) if plan.pad_mode == PAD_TO_LONGEST else plan


def _joined(xp: Any, parts: list[DeviceRows]) -> DeviceRows:
    """The parts one behind the other."""
    if len(parts) == 1:
        return parts[0]
    ids, counts, text_counts = (xp.concatenate([part[field] for part in parts]) for field in (0, 2, 3))
    starts, before = [], 0
    for part in parts:
        starts.append(part.starts[:-1] + before)
        before += len(part.ids)
    return DeviceRows(ids, xp.concatenate([*starts, xp.full(1, before, np.int64)]), counts, text_counts)


def _ranges(batch: TextBatch, row: int, size: int) -> Iterator[_Rows]:
    """Ranges of rows from `row` on, of about `size` bytes each. An empty batch has one."""
    if row == 0 and (len(batch) == 0 or len(batch.bytes) <= size):
        yield _Rows(0, len(batch), *batch.span)
        return
    starts = arrays.to_host(batch.starts)
    for begin_row, end_row in row_ranges(starts[row:], size):
        begin_row, end_row = row + begin_row, row + end_row
        yield _Rows(begin_row, end_row, int(starts[begin_row]), int(starts[end_row]))


def _extra_ids(plan: Plan, rows: int) -> int:
    """Special tokens and padding, as far as they are known before."""
    around = len(plan.prefix) + len(plan.suffix)
    return rows * (max(around, plan.pad_length) if plan.pad_mode == PAD_TO_LENGTH else around)


def _out_of_memory(device: Any, batch: TextBatch, row: int, size: int) -> DeviceError:
    longest = int(np.diff(arrays.to_host(batch.starts)[row:]).max(initial=0))
    finding = f"{device.description} has no memory for a batch of {max(size, longest):,} bytes of text"
    return DeviceError(finding, 'free memory there, divide long texts, or use device="cpu"')
