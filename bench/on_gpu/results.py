"""What came of a part, task by task; the file on disk is whole at any moment."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

Work = Callable[[], Mapping[str, Any]]
LINES_OF_TRACE = 8


class Results:
    """Tasks by name, each with its state: "begun", "done", "failed". no_time: those that were left out.

    A file that is there already is taken up: what it says was begun had ended its process, and counts as failed.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.path = path
        self.whole: dict[str, Any] = (
            orjson.loads(path.read_bytes()) if path.is_file() else {**about, "tasks": {}, "no_time": []}
        )
        for task in self.tasks.values():
            if task["state"] == "begun":
                task.update(state="failed", error="the process ended in this task")

    @property
    def tasks(self) -> dict[str, dict[str, Any]]:
        return self.whole["tasks"]

    def do(self, name: str, work: Work) -> bool:
        """Does a task and writes down what came of it; is it done."""
        task: dict[str, Any] = {"state": "begun"}
        self._note(name, task)
        begin = time.perf_counter()
        try:
            task |= {"state": "done", **work()}
        except Exception as error:
            lines = traceback.format_exc().splitlines()[-LINES_OF_TRACE:]
            task |= {"state": "failed", "error": f"{type(error).__name__}: {error}", "trace": lines}
        task["task_seconds"] = round(time.perf_counter() - begin, 3)
        self._note(name, task)
        return task["state"] == "done"

    def leave_out(self, names: Iterable[str]) -> None:
        """Writes down what there was no time for."""
        self.whole["no_time"] = list(names)
        write_whole(self.path, self.whole)

    def _note(self, name: str, task: dict[str, Any]) -> None:
        self.tasks[name] = task
        write_whole(self.path, self.whole)


def write_whole(path: Path, content: Any) -> None:
    """Writes a file of JSON whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.part")
    unfinished.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY) + b"\n")
    os.replace(unfinished, path)
