"""Checks and times everything on a machine with a GPU; `gpu_check.sh` is what to run.

    python bench/gpu_check.py --data DIR --out DIR

Each part runs in a process of its own, since an error on a GPU ends all work of its process there: a part that dies is
begun again behind the task that it died in. What was found is on disk after each task (OUT/PART.json), so there is a
usable result whenever the check is stopped. Parts end when their share of the time is over.
"""

from __future__ import annotations

import argparse
import faulthandler
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import timing
from on_gpu import kernels, overtaking, parity, sanitizer, summary, throughput
from on_gpu.deadline import Deadline
from on_gpu.packed import Packed, fingerprint_of_sources
from on_gpu.results import Results, write_whole
from on_gpu.setting import SIZES, Setting

from gpu_tok import nvrtc

Tasks = Iterable[tuple[str, Callable[[], dict[str, Any]]]]

ENDS = {
    "parity_short": 0.5,
    "timing": 0.68,
    "parity": 0.85,
    "sanitizer": 0.97,
}  # shares of the time, at the latest; most parts need less
GRACE = 5.0  # seconds behind its end after which a part is killed
LOG = "log.txt"
DEAD = 3  # the exit code of a part whose device does not answer any more


class Stopped(BaseException):
    """Somebody has asked the check to end."""


def main(arguments: list[str] | None = None) -> int:
    asked = _parse(arguments)
    if asked.part:
        return run_part(asked, Deadline(asked.seconds))
    return run_all(asked)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder that bench/pack_data.py made")
    parser.add_argument("--out", type=Path, required=True, help="where results go: at most eight files")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", choices=SIZES, default="full", help="tiny: does everything once, for tests")
    parser.add_argument("--seconds", type=float, default=340.0, help="for everything (default: %(default)s)")
    parser.add_argument("--tokenizers", nargs="+", help="those that are timed, as packed if not given")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    asked.tokenizers = asked.tokenizers or Packed(asked.data).manifest["timed"]
    return asked


def run_part(asked: argparse.Namespace, deadline: Deadline) -> int:
    """Does the tasks of one part that are not done yet. The exit code is 0, or DEAD."""
    faulthandler.dump_traceback_later(max(1.0, deadline.left + GRACE), exit=True)
    try:
        setting = Setting(Packed(asked.data), asked.device, SIZES[asked.size], deadline, tuple(asked.tokenizers))
        results = Results(asked.out / f"{asked.part}.json", about(setting))
        tasks = iter(tasks_of(asked.part, setting, asked))
        for name, work in tasks:
            if deadline.has_passed:
                results.leave_out([name, *(left for left, _work in tasks)])
            elif name not in results.tasks:
                print(f"{asked.part}: {name}", flush=True)
                if not results.do(name, work) and not answers(setting.handle):
                    return DEAD
        return 0
    finally:
        faulthandler.cancel_dump_traceback_later()


def tasks_of(part: str, setting: Setting, asked: argparse.Namespace) -> Tasks:
    command = [*_command(asked, "sanitized", 600.0), "--tokenizers", *setting.names]
    return {
        "parity_short": parity.short_tasks,
        "timing": timing_tasks,
        "parity": parity.all_tasks,
        "sanitizer": lambda setting: sanitizer.tasks(setting, command),
        "sanitized": sanitizer.sanitized_tasks,
    }[part](setting)


def timing_tasks(setting: Setting) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """In turns, so that there is some of everything when time runs out."""
    turns = zip_longest(kernels.tasks(setting), throughput.tasks(setting), overtaking.tasks(setting))
    yield from (task for task in chain.from_iterable(turns) if task is not None)


def answers(device: Any) -> bool:
    """Does the device still do what it is told."""
    try:
        with device.running():
            there = device.upload(np.arange(3))
        return device.download(there).tolist() == [0, 1, 2]
    except Exception:
        return False


def about(setting: Setting) -> dict[str, Any]:
    """What is measured, on what, with what."""
    record = timing.record([], device=about_device(setting.handle), sizes=setting.sizes._asdict())
    del record["results"]
    data = setting.data
    packed = {"commit": data.manifest["commit"], "has_same_sources": data.has_same_sources}
    return record | {"commit": data.commit, "sources": fingerprint_of_sources(), "packed": packed}


