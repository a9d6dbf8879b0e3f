"""new chunks -> ids by kernels, whichever model they are for: `cold` for WordPiece, `cold_bpe` for BPE."""

from __future__ import annotations

from typing import Any

from gpu_tok.on_device import cold, cold_bpe
from gpu_tok.on_device.batch_table import Late, Winners
from gpu_tok.on_device.cold import ColdTables
from gpu_tok.on_device.cold_bpe import BpeColdTables
from gpu_tok.tables.native import NativeBpe, NativeTables

DeviceTables = ColdTables | BpeColdTables


def upload(device: Any, tables: NativeTables | NativeBpe, host_flags: int) -> DeviceTables:
    """The tables of the cold path in the device's memory. host_flags: flags of chunks that only the host encodes."""
    if isinstance(tables, NativeBpe):
        return cold_bpe.upload(device, tables, host_flags)
    return cold.upload(device, tables, host_flags)


def run(device: Any, bytes: Any, misses: Any, winners: Winners, tables: DeviceTables, arena: Any, report: Any) -> Late:
    """Encodes each winner; see `cold.run`."""
    if isinstance(tables, BpeColdTables):
        return cold_bpe.run(device, bytes, misses, winners, tables, arena, report)
    return cold.run(device, bytes, misses, winners, tables, arena, report)
