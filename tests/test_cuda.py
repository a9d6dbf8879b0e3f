"""`CudaDevice` without a GPU: each reason why there is none, and every method on a stand-in that runs the emulator."""

from __future__ import annotations

import inspect
import itertools
import os
import re
import sys

import numpy as np
import oracle
import pytest
import vocabularies

from gpu_tok import cuda, nvrtc
from gpu_tok.errors import DeviceError

real = pytest.importorskip("cupy", reason="CuPy is not installed, and the stand-in is checked against it")

import cupy_stand_in  # noqa: E402 - imports CuPy
from cupy_stand_in import StandIn  # noqa: E402
from test_added_tokens import definition, token  # noqa: E402
from test_device_path import some_texts  # noqa: E402
from test_hot import MadeUpModel, plain_ids, random_tables, sections_of  # noqa: E402

from gpu_tok.added_tokens import run as find_added_tokens  # noqa: E402
from gpu_tok.batch import TextBatch  # noqa: E402
from gpu_tok.cold import ColdPath  # noqa: E402
from gpu_tok.device import Workers  # noqa: E402
from gpu_tok.on_device import added_tokens, path, text  # noqa: E402
from gpu_tok.on_device.added_tokens import ANY_FLAG  # noqa: E402
from gpu_tok.tables.added_tokens import compile_added_tokens  # noqa: E402
from gpu_tok.tables.cuts import derive  # noqa: E402
from gpu_tok.tables.definition import Definition  # noqa: E402


@pytest.fixture(autouse=True)
def never_started(monkeypatch):
    monkeypatch.setattr(cuda, "_started_in", None)


@pytest.fixture
def cupy():
    try:
        nvrtc.find()
        return StandIn()
    except DeviceError as error:
        pytest.skip(error.finding)


@pytest.fixture
def device(cupy):
    return cuda.CudaDevice(cupy=cupy)


@pytest.mark.parametrize(
    ("machine", "finding", "hint"),
    [
        ({"driver": 0}, "there is no NVIDIA driver on this machine", "install the driver"),
        (
            {"driver": 12040, "status": 35},
            "the NVIDIA driver is for CUDA 12.4 and CuPy is built for CUDA 13.2",
            "cuda12",
        ),
        ({"status": 100}, "this process sees no GPU", "CUDA_VISIBLE_DEVICES"),
        ({"count": 0}, "this process sees no GPU", "CUDA_VISIBLE_DEVICES"),
        ({"status": 3}, "CUDA was started in a process that this one was forked from", "spawn"),
        ({"status": 999}, "CUDA does not start: cudaError 999", 'device="cpu"'),
    ],
)
def test_each_reason_has_one_clear_message(machine, finding, hint):
    with pytest.raises(DeviceError) as raised:
        cuda.CudaDevice(cupy=StandIn(**machine))
    assert raised.value.finding == finding
    assert hint in raised.value.hint


def test_a_gpu_that_is_not_there_is_named(cupy):
    with pytest.raises(DeviceError, match="there is no GPU 1: this machine has 1"):
        cuda.CudaDevice(1, cupy=cupy)


def test_a_missing_cupy_is_named_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(DeviceError, match=r"CuPy is not installed\nhint: pip install 'gpu_tok\[cuda\]'"):
        cuda.CudaDevice()


def test_the_real_cupy_says_why_there_is_no_gpu_here():
    try:
        real.cuda.runtime.getDeviceCount()
    except real.cuda.runtime.CUDARuntimeError:
        with pytest.raises(DeviceError):
            cuda.CudaDevice()
    else:
        pytest.skip("there is a GPU")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("use", ["old", "new"])
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # that a process with threads forks is the point
def test_a_fork_is_told_that_cuda_does_not_come_along(use, device, cupy):
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            device.free_memory() if use == "old" else cuda.CudaDevice(cupy=cupy)
        except DeviceError as error:
            os.write(writable, str(error).encode())
        finally:
            os._exit(0)
    os.close(writable)
    os.waitpid(child, 0)
    with os.fdopen(readable) as said:
        assert re.match(rf"CUDA was started in process {os.getpid()}, .*\nhint: .*spawn", said.read())


