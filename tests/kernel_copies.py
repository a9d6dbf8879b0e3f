"""Copies of some kernels in a folder of their own: few, since sanitizers compile slowly, or with a fault put in."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpu_tok.compile import kernel_folder


def copied(folder: Path, *files: str) -> Path:
    """The folder, made where there is none, with these files; what they include and is not among them is the real."""
    folder.mkdir(exist_ok=True)
    for name in files:
        shutil.copy(kernel_folder() / name, folder)
    return folder


def broken(folder: Path, file: str, right: str, wrong: str, files: Iterable[str] = ()) -> Path:
    """The folder with `files` and `file`, in which `right`, that stands there once, has become `wrong`."""
    copied(folder, *files, file)
    text = (folder / file).read_text()
    assert text.count(right) == 1
    (folder / file).write_text(text.replace(right, wrong))
    return folder


def cases(faults: Mapping[str, Any], in_short: Iterable[str]) -> list[Any]:
    """Faults by name, for `parametrize`: those that are not `in_short` are slow."""
    return [
        pytest.param(fault, id=name, marks=() if name in in_short else pytest.mark.slow)
        for name, fault in faults.items()
    ]
