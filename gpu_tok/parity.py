"""Parity: the ids of each path beside the reference's, document by document, and where a difference began."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.table import Table
from rich.text import Text

from cpu_ref.parity import FNV_START, fnv1a
from gpu_tok.batch import Ids, Ragged, TextBatch, TokenBatch, row_ranges, starts_of
from gpu_tok.differences import CpuStages, Origin, Show, find_inside, find_origin, first_difference
from gpu_tok.explain import visible
from gpu_tok.stages import ReferenceStages

if TYPE_CHECKING:
    from gpu_tok.tokenizer import Tokenizer

REFERENCE = "reference"
_SLICE_BYTES = 1 << 20  # text that the reference encodes at a time: each of its ids is a Python object
_SLICE_ROWS = 10_000
_CONTEXT = 30  # characters shown before and behind a difference

Encode = Callable[[TextBatch], Any]  # to rows of ids: a TokenBatch, a Ragged, or arrays


class Path(NamedTuple):
    """One way to encode. show: its stages for one text, and whole: the same without cuts; None: it shows only ids."""

    encode: Encode
    show: Show | None = None
    whole: Show | None = None


@dataclass(frozen=True)
class Difference:
    """A document whose ids differ. id, expected_id: at the first differing position; None past the end.

    shown: the text around it, shortened, the place between `>>>` and `<<<`. inferred: the stage was judged by the ids.
    """

    path: str
    document: int
    position: int
    id: int | None
    expected_id: int | None
    stage: str
    detail: str
    inferred: bool
    shown: str


@dataclass
class ParityReport:
    """What `check` found. hashes: FNV-1a of all ids of each path and of the reference; different: documents a path."""

    documents: int = 0
    bytes: int = 0
    ids: int = 0
    hashes: dict[str, str] = field(default_factory=dict)
    different: dict[str, int] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)

    @property
    def same(self) -> bool:
        """Do all paths give the reference's ids for all documents."""
        return not any(self.different.values())

    def to_dict(self) -> dict[str, Any]:
        return {"same": self.same, **asdict(self)}

    def __rich__(self) -> Table:
        return self.render()

    def render(self) -> Table:
        """The report as a table, for a Rich console."""
        table = Table(show_header=False, box=None, pad_edge=False)
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        table.add_row("documents", f"{self.documents:,} ({self.bytes:,} bytes, {self.ids:,} ids)")
        for name, value in self.hashes.items():
            count = self.different.get(name, 0)
            differ = "1 document differs" if count == 1 else f"{count:,} documents differ"
            finding = "" if name == REFERENCE else "  same" if count == 0 else f"  {differ}"
            table.add_row(name, f"{value}{finding}")
        for difference in self.differences:
            place = f"{difference.path}, document {difference.document}, id {difference.position}"
            ids = f"{difference.id} instead of {difference.expected_id}"
            stage = f"{difference.stage}{' (inferred from the ids)' if difference.inferred else ''}"
            table.add_row("difference", Text(f"{place}: {ids}\n{stage}: {difference.detail}\n{difference.shown}"))
        return table


def paths_of(tokenizer: Tokenizer, add_special_tokens: bool = True) -> dict[str, Path]:
    """The paths of a tokenizer, by name: the CPU's, and that of its device, which small batches take, too."""
    device = tokenizer.device.name
    on_cpu = tokenizer if device == "cpu" else tokenizer.to("cpu")
    shown, whole = CpuStages(on_cpu), CpuStages(on_cpu, cuts=False)
    paths = {"cpu": Path(_encode_by(on_cpu, add_special_tokens), shown, whole)}
    if device != "cpu":
        on_device = tokenizer if tokenizer.small_batch_bytes == 0 else tokenizer.to(device, small_batch_bytes=0)
        paths[device] = Path(_encode_by(on_device, add_special_tokens))
    return paths


def _encode_by(tokenizer: Tokenizer, special: bool) -> Encode:
    return lambda texts: tokenizer.encode_batch(texts, add_special_tokens=special, truncation=False, padding=False)


