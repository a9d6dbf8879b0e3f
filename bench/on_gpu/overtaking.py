"""The batch size from which the GPU is faster than the CPU path: what `device="auto"` should route by.

Both take warm texts from the host and leave ids on the device.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from gpu_tok.batch import TextBatch
from on_gpu import documents
from on_gpu.clocks import timed_rounds
from on_gpu.setting import Setting
from on_gpu.throughput import encode

ALWAYS = 1 << 62  # every batch is smaller
CHARACTERS = 1024  # of a document


def tasks(setting: Setting) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    for name in setting.names:
        yield f"overtaking/{name}", partial(compare_sizes, setting, name, setting.data.languages[0])


def compare_sizes(setting: Setting, name: str, language: str) -> dict[str, Any]:
    """Seconds of both for each size, and the least size from which on the device is faster."""
    texts = setting.data.to_time(language, setting.sizes.text_megabytes).timed
    there = setting.tokenizer(name)
    here = there.to(setting.device, small_batch_bytes=ALWAYS)
    rows = []
    for size in setting.sizes.overtaking:
        if setting.deadline.has_passed:
            break
        batch = TextBatch.of(documents.short_documents(texts, max(1, size // CHARACTERS), CHARACTERS))
        row: dict[str, Any] = {"bytes": batch.byte_count, "documents": len(batch)}
        for path, tokenizer in (("device", there), ("cpu", here)):
            times = timed_rounds(setting.handle, partial(encode, tokenizer, batch), setting.sizes.rounds)
            row[f"{path}_seconds"] = statistics.median(times.seconds)
        rows.append(row)
    return {"overtakes_at_bytes": overtakes_at(rows), "sizes": rows, "how": "measured, warm, host to device"}


def overtakes_at(rows: Sequence[dict[str, Any]]) -> int | None:
    """The least size from which on the device is faster at every size; None where it is not at the greatest."""
    faster = None
    for row in reversed(rows):
        if row["device_seconds"] >= row["cpu_seconds"]:
            break
        faster = row["bytes"]
    return faster
