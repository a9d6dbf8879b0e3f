"""How long the chunks of each tokenizer are, and how many of them differ: what the hot path has to look up, and what
the cold path has to encode.

    python bench/cuts.py --json bench/results/cuts.json

A property of definitions and texts, so it is the same on every machine; nothing is timed. Beside the figures stand
those of the trial that the design was made from, over other texts of 5 MB a language, where there are any.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import texts
import timing
from rich.console import Console
from rich.table import Table

from gpu_tok.tables.cuts import CutTables, cuts_between, derive
from gpu_tok.tables.definition import Definition

LANGUAGES = ("en", "code", "zh")
# Bytes a chunk and distinct chunks in a hundred: English, Python code, Chinese with pairs.
FORESEEN = {
    "bert-base-uncased": ((2.57, 1.3), (1.80, 0.8), (2.49, 0.7)),
    "gpt2": ((4.94, 2.8), (4.90, 4.6), None),
    "gpt-neox-20b": ((4.94, 2.8), (4.02, 2.7), None),
    "cl100k_base": ((5.10, 2.9), (6.50, 10.3), (3.97, 2.7)),
    "llama-3": ((5.10, 2.9), (6.50, 10.3), (4.43, 3.3)),
    "qwen3": ((4.96, 2.8), (6.35, 9.8), (4.81, 4.3)),
    "o200k_base": ((5.11, 3.0), (6.53, 10.6), (4.40, 3.3)),
    "kimi-k2": ((5.11, 3.0), (6.53, 10.6), (5.37, 7.5)),
    "deepseek-v3": ((5.00, 2.9), (6.41, 10.1), (5.18, 5.8)),
    "falcon-7b": ((4.49, 2.6), (4.41, 3.9), None),
    "llama-2": ((5.34, 4.4), (9.16, 21.9), (3.60, 2.1)),
    "chatglm-6b": ((5.34, 4.4), (9.16, 21.9), (5.30, 5.4)),
    "xlm-roberta-base": ((2.75, 2.2), (2.36, 4.5), (3.75, 3.7)),
}


def measure(tables: CutTables, batch: list[str]) -> dict[str, float]:
    """Bytes a chunk, distinct chunks in a hundred, and how many bytes in a hundred are in those."""
    chunks = byte_count = 0
    distinct: set[bytes] = set()
    for text in filter(None, batch):
        raw = text.encode()
        code_point = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        length = 1 + (code_point >= 0x80) + (code_point >= 0x800) + (code_point >= 0x10000)
        at = np.cumsum(length)[:-1][cuts_between(code_point, tables)[1]]
        edges = [0, *at.tolist(), len(raw)]
        distinct.update(raw[begin:end] for begin, end in pairwise(edges))
        chunks += len(edges) - 1
        byte_count += len(raw)
    return {
        "bytes_a_chunk": round(byte_count / chunks, 2),
        "distinct_percent": round(100 * len(distinct) / chunks, 1),
        "distinct_bytes_percent": round(100 * sum(map(len, distinct)) / byte_count, 1),
    }


def measure_all(path: Path, batches: dict[str, list[str]]) -> list[dict[str, Any]]:
    """A result for each language."""
    tables = derive(Definition.from_file(path))
    foreseen = dict(zip(LANGUAGES, FORESEEN.get(path.stem, (None,) * 3), strict=True))
    return [
        {"tokenizer": path.stem, "text": language, "asked_pairs": int(tables.asked.sum())}
        | measure(tables, batch)
        | {"foreseen": foreseen.get(language)}
        for language, batch in batches.items()
    ]


def show(results: list[dict[str, Any]]) -> None:
    table = Table(title="chunks: bytes each, distinct ones in a hundred, their bytes, and what was foreseen")
    for heading in ("tokenizer", "text", "bytes a chunk", "distinct %", "bytes %", "foreseen"):
        table.add_column(heading)
    for result in results:
        foreseen = "" if result["foreseen"] is None else "{:.2f}, {:.1f} %".format(*result["foreseen"])
        shares = (f"{result[name]:.1f}" for name in ("distinct_percent", "distinct_bytes_percent"))
        numbers = f"{result['bytes_a_chunk']:.2f}", *shares
        table.add_row(result["tokenizer"], result["text"], *numbers, foreseen)
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--tokenizers", type=Path, default=texts.DEFAULT_FOLDER / "tokenizers", help="a folder")
    parser.add_argument("--data", type=Path, default=texts.DEFAULT_FOLDER / "corpora")
    parser.add_argument("--languages", nargs="+", default=LANGUAGES)
    parser.add_argument("--megabytes", type=float, default=5.0)
    parser.add_argument("--json", type=Path, help="where to write the result")
    arguments = parser.parse_args()
    batches = {name: texts.load(name, arguments.data, arguments.megabytes).timed for name in arguments.languages}
    paths = sorted(arguments.tokenizers.glob("*.json"))
    results = [result for path in paths for result in measure_all(path, batches)]
    if arguments.json:
        timing.write(arguments.json, timing.record(results, benchmark="cuts", megabytes=arguments.megabytes))
    show(results)


if __name__ == "__main__":
    main()
