"""Which files a data set is made of: names, globs and folders -> sources, in order."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpu_tok.errors import FileError

STANDARD_INPUT = "-"
CODECS = {".gz": "gzip", ".zst": "zstd"}
TEXT_KINDS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".txt": "txt", ".parquet": "parquet"}
TOKEN_KINDS = {".parquet": "parquet", ".npy": "npy"}


@dataclass(frozen=True)
class Source:
    """One file: its name, what is in it, how it is compressed, and its size as stored."""

    path: str
    kind: str
    codec: str | None
    size: int

    @property
    def is_pipe(self) -> bool:
        """Standard input, or a file that cannot be read twice."""
        return self.path == STANDARD_INPUT or not os.path.isfile(self.path)


def find(
    names: Iterable[str],
    kinds: dict[str, str] = TEXT_KINDS,
    kind: str | None = None,
    outputs: Iterable[str] = (),
) -> list[Source]:
    """The files that `names` stand for: files, globs, folders (everything below, sorted), "-" for standard input.

    >>> [source.path for source in find(["data"])]
    ['data/a.jsonl.zst', 'data/b/c.parquet']

    Files that a glob or a folder brings are taken when their suffix is in `kinds` (but for `.json`: beside data that
    is mostly a description) and they are neither hidden nor one of `outputs`; a file that is named itself has to be
    readable as what its suffix says. `kind` is what the files are, whatever their suffix.
    """
    own = {os.path.realpath(output) for output in outputs}
    found = [source for name in names for source in _find_one(name, kinds, kind, own)]
    for source in found:
        if os.path.realpath(source.path) in own:
            raise FileError(f"{source.path}: is input and output at once", "write to another file")
    return found


def _find_one(name: str, kinds: dict[str, str], kind: str | None, own: set[str]) -> list[Source]:
    if name == STANDARD_INPUT:
        return [Source(name, kind or "jsonl", None, 0)]
    if os.path.isfile(name):
        return [_named(name, kinds, kind)]
    if os.path.isdir(name):
        return _several(name, _below(name), kinds, kind, own)
    matches = sorted(glob.glob(name, recursive=True)) if glob.has_magic(name) else []
    paths = [path for match in matches for path in (_below(match) if os.path.isdir(match) else [match])]
    if paths:
        return _several(name, dict.fromkeys(paths), kinds, kind, own)
    if os.path.exists(name):  # a pipe or a device
        return [_named(name, kinds, kind)]
    finding = "no file is named so" if not glob.has_magic(name) else "no file matches"
    raise FileError(f"{name}: {finding}", f"the folder looked into is {os.getcwd()}")


def _below(folder: str) -> Iterator[str]:
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(child for child in folders if not child.startswith("."))
        yield from (os.path.join(where, file) for file in sorted(files))


def _several(name: str, paths: Iterable[str], kinds: dict[str, str], kind: str | None, own: set[str]) -> list[Source]:
    seen = [path for path in paths if not os.path.basename(path).startswith(".")]
    known = [
        path
        for path in seen
        if not path.endswith(".json") and kind_of(path, kinds)[0] and os.path.realpath(path) not in own
    ]
    if not known:
        finding = f"holds no file of {_content(kinds)}" if seen else "is empty"
        raise FileError(f"{name}: {finding}", f"such files end in {_spelled(kinds)}")
    return [_named(path, kinds, kind) for path in known]


def _named(path: str, kinds: dict[str, str], kind: str | None) -> Source:
    by_suffix, codec = kind_of(path, kinds)
    if kind is None and by_suffix is None:
        raise FileError(
            f"{path}: is no file of {_content(kinds)} by its name",
            f"such files end in {_spelled(kinds)}" + (", or say --format" if kinds is TEXT_KINDS else ""),
        )
    return Source(path, kind or by_suffix or "", codec, os.path.getsize(path))


def kind_of(path: str, kinds: dict[str, str]) -> tuple[str | None, str | None]:
    """What a name says: `a.jsonl.gz` -> ("jsonl", "gzip")."""
    stem, suffix = os.path.splitext(path.lower())
    codec = CODECS.get(suffix)
    kind = kinds.get(os.path.splitext(stem)[1] if codec else suffix)
    return (None, codec) if codec and kind in ("parquet", "npy") else (kind, codec)


def _content(kinds: dict[str, str]) -> str:
    return "ids" if kinds is TOKEN_KINDS else "texts"


def _spelled(kinds: dict[str, str]) -> str:
    return ", ".join(kinds) + (" (.jsonl and .txt also with .gz or .zst behind)" if "txt" in kinds.values() else "")
