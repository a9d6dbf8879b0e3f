"""What each kernel takes of a batch's time, and its share of what a copy reaches in the same run.

Seconds are measured. Bytes moved are *derived*: the packed folder says how many each kernel moves for a byte of text,
counted on the emulated device when it was packed (`traffic.py`). Of cold batches there is no such count.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gpu_tok.batch import TextBatch
from on_gpu.clocks import Watch, median_by_kernel, watching
from on_gpu.copies import ON_DEVICE, copy_speeds
from on_gpu.setting import Setting
from on_gpu.throughput import Case, encode, on_device


def tasks(setting: Setting) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """A look at each of the timed tokenizers, in English or what there is."""
    copies = functools.cache(lambda: copy_speeds(setting))
    yield "copies", copies
    for language in setting.data.languages[:2]:
        for name in setting.names:
            work = functools.partial(look, setting, name, language, copies)
            yield f"kernels/{name}/{language}", work


def look(setting: Setting, name: str, language: str, copies: Callable[[], Any]) -> dict[str, Any]:
    """Kernels of a warm batch, of a cold one, and of decoding."""
    case = Case(setting, name, language)
    large = on_device(setting, case.large)
    small = on_device(setting, case.batch)
    rounds, warm = range(setting.sizes.rounds), setting.tokenizer(name)
    ids = encode(warm, large)
    empty = [setting.empty_tokenizer(name) for _ in rounds]
    looks = {
        "warm": (large, [watched(setting, lambda: encode(warm, large)) for _ in rounds]),
        "cold": (small, [watched(setting, lambda each=each: encode(each, small)) for each in empty]),
        "decode": (
            large,
            [watched(setting, lambda: warm.decode_bytes(ids, skip_special_tokens=False)) for _ in rounds],
        ),
    }
    moved = setting.data.manifest["traffic"].get(f"{name}/{language}", {})
    return {state: describe(*seen, moved.get(state, {}), copies()) for state, seen in looks.items()} | {
        "how": "seconds measured; bytes moved derived, by counts on the emulated device",
        "counted_on_these_sources": setting.data.has_same_sources,
    }


def watched(setting: Setting, work: Callable[[], Any]) -> Watch:
    with watching(setting.handle) as watch:
        work()
    return watch


def describe(
    batch: TextBatch, watches: list[Watch], moved: Mapping[str, Sequence[float]], copies: Mapping[str, Any]
) -> dict[str, Any]:
    """A row a kernel, the longest first. What is between kernels: prefix sums, copies, and waiting for the host.

    moved: bytes that each kernel moves for a byte of text, streaming and of tables. Its speed is that of the streaming
    ones; tables are small enough for a cache.
    """
    seconds = median_by_kernel(watches)
    whole = float(np.median([watch.seconds for watch in watches]))
    rows = []
    for kernel, took in sorted(seconds.items(), key=lambda pair: -pair[1]):
        row = {"kernel": kernel, "launches": watches[-1].launches.count(kernel), "seconds": took}
        if kernel in moved:
            streaming, of_tables = moved[kernel]
            speed = streaming * batch.byte_count / max(took, 1e-9) / 1e9
            row |= {"bytes_a_byte": streaming, "table_bytes_a_byte": of_tables, "gb_per_s": speed}
            row["share_of_copy"] = speed / copies[ON_DEVICE]
        rows.append(row)
    return {
        "bytes": batch.byte_count,
        "documents": len(batch),
        "seconds": whole,
        "between_kernels": whole - sum(seconds.values()),
        "mb_per_s": batch.byte_count / whole / 1e6,
        "clock": f"{watches[-1].clock.name}, median of {len(watches)}",
        "kernels": rows,
    }
