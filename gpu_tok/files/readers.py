"""Data sets as streams of documents."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from gpu_tok.files import json_lines, parquet, plain_text
from gpu_tok.files.documents import Documents, Reading, merge
from gpu_tok.files.sources import Source
from gpu_tok.files.threads import ahead

READERS = {"jsonl": json_lines.read, "parquet": parquet.read, "txt": plain_text.read}


def read(sources: list[Source], reading: Reading = Reading()) -> Generator[Documents, None, None]:  # noqa: B008
    """The documents of some files in order, a batch of bounded bytes at a time, read on a thread of its own.

    >>> for documents in read(find(["data/*.jsonl.zst"])):
    ...     rows = tokenizer.encode_batch(documents.texts)
    """
    documents = merge(_pieces(sources, reading), reading.batch_bytes)
    if any(source.is_pipe for source in sources):
        return documents  # a thread that waits for a pipe could not be stopped
    return ahead(documents)


def _pieces(sources: list[Source], reading: Reading) -> Iterator[Documents]:
    before = 0
    for source in sources:
        for piece in READERS[source.kind](source, reading):
            yield Documents(piece.texts, piece.columns, before + piece.read)
        before += source.size
