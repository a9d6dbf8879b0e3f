"""What each kernel takes, read from its text, so that the host can check a launch before it is one.

>>> parse("KERNEL LAUNCHED_AS(THREADS) sum(const u8* bytes, i64 count, i64* total) {", {"THREADS": 256})
{'sum': Signature('sum', (Parameter('bytes', uint8, True), Parameter('count', None, False), ...), 256)}
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpu_tok.errors import DeviceError

MOST_THREADS = 1024
MOST_ARGUMENTS = 32  # what kernels/emu/runtime.cpp passes on
ELEMENTS: Mapping[str, Any] = {
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "i32": np.int32,
    "i64": np.int64,
    "float": np.float32,
    "double": np.float64,
}
_KERNEL = re.compile(r"^KERNEL(?:\s+LAUNCHED_AS\((\w+)(?:, \w+)?\))?\s+(\w+)\(([^)]*)\)", re.MULTILINE)
_CONSTANT = re.compile(r"^constexpr \w+ (\w+) = (\d+)\s*;", re.MULTILINE)
_PARAMETER = re.compile(r"(const\s+)?(\w+)\s*(\*?)\s*(?:__restrict__\s+)?(\w+)")


@dataclass(frozen=True)
class Parameter:
    """A pointer or a 64-bit integer. element: what a pointer points at, as NumPy names it; None where it has no name
    there (a struct)."""

    name: str
    is_pointer: bool
    element: Any
    is_const: bool


@dataclass(frozen=True)
class Signature:
    """A kernel's name, its parameters and the greatest block that it may be launched with."""

    name: str
    parameters: tuple[Parameter, ...]
    most_threads: int


def read(folders: Sequence[Path]) -> dict[str, Signature]:
    """The kernels of all *.cu files of the folders, by name."""
    constants: dict[str, int] = {}
    texts = [path.read_text(encoding="utf-8") for folder in folders for path in sorted(folder.glob("*.cu*"))]
    for text in texts:
        constants.update((name, int(value)) for name, value in _CONSTANT.findall(text))
    return {name: signature for text in texts for name, signature in parse(text, constants).items()}


def parse(text: str, constants: Mapping[str, int]) -> dict[str, Signature]:
    """The kernels of one text. Raises `DeviceError` for a parameter that is neither a pointer nor 64 bits wide."""
    return {
        name: Signature(name, tuple(_parameters(name, parameters)), _threads(bound, constants))
        for bound, name, parameters in _KERNEL.findall(text)
    }


def _parameters(kernel: str, text: str) -> list[Parameter]:
    found = []
    for part in filter(None, map(str.strip, text.split(","))):
        match = _PARAMETER.fullmatch(" ".join(part.split()))
        if match is None or not (match[3] or match[2] in ("i64", "u64")):
            finding = f"kernel {kernel}: parameter `{part}` is neither a pointer nor a 64-bit integer"
            raise DeviceError(finding, "pass an i64, or a pointer to what it holds")
        element = ELEMENTS.get(match[2])
        found.append(Parameter(match[4], bool(match[3]), element, bool(match[1])))
    if len(found) > MOST_ARGUMENTS:
        raise DeviceError(f"kernel {kernel} has {len(found)} parameters", f"{MOST_ARGUMENTS} are the most")
    return found


def _threads(bound: str, constants: Mapping[str, int]) -> int:
    return int(bound) if bound.isdigit() else constants.get(bound, MOST_THREADS)
