"""`Tokenizer(device="cuda")` without a GPU: a stand-in as strict as CuPy, behind everything that a user calls."""

from __future__ import annotations

import os
import pickle
import sys
import types
from collections.abc import Callable

import numpy as np
import oracle
import pytest
import texts
from compare import assert_same_ids
from typer.testing import CliRunner

from gpu_tok import choice, cuda, nvrtc, parity
from gpu_tok.batch import Ragged, TextBatch
from gpu_tok.cli import app
from gpu_tok.errors import DeviceError, GpuTokError, IdError, TextError
from gpu_tok.tokenizer import SMALL_BATCH_BYTES, Tokenizer

pytest.importorskip("cupy", reason="CuPy is not installed, and the stand-in is checked against it")

import cupy_stand_in
from cupy_stand_in import StandIn, ndarray

NAMES = ["own/bert", "own/byte-level", "own/metaspace-first"]
TEXTS = [text for text in texts.TEXTS if len(text) < 1000]


@pytest.fixture(autouse=True)
def cupy(monkeypatch):
    try:
        nvrtc.find()
    except DeviceError as error:
        pytest.skip(error.finding)
    stand_in = StandIn()
    monkeypatch.setitem(sys.modules, "cupy", stand_in)
    monkeypatch.setattr(cuda, "_started_in", None)
    monkeypatch.setattr(cuda, "has_driver", lambda: True)
    monkeypatch.setattr(choice, "_handles", {})
    return stand_in


@pytest.fixture
def tokenizer(definition_text) -> Callable[..., Tokenizer]:
    def make(name: str = "own/bert", **options) -> Tokenizer:
        return Tokenizer.from_str(definition_text(name), **{"device": "cuda", "table_bytes": 1 << 20, **options})

    return make


def on_gpu(array: np.ndarray) -> ndarray:
    return ndarray(np.ascontiguousarray(array))


def texts_on_gpu(rows: list[str | bytes]) -> TextBatch:
    raw = [row.encode() if isinstance(row, str) else row for row in rows]
    host = TextBatch.joined(raw, valid=False)
    return TextBatch(on_gpu(host.bytes), on_gpu(host.starts))


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_the_reference_s_and_stay_on_the_gpu(name, tokenizer, reference):
    ours = tokenizer(name)
    for _pass in ("cold", "warm"):
        batch = ours.encode_batch(TEXTS)
        assert all(type(array) is ndarray for array in (batch.ids, batch.starts, batch.counts))
        assert_same_ids(reference(name), TEXTS, batch.to_host())


def test_a_batch_of_the_gpu_has_all_that_one_of_the_cpu_has(tokenizer, definition_text):
    batch = tokenizer().encode_batch(TEXTS)
    expected = Tokenizer.from_str(definition_text("own/bert"), device="cpu").encode_batch(TEXTS)
    rows = expected.to_list()
    assert (len(batch), repr(batch), batch.to_list()) == (len(expected), repr(expected), rows)
    assert batch.to_arrow() == expected.to_arrow()
    assert [row.tolist() for row in batch] == rows
    assert batch[1].tolist() == batch[1 - len(batch)].tolist() == rows[1]
    assert batch[2:5].to_list() == rows[2:5]
    assert batch.lengths.tolist() == expected.lengths.tolist()
    again = pickle.loads(pickle.dumps(batch))
    assert (type(again.ids), again.to_list()) == (np.ndarray, rows)


@pytest.mark.parametrize("padding", ["longest", False])
@pytest.mark.parametrize("small_batch_bytes", [0, 1 << 20])
def test_rows_can_come_back_to_the_host_at_once(padding, small_batch_bytes, tokenizer):
    ours = tokenizer(small_batch_bytes=small_batch_bytes)
    batch = ours.encode_batch(TEXTS, padding=padding, to_host=True)
    assert all(type(array) is np.ndarray for array in (batch.ids, batch.starts, batch.counts, *batch.to_padded()))
    assert batch.to_list() == ours.encode_batch(TEXTS, padding=padding).to_list()


@pytest.mark.parametrize("rows", [slice(None), slice(3, 9), slice(0, 0)])
def test_rectangles_are_laid_out_on_the_gpu(rows, tokenizer, definition_text):
    expected = Tokenizer.from_str(definition_text("own/bert"), device="cpu").encode_batch(TEXTS)[rows]
    padded = tokenizer().encode_batch(TEXTS)[rows].to_padded(pad_to_multiple_of=8)
    for ours, theirs in zip(padded, expected.to_padded(pad_to_multiple_of=8), strict=True):
        assert type(ours) is ndarray
        assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("padding", ["longest", "max_length", False])
