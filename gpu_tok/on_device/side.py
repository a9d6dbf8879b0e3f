"""What a tokenizer keeps on its device."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from gpu_tok.added_tokens import AddedTokens
from gpu_tok.batch import TextBatch, TokenBatch
from gpu_tok.choice import choose
from gpu_tok.cold import ColdPath
from gpu_tok.decode import Decoder
from gpu_tok.errors import TextError
from gpu_tok.intern import TableUse
from gpu_tok.on_device.batches import DevicePath
from gpu_tok.on_device.decoder import DeviceDecoder
from gpu_tok.on_device.gather import DeviceRows
from gpu_tok.postprocess import Plan
from gpu_tok.tables.cuts import CutTables


class DeviceSide:
    """The path and the decoder of a tokenizer on its device, with their tables there: uploaded at the first use.

    A forked child begins anew: the emulator works there, and CUDA says that it does not.
    """

    def __init__(
        self, name: str, cuts: CutTables, cold: ColdPath, added: AddedTokens, table_bytes: int, decoder: Decoder
    ) -> None:
        """name: the device, as for `choose`; the rest as for `DevicePath`, and the decoder."""
        self._name = name
        self._parts = (cuts, cold, added, table_bytes)
        self._decoder = decoder
        self._lock = threading.Lock()
        self._made: dict[str, Any] = {}
        self._process = os.getpid()

    @property
    def path(self) -> DevicePath:
        """The path. Raises `DeviceError` where the device cannot be used (any more)."""
        return self._there("path", lambda device: DevicePath(device, *self._parts))

    @property
    def decoder(self) -> DeviceDecoder:
        """The decoder. Raises as `path` does."""
        return self._there("decoder", lambda device: DeviceDecoder(device, self._decoder))

    def table_use(self) -> TableUse:
        """What the table holds; nothing before the first batch."""
        if "path" not in self._made:
            return TableUse()
        device, table = self.path.device, self.path.encoder.table
        with device.running():
            rows, keys, ids = table.used_of_rooms()
        return TableUse(rows, table.rows.nbytes + keys + 4 * ids, table.generation)

    def _there(self, name: str, make: Callable[[Any], Any]) -> Any:
        with self._lock:
            if name not in self._made or self._process != os.getpid():
                device = choose(self._name).handle
                if self._process != os.getpid():
                    self._made, self._process = {}, os.getpid()
                self._made[name] = make(device)
            return self._made[name]

    def encode(
        self, batch: TextBatch, plan: Plan, invalid_utf8: Literal["error", "replace"], to_host: bool = False
    ) -> DeviceRows:
        """Encodes texts, wherever they are. Bytes that are there already are checked there."""
        encode = self.path.encode_to_host if to_host else self.path.encode_texts
        try:
            return encode(self._here(batch), plan)
        except TextError:
            if batch.valid:
                raise
            repaired = batch.validated(invalid_utf8)  # on the host, which says what is wrong, and where
            return encode(repaired, plan)

    def upload(self, batch: TokenBatch) -> TokenBatch:
        """A batch that the CPU has encoded, as if it had been encoded here."""
        device = choose(self._name).handle
        with device.running():
            ids, starts, counts = map(device.upload, (batch.ids, batch.starts, batch.counts))
            types = None if batch.each_type_id is None else device.upload(batch.each_type_id)
        return replace(batch, ids=ids, starts=starts, counts=counts, each_type_id=types, device=device)

    def _here(self, batch: TextBatch) -> TextBatch:
        """Texts of another GPU are copied to this one."""
        if not batch.is_on_gpu:
            return batch
        device = self.path.device
        with device.running():
            bytes, starts = device.here(batch.bytes), device.here(batch.starts)
        return batch if bytes is batch.bytes else TextBatch(bytes, starts, batch.valid)

    def after_fork(self) -> None:
        """In a child process: the lock may have been held by a thread that does not exist here."""
        self._lock = threading.Lock()
