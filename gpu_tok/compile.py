"""kernels/*.cu -> machine code for one architecture, with what each kernel needs of a multiprocessor.

A kernel file and all that it includes become one text, which NVRTC compiles to a cubin; the cubin is kept on disk under
the hash of that text, the options and the compiler's version. CI and run time go this one way.

    python -m gpu_tok.compile --arch sm_75 sm_90 --json bench/results/kernels.json
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gpu_tok import nvrtc
from gpu_tok.errors import DeviceError

OPTIONS = ("--std=c++17", "--generate-line-info", "--ptxas-options=-v")
ARCHS = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
_KERNEL = re.compile(r"^KERNEL(?:\s+LAUNCHED_AS\(\w+(?:, \w+)?\))?\s+(\w+)\(", re.MULTILINE)
_INCLUDE = re.compile(r'\s*#include "(?!emu/)([^"]+)"')  # emu/ is for the host's compiler, behind an #ifndef
_ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(sm_\w+)'(.*?)(?=Compiling entry function|\Z)", re.DOTALL)
_THREADS = re.compile(r"\.entry\s+(\w+)\s*\([^)]*\)\s*\.maxntid\s+(\d+)")


@dataclass(frozen=True)
class Resources:
    """What a kernel needs. `threads` is the greatest block it may be launched with; `spill_bytes` counts stores and
    loads."""

    kernel: str
    arch: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    stack_bytes: int
    threads: int


@dataclass(frozen=True)
class Compiled:
    """The machine code of one kernel file."""

    cubin: bytes
    kernels: tuple[Resources, ...]


def kernel_folder() -> Path:
    """Where the kernels' texts are: beside this file in the wheel, beside the package in a checkout."""
    here = Path(__file__).resolve().parent
    return next((folder for folder in (here / "kernels", here.parent / "kernels") if folder.is_dir()), here)


@functools.cache
def file_of_kernel() -> dict[str, Path]:
    """The file that each kernel is in: {"cut_words": .../cut.cu, ...}. Kernel names are unique."""
    files: dict[str, Path] = {}
    for path in sorted(kernel_folder().glob("*.cu")):
        for name in _KERNEL.findall(path.read_text(encoding="utf-8")):
            if files.setdefault(name, path) != path:
                raise DeviceError(f"kernel {name} is in {files[name].name} and in {path.name}", "rename one of them")
    return files


def paste(path: Path) -> str:
    """A file with all that it includes in place, each once; #line keeps names and lines true in messages."""
    return "\n".join(_pasted(path, set())) + "\n"


def _pasted(path: Path, seen: set[Path]) -> list[str]:
    seen.add(path)
    lines = [f'#line 1 "{path.name}"']
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        include = _INCLUDE.match(line)
        if include is None:
            lines.append("" if line.startswith("#pragma once") else line)
            continue
        included = (path.parent / include[1]).resolve()
        lines += [] if included in seen else _pasted(included, seen)
        lines.append(f'#line {number + 1} "{path.name}"')
    return lines


def compile_file(path: Path, arch: str, compiler: nvrtc.Nvrtc | None = None) -> Compiled:
    """Compiles one kernel file for an architecture (sm_90), or takes it from the cache.

    Raises `DeviceError` where there is no compiler, `CompileError` with the compiler's log.
    """
    return compile_text(paste(path), path.name, arch, compiler)


def compile_text(text: str, name: str, arch: str, compiler: nvrtc.Nvrtc | None = None) -> Compiled:
    """The same for a text with nothing left to include."""
    compiler = compiler or nvrtc.find()
    options = (*OPTIONS, f"--gpu-architecture={arch}")
    key = hashlib.sha256(repr((compiler.version, options, name, text)).encode()).hexdigest()
    folder = cache_folder()
    kept = _load(folder, key) if folder else None
    if kept is None:
        program = compiler.compile(text, name, options)
        kept = Compiled(program.cubin, resources(program))
        if folder:
            _store(folder, key, kept)
    return kept


def resources(program: nvrtc.Program) -> tuple[Resources, ...]:
    """Reads ptxas' lines in the log, and the launch bounds in the PTX."""
    threads = {name: int(count) for name, count in _THREADS.findall(program.ptx)}
    rows = []
    for name, arch, said in _ENTRY.findall(program.log):
        stack = _number(r"(\d+) bytes stack frame", said)
        spilled = _number(r"(\d+) bytes spill stores", said) + _number(r"(\d+) bytes spill loads", said)
        registers, shared = _number(r"Used (\d+) registers", said), _number(r"(\d+) bytes smem", said)
        rows.append(Resources(name, arch, registers, spilled, shared, stack, threads.get(name, 1024)))
    return tuple(sorted(rows, key=lambda row: row.kernel))


def _number(pattern: str, said: str) -> int:
    found = re.search(pattern, said)
    return int(found[1]) if found else 0


def arch_for(capability: str, compiler: nvrtc.Nvrtc) -> str:
    """The architecture to compile for: a device of capability "86" also runs machine code for 80, but none for 75.

    Raises `DeviceError` where the compiler knows none that the device runs.
    """
    own = int(capability)
    fitting = [arch for arch in compiler.archs if arch // 10 == own // 10 and arch <= own]
    if not fitting:
        version = ".".join(map(str, compiler.version))
        finding = f"the device is of compute capability {own // 10}.{own % 10}, and NVRTC {version} has no code for it"
        raise DeviceError(finding, f'use device="cpu", or another NVRTC: {nvrtc.INSTALL}')
    return f"sm_{max(fitting)}"


def cache_folder() -> Path | None:
    """The folder of the user's caches that keeps cubins; None where none can be made that is nobody else's."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    for parent in (caches / "gpu_tok", Path(tempfile.gettempdir(), f"gpu_tok-{os.getuid()}")):
        folder = parent / "cubins"
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.access(folder, os.W_OK) and folder.stat().st_uid == os.getuid():
                return folder
    return None


def _load(folder: Path, key: str) -> Compiled | None:
    try:
        rows = json.loads((folder / f"{key}.json").read_text())
        return Compiled((folder / f"{key}.cubin").read_bytes(), tuple(Resources(**row) for row in rows))
    except (OSError, ValueError, TypeError):
        return None


def _store(folder: Path, key: str, compiled: Compiled) -> None:
    """Writes both files whole or not at all; the one that is read first comes last. A full disk is no error."""
    rows = json.dumps([asdict(row) for row in compiled.kernels]).encode()
    for name, content in ((f"{key}.cubin", compiled.cubin), (f"{key}.json", rows)):
        with contextlib.suppress(OSError):
            handle, temporary = tempfile.mkstemp(dir=folder)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(temporary, folder / name)


def compile_all(archs: Sequence[str] = ARCHS) -> list[Resources]:
    """Every kernel for every architecture: a row each."""
    compiler = nvrtc.find()
    files = sorted(kernel_folder().glob("*.cu"))
    return [row for path in files for arch in archs for row in compile_file(path, arch, compiler).kernels]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m gpu_tok.compile", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--arch", nargs="+", default=list(ARCHS), help="architectures (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write the rows to this file, too")
    asked = parser.parse_args(arguments)
    rows = compile_all(asked.arch)
    for row in rows:
        needs = f"{row.registers:4} registers {row.shared_bytes:6} B shared {row.stack_bytes:4} B stack"
        print(f"{row.kernel:24} {row.arch:7} {needs} {row.spill_bytes:4} B spilled")
    if asked.json:
        asked.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
