"""A tokenizer's decoder on a device: rows of ids, wherever they are, to texts there."""

from __future__ import annotations

import threading
from typing import Any

from gpu_tok import arrays
from gpu_tok.batch import Ragged, TextBatch
from gpu_tok.decode import Decoder
from gpu_tok.on_device.decode import decode_on, upload
from gpu_tok.tables.decode import DecodeTables


class DeviceDecoder:
    """Decodes as `Decoder` does, on a device. Its tables go there once; of grade 3, the reference decodes as ever."""

    def __init__(self, device: Any, decoder: Decoder) -> None:
        self._device = device
        self._decoder = decoder
        self._tables: dict[bool, DecodeTables] = {}
        self._lock = threading.Lock()

    def decode_bytes(self, rows: Ragged, skip_special_tokens: bool = True) -> TextBatch:
        """The texts of rows of ids, with arrays of the device; raises `IdError` for ids that cannot be any."""
        device = self._device
        if self._decoder.grade == 3:
            text = self._decoder.decode_bytes(Ragged(*map(arrays.to_host, rows)), skip_special_tokens)
            with device.running():
                return TextBatch(device.upload(text.bytes), device.upload(text.starts), valid=True)
        with device.running():
            ids, starts = (device.here(array) for array in rows)
            return TextBatch(*decode_on(device, self._tables_for(skip_special_tokens), ids, starts), valid=True)

    def _tables_for(self, skip_special_tokens: bool) -> DecodeTables:
        with self._lock:
            if skip_special_tokens not in self._tables:
                made = self._decoder.tables_for(skip_special_tokens)
                self._tables[skip_special_tokens] = upload(self._device, made)
            return self._tables[skip_special_tokens]
