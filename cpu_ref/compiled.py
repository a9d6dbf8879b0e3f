"""How this package compiles: one decorator for all kernels.

Kernels hold no GIL, so work units run on a thread pool; their machine code is kept on disk, so only the first process
on a machine compiles, and says so. numba looks only at the file of a function when it asks whether kept code is still
true, not at the files of what it calls; so each state of our sources has a folder of its own, and code of another
version never runs.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import event

config: Any = numba.config  # its settings are attributes that the type checker does not see

F = TypeVar("F", bound=Callable[..., Any])


def _cache_folder() -> str:
    """`NUMBA_CACHE_DIR`, or a folder of the user's caches, and in it one for these sources; "" if none can be made."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for source in sorted([*here.glob("*.py"), *(here.parent / "gpu_tok" / "tables").glob("*.py")]):
        digest.update(source.read_bytes())
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "gpu_tok"
    parents: list[Any] = [config.CACHE_DIR] if config.CACHE_DIR else [caches, tempfile.gettempdir()]
    for parent in parents:
        folder = Path(parent, f"kernels-{digest.hexdigest()[:16]}")
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK) and folder.stat().st_uid == os.getuid():  # nobody else's machine code is run
            return str(folder)
    return ""


CACHE_FOLDER = _cache_folder()


def kernel(function: F) -> F:
    """Compiles a function that is called from Python: no GIL, cached on disk, no bounds checks."""
    return _compiled(function)


def _compiled(function: F, **extra: bool) -> F:
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", **extra}
    given, config.CACHE_DIR = config.CACHE_DIR, CACHE_FOLDER
    try:
        compiled: Any = numba.njit(cache=bool(CACHE_FOLDER), **options)(function)
    finally:
        config.CACHE_DIR = given
    return compiled


def inlined(function: F) -> F:
    """Compiles a helper of kernels; it becomes part of its callers' machine code."""
    return _compiled(function, forceinline=True)


class _Notice(event.Listener):
    """Says once a process that kernels are being compiled. Loading them from the disk cache is no such event."""

    told = False

    def on_start(self, event: Any) -> None:
        if not self.told and event.data["dispatcher"].py_func.__module__.startswith(f"{__package__}."):
            self.told = True
            notice = "gpu_tok: compiling its kernels (the first time on this machine, under 30 s) ..."
            print(notice, file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        """Nothing to say: what was asked for follows at once."""


event.register("numba:compile", _Notice())
