"""Which device is taken, why, and that `device="auto"` always takes one."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

from gpu_tok import choice, cuda
from gpu_tok.choice import Choice, choose, is_name
from gpu_tok.errors import DeviceError


@pytest.fixture
def driver(monkeypatch):
    """A machine with a driver, whatever this one is."""
    monkeypatch.setattr(cuda, "has_driver", lambda: True)
    monkeypatch.setattr(choice, "_handles", {})


def test_the_cpu_is_taken_when_asked_for():
    assert choose("cpu") == Choice("cpu", "asked for")


@pytest.mark.parametrize("name", ["gpu", "CUDA", "cuda:", "cuda:x", "cuda:-1", "", None, 0])
def test_what_is_no_device_is_refused_with_those_that_are(name):
    assert not is_name(name)
    with pytest.raises(DeviceError, match=r'is no device\nhint: it is one of "auto", "cpu", "cuda" .*, "emulated"'):
        choose(name)


def test_a_device_is_one_object_for_all():
    first = choose("emulated")
    assert (first.name, first.reason) == ("emulated", "asked for")
    assert choose("emulated").handle is first.handle


def test_without_a_driver_auto_takes_the_cpu_and_leaves_cupy_alone():
    program = """
import sys
from gpu_tok import cuda
from gpu_tok.choice import choose
cuda.DRIVERS = ("no_such_library.so",)
taken = choose("auto")
assert "cupy" not in sys.modules
print(taken.name, taken.reason, sep=": ")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "cpu: there is no NVIDIA driver on this machine"


@pytest.mark.usefixtures("driver")
def test_auto_says_that_cupy_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert choose("auto") == Choice("cpu", "CuPy is not installed")
    with pytest.raises(DeviceError, match="CuPy is not installed"):
        choose("cuda")


@pytest.mark.usefixtures("driver")
def test_auto_does_not_fail_whatever_ails_cupy(monkeypatch):
    def fail() -> int:
        raise RuntimeError("its libraries do not fit")

    runtime = types.SimpleNamespace(driverGetVersion=fail)
    broken = types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime))
    monkeypatch.setitem(sys.modules, "cupy", broken)
    monkeypatch.setattr(cuda, "_started_in", None)
    assert choose("auto") == Choice("cpu", "CUDA does not start: RuntimeError: its libraries do not fit")


def test_without_a_compiler_the_emulator_says_so(monkeypatch):
    from gpu_tok import host_build

    def no_compiler(*_: object) -> None:
        raise DeviceError(host_build.NO_COMPILER, host_build.HINT)

    monkeypatch.setattr(choice, "_handles", {})
    monkeypatch.setattr("gpu_tok.emulated._load", no_compiler)
    with pytest.raises(DeviceError, match=r"no C\+\+ compiler was found.*\nhint: install g\+\+"):
        choose("emulated")
