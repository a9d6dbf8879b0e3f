"""How many bytes each kernel moves through memory, counted on the emulated device: *derived*, for any GPU.

Sectors of 32 bytes, each counted once for a warp between two warp-wide points, as `bench/model.py` counts them.
"""

from __future__ import annotations

from typing import Any

from gpu_tok import Tokenizer
from gpu_tok.batch import TextBatch
from gpu_tok.emulated import EmulatedDevice, Traffic
from gpu_tok.on_device.batches import DevicePath
from gpu_tok.on_device.decode import decode_on, upload
from gpu_tok.postprocess import plan_of
from gpu_tok.tables.postprocess import compile_postprocess

SECTOR = 32
TABLE_BYTES = 1 << 27


def count_traffic(tokenizer: Tokenizer, texts: list[str]) -> dict[str, Any]:
    """Bytes of memory for a byte of text, by kernel: [streaming, of tables, which may stay in a cache].

    warm: a batch whose chunks are all in the table, no special tokens; decode: its ids, where decoding has kernels.

    >>> count_traffic(tokenizer, ["The cat sat."])["warm"]
    {'cut_words': [1.21, 0.0], 'look_up_chunks': [2.3, 6.1], ...}
    """
    batch, device = TextBatch.of(texts), EmulatedDevice(count=True)
    path = DevicePath(device, tokenizer.cuts, tokenizer.cold, tokenizer.added_tokens, TABLE_BYTES)
    plan = plan_of(compile_postprocess(tokenizer.definition, False), None, None)
    path.encode_texts(batch, plan)
    table = path.encoder.table
    device.mark_table(table.rows, table.keys, table.ids)
    device.counts.clear()
    rows = path.encode_texts(batch, plan)
    counted = {"bytes": batch.byte_count, "warm": _for_a_byte(device, batch)}
    if tokenizer.decoder.grade != 3:
        tables = upload(device, tokenizer.decoder.tables_for(False))
        device.mark_table(tables.rows, tables.pool)
        device.counts.clear()
        decode_on(device, tables, rows.ids, rows.starts)
        counted["decode"] = _for_a_byte(device, batch)
    return counted


def _for_a_byte(device: EmulatedDevice, batch: TextBatch) -> dict[str, list[float]]:
    return {
        kernel: [round(SECTOR * sectors(part) / batch.byte_count, 4) for part in (counts.streaming, counts.table)]
        for kernel, counts in device.counts.items()
    }


def sectors(traffic: Traffic) -> int:
    return traffic.read_sectors + traffic.written_sectors