def test_rows_are_cut_and_padded_as_asked(padding, tokenizer, definition_text):
    options = {"truncation": True, "max_length": 9, "padding": padding}
    expected = Tokenizer.from_str(definition_text("own/bert"), device="cpu").encode_batch(TEXTS, **options)
    assert tokenizer().encode_batch(TEXTS, **options).to_list() == expected.to_list()


def test_what_the_reference_encodes_whole_is_uploaded(tokenizer, definition_text):
    first, second = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
    twice = {"type": "TemplateProcessing", "single": [first] * 2, "pair": [first, second], "special_tokens": {}}
    ours = Tokenizer.from_str(oracle.changed(definition_text("own/bert"), post_processor=twice), device="cuda")
    batch, expected = ours.encode_batch(["the cat", "a"]), ours.to("cpu").encode_batch(["the cat", "a"])
    assert type(batch.ids) is ndarray
    assert batch.to_list() == expected.to_list()
    assert batch.to_padded().token_type_ids.tolist() == expected.to_padded().token_type_ids.tolist()
    assert ours.encode_batch(texts_on_gpu(["the cat", "a"])).to_list() == expected.to_list()


class Tensor:
    """An array of another library, on the GPU."""

    def __init__(self, host: np.ndarray) -> None:
        self.host = host


class Interfaced(Tensor):
    """As CuPy's own and Numba's arrays say where they lie."""

    @property
    def __cuda_array_interface__(self) -> dict:
        return {}


class Packed(Tensor):
    """As DLPack has it."""

    def __dlpack__(self) -> None:
        raise AssertionError

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


@pytest.mark.parametrize("kind", [on_gpu, Interfaced, Packed])
@pytest.mark.parametrize("starts_on_host", [True, False])
def test_texts_that_are_on_the_gpu_stay_there(kind, starts_on_host, tokenizer, reference):
    host = TextBatch.of(TEXTS)
    given = TextBatch(kind(host.bytes), host.starts if starts_on_host else kind(host.starts))
    assert type(given.bytes) is type(given.starts) is ndarray
    assert np.shares_memory(given.bytes.host, host.bytes)
    assert_same_ids(reference("own/bert"), TEXTS, tokenizer().encode_batch(given).to_host())
    assert given.to_list() == TEXTS
    assert (given.text(3), given.byte_count) == (TEXTS[3], host.byte_count)


def test_starts_come_to_bytes_that_are_on_the_host():
    host = TextBatch.of(TEXTS)
    assert type(TextBatch(host.bytes, on_gpu(host.starts)).starts) is np.ndarray


@pytest.mark.parametrize(
    ("starts", "finding"),
    [([0, 9], "does not lie within"), ([-1, 3], "does not lie within"), ([0, 3, 1, 5], "goes down"), ([], "within")],
)
def test_starts_on_the_gpu_are_checked(starts, finding):
    with pytest.raises(GpuTokError, match=finding):
        TextBatch(on_gpu(np.zeros(8, np.uint8)), on_gpu(np.array(starts, np.int64)))
    with pytest.raises(GpuTokError, match=r"TextBatch.starts is not a flat int64 array"):
        TextBatch(on_gpu(np.zeros(8, np.uint8)), on_gpu(np.array(starts, np.int32)))


def test_bytes_on_the_gpu_that_are_no_utf_8_are_named_or_replaced(tokenizer):
    ours = tokenizer()
    given = texts_on_gpu(["the cat", b"b\xffd", "sat"])
    with pytest.raises(TextError, match="text 1: byte 0xff at 1 is no UTF-8"):
        ours.encode_batch(given)
    replaced = ours.encode_batch(given, invalid_utf8="replace")
    assert replaced.to_list() == ours.encode_batch(["the cat", "b\ufffdd", "sat"]).to_list()


@pytest.mark.parametrize("device", ["cpu", "emulated"])
def test_another_device_says_that_it_cannot_reach_them(device, tokenizer):
    ours = tokenizer(device=device)
    for give in (lambda: ours.encode_batch(texts_on_gpu(["a"])), lambda: ours.decode_batch(on_gpu(np.ones((1, 2))))):
        with pytest.raises((DeviceError, IdError)) as raised:
            give()
    ids = on_gpu(np.ones((1, 2), np.int32))
    with pytest.raises(DeviceError, match=rf'on device=.{device}.\nhint: .*device="cuda".*to_host'):
        ours.decode_batch(ids)
    assert raised


