"""What all parts of a check are given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import tokenizers

from gpu_tok import Tokenizer
from gpu_tok.choice import choose
from gpu_tok.tokenizer import TABLE_BYTES
from on_gpu.deadline import Deadline
from on_gpu.packed import Packed


class Sizes(NamedTuple):
    """How much of everything. Megabytes are 10^6 bytes of text.

    text_megabytes: distinct texts of a language, timed cold, warm and fresh; drawn_megabytes: the same ones, drawn over
    and over; documents: how many short documents a batch has; overtaking: bytes of the smallest batches.
    """

    text_megabytes: float
    drawn_megabytes: float
    documents: tuple[int, ...]
    overtaking: tuple[int, ...]
    parity_rows: int
    parity_bytes: int
    copy_bytes: int
    table_bytes: int
    rounds: int


SIZES = {
    "full": Sizes(
        text_megabytes=5.0,
        drawn_megabytes=256.0,
        documents=(1, 10, 100, 1_000, 10_000, 100_000, 1_000_000),
        overtaking=tuple(1 << power for power in range(10, 25)),
        parity_rows=60,
        parity_bytes=1 << 20,
        copy_bytes=1 << 30,
        table_bytes=TABLE_BYTES,
        rounds=5,
    ),
    "tiny": Sizes(
        text_megabytes=0.003,
        drawn_megabytes=0.01,
        documents=(1, 10),
        overtaking=(1 << 8, 1 << 10),
        parity_rows=3,
        parity_bytes=1 << 12,
        copy_bytes=1 << 12,
        table_bytes=1 << 20,
        rounds=1,
    ),
}


@dataclass(frozen=True)
class Setting:
    """A packed folder, a device and how much to do until when. names: the tokenizers that are timed."""

    data: Packed
    device: str
    sizes: Sizes
    deadline: Deadline
    names: tuple[str, ...]

    @cached_property
    def handle(self) -> Any:
        """What launches kernels on the device."""
        return choose(self.device).handle

    @cached_property
    def _tokenizers(self) -> dict[str, Tokenizer]:
        return {}

    def tokenizer(self, name: str) -> Tokenizer:
        """A tokenizer on the device; the same one for all who ask. Small batches go to the device, too."""
        if name not in self._tokenizers:
            options: dict[str, Any] = {"table_bytes": self.sizes.table_bytes, "small_batch_bytes": 0}
            text = self.data.tokenizer(name)
            self._tokenizers[name] = Tokenizer.from_str(text, device=self.device, **options)
        return self._tokenizers[name]

    def empty_tokenizer(self, name: str) -> Tokenizer:
        """The same with an empty table."""
        made = self.tokenizer(name).to(self.device, small_batch_bytes=0)
        made.encode_batch(["a"])  # tables go to the device with the first batch
        return made

    def reference(self, name: str) -> tokenizers.Tokenizer:
        """The reference, with truncation and padding off."""
        made = tokenizers.Tokenizer.from_str(self.data.tokenizer(name))
        made.no_truncation()
        made.no_padding()
        return made


@contextmanager
def file_of(data: Packed, name: str) -> Iterator[Path]:
    """A tokenizer as a file."""
    with TemporaryDirectory() as folder:
        path = Path(folder, f"{name}.json")
        path.write_text(data.tokenizer(name), encoding="utf-8")
        yield path
