"""The emulator: small kernels, right ones (tests/kernels/right.cu) and broken ones (tests/kernels/broken.cu).

Each check is shown to fail: on a kernel with the fault that it is for.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gpu_tok import host_build
from gpu_tok.emulated import EmulatedDevice, Mode, replay
from gpu_tok.errors import DeviceError
from gpu_tok.launch_file import extents, pack, unpack_result
from gpu_tok.signatures import parse

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator needs a C++ compiler")

FOLDERS = (Path(__file__).parent / "kernels",)
SEEDS = range(6)
BLOCK = 64
RUNTIMES = {Mode.ADDRESS: "libasan.so", Mode.THREAD: "libtsan.so"}


def device(seed: int = 0, **options) -> EmulatedDevice:
    return EmulatedDevice(seed, folders=FOLDERS, **options)


@pytest.fixture(params=["fibers", "threads"])
def each_device(request):
    return device(threads=request.param == "threads")


def random(dtype, count, low=0, high=100):
    return np.random.default_rng(count).integers(low, high, count).astype(dtype)


def scan_arguments(count=500):
    value = random(np.uint32, count)
    return value, count, np.zeros(count, np.uint32), np.zeros(-(-count // BLOCK), np.uint32)


def expected_scan(value):
    parts = [value[i : i + BLOCK] for i in range(0, len(value), BLOCK)]
    return np.concatenate([np.cumsum(part, dtype=np.uint32) - part for part in parts]), [part.sum() for part in parts]


def claim_arguments(count=5000, slots=2048):
    keys = random(np.uint64, count, low=1, high=1000)
    return keys, count, np.zeros(slots, np.uint64), slots - 1, np.zeros(1, np.uint32)


# --- right kernels ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 31, 32, 33, 63, 64, 65, 500])
def test_a_block_scan_sums_what_is_before(each_device, count):
    value, _, before, total = arguments = scan_arguments(count)
    each_device.launch("scan_blocks", total.size, BLOCK, *arguments)
    expected_before, expected_total = expected_scan(value)
    np.testing.assert_array_equal(before, expected_before)
    np.testing.assert_array_equal(total, expected_total)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_seed_gives_the_same_sums_counts_and_copies(seed):
    run = device(seed)
    value, _, before, total = arguments = scan_arguments()
    run.launch("scan_blocks", total.size, BLOCK, *arguments)
    np.testing.assert_array_equal(before, expected_scan(value)[0])

    whole = np.zeros(1, np.uint64)
    run.launch("reduce", 3, 256, value, value.size, whole)
    assert whole[0] == value.sum() == total.sum()

    byte_count = np.zeros(256, np.uint32)
    text = random(np.uint8, 10_000, high=256)
    run.launch("histogram", 5, 256, text, text.size, byte_count)
    np.testing.assert_array_equal(byte_count, np.bincount(text, minlength=256))


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_of_any_length_are_copied_in_the_order_asked_for(seed):
    lengths = np.array([0, 1, 31, 32, 33, 0, 300, 5, 64])
    start = np.concatenate([[0], np.cumsum(lengths)])
    source = np.random.default_rng(seed).permutation(lengths.size).astype(np.uint32)
    flat = random(np.uint8, int(start[-1]), high=256)
    copied, copied_start = np.zeros_like(flat), np.concatenate([[0], np.cumsum(lengths[source])])
    device(seed).launch("copy_rows", 2, 64, flat, start, source, copied_start, lengths.size, copied)
    np.testing.assert_array_equal(copied, np.concatenate([flat[start[row] : start[row + 1]] for row in source]))


def test_each_key_is_claimed_once_by_rivals(each_device):
    keys, _, table, _, claimed = arguments = claim_arguments()
    each_device.launch("claim", 8, BLOCK, *arguments)
    assert claimed[0] == np.unique(keys).size
    np.testing.assert_array_equal(np.sort(table[table > 0]), np.unique(keys))


def test_warp_intrinsics_give_what_cuda_gives(each_device):
    value, lanes = random(np.uint32, 32, high=500), np.arange(32)
    result = np.zeros((8, 32), np.uint32)
    each_device.launch("intrinsics", 1, 32, value, result)
    np.testing.assert_array_equal(result[0], value[lanes * 7 % 32])
    np.testing.assert_array_equal(result[1], np.where(lanes < 3, value, np.roll(value, 3)))
    np.testing.assert_array_equal(result[2], np.where(lanes > 26, value, np.roll(value, -5)))
    np.testing.assert_array_equal(result[3], value[lanes ^ 9])
    np.testing.assert_array_equal(result[4], int(sum((value[i] % 2) << i for i in lanes)))
    np.testing.assert_array_equal(
        result[5], [sum(1 << j for j in lanes if value[i] % 4 == value[j] % 4) for i in lanes]
    )
    np.testing.assert_array_equal(result[6], 2)
    np.testing.assert_array_equal(result[7, :16], value[15])
    np.testing.assert_array_equal(result[7, 16:], np.uint32(0xFFFF0000) + value[[*range(17, 32), 31]])


def test_a_failed_launch_leaves_the_device_usable(each_device):
    with pytest.raises(DeviceError, match="no thread"):
        each_device.launch("half_a_barrier", 3, 64, random(np.uint8, 64), np.zeros(64, np.uint32))
    test_a_block_scan_sums_what_is_before(each_device, 500)


# --- what the emulator itself notices ------------------------------------------------------------------------------

FAULTS = {
    "half_a_barrier": ("waits at __syncthreads, broken.cu:", "39 more"),
    "returns_before_barrier": ("waits at __syncthreads, broken.cu:", "ended"),
    "two_barriers": ("threads of a block wait at two barriers", "block "),
    "divergent_shuffle": ("waits in a warp intrinsic of the lanes 0xffffffff", "ended"),
    "outside_mask": ("leaves out the lane that calls it", "broken.cu:"),
}


@pytest.mark.parametrize("kernel", FAULTS)
def test_threads_that_never_come_are_noticed(each_device, kernel):
    with pytest.raises(DeviceError) as raised:
        each_device.launch(kernel, 2, 64, np.arange(64, dtype=np.uint8), np.zeros(64, np.uint32))
    for words in (f"kernel {kernel}: ", *FAULTS[kernel]):
        assert words in str(raised.value)


@pytest.mark.skipif(sys.platform != "linux", reason="the watchdog is for Linux only")
@pytest.mark.parametrize("asks_atomically", [0, 1])
def test_a_kernel_that_spins_is_ended(asks_atomically, monkeypatch):
    spinning = device()
    patience = ctypes.c_int.in_dll(spinning._library, "emu_patience")
    monkeypatch.setattr(patience, "value", 50)
    with pytest.raises(DeviceError, match=r"for 50 ms; .* is block 0, thread \d+ "):
        spinning.launch("waits_for_ever", 1, BLOCK, np.zeros(BLOCK + 1, np.uint32), asks_atomically)
    spinning.launch("waits_for_ever", 1, BLOCK, np.ones(BLOCK + 1, np.uint32), asks_atomically)
    test_a_block_scan_sums_what_is_before(spinning, 500)


def test_a_failed_assertion_names_file_block_and_thread(each_device):
    with pytest.raises(DeviceError, match=r"bytes\[threadIdx.x\] != 0, broken.cu:\d+, block \d, thread 63"):
        each_device.launch("asserts", 2, 64, np.append(np.ones(63, np.uint8), np.uint8(0)), 64)


def test_more_shared_memory_than_a_block_has_is_refused(each_device):
    with pytest.raises(DeviceError, match="49152 bytes"):
        each_device.launch("too_much_shared_memory", 1, 64, np.zeros(64, np.uint8))


@pytest.mark.parametrize("kernel", ["forgets_to_clear", "reads_absent_lane"])
def test_what_is_undefined_differs_from_seed_to_seed(kernel):
    results = set()
    for seed in SEEDS:
        result = np.zeros(256, np.uint32)
        count = [256] if kernel == "forgets_to_clear" else []
        device(seed).launch(kernel, 1, 64, np.zeros(256, np.uint8), *count, result)
        results.add(result.tobytes())
    assert len(results) == len(SEEDS)


def test_a_missing_barrier_shows_for_some_seed():
    text, wrong = np.arange(1, 65, dtype=np.uint8), 0
    for seed in SEEDS:
        result = np.zeros(64, np.uint32)
        device(seed).launch("no_barrier", 1, 64, text, result)
        wrong += (result != text[::-1]).any()
    assert wrong > 0


# --- the host's checks ---------------------------------------------------------------------------------------------

LAUNCHES = {
    "no such kernel": ("nothing", 1, 32, ()),
    "too few arguments": ("reduce", 1, 32, (np.zeros(1, np.uint32), 1)),
    "an array for a number": ("reduce", 1, 32, (np.zeros(1, np.uint32), np.zeros(1), np.zeros(1, np.uint64))),
    "a number for an array": ("reduce", 1, 32, (np.zeros(1, np.uint32), 1, 7)),
    "another element": ("reduce", 1, 32, (np.zeros(1, np.int32), 1, np.zeros(1, np.uint64))),
    "a view with gaps": ("reduce", 1, 32, (np.zeros(8, np.uint32)[::2], 4, np.zeros(1, np.uint64))),
    "a result that is read-only": ("reduce", 1, 32, (np.zeros(1, np.uint32), 1, np.frombuffer(bytes(8), np.uint64))),
    "a block over the bound": ("reduce", 1, 257, (np.zeros(1, np.uint32), 1, np.zeros(1, np.uint64))),
    "an empty grid": ("reduce", 0, 32, (np.zeros(1, np.uint32), 1, np.zeros(1, np.uint64))),
}


@pytest.mark.parametrize("case", LAUNCHES)
def test_a_launch_that_does_not_fit_its_kernel_is_refused(case):
    kernel, grid, block, arguments = LAUNCHES[case]
    with pytest.raises(DeviceError, match=kernel):
        device().launch(kernel, grid, block, *arguments)


def test_a_parameter_of_32_bits_is_refused():
    with pytest.raises(DeviceError, match="u32 count"):
        parse("KERNEL f(const u8* bytes, u32 count) {", {})


def test_no_compiler_says_what_to_do(monkeypatch):
    host_build._compiler.cache_clear()
    monkeypatch.setenv("PATH", "")
    try:
        with pytest.raises(DeviceError, match=r"no C\+\+ compiler.*\nhint: install g\+\+"):
            host_build._compiler()
    finally:
        host_build._compiler.cache_clear()


def test_a_kernel_that_does_not_compile_shows_the_line(tmp_path):
    (tmp_path / "wrong.cu").write_text('#include "common.cuh"\nKERNEL f(u8* bytes) { bytes[0] = nothing; }\n')
    with pytest.raises(DeviceError, match=r"wrong.cu:2.*nothing"):
        EmulatedDevice(folders=[tmp_path])


def test_what_was_compiled_is_kept_and_an_edit_compiles_anew(tmp_path):
    def kernel(number):
        (tmp_path / "f.cu").write_text(f'#include "common.cuh"\nKERNEL f(u8* bytes) {{ bytes[0] = {number}; }}\n')
        return host_build.library([tmp_path], Mode.FIBERS)

    first, second = kernel(1), kernel(2)
    assert first != second
    made = first.stat().st_mtime_ns
    assert (kernel(1), first.stat().st_mtime_ns) == (first, made)


# --- dumped launches and the sanitizers ----------------------------------------------------------------------------


def replayed(mode: Mode, tmp_path: Path, kernel: str, grid: int, block: int, *arguments) -> str:
    """What the sanitizer said of a launch."""
    found = subprocess.run(["g++", f"-print-file-name={RUNTIMES[mode]}"], capture_output=True, text=True, check=True)
    if not Path(found.stdout.strip()).is_file():
        pytest.skip(f"{RUNTIMES[mode]} is not installed")
    path = tmp_path / "dumped.launch"
    path.write_bytes(pack(kernel, grid, block, 1, arguments))
    return replay(path, mode, folders=FOLDERS)


def text_and_result():
    return random(np.uint8, 64, low=1), np.zeros(64, np.uint32)


@pytest.mark.parametrize("mode", RUNTIMES)
def test_sanitizers_find_nothing_in_right_kernels(mode, tmp_path):
    for_64 = (np.zeros(64, np.uint32), np.zeros(64, np.uint64), np.zeros(64, np.uint64))
    text = random(np.uint8, 500, high=256)
    assert replayed(mode, tmp_path, "scan_blocks", 8, BLOCK, *scan_arguments()) == ""
    assert replayed(mode, tmp_path, "histogram", 4, 64, text, text.size, np.zeros(256, np.uint32)) == ""
    assert replayed(mode, tmp_path, "claim", 4, 64, *claim_arguments(500)) == ""
    assert replayed(mode, tmp_path, "pass_on", 2, 64, *for_64) == ""
    assert replayed(mode, tmp_path, "with_barriers", 4, 64, text, np.zeros(256, np.uint32)) == ""


def test_an_index_one_too_far_is_caught(tmp_path):
    text, result = text_and_result()
    said = replayed(Mode.ADDRESS, tmp_path, "reads_too_far", 1, 64, text, text.size, result)
    assert "heap-buffer-overflow" in said
    assert "broken.cu" in said


def test_an_index_one_too_far_in_shared_memory_is_caught(tmp_path):
    assert "use-after-poison" in replayed(Mode.ADDRESS, tmp_path, "reads_too_far_in_tile", 1, 64, *text_and_result())


def test_a_misaligned_load_is_caught(tmp_path):
    said = replayed(Mode.ADDRESS, tmp_path, "misaligned", 1, 8, np.zeros(100, np.uint8), np.zeros(8, np.uint64))
    assert "misaligned address" in said


@pytest.mark.parametrize("kernel", ["no_barrier", "shuffle_for_barrier"])
def test_a_race_in_shared_memory_is_caught(tmp_path, kernel):
    assert "data race" in replayed(Mode.THREAD, tmp_path, kernel, 1, 64, *text_and_result())


def test_a_claim_without_atomics_is_caught(tmp_path):
    assert "data race" in replayed(Mode.THREAD, tmp_path, "claims_without_atomics", 4, 64, *claim_arguments(1000))


def test_a_flag_without_a_fence_is_caught(tmp_path):
    arguments = (np.zeros(64, np.uint32), np.zeros(64, np.uint64), np.zeros(64, np.uint64))
    assert "data race" in replayed(Mode.THREAD, tmp_path, "passes_on_without_fence", 2, 64, *arguments)


def test_a_replay_says_what_the_emulator_says(tmp_path):
    assert "waits at __syncthreads" in replayed(Mode.ADDRESS, tmp_path, "half_a_barrier", 1, 64, *text_and_result())


def test_a_replay_writes_what_the_launch_wrote(tmp_path):
    value, _, before, total = arguments = scan_arguments()
    dumping = device(dump_folder=tmp_path)
    dumping.launch("scan_blocks", 8, BLOCK, *arguments)
    result = tmp_path / "result"
    assert replay(tmp_path / "00001_scan_blocks.launch", Mode.FIBERS, result, FOLDERS) == ""
    for array, again in zip((value, before, total), unpack_result(result.read_bytes(), arguments), strict=True):
        np.testing.assert_array_equal(array, again)


def test_arrays_that_overlap_share_a_buffer():
    flat, other = np.zeros(10, np.uint8), np.zeros(4, np.uint8)
    found = extents([flat[2:6], other, flat[4:9], flat[:0]])
    assert sorted(extent.count for extent in found) == [0, 4, 7]


# --- counters ------------------------------------------------------------------------------------------------------


def test_reads_and_writes_are_counted_in_bytes_and_sectors():
    counting = device(count=True)
    value, before, total = counting.upload(random(np.uint32, 1024)), *map(counting.upload, scan_arguments(1024)[2:])
    counting.launch("scan_blocks", 16, BLOCK, value, 1024, before, total)
    counts = counting.counts["scan_blocks"]
    assert (counts.streaming.read_bytes, counts.streaming.read_sectors) == (4096, 128)
    assert (counts.streaming.written_bytes, counts.streaming.written_sectors) == (4096 + 64, 128 + 16)
    assert (counts.table.read_bytes, counts.atomics, counts.launches) == (0, 0, 1)
    assert counts.accesses == 1024 + 1024 + 16


def test_traffic_of_tables_is_counted_apart_and_atomics_too():
    counting = device(count=True)
    value, total = counting.upload(random(np.uint32, 1000)), counting.upload(np.zeros(1, np.uint64))
    counting.mark_table(value)
    counting.launch("reduce", 2, 256, value, 1000, total)
    counts = counting.counts["reduce"]
    assert (counts.table.read_bytes, counts.table.read_sectors) == (4000, 125)
    assert counts.streaming.read_bytes == counts.streaming.written_bytes == 0
    assert counts.atomics == 2 * 8
    assert counting.download(total)[0] == value.sum()


def test_a_lane_that_does_all_the_work_shows_as_imbalance():
    counting = device(count=True)
    flat, copied = counting.upload(random(np.uint8, 64)), counting.upload(np.zeros(64, np.uint8))
    start, zero = counting.upload(np.arange(65)), counting.upload(np.zeros(64, np.uint32))
    counting.launch("copy_rows", 1, 32, flat, start, zero, start, 64, copied)  # rows of a byte: lane 0 copies them
    assert counting.counts["copy_rows"].imbalance > 1.3
