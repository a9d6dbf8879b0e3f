"""The benchmarks: they compare before they time, never rank a mismatch, and say what was measured."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import compare
import pytest
import texts
import vocabularies

BENCH = Path(__file__).resolve().parents[1] / "bench"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A tokenizer and texts of two languages, as `--data` takes them."""
    made = tmp_path_factory.mktemp("bench")
    (made / "own.json").write_text(vocabularies.text("own/bert"), encoding="utf-8")
    lines = [json.dumps({"text": text}) for text in [*texts.TEXTS, *texts.random_texts(5, 200)]]
    (made / "en.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (made / "zh.txt").write_text("你好，世界！\n中文没有空格。\n" * 3, encoding="utf-8")
    return made


def run(script: str, folder: Path) -> tuple[dict, str]:
    result = folder / f"{script}.json"
    command = [sys.executable, str(BENCH / script), "-t", str(folder / "own.json"), "--data", str(folder)]
    options = ["--languages", "en", "zh", "--megabytes", "0.01", "--rounds", "1", "--threads", "1", "--json"]
    done = subprocess.run([*command, *options, str(result)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(result.read_text(encoding="utf-8")), done.stdout


@pytest.mark.parametrize(("script", "states"), [("encode.py", {"cold", "warm", "fresh"}), ("decode.py", {"warm"})])
def test_a_run_compares_times_and_records(script, states, folder):
    record, shown = run(script, folder)
    ours = [result for result in record["results"] if result["system"] == "gpu_tok"]
    assert {result["state"] for result in ours} == states
    assert all(result["same"] for result in ours)
    assert {result["hash"] for result in ours} == {
        result["hash"] for result in record["results"] if result["system"] == "tokenizers"
    }
    assert all(result["seconds_min"] <= result["seconds_median"] <= result["seconds_max"] for result in ours)
    assert record["versions"]["tokenizers"]
    assert record["machine"]["cores"] >= 1
    assert record["commit"]
    assert "tokenizers" in shown


def model(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / "model.py"), "-t", str(folder / "own.json"), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("limits", "code"), [(("99", "9"), 0), (("0.5", "9"), 1), (("99", "0.1"), 1)])
def test_the_model_counts_and_fails_above_a_limit(limits, code, folder):
    streaming, table = limits
    text = str(folder / "en.jsonl")
    limits = ("--most-streaming", streaming, "--most-table", table)
    done = model(folder, "--text", text, "--size", "0.01", *limits)
    assert done.returncode == code, done.stderr
    last = re.fullmatch(r"streaming (\d+\.\d\d) B/B, table (\d+\.\d\d) sectors a chunk", done.stdout.splitlines()[-1])
    assert last
    assert 1 < float(last[1]) < 99
    assert 0.1 < float(last[2]) < 9
    assert "look_up_chunks" in done.stdout
    assert "Derived, not measured" in done.stdout


def test_english_stays_within_the_limits_of_the_model(definition_text, real_texts):
    """With the limits that the model has by itself: 6 bytes a byte, and 2.3 sectors a chunk."""
    _ = definition_text("shared/bert-base-uncased"), real_texts("en", 1_000_000)
    done = subprocess.run([sys.executable, str(BENCH / "model.py"), "--size", "1"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_model_has_texts_and_a_vocabulary_of_its_own():
    command = [sys.executable, str(BENCH / "model.py"), "--size", "0.02", "--most-streaming", "99"]
    environment = {**os.environ, "GPU_TOK_SHARED": str(BENCH / "nowhere")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("streaming ")


@pytest.fixture
def bench_modules(monkeypatch):
    """Imports modules of `bench/`, whose `texts` has the name of one of the tests."""
    monkeypatch.syspath_prepend(str(BENCH))
    hidden = sys.modules.pop("texts")
    yield
    for name in ("texts", "timing", "command", "systems", "model"):
        sys.modules.pop(name, None)
    sys.modules["texts"] = hidden


@pytest.mark.usefixtures("bench_modules")
def test_an_added_token_does_not_send_its_batch_through_the_steps_twice(folder):
    import model

    tokenizer, given = model.load_tokenizer(str(folder / "own.json"), []), model.docstrings(0.2)
    without, behind = (model.count(tokenizer, [*given, text]).streaming for text in ("a MASK b", "a [MASK] b"))
    assert without < behind < without + 0.2


@pytest.mark.usefixtures("bench_modules")
def test_a_mismatch_is_shown_and_not_ranked(capsys):
    import command
    import timing

    about = {"tokenizer": "t", "language": "en", "threads": 1, "state": "warm", "mb_per_s_median": 10.0}
    results = [
        {**about, "system": "tokenizers", "same": True},
        {**about, "system": "gpu_tok", "same": False, "mb_per_s_median": 12345.6},
        {**about, "system": "nanotoken", "same": True, "mb_per_s_median": 50.0},
    ]
    command.show(timing.record(results), "encode")
    shown = capsys.readouterr().out
    assert "differs" in shown
    assert "12345" not in shown
    assert "5.0x" in shown


@pytest.mark.usefixtures("bench_modules")
def test_the_fast_hash_is_the_slow_one():
    import timing

    assert timing.fnv1a([1, 2, 70000]) == f"{compare.fnv1a([1, 2, 70000]):016x}"


@pytest.mark.usefixtures("bench_modules")
def test_timed_and_other_texts_have_none_in_common(folder):
    import texts as bench_texts

    loaded = bench_texts.load("en", folder, 0.005)
    assert loaded.timed
    assert loaded.others
    assert not set(loaded.timed) & set(loaded.others)
    assert loaded.byte_count >= 5000
