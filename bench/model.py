"""What a warm batch moves through memory, counted on the emulated device, and the speed that this allows at most.

    python bench/model.py --text en --size 4

A model, not a measurement: each sector of 32 bytes counts once for a warp between two warp-wide points, as if the
first cache held it so long and no other held anything. Prints a line for each kernel, and ends with exit code 1 where
streaming traffic (bytes a byte of text) or table traffic (sectors a chunk) is above its limit.
"""

from __future__ import annotations

import argparse
import ast
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import command
import numpy as np
import texts
from rich.console import Console
from rich.table import Table

from gpu_tok.batch import TextBatch
from gpu_tok.emulated import Counts, EmulatedDevice, Traffic
from gpu_tok.on_device.batches import DevicePath
from gpu_tok.on_device.path import begin, end
from gpu_tok.on_device.report import CHUNKS_SEEN
from gpu_tok.on_device.text import of_rows
from gpu_tok.postprocess import plan_of
from gpu_tok.tables.postprocess import compile_postprocess
from gpu_tok.tokenizer import Tokenizer

SECTOR = 32
TABLE_BYTES = 1 << 27
OWN_TEXT = "docstrings"  # of the standard library: English that every machine has
COLUMNS = ("read B", "written B", "streaming", "table", "atomics", "imbalance")


@dataclass(frozen=True)
class Model:
    """Counts of one warm batch. streaming: bytes a byte of text, by sectors; table: sectors a chunk."""

    counts: dict[str, Counts]
    byte_count: int
    chunks: int

    @property
    def streaming(self) -> float:
        return sum(map(self.streaming_of, self.counts.values()))

    @property
    def table(self) -> float:
        return sum(map(self.table_of, self.counts.values()))

    def streaming_of(self, counts: Counts) -> float:
        return SECTOR * _sectors(counts.streaming) / self.byte_count

    def table_of(self, counts: Counts) -> float:
        return _sectors(counts.table) / max(self.chunks, 1)

    def gigabytes_per_second(self, bandwidth: float, with_table: bool) -> float:
        """Text that can pass at most. bandwidth: 10^12 bytes a second."""
        moved = self.streaming + with_table * SECTOR * self.table * self.chunks / self.byte_count
        return 1000 * bandwidth / moved


def _sectors(traffic: Traffic) -> int:
    return traffic.read_sectors + traffic.written_sectors


def count(tokenizer: Tokenizer, given: list[str]) -> Model:
    """Counts a batch whose chunks are all in the table. Raises `SystemExit` where the ids are not the CPU's."""
    batch, device = TextBatch.of(given), EmulatedDevice(count=True)
    path = DevicePath(device, tokenizer.cuts, tokenizer.cold, tokenizer.added_tokens, TABLE_BYTES)
    plan = plan_of(compile_postprocess(tokenizer.definition), None, None)
    path.encode_texts(batch, plan)
    table, encoder = path.encoder.table, path.encoder
    device.mark_table(table.rows, table.keys, table.ids, *_arrays(encoder.cuts))
    text = of_rows(device, device.upload(batch.bytes), device.upload(batch.starts), encoder.cold.flags)
    device.counts.clear()
    warm = begin(device, text, encoder, plan, encoder.shares.rooms(batch.byte_count, 2 * len(batch)))
    rows = end(device, warm, encoder)
    expected = tokenizer.encode_batch(batch, truncation=False, padding=False)
    if not np.array_equal(rows.ids, expected.ids):
        raise SystemExit("the ids differ from those of the CPU: there is nothing to count")
    return Model(device.counts, batch.byte_count, int(warm.cuts.report[CHUNKS_SEEN]))


def _arrays(value: Any) -> list[np.ndarray]:
    """The arrays in a NamedTuple of them and of such tuples."""
    if isinstance(value, np.ndarray):
        return [value]
    return [array for part in value for array in _arrays(part)] if isinstance(value, tuple) else []


