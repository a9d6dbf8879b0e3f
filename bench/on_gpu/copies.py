"""How fast bytes are copied: the measure of everything that only moves them."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from on_gpu.clocks import clock_of
from on_gpu.setting import Setting

ROUNDS = 7
ON_DEVICE = "device_gb_per_s"


def copy_speeds(setting: Setting) -> dict[str, Any]:
    """GB (10^9 bytes) a second: on the device (bytes read and written), to it and from it (pinned memory)."""
    device, size = setting.handle, setting.sizes.copy_bytes
    with device.running():
        source = device.xp.arange(size // 8, dtype=np.int64)  # not zeros: they may be faster than real data
        target = device.xp.empty_like(source)
        here = device.pinned(size // 4, np.uint8)
        here.view(np.int64)[...] = np.arange(len(here) // 8)
        there = device.upload(here)
        return {
            ON_DEVICE: 2 * size / _seconds(device, lambda: device.xp.copyto(target, source)) / 1e9,
            "to_device_gb_per_s": here.nbytes / _seconds(device, lambda: device.upload(here)) / 1e9,
            "from_device_gb_per_s": here.nbytes / _seconds(device, lambda: device.download(there, here)) / 1e9,
            "bytes": {"device": 2 * size, "host": here.nbytes},
            "clock": clock_of(device).name,
            "how": f"measured, median of {ROUNDS} copies",
        }


def _seconds(device: Any, work: Callable[[], Any]) -> float:
    clock = clock_of(device)
    work()
    marks = []
    for _ in range(ROUNDS):
        before = clock.mark()
        work()
        marks.append((before, clock.mark()))
    return statistics.median(clock.seconds(*pair) for pair in marks)