def about_device(device: Any) -> dict[str, Any]:
    if device.name != "cuda":
        return {"description": device.description}
    runtime = device.xp.cuda.runtime
    versions = {"driver": runtime.driverGetVersion(), "runtime": runtime.runtimeGetVersion()}
    nvrtc_version = ".".join(map(str, nvrtc.find().version))
    units = device.multiprocessors
    return {"description": device.description, "multiprocessors": units, "nvrtc": nvrtc_version, **versions}


def run_all(asked: argparse.Namespace) -> int:
    """All parts, each in a process; the table comes last. The exit code is 0 if nothing differs and no task failed."""
    signal.signal(signal.SIGTERM, _stop)
    deadline, check = Deadline(asked.seconds), _begin(asked)
    try:
        for part, end in ENDS.items():
            left = deadline.left - asked.seconds * (1 - end)
            check["parts"][part] = entry = {"state": "begun", "seconds": 0.0}
            _write(asked, check)
            begin = time.monotonic()
            entry["state"] = _do(asked, part, left)
            entry["seconds"] = time.monotonic() - begin
            print(f"{part}: {entry['state']} ({entry['seconds']:.0f} s)", flush=True)
    except (Stopped, KeyboardInterrupt):
        check["stopped"] = f"{asked.seconds - deadline.left:.0f} s after its beginning"
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _write(asked, check)
        summary.show(asked.out, check)
    return int("stopped" in check or not all_well(asked.out))


def _do(asked: argparse.Namespace, part: str, seconds: float) -> str:
    """Runs a part; says what came of it. Only what gave the reference's ids is timed."""
    names = agreeing(asked.out) if part == "timing" else asked.tokenizers
    if not names:
        return "left out: no tokenizer gave the reference's ids"
    return _in_processes(asked, part, seconds, names) if seconds > 0 else "no time"


def _stop(*_: Any) -> None:
    raise Stopped


def _begin(asked: argparse.Namespace) -> dict[str, Any]:
    data = Packed(asked.data)
    if damaged := data.damaged():
        raise SystemExit(f"{data.folder}: not what its manifest says: {', '.join(damaged)}\nhint: pack it again")
    asked.out.mkdir(parents=True, exist_ok=True)
    for name in (*(f"{part}.json" for part in ENDS), LOG):
        (asked.out / name).unlink(missing_ok=True)
    title = f"gpu_check on device={asked.device}, size {asked.size}, commit {data.commit}"
    machine, versions = timing.machine(), timing.versions()
    return {"title": title, "commit": data.commit, "machine": machine, "versions": versions, "parts": {}}


def _write(asked: argparse.Namespace, check: dict[str, Any]) -> None:
    write_whole(asked.out / "check.json", check)


def agreeing(out: Path) -> list[str]:
    """Tokenizers whose short parity run found no difference: nothing else is timed."""
    short = summary.tasks_of(out, "parity_short")
    return [name for name, task in short.items() if task["state"] == "done" and task["difference"] is None]


def all_well(out: Path) -> bool:
    tasks = [task for part in ENDS for task in summary.tasks_of(out, part).values()]
    return all(task["state"] == "done" and not task.get("difference") for task in tasks)


def _in_processes(asked: argparse.Namespace, part: str, seconds: float, names: list[str]) -> str:
    """Runs a part until all its tasks are done or its time is over, beginning again where a process died."""
    deadline, before = Deadline(seconds), -1
    while (done := len(summary.tasks_of(asked.out, part))) > before:
        before = done
        code = _in_a_process(asked, part, deadline, names)
        if code is None:
            return "killed at its end"
        if code == 0:
            return "done"
    return f"ended with {code}, see {LOG}"


def _in_a_process(asked: argparse.Namespace, part: str, deadline: Deadline, names: list[str]) -> int | None:
    """The exit code; None if it did not end by itself."""
    command = [*_command(asked, part, max(0.0, deadline.left)), "--out", str(asked.out), "--tokenizers", *names]
    with (asked.out / LOG).open("ab") as log:
        process = subprocess.Popen([sys.executable, *command], stdout=log, stderr=subprocess.STDOUT)
    try:
        return process.wait(max(0.0, deadline.left) + 2 * GRACE)
    except subprocess.TimeoutExpired:
        return None
    finally:
        process.kill()
        process.wait()


def _command(asked: argparse.Namespace, part: str, seconds: float) -> list[str]:
    options = {"data": asked.data, "device": asked.device, "size": asked.size, "part": part, "seconds": seconds}
    return [__file__, *(f"--{name}={value}" for name, value in options.items())]


if __name__ == "__main__":
    sys.exit(main())
