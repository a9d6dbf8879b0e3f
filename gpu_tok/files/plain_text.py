"""`.txt`: a document a line, or what lies between separators."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gpu_tok.batch import TextBatch
from gpu_tok.errors import FileError
from gpu_tok.files.documents import Documents, Reading, text_errors
from gpu_tok.files.sources import Source
from gpu_tok.files.streams import Stream, blocks, line_blocks

ENCODING_HINT = "convert the file to UTF-8, or put U+FFFD in the place of such bytes with --invalid-utf8 replace"


def read(source: Source, reading: Reading) -> Iterator[Documents]:
    if reading.keep:
        raise FileError(f"{source.path}: a .txt file has no field {reading.keep[0]!r} to keep", "leave out --keep")
    with Stream(source) as stream:
        numbered = _lines(stream, reading) if reading.separator is None else _separated(stream, reading)
        unit = "line" if reading.separator is None else "document"
        first = 1
        for texts in numbered:
            with text_errors(f"{source.path}, {unit}", first, ENCODING_HINT):
                texts = texts.validated(reading.invalid_utf8)
            yield Documents(texts, None, stream.tell())
            first += len(texts)


def _lines(stream: Stream, reading: Reading) -> Iterator[TextBatch]:
    r"""A document a line, without its `\n` or `\r\n`. An empty line is an empty document: line n stays document n."""
    for block in line_blocks(stream, reading.batch_bytes):
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        newlines = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
        starts = np.zeros(len(newlines) + 1, np.int64)
        starts[1:] = newlines - np.arange(len(newlines))
        yield TextBatch(np.frombuffer(block.translate(None, b"\n"), np.uint8), starts)


def _separated(stream: Stream, reading: Reading) -> Iterator[TextBatch]:
    """What lies between separators, found from left to right; nothing is stripped. A separator at the very end ends the
    last document."""
    separator = (reading.separator or "").encode()
    rest = bytearray()
    for block in blocks(stream, reading.batch_bytes):
        seen = max(0, len(rest) - len(separator) + 1)
        rest += block
        documents, begin = [], 0
        while separator and (end := rest.find(separator, max(begin, seen))) >= 0:
            documents.append(bytes(rest[begin:end]))
            begin = end + len(separator)
        del rest[:begin]
        if documents:
            yield TextBatch.joined(documents, valid=False)
    if rest:
        yield TextBatch.joined([bytes(rest)], valid=False)
