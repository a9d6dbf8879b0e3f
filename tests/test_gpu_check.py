"""The check for a machine with a GPU, on machines without one: every part of it runs on the emulator, and as CuPy
would run it on the stand-in."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import texts as hard_texts
import vocabularies

pytest.importorskip("tomllib", reason="the check itself needs Python 3.11")

BENCH = Path(__file__).resolve().parents[1] / "bench"
MOST_FILES = 8
NAMES = ("pieces", "bytes")
PARTS = ("parity_short", "timing", "parity", "sanitizer")


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """Two tokenizers, and texts of two languages."""
    made = tmp_path_factory.mktemp("source")
    for name, vocabulary in zip(NAMES, ("own/bert", "own/byte-level"), strict=True):
        (made / f"{name}.json").write_text(vocabularies.text(vocabulary), encoding="utf-8")
    lines = [json.dumps({"text": text}) for text in [*hard_texts.TEXTS, *hard_texts.random_texts(5, 60)]]
    (made / "en.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (made / "ru.txt").write_text("Привет, мир!\nНет пробелов.\n" * 3, encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def packed(source, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    command = [sys.executable, BENCH / "pack_data.py", "--tokenizers", source, "--corpora", source, "--out", folder]
    done = subprocess.run(
        [*command, "--megabytes", "1", "--timed", *NAMES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_counting_anew_keeps_what_is_packed(source, packed, tmp_path):
    copied = tmp_path / "packed"
    subprocess.run(["cp", "-r", packed, copied], check=True)
    asked = ["--tokenizers", source, "--corpora", source, "--out", copied, "--counts-only", "--timed", "pieces"]
    subprocess.run([sys.executable, BENCH / "pack_data.py", *asked], check=True, capture_output=True)
    old, new = (json.loads((folder / "MANIFEST.json").read_text(encoding="utf-8")) for folder in (packed, copied))
    assert list(new["traffic"]) == ["pieces/en"]
    assert (new["files"], new["texts"], new["sources"]) == (old["files"], old["texts"], old["sources"])


def options(packed: Path, out: Path, device: str = "emulated") -> list:
    return ["--data", packed, "--out", out, "--device", device, "--size", "tiny"]


def tasks_in(out: Path, part: str) -> dict:
    return json.loads((out / f"{part}.json").read_text(encoding="utf-8"))["tasks"]


@pytest.fixture
def bench_modules(monkeypatch):
    """Imports modules of `bench/`, some of which have names of those of the tests."""
    monkeypatch.syspath_prepend(str(BENCH))
    before = dict(sys.modules)
    for name in ("texts", "compare"):
        sys.modules.pop(name, None)
    yield
    for name in set(sys.modules) - set(before):
        if getattr(sys.modules[name], "__file__", None) and str(BENCH) in str(sys.modules[name].__file__):
            del sys.modules[name]
    sys.modules.update({name: before[name] for name in ("texts", "compare") if name in before})


@pytest.fixture
def gpu_check(bench_modules):
    import gpu_check

    return gpu_check


@pytest.fixture
def a_gpu(monkeypatch):
    """device="cuda" is CuPy's stand-in on the emulator."""
    pytest.importorskip("cupy", reason="CuPy is not installed, and the stand-in is checked against it")
    from cupy_stand_in import StandIn

    from gpu_tok import choice, cuda, nvrtc
    from gpu_tok.errors import DeviceError

    try:
        nvrtc.find()
    except DeviceError as error:
        pytest.skip(error.finding)
    cupy = StandIn()
    monkeypatch.setattr(cuda, "_started_in", None)
    monkeypatch.setattr(cuda, "import_cupy", lambda: cupy)
    monkeypatch.setattr(choice, "_handles", {})
    return cupy


def run_part(gpu_check, part: str, packed: Path, out: Path, device: str, seconds: float = 300) -> dict:
    from on_gpu.deadline import Deadline

    asked = gpu_check._parse([*map(str, options(packed, out, device)), "--part", part])
    assert gpu_check.run_part(asked, Deadline(seconds)) == 0
    return tasks_in(out, part)


@pytest.mark.parametrize("part", ["parity_short", "timing", "parity", "sanitized"])
def test_every_part_runs_as_cupy_would_run_it(part, packed, a_gpu, gpu_check, tmp_path):
    tasks = run_part(gpu_check, part, packed, tmp_path, "cuda")
    assert tasks
    assert {name: task for name, task in tasks.items() if task["state"] != "done"} == {}
    assert not any(task.get("difference") for task in tasks.values())


