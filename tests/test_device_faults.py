"""Would a fault in the kernels of the device path be seen: deliberately broken copies, and what sanitizers say."""

from __future__ import annotations

from pathlib import Path

import kernel_copies
import numpy as np
import pytest
from test_device_path import AROUND, LongLists, encode_on, some_texts
from test_hot import ALL_ENDS, MadeUpModel, plain_ids, random_tables, sections_of

from gpu_tok.batch import Padding, Ragged, TextBatch, TypeIds
from gpu_tok.emulated import EmulatedDevice, Mode, replay
from gpu_tok.errors import DeviceError
from gpu_tok.on_device import gather, path
from gpu_tok.on_device.path import encoder_on

FILES = ("cut.cu", "intern.cu", "batch_table.cu", "gather.cu")
SEEDS = range(6)
KERNELS = {"cut_words", "cut_sections", "look_up_chunks", "claim_misses", "list_winners",
           "copy_winners", "settle_misses", "publish_winners", "count_late", "gather_ids", "gather_long", "fill_rows",
           "pad_rows"}  # fmt: skip
FAULTS = {
    "a claim that is not atomic": (
        "batch_table.cu",
        "if (rival == NO_MISS) rival = atomicCAS(slot, NO_MISS, number);",
        "if (rival == NO_MISS) store_relaxed(slot, number);",
    ),
    "a place in the batch left in the table": ("batch_table.cu", "words[1] = (u32)ids_at;", "words[1] = miss.length;"),
    "a key without its flags": ("batch_table.cu", "| (u64)miss.flags << FLAGS_SHIFT", ""),
    "a hash taken as proof": ("batch_table.cu", "if (same_chunk(bytes, misses[rival], mine)) return", "return"),
    "a tile that ends one chunk too early": ("gather.cu", "first + lane() < chunks;", "first + lane() + 1 < chunks;"),
    "late ids one too far": ("batch_table.cu", "late_ids + made.at,", "late_ids + made.at + 1,"),
    "a section that ends in a later span": ("intern.cu", "&& own + 1 < span.chunks;", "&& own < span.chunks;"),
    "sections that take the ids of the next chunk": ("intern.cu", "chunk = rank +", "chunk = 1 + rank +"),
}


class Recorder(MadeUpModel):
    """Notes which chunks it was asked for, with their flags."""

    def __init__(self) -> None:
        super().__init__(ALL_ENDS)
        self.asked: list[tuple[bytes, int]] = []

    def encode(self, chunks: Ragged, flags: np.ndarray) -> Ragged:
        self.asked += [(chunks.row(row).tobytes(), int(flags[row])) for row in range(chunks.count)]
        return super().encode(chunks, flags)


def is_noticed(folder: Path | None, seed: int) -> bool:
    """Are the ids of two batches other than the plain path's, or was a chunk encoded twice, or a launch refused."""
    tables = random_tables(13)
    device = EmulatedDevice(seed, folders=[folder] if folder else None)
    encoder = encoder_on(device, tables, Recorder(), 1 << 17)
    given = [*some_texts(13), "ab é, c" * 900]
    expected = [plain_ids(text, tables, encoder.cold) for text in given]
    try:
        for _pass in ("cold", "warm"):
            encoder.cold.asked.clear()
            ids = encode_on(device, sections_of(TextBatch.of(given)), encoder)
            if ids != expected or len(set(encoder.cold.asked)) < len(encoder.cold.asked):
                return True
    except DeviceError:
        return True
    return False


def test_right_kernels_pass():
    assert not any(is_noticed(None, seed) for seed in SEEDS)


IN_SHORT = ("a claim that is not atomic", "a place in the batch left in the table", "late ids one too far")


@pytest.mark.parametrize("fault", kernel_copies.cases(FAULTS, IN_SHORT))
def test_a_fault_is_noticed_for_some_seed(fault, tmp_path):
    folder = kernel_copies.broken(tmp_path, *fault, FILES)
    assert any(is_noticed(folder, seed) for seed in SEEDS)


@pytest.fixture(scope="module")
def dumped(tmp_path_factory) -> Path:
    """The launches of a cold batch."""
    folder = tmp_path_factory.mktemp("launches")
    device = EmulatedDevice(dump_folder=folder)
    encoder = encoder_on(device, random_tables(12), MadeUpModel(ALL_ENDS), 1 << 12)
    sections = sections_of(TextBatch.of(some_texts(12)[:40]))
    rows = path.encode(device, sections, encoder, AROUND._replace(keep_at_most=7))
    gather.to_padded(device, *rows[:3], TypeIds((1,), 0, (1,)), Padding())
    path.encode(device, sections, encoder._replace(cold=LongLists()))
    return folder


@pytest.mark.parametrize(
    ("mode", "kernels"),
    [
        (Mode.ADDRESS, KERNELS),
        (Mode.THREAD, {"claim_misses", "publish_winners"}),
        pytest.param(Mode.THREAD, KERNELS, marks=pytest.mark.slow),
    ],
)
def test_sanitizers_find_nothing(dumped, mode, kernels):
    launches = [path for path in sorted(dumped.glob("*.launch")) if path.stem[6:] in kernels]
    assert {path.stem[6:] for path in launches} == kernels
    assert [replay(path, mode) for path in launches] == [""] * len(launches)


@pytest.mark.parametrize(
    ("kernel", "mode", "fault"),
    [
        ("look_up_chunks", Mode.THREAD, ("intern.cu", "__syncwarp();  // the span is whole", "")),
        ("gather_ids", Mode.THREAD, ("gather.cu", "__syncwarp();  // the ids are all there", "")),
        ("gather_long", Mode.ADDRESS, ("gather.cu", "late_ids + ~piece.from", "late_ids + piece.from")),
        ("settle_misses", Mode.ADDRESS, ("batch_table.cu", "number[winner[miss]]", "number[winner[miss]] + 1")),
        ("claim_misses", Mode.THREAD, ("batch_table.cu", "rival = atomicCAS(slot, NO_MISS, number)", "*slot = number")),
        (
            "publish_winners",
            Mode.THREAD,
            ("batch_table.cu", "atomicCAS(&row.high, 0ull, high) != 0", "(row.high = high) == 0"),
        ),
    ],
)
def test_sanitizers_notice_a_fault(dumped, tmp_path, kernel, mode, fault):
    folder = kernel_copies.broken(tmp_path, *fault, FILES)
    assert any(replay(launch, mode, folders=[folder]) for launch in sorted(dumped.glob(f"*_{kernel}.launch")))
