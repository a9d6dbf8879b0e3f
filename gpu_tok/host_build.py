"""kernels/*.cu -> a library or a program of the host, by its C++ compiler and kernels/emu.

Each file is compiled by itself and kept in the user's cache folder under the hash of its text, of all that it may
include, of the options and of the compiler's version; so an edit recompiles what it can have changed.

>>> library([Path("tests/kernels")], Mode.FIBERS)
PosixPath('~/.cache/gpu_tok/emulated/3f0c...so')
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from gpu_tok.compile import cache_folder, kernel_folder
from gpu_tok.device import usable_cores
from gpu_tok.errors import DeviceError

NO_COMPILER = "no C++ compiler was found, and the emulator compiles its kernels with one"
HINT = 'install g++ (Debian: apt install g++), name one in the environment variable CXX, or use device="cpu"'
RUNTIME = ("block.cpp", "fibers.cpp", "threads.cpp", "runtime.cpp", "counters.cpp")
COMMON = ("-std=c++17", "-fPIC", "-g1", "-U_FORTIFY_SOURCE", "-fno-strict-aliasing", "-fcf-protection=none")


@dataclass(frozen=True)
class _Options:
    both: tuple[str, ...]  # for kernels and for the emulator itself
    kernels: tuple[str, ...]
    link: tuple[str, ...] = ()


class Mode(Enum):
    """How kernels are built. The sanitizers' modes use OS threads, and make sense for `replay_program` only."""

    FIBERS = _Options((), ("-O2", "-march=native"))
    THREADS = _Options(("-DEMU_THREADS",), ("-O2", "-march=native"))
    COUNT = _Options(("-DEMU_COUNT",), ("-O2", "-fsanitize=thread"))  # the hooks are ours: linked without libtsan
    ADDRESS = _Options(
        ("-DEMU_THREADS", "-DEMU_ASAN"),
        ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"),
        ("-fsanitize=address,undefined",),
    )
    THREAD = _Options(("-DEMU_THREADS", "-DEMU_TSAN"), ("-O1", "-fsanitize=thread"), ("-fsanitize=thread",))


def library(folders: Sequence[Path], mode: Mode) -> Path:
    """Builds the shared library of all kernels in the folders. Raises `DeviceError` with the compiler's words."""
    return _link(_objects(folders, mode), (*mode.value.link, "-shared"), ".so")


def replay_program(folders: Sequence[Path], mode: Mode) -> Path:
    """Builds the program that runs a dumped launch (kernels/emu/replay.cpp)."""
    replay = _compile(_emulator() / "replay.cpp", (*COMMON, "-O1", *mode.value.both), _headers(()))
    return _link([*_objects(folders, mode), replay], (*mode.value.link, "-rdynamic", "-ldl"), ".replay")


def _objects(folders: Sequence[Path], mode: Mode) -> list[Path]:
    emulator, own = _headers(()), _headers((kernel_folder(), *folders))
    runtime_options = (*COMMON, "-O2", *mode.value.both)
    kernel_options = (*COMMON, *mode.value.both, *mode.value.kernels, f"-I{kernel_folder()}", "-x", "c++")
    jobs = [(_emulator() / name, runtime_options, emulator) for name in RUNTIME]
    jobs += [(path, kernel_options, own) for folder in folders for path in sorted(folder.glob("*.cu"))]
    with ThreadPoolExecutor(usable_cores()) as pool:
        return list(pool.map(lambda job: _compile(*job), jobs))


def _emulator() -> Path:
    return kernel_folder() / "emu"


def _headers(folders: Sequence[Path]) -> bytes:
    """The emulator's headers and those of the folders: all that a file of them may include."""
    paths = {path for folder in folders for path in folder.glob("*.cuh")} | set(_emulator().glob("*.h"))
    return b"".join(path.name.encode() + b"\0" + path.read_bytes() for path in sorted(paths))


def _compile(source: Path, options: tuple[str, ...], headers: bytes) -> Path:
    command = (*_compiler(), *options)
    text = source.read_bytes()
    made = _folder() / (_hash(repr((_version(), command, source.name)).encode(), text, headers) + ".o")
    if not made.exists():
        _run([*command, "-c", str(source)], made)
    return made


def _link(objects: Sequence[Path], options: tuple[str, ...], suffix: str) -> Path:
    made = _folder() / (_hash(repr((_version(), options, [path.name for path in objects])).encode()) + suffix)
    if not made.exists():
        _run([*_compiler(), *map(str, objects), *options, "-pthread"], made)
    return made


def _run(command: Sequence[str], made: Path) -> None:
    """Writes the file whole or not at all: another process may want it at this moment."""
    with tempfile.TemporaryDirectory(dir=made.parent) as folder:
        part = Path(folder, made.name)
        done = subprocess.run([*command, "-o", str(part)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise DeviceError(f"{' '.join(command)} failed:\n{done.stderr.strip()}", "the kernels do not compile here")
        os.replace(part, made)


@functools.cache
def _compiler() -> tuple[str, ...]:
    name = os.environ.get("CXX", "g++")
    path = shutil.which(name)
    if path is None:
        raise DeviceError(NO_COMPILER, HINT)
    return (path,)


@functools.cache
def _version() -> str:
    """The compiler's version and the processor: -march=native means another thing on each."""
    said = subprocess.run([*_compiler(), "--version"], capture_output=True, text=True, check=False).stdout
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        processor = ""
    return f"{said}{platform.machine()}{processor}"


@functools.cache
def _folder() -> Path:
    cubins = cache_folder()
    folder = cubins.with_name("emulated") if cubins else Path(tempfile.mkdtemp(prefix="gpu_tok-emulated-"))
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _hash(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:32]