def run(packed: Path, out: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    """The command itself, on the emulator. path: where programs are looked for first."""
    caches = {"NUMBA_CACHE_DIR": ""}  # beside the modules, where they are already
    programs = f"{path}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PYTHON": sys.executable, "PATH": programs, **caches}
    command = ["bash", BENCH / "gpu_check.sh", *options(packed, out)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.fixture
def a_sanitizer(tmp_path) -> Path:
    """A folder with a program that runs what it is given and finds nothing."""
    tool = tmp_path / "bin" / "compute-sanitizer"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\nshift 2\n"$@" && echo "ERROR SUMMARY: 0 errors"\n')
    tool.chmod(0o755)
    return tool.parent


def test_one_command_checks_and_times_everything(packed, tmp_path, a_sanitizer):
    done = run(packed, tmp_path / "out", str(a_sanitizer))
    assert done.returncode == 0, done.stdout + done.stderr
    check = json.loads((tmp_path / "out" / "check.json").read_text(encoding="utf-8"))
    assert [part["state"] for part in check["parts"].values()] == ["done"] * len(PARTS)
    assert len(list((tmp_path / "out").iterdir())) <= MOST_FILES
    tasks = {part: tasks_in(tmp_path / "out", part) for part in PARTS}
    assert {f"{name}/{language}" for name in NAMES for language in ("some of each", "en", "ru")} == set(tasks["parity"])
    assert all(task["difference"] is None for task in [*tasks["parity"].values(), *tasks["parity_short"].values()])
    timed = tasks["timing"]["pieces/en"]
    assert timed["hash"] == timed["expected_hash"]
    assert {rate["state"] for rate in timed["rates"]} == {"cold", "warm", "fresh"}
    assert all(rate["how"] == "measured" for rate in timed["rates"])
    kernels = tasks["timing"]["kernels/pieces/en"]
    assert any(row.get("share_of_copy", 0) > 0 for row in kernels["warm"]["kernels"])
    assert any(row.get("share_of_copy", 0) > 0 for row in kernels["decode"]["kernels"])
    assert {name: task["finding"] for name, task in tasks["sanitizer"].items()} == {
        "memcheck": "clean",
        "racecheck": "clean",
    }
    assert "pieces/en" in done.stdout.splitlines()[-3]


def test_what_is_off_is_named_before_anything_runs(packed, tmp_path):
    folder = tmp_path / "packed"
    folder.mkdir()
    about = json.loads((packed / "MANIFEST.json").read_text(encoding="utf-8"))
    (folder / "MANIFEST.json").write_text(json.dumps({**about, "python": "2.7", "wheels": {"orjson": "3"}}))
    done = run(folder, tmp_path / "out")
    assert done.returncode == 2
    assert "and the wheels in" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("bench_modules")
def test_a_package_that_is_missing_or_too_old_is_named():
    from on_gpu import versions
    from packaging.requirements import Requirement

    assert versions.finding_about(Requirement("numpy>=2")) is None
    assert versions.finding_about(Requirement("numpy>=99")).endswith("is there, and it takes numpy>=99")
    missing = "surely-not-installed"
    assert versions.finding_about(Requirement(missing)) == f"{missing} is not installed, and it takes {missing}"


def test_a_damaged_folder_is_refused(packed, gpu_check, tmp_path):
    copied = tmp_path / "packed"
    subprocess.run(["cp", "-r", packed, copied], check=True)
    (copied / "corpora" / "en.jsonl.zst").write_bytes(b"")
    with pytest.raises(SystemExit, match=r"not what its manifest says: corpora/en\.jsonl\.zst"):
        gpu_check.main([*map(str, options(copied, tmp_path / "out"))])


def test_a_difference_is_written_down_and_not_timed(packed, gpu_check, tmp_path, monkeypatch):
    from on_gpu.setting import Setting

    right = Setting.reference
    monkeypatch.setattr(Setting, "reference", lambda setting, _name: right(setting, "bytes"))
    tasks = run_part(gpu_check, "timing", packed, tmp_path, "emulated")
    assert tasks["bytes/en"]["difference"] is None
    assert tasks["pieces/en"]["rates"] == []
    first = tasks["pieces/en"]["difference"]["cold"]
    assert first["found"] != first["expected"]
    gpu_check.summary.show(tmp_path, {"parts": {"timing": {"state": "done", "seconds": 1}}})


def test_only_what_gave_the_references_ids_is_timed(gpu_check, tmp_path):
    from on_gpu.results import Results

    results = Results(tmp_path / "parity_short.json", {})
    results.do("same", lambda: {"difference": None})
    results.do("different", lambda: {"difference": {"row": 3}})
    results.do("broken", lambda: 1 // 0)
    assert gpu_check.agreeing(tmp_path) == ["same"]
    assert not gpu_check.all_well(tmp_path)


def test_a_part_that_died_goes_on_behind_the_task_that_it_died_in(packed, gpu_check, tmp_path):
    begun = {"tasks": {"pieces/some of each": {"state": "begun"}}, "no_time": []}
    (tmp_path / "parity.json").write_text(json.dumps(begun), encoding="utf-8")
    tasks = run_part(gpu_check, "parity", packed, tmp_path, "emulated")
    assert tasks.pop("pieces/some of each")["error"] == "the process ended in this task"
    assert {task["state"] for task in tasks.values()} == {"done"}


def test_a_device_that_does_not_answer_ends_the_process(packed, gpu_check, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_check.parity, "short", lambda _setting, _name: 1 // 0)
    asked = gpu_check._parse([*map(str, options(packed, tmp_path)), "--part", "parity_short"])
    assert gpu_check.run_part(asked, gpu_check.Deadline(60)) == 0, "the device is well, and the next task was done"
    (tmp_path / "parity_short.json").unlink()
    monkeypatch.setattr(gpu_check, "answers", lambda _device: False)
    assert gpu_check.run_part(asked, gpu_check.Deadline(60)) == gpu_check.DEAD
    assert list(tasks_in(tmp_path, "parity_short")) == ["pieces"]


def test_what_there_is_no_time_for_is_named(packed, gpu_check, tmp_path):
    assert run_part(gpu_check, "parity", packed, tmp_path, "emulated", seconds=0) == {}
    left_out = json.loads((tmp_path / "parity.json").read_text(encoding="utf-8"))["no_time"]
    assert len(left_out) == len(NAMES) * 3


def test_a_check_that_is_stopped_leaves_what_it_has_found(packed, tmp_path):
    command = [sys.executable, BENCH / "gpu_check.py", *options(packed, tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not (tmp_path / "timing.json").exists() and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    shown, _ = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "parity_short: 2 of 2 the same" in shown
    assert "stopped" in json.loads((tmp_path / "check.json").read_text(encoding="utf-8"))
    assert tasks_in(tmp_path, "timing") is not None


@pytest.mark.parametrize(
    ("said", "code", "finding"),
    [
        ("========= ERROR SUMMARY: 0 errors", 0, "clean"),
        ("========= ERROR SUMMARY: 2 errors", 9, "2 errors"),
        ("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)", 0, "clean"),
        ("========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)", 9, "1 errors"),
        ("========= ERROR SUMMARY: 0 errors", 1, "the program ended with 1"),
        ("========= Error: Device not supported", 1, "refused"),
        ("", None, "out of time"),
    ],
)
@pytest.mark.usefixtures("bench_modules")
def test_what_the_sanitizer_said_is_put_in_words(said, code, finding):
    from on_gpu import sanitizer

    assert sanitizer.finding(said, code) == finding


@pytest.mark.parametrize(
    ("device", "cpu", "size"), [([3, 2, 1], [1, 1, 2], 3), ([3, 3, 3], [1, 2, 2], None), ([1, 9, 1], [2, 2, 2], 3)]
)
@pytest.mark.usefixtures("bench_modules")
def test_the_gpu_overtakes_where_it_stays_faster(device, cpu, size):
    from on_gpu.overtaking import overtakes_at

    rows = [
        {"bytes": number + 1, "device_seconds": there, "cpu_seconds": here}
        for number, (there, here) in enumerate(zip(device, cpu, strict=True))
    ]
    assert overtakes_at(rows) == size


@pytest.mark.usefixtures("bench_modules")
def test_what_is_drawn_has_the_size_and_all_texts_equally_often():
    from on_gpu import documents

    from gpu_tok.batch import TextBatch

    batch = TextBatch.of(["a", "bc", "def"])
    rows = documents.drawn_rows(np.diff(batch.starts), 17)
    assert sorted(rows[:6].tolist()) == [0, 0, 1, 1, 2, 2]
    drawn = documents.take(batch, rows)
    assert 17 <= drawn.byte_count < 20
    assert drawn.to_list() == [["a", "bc", "def"][row] for row in rows]


@pytest.mark.usefixtures("bench_modules")
@pytest.mark.parametrize(
    ("found", "expected", "row"),
    [
        ([[1, 2]], [[1, 2]], None),
        ([[1], [2, 3]], [[1], [2]], 1),
        ([[1, 2], []], [[1], [2]], 0),
        ([[1]], [[1], []], None),
    ],
)
def test_the_first_row_that_differs_is_named(found, expected, row):
    from on_gpu.compare import as_rows, first_difference

    difference = first_difference(as_rows(found, np.int32), as_rows(expected, np.int32))
    assert (difference is None) == (found == expected)
    assert difference is None or difference["row"] == row
