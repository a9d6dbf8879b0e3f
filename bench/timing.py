"""One way to time: interleaved rounds, and a result that says on what machine, with what and at which commit."""

from __future__ import annotations

import hashlib
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import numba
import numpy as np
import orjson

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("gpu_tok", "tokenizers", "nanotoken", "gigatoken", "numba", "numpy", "pyarrow", "cupy-cuda13x")


@dataclass
class Times:
    """Seconds of one thing, a number a round."""

    seconds: list[float] = field(default_factory=list)

    def summary(self, byte_count: int) -> dict[str, Any]:
        """min, median and max seconds; megabytes (10^6 bytes) of text a second by the least and the median time."""
        least, median = min(self.seconds), statistics.median(self.seconds)
        return {
            "rounds": len(self.seconds),
            "seconds_min": least,
            "seconds_median": median,
            "seconds_max": max(self.seconds),
            "mb_per_s_best": byte_count / least / 1e6,
            "mb_per_s_median": byte_count / median / 1e6,
        }


def timed(work: Callable[[], Any], repeat: int = 1) -> tuple[float, Any]:
    """Seconds of one call, averaged over `repeat` calls in a row, and what the last one gave."""
    begin = time.perf_counter()
    for _ in range(repeat):
        result = work()
    return (time.perf_counter() - begin) / repeat, result


def repeats(seconds: float, at_least: float = 0.1, most: int = 20) -> int:
    """How often to repeat what takes `seconds`, so that a round lasts long enough to be read from a clock."""
    return max(1, min(most, int(at_least / max(seconds, 1e-9))))


@numba.njit(cache=True, nogil=True)
def _fnv1a(data: np.ndarray) -> np.uint64:
    value = np.uint64(0xCBF29CE484222325)
    for byte in data:
        value = (value ^ np.uint64(byte)) * np.uint64(0x100000001B3)
    return value


def fnv1a(array: Any) -> str:
    """FNV-1a, 64-bit, in hexadecimal: of ids as little-endian 32-bit words, of bytes as they are.

    >>> fnv1a(np.zeros(0, np.int32))
    'cbf29ce484222325'
    """
    values = np.asarray(array)
    if values.dtype != np.uint8:
        values = np.frombuffer(values.astype("<u4").tobytes(), np.uint8)
    return f"{int(_fnv1a(values)):016x}"


def record(results: list[dict[str, Any]], **about: Any) -> dict[str, Any]:
    """A whole result: what was measured, with everything that one needs to measure it again."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
        **about,
        "results": results,
    }


def write(path: Path, result: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(orjson.dumps(result, option=orjson.OPT_INDENT_2) + b"\n")


def machine() -> dict[str, Any]:
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": platform.platform(),
        "load_before": os.getloadavg()[0],
    }


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """The commit that was measured, with `+changes` where the tree differs from it."""
    try:
        name = _git("rev-parse", "--short=12", "HEAD")
        return name + ("+changes" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def fingerprint(path: Path) -> str:
    """SHA-256 of a file, its first 16 hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ).stdout.strip()


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
