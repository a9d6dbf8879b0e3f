"""Arrays of the host (NumPy's) and of a GPU (CuPy's): which is which, and how one becomes the other.

CuPy is imported only for arrays that do lie on a GPU.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

ON_GPU = (2, 13)  # device types of DLPack: CUDA memory, and CUDA managed memory


def is_on_gpu(array: Any) -> bool:
    """Does an array say that its memory is a GPU's, by `__cuda_array_interface__` or DLPack."""
    if isinstance(array, np.ndarray):
        return False
    if hasattr(array, "__cuda_array_interface__"):
        return True
    return hasattr(array, "__dlpack_device__") and array.__dlpack_device__()[0] in ON_GPU


def taken(array: Any) -> Any:
    """The same memory as an array of NumPy or CuPy, without a copy; what is no array comes back as it is.

    >>> taken(torch.zeros(2, dtype=torch.uint8, device="cuda"))
    array([0, 0], dtype=uint8)      # CuPy's
    """
    if isinstance(array, np.ndarray):
        return array
    if is_on_gpu(array):
        cupy = module_of(array)
        if isinstance(array, cupy.ndarray):
            return array
        return cupy.asarray(array) if hasattr(array, "__cuda_array_interface__") else cupy.from_dlpack(array)
    return np.from_dlpack(array) if hasattr(array, "__dlpack__") else array


def module_of(array: Any) -> Any:
    """The module that has to do with an array: NumPy, or CuPy for what is on a GPU."""
    if not is_on_gpu(array):
        return np
    from gpu_tok.cuda import import_cupy

    return import_cupy()


def its_gpu(array: Any) -> Any:
    """A context in which the GPU of an array is the current one, as CuPy wants it; nothing for those of the host."""
    return array.device if is_on_gpu(array) else contextlib.nullcontext()


def to_host(array: Any) -> np.ndarray:
    """The array if it is NumPy's, else a copy on the host."""
    return array if isinstance(array, np.ndarray) else array.get()


def beside(array: Any, other: Any) -> Any:
    """An array where `other` is: itself, or a copy there."""
    if is_on_gpu(array) == is_on_gpu(other):
        return array
    if not is_on_gpu(other):
        return to_host(array)
    with its_gpu(other):
        return module_of(other).asarray(array)


def span_of(starts: Any) -> tuple[int, int, bool]:
    """Where the rows begin and end, and whether no row ends before it begins: one look at the device.

    >>> span_of(np.array([0, 7, 7, 10]))
    (0, 10, True)
    """
    xp = module_of(starts)
    with its_gpu(starts):
        falls = (starts[1:] < starts[:-1]).any()
        found = xp.stack([starts[0], starts[-1], falls.astype(np.int64)])
        first, last, has_fallen = to_host(found).tolist()
    return first, last, not has_fallen
