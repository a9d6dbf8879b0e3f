"""The command line, as a newcomer meets it: the reference's ids in the files, and one clear line when it goes wrong."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer as Reference
from typer.testing import CliRunner

from gpu_tok import demo
from gpu_tok.batch import TokenBatch
from gpu_tok.cli import app
from gpu_tok.cli.options import unescaped

TEXTS = [sample["text"] for sample in demo.texts()] + ["", " ", "x" * 3000]
COMMANDS = ["encode", "decode", "info", "explain", "parity", "demo"]


class Run:
    """Runs a command in a folder: its exit status and what it printed."""

    def __init__(self, *arguments: object, **options) -> None:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], **options)
        self.status, self.out, self.err = result.exit_code, result.stdout, result.stderr

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


@pytest.fixture(params=[demo.WORDPIECE, demo.BYTE_LEVEL_BPE])
def definition(request, folder):
    (folder / "tok.json").write_text(demo.tokenizer_json(request.param), encoding="utf-8")
    return Reference.from_str(demo.tokenizer_json(request.param))


@pytest.fixture
def wordpiece(folder):
    (folder / "tok.json").write_text(demo.tokenizer_json(), encoding="utf-8")
    return Reference.from_str(demo.tokenizer_json())


@pytest.fixture
def texts(folder):
    lines = [orjson.dumps({"text": text, "n": n}) for n, text in enumerate(TEXTS)]
    (folder / "texts.jsonl").write_bytes(b"\n".join(lines))
    return "texts.jsonl"


def ids_of(reference: Reference, texts: list[str], **options) -> list[list[int]]:
    return [encoding.ids for encoding in reference.encode_batch(texts, **options)]


# --- encode and decode


def test_encode_writes_the_references_ids_to_parquet(definition, texts, folder):
    run = Run("encode", texts, "-t", "tok.json", "-o", "out.parquet", "--keep", "n")
    assert (run.status, run.out) == (0, "")
    assert f"encoded {len(TEXTS)} documents" in run.err
    table = pq.read_table("out.parquet")
    assert table["input_ids"].to_pylist() == ids_of(definition, TEXTS)
    assert table["n"].to_pylist() == list(range(len(TEXTS)))
    assert sorted(path.name for path in folder.iterdir()) == ["out.parquet", "texts.jsonl", "tok.json"]


def test_encode_writes_the_references_ids_to_flat_arrays(definition, texts):
    run = Run("encode", texts, "-t", "tok.json", "-o", "out.npy", "--no-special-tokens", "--json")
    expected = ids_of(definition, TEXTS, add_special_tokens=False)
    assert (run.status, run.json["output"]) == (0, ["out.npy", "out.starts.npy"])
    assert run.json["documents"] == len(TEXTS)
    assert run.json["tokens"] == sum(map(len, expected))
    ids, starts = np.load("out.npy", mmap_mode="r"), np.load("out.starts.npy")
    assert [ids[begin:end].tolist() for begin, end in itertools.pairwise(starts)] == expected


@pytest.mark.parametrize("tokens", ["tokens.parquet", "tokens.npy"])
@pytest.mark.parametrize("back", ["back.jsonl", "back.jsonl.zst", "back.parquet"])
def test_decode_gives_the_references_texts(definition, texts, tokens, back):
    assert Run("encode", texts, "-t", "tok.json", "-o", tokens).status == 0
    assert Run("decode", tokens, "-t", "tok.json", "-o", back).status == 0
    assert Run("decode", tokens, "-t", "tok.json", "-o", "kept.jsonl", "--keep-special-tokens").status == 0
    ids = ids_of(definition, TEXTS)
    decoded = [text for documents in _read(back) for text in documents]
    assert decoded == definition.decode_batch(ids)
    kept = [text for documents in _read("kept.jsonl") for text in documents]
    assert kept == definition.decode_batch(ids, skip_special_tokens=False)


def _read(name: str) -> list[list[str]]:
    from gpu_tok.files.readers import read
    from gpu_tok.files.sources import find

    return [documents.texts.to_list() for documents in read(find([name]))]


def test_every_device_writes_the_same_files(definition, texts, device):
    encoded = Run("encode", texts, "-t", "tok.json", "-o", "out.parquet", "--device", device, "-v")
    assert (encoded.status, f"device: {device} (asked for)" in encoded.err) == (0, True)
    ids = ids_of(definition, TEXTS)
    assert pq.read_table("out.parquet")["input_ids"].to_pylist() == ids
    assert Run("decode", "out.parquet", "-t", "tok.json", "-o", "back.jsonl", "--device", device).status == 0
    assert [text for documents in _read("back.jsonl") for text in documents] == definition.decode_batch(ids)


def test_all_kinds_of_files_of_a_folder_are_encoded_in_order(wordpiece, folder):
    data = folder / "data"
    data.mkdir()
    (data / "a.txt").write_text("one\ntwo\n")
    pq.write_table(pa.table({"text": ["three"]}), data / "b.parquet")
    (data / "c.jsonl").write_text('{"text": "four"}\n')
    assert Run("encode", "data", "-t", "tok.json", "-o", "data/out.parquet").status == 0
    expected = ids_of(wordpiece, ["one", "two", "three", "four"])
    assert pq.read_table("data/out.parquet")["input_ids"].to_pylist() == expected
    assert Run("encode", "data", "-t", "tok.json", "-o", "data/out.parquet").status == 0
    assert pq.read_table("data/out.parquet")["input_ids"].to_pylist() == expected


def test_a_separator_is_spelled_as_in_a_shell(wordpiece, folder):
    (folder / "a.txt").write_text("one\ntwo\n\nthree")
    assert Run("encode", "a.txt", "-t", "tok.json", "-o", "out.parquet", "--separator", r"\n\n").status == 0
    assert pq.read_table("out.parquet")["input_ids"].to_pylist() == ids_of(wordpiece, ["one\ntwo", "three"])
    assert [unescaped(text) for text in (None, r"\n", r"a\\n", r"\q", "\\")] == [None, "\n", r"a\n", r"\q", "\\"]


def test_json_lines_come_by_standard_input_too(wordpiece):
    lines = b"".join(orjson.dumps({"text": text}) + b"\n" for text in TEXTS)
    assert Run("encode", "-", "-t", "tok.json", "-o", "out.parquet", input=lines).status == 0
    assert pq.read_table("out.parquet")["input_ids"].to_pylist() == ids_of(wordpiece, TEXTS)


# --- truncation and padding


def test_rows_are_cut_and_filled_as_asked(wordpiece, texts):
    run = Run("encode", texts, "-t", "tok.json", "-o", "out.parquet", "--max-length", 16, "--padding")
    assert run.status == 0
    wordpiece.enable_truncation(16)
    wordpiece.enable_padding(length=16)
    expected = wordpiece.encode_batch(TEXTS)
    table = pq.read_table("out.parquet")
    assert table["input_ids"].to_pylist() == [encoding.ids for encoding in expected]
    assert table["attention_mask"].to_pylist() == [encoding.attention_mask for encoding in expected]


def test_the_tokenizers_own_truncation_is_followed_and_said(wordpiece, texts, folder):
    wordpiece.enable_truncation(12)
    wordpiece.enable_padding()  # to the longest of a batch: a file has no batches
    wordpiece.save(str(folder / "tok.json"))
    run = Run("encode", texts, "-t", "tok.json", "-o", "out.parquet")
    assert "rows are cut at 12 ids, as the tokenizer says; see --no-truncation" in run.err
    wordpiece.no_padding()
    assert pq.read_table("out.parquet").to_pydict() == {"input_ids": ids_of(wordpiece, TEXTS)}

    wordpiece.enable_padding(length=12)
    wordpiece.save(str(folder / "tok.json"))
    run = Run("encode", texts, "-t", "tok.json", "-o", "out.parquet")
    assert "rows are padded, as the tokenizer says; see --no-padding" in run.err
    assert pq.read_table("out.parquet")["input_ids"].to_pylist() == ids_of(wordpiece, TEXTS)

    run = Run("encode", texts, "-t", "tok.json", "-o", "out.parquet", "--no-truncation", "--no-padding")
    wordpiece.no_truncation()
    wordpiece.no_padding()
    assert pq.read_table("out.parquet").to_pydict() == {"input_ids": ids_of(wordpiece, TEXTS)}


# --- info, explain, parity, demo


def test_info_tells_how_each_part_runs(definition):
    run = Run("info", "-t", "tok.json", "--json")
    assert (run.status, run.err) == (0, "")
    assert run.json["vocabulary"] == definition.get_vocab_size(with_added_tokens=False)
    assert run.json["encode"]["grade"] in (1, 3)
    shown = Run("info", "-t", "tok.json")
    assert shown.status == 0
    assert run.json["model"] in shown.out
    assert "emulated (asked for)" in Run("info", "-t", "tok.json", "--device", "emulated").out


def test_explain_ends_with_the_references_ids(definition):
    text = "naïve tokenizers, 中文 🎒"
    run = Run("explain", text, "-t", "tok.json", "--json")
    assert run.status == 0
    assert run.json["ids"] == definition.encode(text).ids
    assert Run("explain", text, "-t", "tok.json").status == 0
    refused = Run("explain", "-", "-t", "tok.json", input=b"na\xefve")
    assert refused.status == 2
    assert "byte 0xef at 2 of the text is no UTF-8" in refused.err
    piped = Run("explain", "-", "-t", "tok.json", "--json", input=text.encode())
    assert piped.json["ids"] == definition.encode(text).ids


def test_parity_finds_no_difference(definition, texts):
    run = Run("parity", texts, "-t", "tok.json", "--json")
    assert (run.status, run.json["same"], run.json["documents"]) == (0, True, len(TEXTS))
    assert len(set(run.json["hashes"].values())) == 1
    shown = Run("parity", texts, "-t", "tok.json")
    assert (shown.status, run.json["hashes"]["cpu"] in shown.out) == (0, True)


def test_parity_compares_the_path_of_a_device_beside_the_cpu_s(definition, texts):
    run = Run("parity", texts, "-t", "tok.json", "--device", "emulated", "--json")
    assert (run.status, run.json["different"]) == (0, {"cpu": 0, "emulated": 0})
    assert set(run.json["hashes"]) == {"reference", "cpu", "emulated"}


@pytest.fixture
def _wrong_ids(monkeypatch):
    """Makes gpu_tok give a wrong first id for every text that has any."""
    from gpu_tok.tokenizer import Tokenizer

    right = Tokenizer.encode_batch

    def wrong(self, *arguments, **options) -> TokenBatch:
        batch = right(self, *arguments, **options)
        ids = batch.ids.copy()
        ids[batch.starts[:-1][batch.lengths > 0]] += 1
        return TokenBatch(ids, batch.starts, batch.counts, batch.type_ids, batch.padding)

    monkeypatch.setattr(Tokenizer, "encode_batch", wrong)


@pytest.mark.usefixtures("_wrong_ids")
def test_parity_fails_on_a_difference_and_says_where(wordpiece, texts):
    run = Run("parity", texts, "-t", "tok.json", "--json", "--most-shown", 3)
    assert (run.status, run.json["same"]) == (1, False)
    assert run.json["different"]["cpu"] == len(TEXTS)
    assert [difference["position"] for difference in run.json["differences"]] == [0, 0, 0]
    assert Run("parity", texts, "-t", "tok.json", "--most-shown", 1).status == 1


def test_the_demo_shows_that_all_is_the_same():
    run = Run("demo", "--megabytes", 0.2, "--json")
    assert (run.status, run.json["same"]) == (0, True)
    assert [outcome["name"] for outcome in run.json["tokenizers"]] == ["WordPiece", "byte-level BPE"]
    shown = Run("demo", "--megabytes", 0.1)
    assert (shown.status, shown.out.count("yes"), "NO" in shown.out) == (0, 4, False)


@pytest.mark.usefixtures("_wrong_ids")
def test_the_demo_fails_on_a_difference():
    run = Run("demo", "--megabytes", 0.1)
    assert (run.status, "NO" in run.out, "WordPiece differs" in run.out) == (1, True, True)


def test_the_demos_tokenizers_are_made_by_its_script(folder):
    from gpu_tok.demo.make import main

    main(folder)
    made, shipped = (folder / demo.BYTE_LEVEL_BPE).read_text(encoding="utf-8"), demo.tokenizer_json(demo.BYTE_LEVEL_BPE)
    assert made == shipped
    made, shipped = json.loads((folder / demo.WORDPIECE).read_text(encoding="utf-8")), json.loads(demo.tokenizer_json())
    assert made.keys() == shipped.keys()
    assert all(made[part] == shipped[part] for part in made if part != "model")
    assert len(made["model"]["vocab"]) == len(shipped["model"]["vocab"])  # its trainer breaks ties by chance


# --- when it goes wrong


@pytest.mark.parametrize(
    ("arguments", "finding", "hint"),
    [
        ("encode no.jsonl -t tok.json -o out.npy", "no.jsonl: no file is named so", "the folder looked into is"),
        ("encode *.zip -t tok.json -o out.npy", "*.zip: no file matches", "the folder looked into is"),
        ("encode empty -t tok.json -o out.npy", "empty: is empty", "such files end in .jsonl"),
        ("encode tok.json -t no.json -o out.npy", "no.json: cannot be read", "name a tokenizer.json file"),
        ("encode texts.jsonl -t texts.jsonl -o out.npy", "texts.jsonl: the reference", "gpu_tok reads what"),
        ("encode texts.jsonl -t tok.json -o out.bin", "out.bin: ids are written as", "let the name of the output end"),
        ("encode texts.jsonl -t tok.json -o no/out.npy", "no/out.npy: there is no folder", "make it first: mkdir"),
        ("encode texts.jsonl -t tok.json -o out.npy --keep n", "out.npy: a .npy file holds ids alone", ".parquet"),
        ("encode texts.jsonl -t tok.json -o out.parquet --keep m", "no line has a field 'm'", "'text', 'n'"),
        ("encode texts.jsonl -t tok.json -o out.npy --text-field body", "texts.jsonl, line 1: has no field 'body'",
         "'text', 'n'; name the one you mean with --text-field"),
        ("encode texts.jsonl -t tok.json -o out.npy --padding", "--padding fills rows up to --max-length", "add --max"),
        ("encode texts.jsonl -t tok.json -o out.npy --truncation", "--truncation cuts rows at", "add --max-length"),
        ("decode texts.jsonl -t tok.json -o out.jsonl", "texts.jsonl: is no file of ids by its name",
         "such files end in .parquet, .npy"),
        ("decode marks.npy -t tok.json -o out.jsonl", "marks.npy, row 1: -100 at 2 is no id", "ids are whole numbers"),
        ("encode a.txt -t tok.json -o out.parquet --keep n", "a.txt: a .txt file has no field 'n'", "leave out --keep"),
        ("decode no.parquet -t tok.json -o out.jsonl", "no.parquet: no file is named so", "the folder looked into is"),
        ("parity texts.jsonl -t no.json", "no.json: cannot be read", "name a tokenizer.json file"),
        ("info -t no.json", "no.json: cannot be read", "name a tokenizer.json file"),
        ("explain hello -t empty", "empty: cannot be read", "name a tokenizer.json file"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("wordpiece", "texts")
def test_an_error_is_one_clear_message_with_the_way_on(folder, arguments, finding, hint):
    (folder / "empty").mkdir()
    (folder / "a.txt").write_text("one\n")
    np.save("marks.npy", np.array([[5, 6, 7], [5, 6, -100]]))
    before = {path.name for path in folder.iterdir()}
    run = Run(*arguments.split())
    message, hint_line = run.err.strip().splitlines()
    assert (run.status, run.out) == (2, "")
    assert message.startswith("error: ")
    assert finding in message
    assert hint_line.startswith("hint: ")
    assert hint in hint_line
    assert {path.name for path in folder.iterdir()} == before


@pytest.mark.usefixtures("wordpiece")
def test_verbose_shows_where_an_error_came_from_and_which_device_is_taken(texts):
    run = Run("encode", texts, "-t", "tok.json", "-o", "out.npy", "--text-field", "body", "-v")
    assert run.status == 2
    assert "Traceback" in run.err
    assert "device: cpu (" in run.err


@pytest.mark.usefixtures("wordpiece")
@pytest.mark.parametrize("command", ["info", "encode texts.jsonl -o out.npy", "parity texts.jsonl"])
def test_a_device_that_cannot_be_had_is_one_clear_message(texts, command, monkeypatch):
    monkeypatch.setattr("gpu_tok.choice._handles", {})
    monkeypatch.setitem(sys.modules, "cupy", None)
    run = Run(*command.split(), "-t", "tok.json", "--device", "cuda")
    finding, hint = run.err.strip().splitlines()
    assert (run.status, finding) == (2, "error: CuPy is not installed")
    assert hint.startswith("hint: pip install 'gpu_tok[cuda]'")


@pytest.mark.parametrize(
    "arguments", ["", "encode", "encode a.txt -t tok.json", "encod", "info --device gpu -t t.json"]
)
def test_a_command_that_is_not_whole_says_what_is_missing(arguments):
    run = Run(*arguments.split())
    assert run.status == 2
    assert "Usage: " in run.out + run.err


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_with_an_example_or_all_defaults(command):
    run = Run(command, "--help")
    assert run.status == 0
    assert f"gpu-tok {command}" in run.out or command == "demo"


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize("command", COMMANDS)
def test_help_shortens_nothing(command, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert "…" not in Run(command, "--help").out


# --- as a process of its own


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-c", "from gpu_tok.cli import app; app()", *map(str, arguments)]


def test_help_loads_nothing_that_takes_long():
    program = "import sys; from gpu_tok.cli import app\ntry: app(['--help'])\nfinally: print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert not {"'numba'", "'tokenizers'"}.intersection(done.stdout.split("[")[-1].rstrip("]\n").split(", "))


def test_nothing_but_the_result_is_on_standard_output(wordpiece, texts):
    done = subprocess.run(
        command("encode", texts, "-t", "tok.json", "-o", "out.npy", "--json", "-v"), capture_output=True, check=False
    )
    assert done.returncode == 0
    assert orjson.loads(done.stdout)["documents"] == len(TEXTS)
    assert b"device: cpu" in done.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_leaves_no_file_behind(wordpiece, folder, number, status):
    os.mkfifo("slow.jsonl")  # a writer that never comes to an end
    running = subprocess.Popen(
        command("encode", "slow.jsonl", "-t", "tok.json", "-o", "out.npy"),
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job has it ignored
    )
    with open("slow.jsonl", "r+b", buffering=0):  # both ways: to open for writing alone waits for the reader
        for _ in range(600):
            if list(folder.glob(".out.*")) or running.poll() is not None:
                break
            time.sleep(0.1)
        running.send_signal(number)
        running.wait(60)
    err = running.stderr.read()
    running.stderr.close()
    assert (running.returncode, b"Traceback" in err) == (status, False)
    assert sorted(path.name for path in folder.iterdir()) == ["slow.jsonl", "tok.json"]
