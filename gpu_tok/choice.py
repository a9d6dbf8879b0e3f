"""Which device is taken, and why; one object a process for each, shared by all tokenizers."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass, field
from typing import Any

from gpu_tok.errors import DeviceError

DEVICES = '"auto", "cpu", "cuda" (or "cuda:1" for another GPU), "emulated"'

_handles: dict[tuple[str, int], Any] = {}  # by name and process: CUDA does not come along through a fork
_lock = threading.Lock()


@dataclass(frozen=True)
class Choice:
    """The device that was taken, and the reason in words.

    handle: what launches kernels there, a `CudaDevice` or an `EmulatedDevice`; None for the CPU.
    """

    name: str
    reason: str
    handle: Any = field(default=None, repr=False, compare=False)


def choose(device: str) -> Choice:
    """Picks the device for `device=`; raises `DeviceError` for one that cannot be used, and for a name that is none.

    >>> choose("auto")
    Choice(name='cpu', reason='there is no NVIDIA driver on this machine')
    """
    if device == "cpu":
        return Choice("cpu", "asked for")
    if device == "emulated":
        return Choice("emulated", "asked for", _handle("emulated"))
    if device == "auto":
        return _best()
    if is_name(device):
        handle = _handle(device)
        return Choice(device, f"asked for: {handle.description}", handle)
    raise DeviceError(f"device={device!r} is no device", f"it is one of {DEVICES}")


def is_name(device: Any) -> bool:
    """Can this stand in `device=`, whether or not there is such a device."""
    return isinstance(device, str) and re.fullmatch(r"auto|cpu|emulated|cuda(:\d+)?", device) is not None


def _best() -> Choice:
    """CUDA if it can be used. The driver is looked for first: importing CuPy takes a second."""
    from gpu_tok import cuda

    if not cuda.has_driver():
        return Choice("cpu", cuda.NO_DRIVER)
    try:
        handle = _handle("cuda")
    except DeviceError as error:
        return Choice("cpu", error.finding)
    except Exception as error:  # whatever ails CuPy or CUDA, the CPU can do the work
        return Choice("cpu", f"CUDA does not start: {type(error).__name__}: {error}")
    return Choice("cuda", f"it can be used: {handle.description}", handle)


def _handle(name: str) -> Any:
    """The one object for a device in this process."""
    name = "cuda:0" if name == "cuda" else name
    with _lock:
        key = (name, os.getpid())
        if key not in _handles:
            _handles[key] = _made(name)
        return _handles[key]


def _made(name: str) -> Any:
    if name == "emulated":
        from gpu_tok.emulated import EmulatedDevice

        return EmulatedDevice()
    from gpu_tok.cuda import CudaDevice

    return CudaDevice(int(name.removeprefix("cuda:")))


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
