"""The kernels compile for real architectures, and need no more of a multiprocessor than they may. No GPU is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_tok import compile as compiler
from gpu_tok import nvrtc
from gpu_tok.compile import Resources
from gpu_tok.errors import DeviceError

RECORDED = Path(__file__).parent.parent / "bench" / "results" / "kernels.json"
NEEDS_A_STACK: dict[str, str] = {}  # kernel: why it may have a stack frame

# One multiprocessor of compute capability 9.0, from the tables of the CUDA programming guide.
THREADS, BLOCKS, REGISTERS, SHARED = 2048, 32, 65_536, 228 * 1024
SHARED_OF_A_BLOCK = 1024  # that the system takes
REGISTER_UNIT = 256  # registers are dealt to warps in such portions


@pytest.fixture(scope="module")
def library():
    try:
        return nvrtc.find()
    except DeviceError as error:
        pytest.skip(error.finding)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp()))  # one for all tests of a run


def occupancy(row: Resources) -> float:
    """The share of a multiprocessor's threads that are busy when it holds as many blocks of the kernel as it can."""
    warps = -(-row.threads // 32)
    of_a_warp = -(-row.registers * 32 // REGISTER_UNIT) * REGISTER_UNIT
    by_registers = REGISTERS // of_a_warp // warps
    by_shared = SHARED // (row.shared_bytes + SHARED_OF_A_BLOCK)
    return min(by_registers, by_shared, BLOCKS, THREADS // row.threads) * row.threads / THREADS


def complaints(row: Resources) -> list[str]:
    found = []
    if row.spill_bytes:
        found.append(f"{row.kernel} spills {row.spill_bytes} bytes on {row.arch}")
    if row.stack_bytes and row.kernel not in NEEDS_A_STACK:
        found.append(f"{row.kernel} has a stack frame of {row.stack_bytes} bytes on {row.arch}")
    if row.arch == "sm_90" and occupancy(row) < 0.5:
        found.append(f"{row.kernel} fills {occupancy(row):.0%} of a multiprocessor")
    return found


@pytest.mark.parametrize("arch", compiler.ARCHS)
def test_every_kernel_compiles_and_stays_within_its_bounds(arch, library):
    rows = compiler.compile_all([arch])
    assert {row.kernel for row in rows} == set(compiler.file_of_kernel())
    assert {row.arch for row in rows} == {arch}
    assert all(0 < row.registers <= 255 for row in rows)
    assert [complaint for row in rows for complaint in complaints(row)] == []


def test_what_is_recorded_is_of_all_kernels_and_within_the_bounds():
    rows = [Resources(**row) for row in json.loads(RECORDED.read_text())]
    named = [(row.kernel, row.arch) for row in rows]
    assert sorted(named) == sorted((kernel, arch) for kernel in compiler.file_of_kernel() for arch in compiler.ARCHS)
    assert [complaint for row in rows for complaint in complaints(row)] == []


SPILLS = """
extern "C" __global__ void __launch_bounds__(1024) spills(const volatile float* from, float* to) {
    float kept[100];
#pragma unroll
    for (int i = 0; i < 100; i++) kept[i] = from[i * 1024 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 100; i++) to[i * 1024 + threadIdx.x] = kept[i] * kept[(i + 1) % 100];
}
"""
HAS_A_STACK = """
extern "C" __global__ void __launch_bounds__(256) indexes(const int* from, int* to) {
    int kept[16];
    for (int i = 0; i < 16; i++) kept[i] = from[i];
    for (int i = 0; i < 16; i++) kept[from[i] & 15] += i;
    to[threadIdx.x] = kept[threadIdx.x & 15];
}
"""
FILLS_SHARED_MEMORY = """
extern "C" __global__ void __launch_bounds__(64) hoards(const int* from, int* to) {
    __shared__ int kept[12000];
    kept[from[threadIdx.x]] = threadIdx.x;
    __syncthreads();
    to[threadIdx.x] = kept[threadIdx.x];
}
"""


@pytest.mark.parametrize(
    ("text", "finding"),
    [(SPILLS, "spills"), (HAS_A_STACK, "stack frame"), (FILLS_SHARED_MEMORY, "of a multiprocessor")],
)
def test_a_kernel_out_of_bounds_is_noticed(text, finding, library):
    (row,) = compiler.compile_text(text, "made_up.cu", "sm_90", library).kernels
    assert any(finding in complaint for complaint in complaints(row)), row


def test_occupancy_is_what_the_calculator_says():
    """Values from the occupancy calculator of the CUDA toolkit for 9.0."""
    row = {"kernel": "k", "arch": "sm_90", "spill_bytes": 0, "stack_bytes": 0}
    assert occupancy(Resources(registers=32, shared_bytes=0, threads=256, **row)) == 1.0
    assert occupancy(Resources(registers=40, shared_bytes=0, threads=256, **row)) == 0.75
    assert occupancy(Resources(registers=64, shared_bytes=0, threads=256, **row)) == 0.5
    assert occupancy(Resources(registers=16, shared_bytes=48 * 1024, threads=256, **row)) == 0.5


def test_an_error_names_our_file_and_line(tmp_path, library):
    (tmp_path / "wrong.cuh").write_text("#pragma once\n\nstatic __device__ int wrong() { return nothing; }\n")
    (tmp_path / "asks.cu").write_text('#include "wrong.cuh"\n#include "wrong.cuh"\n\nint also_wrong = neither;\n')
    with pytest.raises(nvrtc.CompileError) as raised:
        compiler.compile_file(tmp_path / "asks.cu", "sm_90", library)
    assert 'wrong.cuh(3): error: identifier "nothing" is undefined' in str(raised.value)
    assert 'asks.cu(4): error: identifier "neither" is undefined' in str(raised.value)


def test_machine_code_is_kept_until_an_included_file_changes(tmp_path, library, monkeypatch):
    header = tmp_path / "value.cuh"
    header.write_text("constexpr int VALUE = 1;\n")
    (tmp_path / "k.cu").write_text('#include "value.cuh"\nextern "C" __global__ void k(int* to) { *to = VALUE; }\n')
    first = compiler.compile_file(tmp_path / "k.cu", "sm_90", library)
    with monkeypatch.context() as patch:
        patch.setattr(nvrtc.Nvrtc, "compile", lambda *_: pytest.fail("compiled once more"))
        assert compiler.compile_file(tmp_path / "k.cu", "sm_90", library) == first
    header.write_text("constexpr int VALUE = 2;\n")
    assert compiler.compile_file(tmp_path / "k.cu", "sm_90", library).cubin != first.cubin


def test_a_broken_cache_is_no_error(tmp_path, library, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = 'extern "C" __global__ void k(int* to) { *to = 3; }\n'
    first = compiler.compile_text(text, "k.cu", "sm_90", library)
    (rows,) = (tmp_path / "gpu_tok" / "cubins").glob("*.json")
    rows.write_text("[{")
    assert compiler.compile_text(text, "k.cu", "sm_90", library) == first
    assert json.loads(rows.read_text())[0]["kernel"] == "k"


@pytest.mark.parametrize(("capability", "arch"), [("75", "sm_75"), ("86", "sm_86"), ("90", "sm_90"), ("120", "sm_120")])
def test_a_device_gets_code_for_itself(capability, arch, library):
    assert compiler.arch_for(capability, library) == arch


def test_a_device_gets_code_of_its_generation_or_an_error(library):
    assert compiler.arch_for("89", library) in ("sm_86", "sm_87", "sm_88", "sm_89")
    with pytest.raises(DeviceError, match=r"compute capability 3\.7"):
        compiler.arch_for("37", library)


def test_without_a_library_the_error_says_what_to_install(library):
    with pytest.raises(DeviceError, match="for CUDA 9 or older on this machine\nhint: pip install nvidia-cuda-nvrtc"):
        nvrtc.find(newest_major=9)


def test_the_command_writes_a_row_for_each_kernel_and_architecture(tmp_path, library):
    out = tmp_path / "kernels.json"
    command = [sys.executable, "-m", "gpu_tok.compile", "--arch", "sm_80", "sm_90", "--json", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    rows = json.loads(out.read_text())
    asked = {"kernel", "arch", "registers", "spill_bytes", "shared_bytes", "stack_bytes"}
    assert all(asked <= set(row) for row in rows)
    named = {(row["kernel"], row["arch"]) for row in rows}
    assert named == {(kernel, arch) for kernel in compiler.file_of_kernel() for arch in ("sm_80", "sm_90")}
