"""NVIDIA's run-time compiler, called through ctypes: CUDA C++ text -> machine code. It needs no GPU and no driver.

CuPy can call it too, but only where CuPy finds it, and each release through other names; a GPU-less CI has the library
from PyPI alone.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_tok.errors import DeviceError

PREFIXES = (os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), "/usr/local/cuda")
INSTALL = "pip install nvidia-cuda-nvrtc (CUDA 13) or nvidia-cuda-nvrtc-cu12, or install the CUDA toolkit"


class CompileError(DeviceError):
    """Kernel text that the compiler refuses; the message is the compiler's log."""


@dataclass(frozen=True)
class Program:
    """What the compiler made of a text: machine code (ELF), PTX, and its log with ptxas' resource lines."""

    cubin: bytes
    ptx: str
    log: str


class Nvrtc:
    """One copy of the library. `version` is (major, minor); `archs` the architectures it knows: {75, 80, ...}."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._library = ctypes.CDLL(path)
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        self.version = self._version()
        self.archs = self._archs()

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self._library, name)(*args)
        if status:
            raise CompileError(f"{name}: {self._library.nvrtcGetErrorString(status).decode()} ({self.path})")

    def _version(self) -> tuple[int, int]:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return major.value, minor.value

    def _archs(self) -> frozenset[int]:
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        archs = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", archs)
        return frozenset(archs)

    def compile(self, text: str, name: str, options: tuple[str, ...]) -> Program:
        """Compiles a whole text; `name` stands for it in the log. Raises `CompileError` with the log."""
        program = ctypes.c_void_p()
        self._call("nvrtcCreateProgram", ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
        try:
            words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            try:
                self._call("nvrtcCompileProgram", program, len(options), words)
            except CompileError as error:
                raise CompileError(f"{name} does not compile:\n{self._text(program, 'ProgramLog')}") from error
            log, ptx = self._text(program, "ProgramLog"), self._text(program, "PTX")
            return Program(self._bytes(program, "CUBIN"), ptx, log)
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _bytes(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, buffer)
        return buffer.raw

    def _text(self, program: ctypes.c_void_p, what: str) -> str:
        return self._bytes(program, what).rstrip(b"\0").decode(errors="replace").strip()


def find(newest_major: int | None = None) -> Nvrtc:
    """The newest library on this machine, of no newer CUDA than `newest_major`: a driver of CUDA 12 does not load what
    CUDA 13 compiles. Raises `DeviceError` where there is none."""
    found: list[Nvrtc] = []
    for path in dict.fromkeys(_candidates()):
        try:
            found.append(Nvrtc(path))
        except (OSError, AttributeError, DeviceError):  # not to be loaded, or too old to name its architectures
            continue
    usable = [library for library in found if newest_major is None or library.version[0] <= newest_major]
    if not usable:
        kept = f" for CUDA {newest_major} or older" if newest_major is not None else ""
        raise DeviceError(f"there is no NVRTC library (libnvrtc.so){kept} on this machine", INSTALL)
    return max(usable, key=lambda library: library.version)


def _candidates() -> Iterator[str]:
    """Paths of the library: in wheels (nvidia/cu13/lib, nvidia/cuda_nvrtc/lib), in toolkits, on the loader's path."""
    spec = importlib.util.find_spec("nvidia")
    wheels = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
    folders = [folder for wheel in wheels for folder in sorted(wheel.glob("*/lib"), reverse=True)]
    for prefix in PREFIXES:
        folders += [Path(prefix, "lib64"), Path(prefix, "lib")] if prefix else []
    for folder in folders:
        for path in sorted(folder.glob("libnvrtc.so.*"), reverse=True):
            if re.fullmatch(r"libnvrtc\.so\.\d+", path.name):
                yield str(path.resolve())
    yield from ("libnvrtc.so.13", "libnvrtc.so.12")
