"""How this package compiles: one decorator for all kernels.

Kernels hold no GIL, so work units run on a thread pool; their machine code is kept on disk, so only the first process
on a machine compiles, and says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba.core import event

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compiles a function that is called from Python: no GIL, cached on disk, no bounds checks."""
    compiled: Any = numba.njit(nogil=True, cache=True, error_model="numpy")(function)
    return compiled


def inlined(function: F) -> F:
    """Compiles a helper of kernels; it becomes part of its callers' machine code."""
    return kernel(function)


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
