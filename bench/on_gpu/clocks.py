"""Time on a device: of whole calls by the host's clock, of each kernel by the device's events."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from timing import Times


def timed_rounds(device: Any, work: Callable[[], Any], rounds: int) -> Times:
    """Seconds of each round, all of it done at its end; one more goes before and is not counted."""
    return timed_states(device, [work] * (rounds + 1), skipped=1)


def timed_states(device: Any, works: list[Callable[[], Any]], skipped: int = 0) -> Times:
    """Seconds of each work, done once; the first `skipped` are not counted."""
    times = Times()
    for number, work in enumerate(works):
        device.synchronize()
        begin = time.perf_counter()
        kept = work()
        device.synchronize()
        seconds = time.perf_counter() - begin
        del kept
        if number >= skipped:
            times.seconds.append(seconds)
    return times


@dataclass
class Watch:
    """The launches while it was on, with marks of the clock before and behind each, and around all of them."""

    clock: Any
    launches: list[str] = field(default_factory=list)
    spans: list[tuple[Any, Any]] = field(default_factory=list)
    before: Any = None
    behind: Any = None

    @property
    def seconds(self) -> float:
        return self.clock.seconds(self.before, self.behind)

    def by_kernel(self) -> dict[str, float]:
        """Seconds of all launches of each kernel, in the order of their first ones."""
        seconds: dict[str, float] = {}
        for kernel, span in zip(self.launches, self.spans, strict=True):
            seconds[kernel] = seconds.get(kernel, 0.0) + self.clock.seconds(*span)
        return seconds


@contextmanager
def watching(device: Any) -> Iterator[Watch]:
    """Has every launch on the device written down, with a mark of its clock before and behind it."""
    watch, launch = Watch(clock_of(device)), device.launch

    def watched(kernel: str, grid: int, block: int, *args: Any) -> None:
        before = watch.clock.mark()
        launch(kernel, grid, block, *args)
        watch.launches.append(kernel)
        watch.spans.append((before, watch.clock.mark()))

    device.launch = watched
    try:
        with device.running():
            watch.before = watch.clock.mark()
        yield watch
        with device.running():
            watch.behind = watch.clock.mark()
        device.synchronize()
    finally:
        del device.launch


def clock_of(device: Any) -> HostClock | EventClock:
    return EventClock(device.xp.cuda) if device.name == "cuda" else HostClock()


class HostClock:
    """Where a launch has ended when it returns."""

    name = "host clock"

    def mark(self) -> float:
        return time.perf_counter()

    def seconds(self, before: float, behind: float) -> float:
        return behind - before


class EventClock:
    """CUDA's events, on the stream that work goes to. Good to half a microsecond."""

    name = "CUDA events"

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda

    def mark(self) -> Any:
        return self._cuda.get_current_stream().record()

    def seconds(self, before: Any, behind: Any) -> float:
        behind.synchronize()
        return self._cuda.get_elapsed_time(before, behind) / 1e3


def median_by_kernel(watches: list[Watch]) -> dict[str, float]:
    """The median over rounds of each kernel's seconds."""
    rounds = [watch.by_kernel() for watch in watches]
    return {kernel: statistics.median(each.get(kernel, 0.0) for each in rounds) for kernel in rounds[-1]}
