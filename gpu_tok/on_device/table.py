"""The persistent table on a device: what `gpu_tok.intern.Table` is for the CPU, with the same rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from cpu_ref.intern import IDS_USED, KEYS_USED, PROBES, ROW_BYTES, ROWS_USED, InternTable
from gpu_tok.intern import RENEW_SHARE, RENEW_UNITS

ROW_WORDS = ROW_BYTES // 8


class DeviceTable:
    """Maps chunks to ids, from batch to batch. Kernels that touch it run in order on the device's one stream.

    rows: uint64[4 * capacity], the capacity a power of two or 0; keys: uint8 pool; ids: int32 pool; used: uint64[3],
    how much of each was asked for. Results never depend on what it holds.
    """

    def __init__(self, device: Any, budget: int) -> None:
        """budget: bytes; half of it for rows, a quarter each for the pools of keys and ids. 0 keeps nothing."""
        self.device = device
        rows = budget // 2 // ROW_BYTES
        self.capacity = 1 << (rows.bit_length() - 1) if rows >= PROBES else 0
        pool_bytes = min(budget // 4, 1 << 31) if self.capacity else 0
        self.rows = device.upload(np.zeros(ROW_WORDS * self.capacity, np.uint64))
        self.keys = device.upload(np.empty(pool_bytes, np.uint8))
        self.ids = device.upload(np.empty(pool_bytes // 4, np.int32))
        self.used = device.xp.zeros(3, np.uint64)
        self.generation = 0
        self._stale_batches = 0

    @property
    def row_limit(self) -> int:
        return self.capacity // 2

    def note(self, misses: int, chunks: int) -> None:
        """Takes in how many chunks of the batch that has just ended were missing."""
        stale = self.capacity > 0 and misses > RENEW_SHARE * chunks and self._is_full()
        self._stale_batches = self._stale_batches + 1 if stale else 0

    @property
    def is_stale(self) -> bool:
        """Is it full, and has much been missing for some batches: then a new generation pays, as soon as no batch is
        under way whose entries name rows of this one."""
        return self._stale_batches >= RENEW_UNITS

    def clear(self) -> None:
        """Begins a new generation, with nothing in it: the next batch is cold."""
        self.generation += 1
        self._stale_batches = 0
        self.rows.fill(0)
        self.used.fill(0)

    def to_host(self) -> InternTable:
        """A copy that the CPU path can read and add to."""
        rows, keys, ids = (self.device.download(array) for array in (self.rows, self.keys, self.ids))
        return InternTable(rows, keys, ids, np.array(self.used_of_rooms(), np.int64))

    def load(self, table: InternTable) -> None:
        """Takes the rows of a table of the same capacity, whoever filled it."""
        self.rows[...] = self.device.upload(table.rows)
        for room, given in ((self.keys, table.keys), (self.ids, table.ids)):
            count = min(len(room), len(given))
            room[:count] = self.device.upload(given[:count])
        self.used[...] = self.device.upload(table.used.astype(np.uint64))

    def used_of_rooms(self) -> tuple[int, int, int]:
        """How many rows, bytes of keys and ids are taken; what was asked for beyond them found no room."""
        used = self.device.download(self.used)
        rows, keys, ids = (min(int(used[word]), self._rooms[word]) for word in (ROWS_USED, KEYS_USED, IDS_USED))
        return rows, keys, ids

    @property
    def _rooms(self) -> tuple[int, int, int]:
        return self.row_limit, len(self.keys), len(self.ids)

    def _is_full(self) -> bool:
        return any(map(int.__eq__, self.used_of_rooms(), self._rooms))
