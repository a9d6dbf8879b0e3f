"""How this package compiles: one decorator for all kernels.

Kernels hold no GIL, so work units run on a thread pool; their machine code is kept on disk, so only the first process
on a machine compiles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compiles a function that is called from Python: no GIL, cached on disk, no bounds checks."""
    return numba.njit(nogil=True, cache=True, error_model="numpy")(function)


def inlined(function: F) -> F:
    """Compiles a helper of kernels; it becomes part of its callers' machine code."""
    return numba.njit(nogil=True, error_model="numpy", inline="never", cache=True)(function)
