"""The path of a batch on a device, step under step; written once for every device that has `xp` and `launch`."""

from __future__ import annotations

import threading
from typing import Any

from gpu_tok import added_tokens
from gpu_tok.added_tokens import AddedTokens, Sections
from gpu_tok.batch import TextBatch
from gpu_tok.cold import ColdPath
from gpu_tok.device import Workers
from gpu_tok.on_device import cut, gather, intern, text
from gpu_tok.on_device.gather import DeviceRows
from gpu_tok.on_device.intern import DeviceEncoder
from gpu_tok.on_device.table import DeviceTable
from gpu_tok.postprocess import Plan
from gpu_tok.tables.cuts import CutTables


def encoder_on(device: Any, cuts: CutTables, cold: ColdPath, table_bytes: int) -> DeviceEncoder:
    """Uploads the tables of the cut step and makes an empty persistent table."""
    return DeviceEncoder(cut.upload(device, cuts), DeviceTable(device, table_bytes), cold)


class DevicePath:
    """The path of one tokenizer on one device. Threads may share it: batches take turns.

    >>> path = DevicePath(EmulatedDevice(), cuts, cold, added, table_bytes=1 << 27)
    >>> rows = path.encode_texts(TextBatch.of(["the cat"]), plan)
    >>> rows.ids, rows.starts
    (array([1996, 4937], dtype=int32), array([0, 2]))
    """

    def __init__(self, device: Any, cuts: CutTables, cold: ColdPath, added: AddedTokens, table_bytes: int) -> None:
        self.device = device
        self.added = added
        self.encoder = encoder_on(device, cuts, cold, table_bytes)
        self._workers = Workers(1)
        self._lock = threading.Lock()

    def encode_texts(self, batch: TextBatch, plan: Plan) -> DeviceRows:
        """texts, on the host or on the device -> rows of ids on the device."""
        with self._lock, self.device.running():
            return encode(self.device, added_tokens.run(batch, self.added, self._workers), self.encoder, plan)


def encode(device: Any, sections: Sections, encoder: DeviceEncoder, plan: Plan | None = None) -> DeviceRows:
    """sections -> ids, exactly the reference's."""
    batch = text.upload(device, sections, encoder.cold.flags)
    cuts = cut.run(device, batch, encoder.cuts)
    found = intern.look_up_all(device, batch, cuts, encoder)
    late = intern.encode_new(device, batch, cuts, found, encoder) if found.miss_count else None
    places = gather.place_sections(device, batch, cuts, found, late, encoder.table)
    rows = gather.run_all(device, batch, cuts, found, late, places, encoder.table, plan)
    encoder.table.note(found.miss_count, found.chunk_count)
    return rows