def test_ids_are_decoded_wherever_they_are(tokenizer, definition_text):
    ours = tokenizer()
    batch = ours.encode_batch(TEXTS)
    expected = Tokenizer.from_str(definition_text("own/bert"), device="cpu").decode_batch(batch.to_host())
    matrix = batch.to_padded().input_ids
    given = [batch, batch.to_host(), batch.to_list(), matrix, list(batch), Interfaced(matrix.host)]
    given += [Ragged(batch.ids, batch.starts), Ragged(batch.ids, batch.to_host().starts)]
    for rows in given:
        assert ours.decode_batch(rows) == expected
        decoded = ours.decode_bytes(rows)
        assert type(decoded.bytes) is type(decoded.starts) is ndarray
        assert decoded.to_host().to_list() == decoded.to_list() == expected
    assert ours.decode_batch(batch[2:4]) == expected[2:4]


@pytest.mark.parametrize("name", ["own/byte-level", "own/metaspace-first"])
def test_every_decoder_works(name, tokenizer, reference):
    ours = tokenizer(name)
    batch = ours.encode_batch(TEXTS)
    assert ours.decode_batch(batch, False) == oracle.decode(reference(name), batch.to_list(), False)


def test_rows_that_do_not_lie_within_the_ids_are_refused(tokenizer):
    for starts in ([0, 9], [-1, 2], [2, 0], []):
        with pytest.raises(IdError, match="do not rise, or do not lie within"):
            tokenizer().decode_batch(Ragged(on_gpu(np.ones(4, np.int32)), on_gpu(np.array(starts, np.int64))))


def test_auto_takes_the_gpu_and_leaves_small_batches_to_the_cpu(tokenizer):
    ours = tokenizer(device="auto")
    assert (ours.device.name, ours.device.reason) == ("cuda", "it can be used: Stand-in (cuda:0)")
    assert ours.small_batch_bytes == SMALL_BATCH_BYTES
    batch = ours.encode_batch(TEXTS)
    assert type(batch.ids) is ndarray
    assert ours.table.use.rows > 0 == ours.info().table_rows_used

    there = tokenizer(device="auto", small_batch_bytes=0)
    assert there.encode_batch(TEXTS).to_list() == batch.to_list()
    assert there.table.use.rows == 0 < there.info().table_rows_used


def test_a_batch_is_small_by_its_bytes(tokenizer):
    ours = tokenizer(small_batch_bytes=8)
    ours.encode_batch(["the cat"])
    assert ours.info().table_rows_used == 0
    ours.encode_batch(["the cats"])
    assert ours.info().table_rows_used > 0
    fresh = tokenizer(small_batch_bytes=1000)
    fresh.encode_batch(texts_on_gpu(["the cat"]))
    assert fresh.info().table_rows_used > 0  # they are there already


def test_info_says_where_it_runs(tokenizer):
    info = tokenizer(device="auto").info()
    assert (info.device, info.small_batch_bytes) == ("cuda", SMALL_BATCH_BYTES)
    assert "cuda (it can be used: Stand-in (cuda:0))" in shown(info)
    assert f"batches under {SMALL_BATCH_BYTES:,} bytes of text go to the CPU" in shown(info)
    assert "go to the CPU" not in shown(tokenizer().info())
    assert tokenizer().info().encode.name == "native"
    by_reference = tokenizer("own/unigram").info()
    assert by_reference.encode.name == "reference, on the host"


