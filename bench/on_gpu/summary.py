"""The short table at the end, from the files that the parts have written so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from on_gpu.copies import ON_DEVICE

Tasks = Mapping[str, Mapping[str, Any]]
WIDTH = 130
COLUMNS = {  # heading: what a rate must be to stand in it
    "cold": {"what": "encode", "from": "device", "state": "cold"},
    "fresh": {"what": "encode", "from": "device", "state": "fresh"},
    "warm": {"what": "encode", "from": "device", "state": "warm", "text": "distinct"},
    "warm, large": {"what": "encode", "from": "device", "state": "warm", "text": "drawn"},
    "host-host": {"what": "encode", "from": "pinned host"},
    "Parquet": {"what": "encode", "from": "Parquet file"},
    "decode": {"what": "decode", "from": "device"},
    "reference": {"what": "encode", "system": "tokenizers"},
    "CPU path": {"what": "encode", "system": "gpu_tok, CPU"},
}
KERNELS_SHOWN = 5
MOST_CHARACTERS = 300  # of a difference or an error


def show(folder: Path, check: Mapping[str, Any], console: Console | None = None) -> None:
    """Prints what there is; parts that have written nothing are named."""
    console = console or Console(width=WIDTH, highlight=False)
    tasks = {part: tasks_of(folder, part) for part in check["parts"]}
    console.print(f"[bold]{escape(check.get('title', 'gpu_check'))}")
    for part, about in check["parts"].items():
        found = read(folder, part)
        left_out = f"; no time for {len(found['no_time'])} tasks" if found["no_time"] else ""
        console.print(f"{part}: {about['state']}, {about['seconds']:.0f} s, {len(found['tasks'])} tasks{left_out}")
    for line in lines(tasks):
        console.print(escape(line))
    if any("rates" in task for task in tasks.get("timing", {}).values()):
        console.print(rates_table(tasks["timing"]))


def tasks_of(folder: Path, part: str) -> dict[str, dict[str, Any]]:
    return read(folder, part)["tasks"]


def read(folder: Path, part: str) -> dict[str, Any]:
    """What a part has written so far."""
    path = folder / f"{part}.json"
    return orjson.loads(path.read_bytes()) if path.is_file() else {"tasks": {}, "no_time": []}


def lines(tasks: Mapping[str, Tasks]) -> Iterator[str]:
    for part in ("parity_short", "parity"):
        yield from parity_lines(part, tasks.get(part, {}))
    yield from timing_lines(tasks.get("timing", {}))
    for name, task in tasks.get("sanitizer", {}).items():
        yield f"{name}: {task.get('finding', task['state'])}"
    for part, each in tasks.items():
        for name, task in each.items():
            if task["state"] != "done":
                yield f"{part}, {name}: {task['state']}: {task.get('error', 'stopped in it')}"[:MOST_CHARACTERS]


def parity_lines(part: str, tasks: Tasks) -> Iterator[str]:
    done = {name: task for name, task in tasks.items() if task["state"] == "done"}
    if done:
        texts = sum(task["texts"] for task in done.values())
        same = sum(not task["difference"] for task in done.values())
        yield f"{part}: {same} of {len(done)} the same ({texts:,} texts)"
    for name, task in done.items():
        if task["difference"]:
            yield f"  {name}: DIFFERS: {task['difference']}"[:MOST_CHARACTERS]


def timing_lines(tasks: Tasks) -> Iterator[str]:
    for name, task in tasks.items():
        kind, _, about = name.partition("/")
        if task["state"] != "done":
            continue
        if kind == "copies":
            yield f"copy on the device: {task[ON_DEVICE]:,.1f} GB/s (measured, read and written)"
        elif kind == "kernels":
            yield from kernel_lines(about, task)
        elif kind == "overtaking":
            size = task["overtakes_at_bytes"]
            yield f"{about}: {'never' if size is None else f'from {size:,} bytes on'} faster than the CPU path"
        elif kind == "documents":
            yield from document_lines(about, task)


def kernel_lines(name: str, task: Mapping[str, Any]) -> Iterator[str]:
    for state in ("warm", "cold", "decode"):
        seen = task[state]
        cells = ", ".join(kernel_cell(row) for row in seen["kernels"][:KERNELS_SHOWN])
        between = seen["between_kernels"] / seen["seconds"]
        took = f"{seen['bytes'] / 1e6:.1f} MB in {seen['seconds'] * 1e3:.2f} ms"
        yield f"{name}, {state}, {took}: {cells}; {between:.0%} between"


def kernel_cell(row: Mapping[str, Any]) -> str:
    share = f", {row['share_of_copy']:.0%} of copy" if "share_of_copy" in row else ""
    return f"{row['kernel']} {row['seconds'] * 1e3:.2f} ms{share}"


def document_lines(name: str, task: Mapping[str, Any]) -> Iterator[str]:
    for row in task["sizes"]:
        cells = [
            f"{what.replace('_', ' ')} {times['seconds_median'] * 1e3:.2f} ms, {times['mb_per_s_median']:,.0f} MB/s"
            for what, times in row.items()
            if isinstance(times, dict)
        ]
        yield f"{name}, {row['documents']:>9,} texts: {'; '.join(cells)}"


def rates_table(tasks: Tasks) -> Table:
    """MB of text a second by the median; a mismatch is shown and has no figure."""
    table = Table(title="encode and decode, MB of input text a second (median), measured in this run")
    table.add_column("", no_wrap=True)
    for heading in COLUMNS:
        table.add_column(heading, justify="right")
    for name, task in tasks.items():
        if "rates" not in task:
            continue
        if task["difference"]:
            table.add_row(name, "[red]differs")
        else:
            table.add_row(name, *(cell(task["rates"], wanted) for wanted in COLUMNS.values()))
    return table


def cell(rates: list[dict[str, Any]], wanted: Mapping[str, str]) -> str:
    for rate in rates:
        if all(rate[key].startswith(value) for key, value in wanted.items()):
            return f"{rate['mb_per_s_median']:,.0f}"
    return ""
