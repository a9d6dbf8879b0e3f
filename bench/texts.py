"""Texts to measure on: some that are timed, and others from the same source that fill a table before *fresh* runs."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import orjson
import zstandard

DEFAULT_FOLDER = Path(os.environ.get("GPU_TOK_SHARED", Path(__file__).resolve().parents[2] / "shared"))


@dataclass(frozen=True)
class Texts:
    """One language's texts. `timed` and `others` have no text in common."""

    language: str
    timed: list[str]
    others: list[str]

    @cached_property
    def byte_count(self) -> int:
        return sum(len(text.encode("utf-8")) for text in self.timed)


def load(language: str, folder: Path, megabytes: float) -> Texts:
    """About `megabytes` of 10^6 bytes to time, spread over the file, and up to twice as much of the rest.

    folder: holds LANGUAGE.jsonl, .jsonl.zst or .txt; a line of JSON has its text under "text", a plain line is one.
    """
    texts = list(dict.fromkeys(read(language, folder)))
    order = np.random.default_rng(0).permutation(len(texts))
    wanted = megabytes * 1e6
    timed, rest = _take([texts[row] for row in order], wanted)
    others, _ = _take(rest, 2 * wanted)
    return Texts(language, timed, others)


def _take(texts: list[str], byte_count: float) -> tuple[list[str], list[str]]:
    taken = 0
    for row, text in enumerate(texts):
        if taken >= byte_count:
            return texts[:row], texts[row:]
        taken += len(text.encode("utf-8"))
    return texts, []


def read(language: str, folder: Path) -> list[str]:
    """All texts of a language, in the file's order."""
    for ending in (".jsonl.zst", ".jsonl", ".txt"):
        path = folder / f"{language}{ending}"
        if path.is_file():
            break
    else:
        raise SystemExit(f"{folder}: no {language}.jsonl.zst, .jsonl or .txt\nhint: --data FOLDER names another folder")
    with path.open("rb") as file:
        source = zstandard.ZstdDecompressor().stream_reader(file) if path.suffix == ".zst" else file
        lines = io.BufferedReader(source) if path.suffix == ".zst" else source
        if path.suffix == ".txt":
            return [line.decode("utf-8").rstrip("\n") for line in lines]
        return [orjson.loads(line)["text"] for line in lines]
