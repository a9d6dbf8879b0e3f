"""How far long work is: bytes, documents, MB/s and the time left, on standard error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Progress:
    """What has been done. `read` counts bytes of files as stored, so it reaches their sizes at the end."""

    documents: int = 0
    text_bytes: int = 0
    tokens: int = 0
    seconds: float = 0.0
    began: float = field(default_factory=time.perf_counter)
    show: Any = None

    def advance(self, read: int, documents: int, text_bytes: int, tokens: int) -> None:
        self.documents += documents
        self.text_bytes += text_bytes
        self.tokens += tokens
        self.seconds = time.perf_counter() - self.began
        if self.show:
            self.show(read, self)

    @property
    def megabytes_per_second(self) -> float:
        return self.text_bytes / 1e6 / max(self.seconds, 1e-9)

    def to_dict(self) -> dict[str, Any]:
        return {
            "documents": self.documents,
            "text_bytes": self.text_bytes,
            "tokens": self.tokens,
            "seconds": round(self.seconds, 3),
            "text_mb_per_second": round(self.megabytes_per_second, 2),
        }

    def closing_line(self, verb: str, output: str) -> str:
        return (
            f"{verb} {self.documents:,} {'document' if self.documents == 1 else 'documents'}, "
            f"{size(self.text_bytes)} of text, {self.tokens:,} ids in {self.seconds:.1f} s "
            f"({self.megabytes_per_second:,.1f} MB/s) -> {output}"
        )


def size(byte_count: int) -> str:
    """
    >>> size(1_234_567)
    '1.2 MB'
    """
    return f"{byte_count:,} bytes" if byte_count < 100_000 else f"{byte_count / 1e6:,.1f} MB"


@contextmanager
def progress(title: str, total_bytes: int) -> Iterator[Progress]:
    """Shows a bar while the block runs, where standard error is a terminal."""
    from rich.console import Console

    state = Progress()
    console = Console(stderr=True)
    if not console.is_terminal:
        yield state
        state.seconds = time.perf_counter() - state.began
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[documents]:,} documents"),
        TextColumn("[green]{task.fields[speed]:,.1f} MB/s"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=total_bytes or None, documents=0, speed=0.0)
        state.show = lambda read, done: bar.update(
            task, completed=read, documents=done.documents, speed=done.megabytes_per_second
        )
        yield state
        state.seconds = time.perf_counter() - state.began