def test_what_runs_stays_in_order_with_the_callers_stream(device, cupy):
    start = device.upload(np.array([0, 3]))
    marks = cupy.zeros(2, np.uint32)
    with device.running():
        device.launch("mark_starts", device.grid(1, 256), 256, start, 1, marks)
    device.synchronize()
    assert device.download(marks).tolist() == [0b1001, 0]
    assert cupy.log == [
        "own waits for event of null",
        "mark_starts on own",
        "null waits for event of own",
        "host waits for own",
    ]


def test_after_an_error_the_callers_stream_still_waits(device, cupy):
    with pytest.raises(ZeroDivisionError), device.running():
        raise ZeroDivisionError
    assert cupy.log[-1] == "null waits for event of own"
    assert len(cupy.streams) == 1


@pytest.mark.parametrize("pinned", [False, True])
def test_arrays_go_to_the_device_and_back(pinned, device):
    array = device.pinned(5, np.int32) if pinned else np.empty(5, np.int32)
    array[:] = range(5)
    there = device.upload(array)
    array[:] = 0
    out = device.pinned(5, np.int32)
    assert device.download(there).tolist() == [0, 1, 2, 3, 4]
    assert device.download(there, out) is out
    assert out.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("size", [0, 5, cuda.PARALLEL_COPY // 4 + 3])
def test_copies_go_on_streams_of_their_own(size, device, cupy):
    array = np.arange(size, dtype=np.int32)
    staged = device.stage(array)
    assert np.array_equal(device.fetch(staged.array).wait(), array)
    assert cupy.log == [
        "own waits for event of incoming",
        "outgoing waits for event of own",
        "host waits for event of outgoing",
    ]


def test_an_empty_array_can_be_uploaded_and_pinned(device):
    assert device.download(device.upload(np.zeros(0, np.uint8))).size == 0
    assert device.pinned(0, np.int64).size == 0


def test_free_memory_counts_what_the_pool_holds(device):
    assert device.free_memory() == 1500


def test_pinned_memory_that_cannot_be_had_is_a_memory_error(device, cupy, monkeypatch):
    for status, error in ((cuda.NO_MEMORY, MemoryError), (cuda.NO_DEVICE, cupy_stand_in.CUDARuntimeError)):
        monkeypatch.setattr(cupy.cuda, "alloc_pinned_memory", refusing(cupy_stand_in.CUDARuntimeError(status)))
        with pytest.raises(error):
            device.pinned(1000, np.int64)


def test_both_pools_give_their_memory_back(device, cupy):
    device.release_memory()
    assert cupy.log == ["host waits for own", "pool emptied", "pinned pool emptied"]


def refusing(error):
    def refuse(*_: object, **__: object):
        raise error

    return refuse


def test_a_grid_has_no_more_blocks_than_fit_at_once(device):
    assert [device.grid(threads, 256) for threads in (0, 1, 256, 257, 10**9)] == [1, 1, 1, 2, 16]


@pytest.mark.parametrize("value", [1.5, True, np.int32(1), "a", np.zeros(1)])
def test_other_arguments_are_refused(value, device, cupy):
    with pytest.raises(TypeError, match="a kernel takes arrays and 64-bit integers"):
        device.launch("mark_starts", 1, 256, cupy.zeros(1, np.int64), value, cupy.zeros(1, np.uint32))


def test_an_array_with_gaps_is_refused(device, cupy):
    with pytest.raises(TypeError, match="not contiguous"):
        device.launch("mark_starts", 1, 256, cupy.zeros(9, np.int64)[::2], 1, cupy.zeros(1, np.uint32))


def test_an_unknown_kernel_is_named(device):
    with pytest.raises(DeviceError, match="there is no kernel 'cut_wrods'"):
        device.launch("cut_wrods", 1, 256)


def test_the_whole_path_runs_as_cupy_would_run_it(device):
    tables, given = random_tables(6), some_texts(6)
    encoder = path.encoder_on(device, tables, MadeUpModel(), 1 << 16)
    expected = [plain_ids(text, tables, encoder.cold) for text in given]
    for _pass in ("cold", "warm"):
        with device.running():
            rows = path.encode(device, sections_of(TextBatch.of(given)), encoder)
            ids, starts = device.download(rows.ids), device.download(rows.starts)
        assert [ids[begin:end].tolist() for begin, end in itertools.pairwise(starts)] == expected


@pytest.mark.parametrize("normalizer", [None, {"type": "Lowercase"}], ids=["native", "by suspicion"])
def test_added_tokens_are_found_as_cupy_would_find_them(normalizer, device):
    added = compile_added_tokens(definition([token("<b>"), token("<a>", normalized=True)], normalizer))
    batch = TextBatch.of(["b<b>A", "", "x<A>", "<a>b"])
    with device.running():
        whole = text.of_rows(device, device.upload(batch.bytes), device.upload(batch.starts), 0)
        all_tiles = device.upload(np.ones(whole.tiles, np.uint8))
        divided = added_tokens.divide(device, whole, all_tiles, added_tokens.upload(device, added.tables), added)
    expected = text.upload(device, find_added_tokens(batch, added, Workers(1)), ANY_FLAG)
    for name in ("section_start", "kind", "closed", "row_section"):
        assert device.download(getattr(divided, name)).tolist() == device.download(getattr(expected, name)).tolist()


def test_new_chunks_are_encoded_as_cupy_would_have_it(device):
    reference = oracle.bare(vocabularies.text("own/bert"))
    cold = ColdPath(Definition(reference))
    given = some_texts(7)
    with device.running():
        encoder = path.encoder_on(device, derive(cold.definition), cold, 1 << 16)
        rows = path.encode(device, sections_of(TextBatch.of(given)), encoder)
        ids, starts = device.download(rows.ids), device.download(rows.starts)
    assert [ids[begin:end].tolist() for begin, end in itertools.pairwise(starts)] == oracle.encode(reference, given)


STAND_INS = {
    "cupy": (StandIn, real),
    "cupy.ndarray": (cupy_stand_in.ndarray, real.ndarray),
    "cupy.cuda": (cupy_stand_in.Cuda, real.cuda),
    "cupy.cuda.Device": (cupy_stand_in.Device, real.cuda.Device),
    "cupy.cuda.Stream": (cupy_stand_in.Stream, real.cuda.Stream),
    "cupy.cuda.Event": (cupy_stand_in.Event, real.cuda.Event),
    "cupy.cuda.Module": (cupy_stand_in.Module, real.cuda.Module),
    "cupy.cuda.Function": (cupy_stand_in.Function, real.cuda.Function),
    "cupy.cuda.runtime": (cupy_stand_in.Runtime, real.cuda.runtime),
}


@pytest.mark.parametrize("place", STAND_INS)
def test_cupy_has_what_the_stand_in_has_and_takes_the_same_arguments(place):
    stand_in, found = STAND_INS[place]
    for name, member in vars(stand_in).items():
        if name.startswith("_"):
            continue
        assert hasattr(found, name), f"{place} has no {name}"
        parameters = parameters_of(getattr(found, name))
        if inspect.isfunction(member) and parameters is not None:
            asked = [parameter for parameter in inspect.signature(member).parameters if parameter != "self"]
            assert set(asked) <= set(parameters), f"{place}.{name} takes {parameters}"


def parameters_of(function) -> list[str] | None:
    """From the signature, or from the first line of the docstring, where compiled code has it."""
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        first_line = (function.__doc__ or "").partition("\n")[0]
        found = re.match(r"[\w.]+\((.*)\)", first_line)
        return None if found is None else re.findall(r"(\w+)(?:=[^,]*)?(?:,|$)", found[1])


def test_the_pool_counts_its_free_bytes():
    assert callable(real.get_default_memory_pool().free_bytes)
    assert callable(real.get_default_memory_pool().free_all_blocks)
    assert callable(real.get_default_pinned_memory_pool().free_all_blocks)
    assert issubclass(real.cuda.memory.OutOfMemoryError, MemoryError)


def test_the_stand_in_notices_what_cupy_would_not_do(cupy):
    ours, theirs = cupy.zeros(3, np.int64), np.zeros(3, np.int64)
    with pytest.raises(TypeError):
        ours + theirs
    with pytest.raises(TypeError):
        theirs + ours
    with pytest.raises(TypeError):
        cupy.concatenate([ours, theirs])
    with pytest.raises(TypeError, match="Implicit conversion"):
        np.asarray(ours)
    with pytest.raises(AttributeError):
        ours.newbyteorder()
    with pytest.raises(AttributeError):
        cupy.nonsense(ours)
    with pytest.raises(TypeError):
        cupy.cumsum(ours, along=0)