def show(model: Model, bandwidth: float) -> None:
    """Prints the table, and the speed that follows; of what no kernel does, like prefix sums, nothing is counted."""
    console = Console(width=110)
    table = Table(title="Traffic of a warm batch: bytes a byte of text, sectors of the table a chunk")
    table.add_column("kernel")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    for kernel, counts in model.counts.items():
        table.add_row(kernel, *_cells(counts, model))
    table.add_section()
    atomics = sum(counts.atomics for counts in model.counts.values())
    table.add_row("all", "", "", f"{model.streaming:.2f}", f"{model.table:.2f}", f"{atomics:,}", "")
    console.print(table)
    in_cache, in_memory = (model.gigabytes_per_second(bandwidth, with_table) for with_table in (False, True))
    console.print(
        f"{model.byte_count:,} bytes, {model.chunks:,} chunks. Derived, not measured: at {bandwidth} TB/s at most "
        f"{in_cache:.0f} GB of text a second with the table in a cache, {in_memory:.0f} with all of it in memory.",
        highlight=False,
        soft_wrap=True,
    )


def _cells(counts: Counts, model: Model) -> list[str]:
    asked = (counts.streaming.read_bytes, counts.streaming.written_bytes)
    shares = [*(moved / model.byte_count for moved in asked), model.streaming_of(counts), model.table_of(counts)]
    return [*(f"{share:.3f}" for share in shares), f"{counts.atomics:,}", f"{counts.imbalance:.2f}"]


def load_texts(name: str, megabytes: float) -> list[str]:
    """Texts of a language in the shared folder, or of a file; the docstrings of the standard library for OWN_TEXT."""
    if name == OWN_TEXT:
        return docstrings(megabytes)
    folder = texts.DEFAULT_FOLDER / "corpora" if Path(name).name == name else Path(name).parent
    return texts.load(Path(name).name.split(".")[0], folder, megabytes).timed


def docstrings(megabytes: float) -> list[str]:
    """The docstrings of modules of the standard library, those of a module as one text."""
    found, taken = [], 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        tree = ast.parse(path.read_bytes())
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef
        parts = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds)]
        found.append("\n\n".join(filter(None, parts)))
        taken += len(found[-1].encode())
        if taken >= megabytes * 1e6:
            break
    return found


def load_tokenizer(name: str | None, given: list[str]) -> Tokenizer:
    """A file or a name in the shared folder. None: a WordPiece vocabulary made from the texts themselves."""
    if name is not None:
        return Tokenizer.from_file(command.tokenizer_path(name))
    from tokenizers.implementations import BertWordPieceTokenizer

    made = BertWordPieceTokenizer()
    made.train_from_iterator(given, vocab_size=30_000, show_progress=False)
    return Tokenizer.from_str(made.to_str())


def main() -> None:
    has_shared = (texts.DEFAULT_FOLDER / "corpora").is_dir()
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "-t", "--tokenizer", default="bert-base-uncased" if has_shared else None,
        help="a file, or a name in ../shared/tokenizers; without either, a vocabulary made from the texts",
    )  # fmt: skip
    parser.add_argument(
        "--text", default="en" if has_shared else OWN_TEXT,
        help=f"a language in ../shared/corpora, a file (.jsonl[.zst], .txt), or {OWN_TEXT} (of the standard library)",
    )  # fmt: skip
    parser.add_argument("--size", type=float, default=4.0, help="10^6 bytes of text")
    parser.add_argument("--bandwidth", type=float, default=4.3, help="of the memory, 10^12 bytes a second")
    parser.add_argument("--most-streaming", type=float, default=6.0, help="bytes a byte of text")
    parser.add_argument("--most-table", type=float, default=2.3, help="sectors a chunk")
    arguments = parser.parse_args()
    given = load_texts(arguments.text, arguments.size)
    model = count(load_tokenizer(arguments.tokenizer, given), given)
    show(model, arguments.bandwidth)
    print(f"streaming {model.streaming:.2f} B/B, table {model.table:.2f} sectors a chunk")
    if model.streaming > arguments.most_streaming or model.table > arguments.most_table:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
