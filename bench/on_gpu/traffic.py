"""How many bytes each kernel moves through memory, counted on the emulated device: *derived*, for any GPU.

Sectors of 32 bytes, each counted once for a warp between two warp-wide points, as `bench/model.py` counts them.
"""

from __future__ import annotations

from typing import Any

from gpu_tok import Tokenizer
from gpu_tok.batch import Ragged, TextBatch
from gpu_tok.emulated import Counts, EmulatedDevice
from gpu_tok.on_device.batches import DevicePath
from gpu_tok.on_device.decoder import DeviceDecoder
from gpu_tok.postprocess import plan_of
from gpu_tok.tables.postprocess import compile_postprocess

SECTOR = 32
TABLE_BYTES = 1 << 27


def count_traffic(tokenizer: Tokenizer, texts: list[str]) -> dict[str, Any]:
    """Bytes of memory for a byte of text: of the kernels of a warm batch, without special tokens, and of decoding.

    >>> count_traffic(tokenizer, ["The cat sat."])["warm"]
    {'cut_words': 1.21, 'look_up_chunks': 3.4, ...}
    """
    batch, device = TextBatch.of(texts), EmulatedDevice(count=True)
    path = DevicePath(device, tokenizer.cuts, tokenizer.cold, tokenizer.added_tokens, TABLE_BYTES)
    plan = plan_of(compile_postprocess(tokenizer.definition, False), None, None)
    path.encode_texts(batch, plan)
    device.counts.clear()
    rows = path.encode_texts(batch, plan)
    warm = _for_a_byte(device.counts, batch)
    device.counts.clear()
    DeviceDecoder(device, tokenizer.decoder).decode_bytes(Ragged(rows.ids, rows.starts), skip_special_tokens=False)
    return {"bytes": batch.byte_count, "warm": warm, "decode": _for_a_byte(device.counts, batch)}


def _for_a_byte(counts: dict[str, Counts], batch: TextBatch) -> dict[str, float]:
    return {kernel: round(SECTOR * _sectors(each) / batch.byte_count, 4) for kernel, each in counts.items()}


def _sectors(counts: Counts) -> int:
    return sum(part.read_sectors + part.written_sectors for part in (counts.streaming, counts.table))
