"""What `encode.py` and `decode.py` share: arguments, a process for each number of threads, and the table at the end.

Thread pools take their size from the environment when they begin, so each number of threads has a process of its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import systems
import texts
import timing
from rich.console import Console
from rich.markup import escape
from rich.table import Table

Measure = Callable[[Path, texts.Texts, int, int], list[dict[str, Any]]]
DEFAULT_TOKENIZERS = ("bert-base-uncased", "gpt2")


def run(measure: Measure, title: str, description: str) -> None:
    """The whole command: measures in child processes, writes the JSON, prints the table last."""
    arguments = _parse(description)
    if arguments.child:
        sys.stdout.buffer.write(orjson.dumps(_measure_all(measure, arguments, arguments.threads[0])))
        return
    about = {
        "benchmark": title,
        "command": ["python", *sys.argv],
        "megabytes": arguments.megabytes,
        "tokenizers": {path.stem: timing.fingerprint(path) for path in arguments.tokenizer},
    }
    record = timing.record([], **about)
    for threads in arguments.threads:
        record["results"] += _in_a_process(threads)
    if arguments.json:
        timing.write(arguments.json, record)
    show(record, title)


def _parse(description: str) -> argparse.Namespace:
    folder = texts.DEFAULT_FOLDER
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "-t", "--tokenizer", type=tokenizer_path, action="append", help="a file, or a name in ../shared/tokenizers"
    )
    parser.add_argument("--data", type=Path, default=folder / "corpora", help="a folder with LANGUAGE.jsonl[.zst]")
    parser.add_argument("--languages", nargs="+", default=["en", "code", "zh"])
    parser.add_argument("--megabytes", type=float, default=4.0, help="of each language, to time (10^6 bytes)")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--systems", nargs="+", help="only systems whose names begin so; the reference always runs")
    parser.add_argument("--json", type=Path, help="where to write the result: bench/results/NAME.json")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.systems:
        wanted = ("tokenizers", *arguments.systems)
        systems.SYSTEMS = tuple(kind for kind in systems.SYSTEMS if kind.name.startswith(wanted))
    arguments.tokenizer = arguments.tokenizer or [tokenizer_path(name) for name in DEFAULT_TOKENIZERS]
    return arguments


def tokenizer_path(name: str) -> Path:
    for path in (Path(name), texts.DEFAULT_FOLDER / "tokenizers" / f"{name}.json"):
        if path.is_file():
            return path
    raise SystemExit(f"{name}: no such file, and no such name in {texts.DEFAULT_FOLDER / 'tokenizers'}")


def _in_a_process(threads: int) -> list[dict[str, Any]]:
    environment = {
        **os.environ,
        "RAYON_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false",
    }
    # argparse takes the last of options given twice
    command = [sys.executable, *sys.argv, "--child", "--threads", str(threads)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)
    return orjson.loads(done.stdout)


def _measure_all(measure: Measure, arguments: argparse.Namespace, threads: int) -> list[dict[str, Any]]:
    results = []
    for language in arguments.languages:
        loaded = texts.load(language, arguments.data, arguments.megabytes)
        for path in arguments.tokenizer:
            print(f"{threads} thread(s), {language}, {path.stem} ...", file=sys.stderr, flush=True)
            for result in measure(path, loaded, threads, arguments.rounds):
                about = {"tokenizer": path.stem, "language": language, "threads": threads, "bytes": loaded.byte_count}
                results.append({**about, **result})
    return results


def show(record: dict[str, Any], title: str) -> None:
    """Prints MB of text a second by the median round, the ratio to the reference, and gpu_tok's to the best peer.

    A system whose output differs is shown as such and has no figure.
    """
    console = Console(width=None if sys.stdout.isatty() else 110)
    results = [result for result in record["results"] if "unsupported" not in result]
    states = list(dict.fromkeys(result["state"] for result in results))
    for tokenizer, system, reason in dict.fromkeys(
        (result["tokenizer"], result["system"], result["unsupported"])
        for result in record["results"]
        if "unsupported" in result
    ):
        console.print(f"[dim]{tokenizer}: no {escape(system)}: {escape(reason)}", highlight=False)
    table = Table(title=f"{title}: MB of text a second (median round), and times the reference")
    for column in ("tokenizer", "text", "threads", "system"):
        table.add_column(column)
    for state in states:
        table.add_column(state, justify="right")
    previous: tuple[Any, ...] = ()
    for key, rows in _grouped(results).items():
        if previous and key[:3] != previous[:3]:
            ours = [_against_peers(previous[:3], state, results) for state in states]
            table.add_row("", "", "", "gpu_tok / best peer", *ours, end_section=True)
        table.add_row(*(escape(str(cell)) for cell in key), *(_cell(rows.get(state), results) for state in states))
        previous = key
    if previous:
        table.add_row(
            "", "", "", "gpu_tok / best peer", *(_against_peers(previous[:3], state, results) for state in states)
        )
    console.print(table)
    machine, versions = record["machine"], record["versions"]
    console.print(
        f"{machine['cpu']}, {machine['cores']} cores; commit {record['commit']}; "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
    )


def _grouped(results: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, dict[str, Any]]]:
    grouped: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for result in sorted(results, key=_about):  # a stable sort: systems keep their order
        grouped.setdefault((*_about(result), result["system"]), {})[result["state"]] = result
    return grouped


def _about(result: dict[str, Any]) -> tuple[Any, ...]:
    return result["tokenizer"], result["language"], result["threads"]


def _cell(result: dict[str, Any] | None, results: list[dict[str, Any]]) -> str:
    if result is None:
        return ""
    if not result["same"]:
        return "[red]differs"
    reference = next(
        other["mb_per_s_median"]
        for other in results
        if other["system"] == "tokenizers" and _about(other) == _about(result) and other["state"] == result["state"]
    )
    return f"{result['mb_per_s_median']:.1f} {result['mb_per_s_median'] / reference:6.1f}x"


def _against_peers(about: tuple[Any, ...], state: str, results: list[dict[str, Any]]) -> str:
    """gpu_tok's best form by the best form of the best native peer; empty where one of them has no figure."""
    best: dict[bool, float] = {}
    for result in results:
        if _about(result) == about and result["state"] == state and result["same"] and result["system"] != "tokenizers":
            ours = result["system"].startswith("gpu_tok")
            best[ours] = max(best.get(ours, 0.0), result["mb_per_s_median"])
    return f"[bold]{best[True] / best[False]:.2f}" if len(best) == 2 else ""