def test_commands_say_what_they_took_and_what_goes_to_the_cpu(definition_text, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(definition_text("own/bert"), encoding="utf-8")
    (tmp_path / "texts.txt").write_text("the cat\n")
    arguments = ["-t", str(path), "-o", str(tmp_path / "out.parquet"), "-v"]
    said = CliRunner().invoke(app, ["encode", str(tmp_path / "texts.txt"), *arguments]).stderr.splitlines()
    assert said[:2] == [
        "device: cuda (it can be used: Stand-in (cuda:0))",
        f"batches under {SMALL_BATCH_BYTES:,} bytes of text go to the CPU",
    ]


def shown(info) -> str:
    from rich.console import Console

    console = Console(width=200)
    with console.capture() as capture:
        console.print(info)
    return capture.get()


def test_parity_checks_the_path_on_the_gpu_beside_that_on_the_cpu(tokenizer):
    for device in ("cuda", "auto"):
        ours = tokenizer(device=device)
        report = parity.check(ours, TextBatch.of(TEXTS))
        assert report.same
        assert report.different == {"cpu": 0, "cuda": 0}
        assert len(set(report.hashes.values())) == 1


def test_another_gpu_is_named_by_its_number(tokenizer, cupy):
    with pytest.raises(DeviceError, match="there is no GPU 1: this machine has 1"):
        tokenizer(device="cuda:1")
    assert tokenizer(device="cuda:0").device.name == "cuda:0"
    assert tokenizer(device="cuda:0").device.handle is tokenizer().device.handle


@pytest.mark.parametrize("place", [0, 1])
def test_a_tokenizer_on_another_gpu_is_fed_from_any(place, tokenizer, monkeypatch):
    two = StandIn(count=2)
    monkeypatch.setitem(sys.modules, "cupy", two)
    ours, expected = tokenizer(device="cuda:1"), tokenizer(device="cpu").encode_batch(TEXTS)
    with two.cuda.Device(place):
        given = texts_on_gpu(TEXTS)
        ids, starts = on_gpu(expected.ids), on_gpu(expected.starts)
    batch = ours.encode_batch(given)
    assert {array.gpu for array in (batch.ids, batch.starts, *batch.to_padded(), batch.lengths)} == {1}
    assert batch.to_list() == batch.to_host().to_list() == expected.to_list()
    assert batch[2:4].to_list() == batch.to_list()[2:4]
    texts_again = ours.decode_batch(expected)
    for rows in (batch, Ragged(ids, starts), list(batch), batch.to_padded().input_ids):
        assert ours.decode_batch(rows) == texts_again
    assert (given.to_list(), given.text(2)) == (TEXTS, TEXTS[2])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # that a process with threads forks is the point
@pytest.mark.parametrize("used", [True, False])
def test_a_fork_is_told_that_cuda_does_not_come_along(used, tokenizer):
    ours = tokenizer()
    if used:
        ours.encode_batch(["the cat"])
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        for use in (lambda: ours.encode_batch(["a"]), lambda: ours.decode_batch([[5]])):
            try:
                use()
            except DeviceError as error:
                os.write(writable, str(error).encode() + b"\n")
        os.write(writable, choice.choose("auto").reason.encode())
        os._exit(0)
    os.close(writable)
    os.waitpid(child, 0)
    with os.fdopen(readable) as said:
        lines = said.read().splitlines()
    finding = f"CUDA was started in process {os.getpid()}, and this is a fork"
    assert lines[::2] == [finding] * 3
    assert all("spawn" in hint for hint in lines[1::2])


def test_a_warm_batch_is_waited_for_once_by_its_report(tokenizer, cupy):
    ours, rows = tokenizer(), [f"the cat {row % 10} sat" for row in range(300)]
    ours._side.path.batch_bytes = 1000
    ours.encode_batch(rows)
    for noted in (cupy.log, cupy_stand_in.copied, cupy_stand_in.waited):
        noted.clear()
    ours.encode_batch(rows)
    steps = [line for line in cupy.log if line.startswith(("cut_words", "host"))]
    parts = len(steps) // 2
    assert parts > 3
    assert (cupy_stand_in.copied, cupy_stand_in.waited) == ([(64, False)] * parts, [])
    begun, waited = "cut_words on own", "host waits for event of outgoing"
    assert steps == [begun, *[begun, waited] * (parts - 1), waited]  # the next part is under way by then


def test_memory_that_runs_out_is_one_clear_message(tokenizer, cupy, monkeypatch):
    ours, rows = tokenizer(), ["the cat", "sat"]
    batch = ours.encode_batch(rows)
    fresh = tokenizer(table_bytes=1 << 16)

    def no_memory(*_: object) -> None:
        raise cupy_stand_in.real.cuda.memory.OutOfMemoryError(1000, 2000)

    uses = (
        lambda: ours.decode_batch(batch),
        batch.to_padded,
        lambda: ours.encode_batch(rows, padding="longest"),
        lambda: fresh.encode_batch(rows),
    )
    with monkeypatch.context() as patch:
        for name in ("empty", "zeros"):
            patch.setattr(cupy, name, no_memory, raising=False)
        for use in uses:
            with pytest.raises(DeviceError, match=r"Stand-in \(cuda:0\) has no memory .*\nhint: .*device=.cpu"):
                use()
    assert [use() is not None for use in uses] == [True] * 4


def test_a_driver_that_is_too_old_is_said_by_auto_and_by_cuda(tokenizer, cupy, monkeypatch):
    old = StandIn(driver=12040, status=35)
    monkeypatch.setitem(sys.modules, "cupy", old)
    ours = tokenizer(device="auto")
    assert ours.device.name == "cpu"
    assert ours.device.reason == "the NVIDIA driver is for CUDA 12.4 and CuPy is built for CUDA 13.2"
    assert isinstance(ours.encode_batch(["a"]).ids, np.ndarray)
    with pytest.raises(DeviceError, match=r"CUDA 12\.4 .*\nhint: update the driver"):
        tokenizer(device="cuda")


def test_the_compiler_must_be_there_too(tokenizer, monkeypatch):
    def missing(_major: int) -> None:
        raise DeviceError("NVRTC was not found")

    monkeypatch.setattr(cuda, "nvrtc", types.SimpleNamespace(find=missing))
    assert tokenizer(device="auto").device.reason == "NVRTC was not found"
