"""What a tokenizer keeps on its device."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_tok.added_tokens import AddedTokens
from gpu_tok.choice import choose
from gpu_tok.cold import ColdPath
from gpu_tok.decode import Decoder
from gpu_tok.on_device.batches import DevicePath
from gpu_tok.on_device.decoder import DeviceDecoder
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

    @property
    def has_path(self) -> bool:
        """Has the path been used yet."""
        return "path" in self._made

    def _there(self, name: str, make: Callable[[Any], Any]) -> Any:
        with self._lock:
            if name not in self._made or self._process != os.getpid():
                device = choose(self._name).handle
                if self._process != os.getpid():
                    self._made, self._process = {}, os.getpid()
                self._made[name] = make(device)
            return self._made[name]

    def upload(self, *arrays: np.ndarray) -> tuple[Any, ...]:
        """Copies of arrays on the device."""
        device = choose(self._name).handle
        with device.running():
            return tuple(map(device.upload, arrays))

    def after_fork(self) -> None:
        """In a child process: the lock may have been held by a thread that does not exist here."""
        self._lock = threading.Lock()
