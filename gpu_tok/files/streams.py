"""Bytes of a file, unpacked, in blocks that end where a line does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import TracebackType

import pyarrow as pa

from gpu_tok.errors import FileError
from gpu_tok.files.sources import STANDARD_INPUT, Source

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
DAMAGED_HINT = "it is cut off, damaged, or not what its name says: fetch or make it again"


class Stream:
    """The unpacked bytes of a source. A file that is cut off or damaged is an error, never a short text."""

    def __init__(self, source: Source) -> None:
        self._source = source
        if source.codec and source.size == 0 and not source.is_pipe:
            raise FileError(f"{source.path}: is no {source.codec} file: it has no bytes", DAMAGED_HINT)
        try:
            self._stored = _open(source)
            self._bytes = pa.CompressedInputStream(self._stored, source.codec) if source.codec else self._stored
        except OSError as error:
            raise FileError(f"{source.path}: cannot be opened: {error}") from error
        self._begun = False

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._source.path != STANDARD_INPUT:
            self._bytes.close()

    def read(self, size: int) -> bytes:
        """At most `size` bytes; none at the end. A byte order mark at the very beginning is left out."""
        try:
            block: bytes = self._bytes.read(size)
        except OSError as error:
            packed = f"is no whole {self._source.codec} file" if self._source.codec else "cannot be read"
            hint = DAMAGED_HINT if self._source.codec else None
            raise FileError(f"{self._source.path}: {packed}: {error}", hint) from error
        if not self._begun:
            self._begun = True
            return block.removeprefix(BYTE_ORDER_MARK) or (self.read(size) if block else b"")
        return block

    def tell(self) -> int:
        """How many bytes of the file, as stored, have been read."""
        return 0 if self._source.is_pipe else int(self._stored.tell())


def _open(source: Source) -> pa.NativeFile:
    if not source.is_pipe:
        return pa.OSFile(source.path)
    # Python's own files can be interrupted while they wait.
    return pa.PythonFile(sys.stdin.buffer if source.path == STANDARD_INPUT else open(source.path, "rb"), "r")


def blocks(stream: Stream, size: int) -> Iterator[bytes]:
    while block := stream.read(size):
        yield block


def line_blocks(stream: Stream, size: int) -> Iterator[bytes]:
    r"""Blocks of whole lines, each ending in `\n`, of about `size` bytes; longer when a line is."""
    parts: list[bytes | memoryview] = []
    for block in blocks(stream, size):
        end = block.rfind(b"\n") + 1
        parts.append(memoryview(block)[:end] if end else block)
        if end:
            yield b"".join(parts)
            parts = [block[end:]] if end < len(block) else []
    if parts:
        yield b"".join([*parts, b"\n"])