def check(
    tokenizer: Tokenizer,
    texts: TextBatch | Iterable[TextBatch],
    paths: Mapping[str, Path | Encode] | None = None,
    add_special_tokens: bool = True,
    most_shown: int = 20,
) -> ParityReport:
    """Runs each path and the reference over texts and compares their ids; truncation and padding are off.

    texts: one batch, or any number of them, taken one at a time. paths: by name, those of `paths_of` if not given.
    most_shown: so many differences are looked into, of each path; all are counted.

    >>> check(tokenizer, TextBatch.of(["The cat sat."])).same
    True
    """
    chosen = paths_of(tokenizer, add_special_tokens) if paths is None else paths
    by_name = {name: path if isinstance(path, Path) else Path(path) for name, path in chosen.items()}
    stages = ReferenceStages(tokenizer.definition)
    report = ParityReport(different=dict.fromkeys(by_name, 0))
    states = dict.fromkeys([REFERENCE, *by_name], np.uint64(FNV_START))
    for given in [texts] if isinstance(texts, TextBatch) else texts:
        batch = given.to_host()
        rows_of = {name: _rows(path.encode(batch)) for name, path in by_name.items()}
        for name, rows in rows_of.items():
            _check_row_count(name, rows, batch)
            states[name] = fnv1a(_flat(rows, 0, len(batch)), states[name])
        for begin, end in row_ranges(batch.starts, _SLICE_BYTES, _SLICE_ROWS):
            expected = _reference_rows(stages, batch, begin, end, add_special_tokens)
            states[REFERENCE] = fnv1a(expected.flat, states[REFERENCE])
            report.ids += len(expected.flat)
            for name, rows in rows_of.items():
                for row in _different_rows(rows, begin, expected):
                    report.different[name] += 1
                    if report.different[name] <= most_shown:
                        ids, right = rows.row(begin + row).tolist(), expected.row(row).tolist()
                        text, place = batch.text(begin + row), (name, report.documents + begin + row)
                        report.differences.append(_difference(place, text, ids, right, stages, by_name[name]))
        report.documents += len(batch)
        report.bytes += batch.byte_count
    report.hashes = {name: f"{int(state):016x}" for name, state in states.items()}
    return report


def _reference_rows(stages: ReferenceStages, batch: TextBatch, begin: int, end: int, special: bool) -> Ragged:
    texts = [batch.text(row) for row in range(begin, end)]
    encodings = stages.whole.encode_batch_fast(texts, add_special_tokens=special)
    rows = [np.array(encoding.ids, np.int32) for encoding in encodings]
    return _rows(rows)


def _rows(rows: Any) -> Ragged:
    """Rows of ids in any form, as flat int32 ids and starts."""
    if isinstance(rows, TokenBatch):
        rows = rows.to_host()
    if isinstance(rows, Ragged):
        return Ragged(np.ascontiguousarray(rows.flat, np.int32), rows.starts)
    if hasattr(rows, "ids") and hasattr(rows, "starts"):
        return Ragged(np.ascontiguousarray(rows.ids, np.int32), rows.starts)
    arrays = [np.asarray(row, np.int32) for row in rows]
    starts = starts_of(np.array([len(row) for row in arrays], np.int64))
    return Ragged(np.concatenate([*arrays, np.zeros(0, np.int32)]), starts)


def _check_row_count(name: str, rows: Ragged, batch: TextBatch) -> None:
    if rows.count != len(batch):
        raise AssertionError(f"path {name}: {rows.count} rows of ids for {len(batch)} texts")


def _different_rows(rows: Ragged, begin: int, expected: Ragged) -> Iterator[int]:
    end = begin + expected.count
    same_lengths = np.array_equal(np.diff(rows.starts[begin : end + 1]), np.diff(expected.starts))
    if same_lengths and np.array_equal(_flat(rows, begin, end), expected.flat):
        return
    for row in range(expected.count):
        if not np.array_equal(rows.row(begin + row), expected.row(row)):
            yield row


def _flat(rows: Ragged, begin: int, end: int) -> Ids:
    return rows.flat[rows.starts[begin] : rows.starts[end]]


def _difference(
    place: tuple[str, int], text: str, ids: list[int], expected: list[int], stages: ReferenceStages, path: Path
) -> Difference:
    at = first_difference(ids, expected)
    origin: Origin = find_origin(text, ids, expected, stages, path.show, path.whole)
    return Difference(
        path=place[0],
        document=place[1],
        position=at,
        id=ids[at] if at < len(ids) else None,
        expected_id=expected[at] if at < len(expected) else None,
        stage=origin.stage,
        detail=origin.detail,
        inferred=origin.inferred,
        shown=_shown(text, expected, at, stages),
    )


def _shown(text: str, expected: list[int], at: int, stages: ReferenceStages) -> str:
    """The text around the token at which the ids differ first, that token between `>>>` and `<<<`."""
    body = stages.whole.encode(text, add_special_tokens=False)
    around = find_inside(expected, body.ids)
    at -= len(around[0]) if around else 0
    begin, end = body.offsets[at] if 0 <= at < len(body.offsets) else (0, 0) if at < 0 else (len(text), len(text))
    head, tail = max(0, begin - _CONTEXT), min(len(text), end + _CONTEXT)
    end = min(end, begin + 2 * _CONTEXT)
    marked = f"{visible(text[head:begin])}>>>{visible(text[begin:end])}<<<{visible(text[end : end + _CONTEXT])}"
    return f"{'…' if head else ''}{marked}{'…' if tail < len(text) else ''}"
