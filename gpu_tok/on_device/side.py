"""What a tokenizer keeps on its device."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

from gpu_tok.added_tokens import AddedTokens
from gpu_tok.choice import choose
from gpu_tok.cold import ColdPath
from gpu_tok.on_device.path import DevicePath
from gpu_tok.tables.cuts import CutTables


class DeviceSide:
    """The path of a tokenizer on its device, with the tables there: uploaded at the first use.

    A forked child begins anew: the emulator works there, and CUDA says that it does not.
    """

    def __init__(self, name: str, cuts: CutTables, cold: ColdPath, added: AddedTokens, table_bytes: int) -> None:
        """name: the device, as for `choose`; the rest as for `DevicePath`."""
        self._name = name
        self._parts = (cuts, cold, added, table_bytes)
        self._lock = threading.Lock()
        self._path: DevicePath | None = None
        self._process = 0

    @property
    def path(self) -> DevicePath:
        """The path. Raises `DeviceError` where the device cannot be used (any more)."""
        with self._lock:
            if self._path is None or self._process != os.getpid():
                self._path = DevicePath(choose(self._name).handle, *self._parts)
                self._process = os.getpid()
            return self._path

    def upload(self, *arrays: np.ndarray) -> tuple[Any, ...]:
        """Copies of arrays on the device."""
        device = self.path.device
        with device.running():
            return tuple(map(device.upload, arrays))

    def after_fork(self) -> None:
        """In a child process: the lock may have been held by a thread that does not exist here."""
        self._lock = threading.Lock()
