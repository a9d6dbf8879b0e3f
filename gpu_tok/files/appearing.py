"""Files that appear under their name only when they are complete."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from typing import BinaryIO

from gpu_tok.errors import FileError


@contextlib.contextmanager
def appearing(*paths: str) -> Iterator[list[BinaryIO]]:
    """Opens hidden files beside `paths`; they get their names at the end, in order, the last one last of all.

    On any error or interrupt they are removed, and what stood under these names before still stands.
    """
    targets = [os.path.realpath(path) for path in paths]
    hidden = [_beside(target) for target in targets]
    files: list[BinaryIO] = []
    try:
        for partial in hidden:
            files.append(open(partial, "xb"))  # noqa: SIM115
        yield files
        for file in files:
            file.flush()
            os.fsync(file.fileno())
            file.close()
        for partial, target in zip(hidden, targets, strict=True):
            os.replace(partial, target)
    except OSError as error:
        raise FileError(f"{paths[-1]}: cannot be written: {error.strerror or error}") from error
    finally:
        for file in files:
            with contextlib.suppress(OSError):  # a full disk shows again when the rest is flushed
                file.close()
        for partial in hidden:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(partial)


def _beside(target: str) -> str:
    folder, name = os.path.split(target)
    return os.path.join(folder, f".{name}.{secrets.token_hex(4)}.partial")


def check_place(path: str) -> None:
    """Raises `FileError` where no file can appear."""
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    if os.path.isdir(target):
        raise FileError(f"{path}: is a folder", "name the file that shall be written")
    if not os.path.isdir(folder):
        raise FileError(f"{path}: there is no folder {folder}", f"make it first: mkdir -p {folder}")
    if not os.access(folder, os.W_OK):
        raise FileError(f"{path}: the folder {folder} may not be written to")
