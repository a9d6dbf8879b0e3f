"""What a tokenizer is made of: sizes, grades and their reasons, cuts, and memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import tokenizers
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from gpu_tok.explain import visible
from gpu_tok.tables.added_tokens import BY_SUSPICION
from gpu_tok.tables.cuts import CutTables
from gpu_tok.tables.thirds import Three
from gpu_tok.tables.variants import normalized_tokens

if TYPE_CHECKING:
    from gpu_tok.tokenizer import Tokenizer

GRADES = {1: "native", 3: "reference"}
TOKENS_SHOWN = 8


@dataclass(frozen=True)
class Grade:
    """How a part runs, and why it is not better."""

    grade: int
    name: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cuts:
    """The classes of code points, with a sample of each, and the class pairs that are cut.

    Pairs are (class before, class behind). Where asked, it depends on the two characters; where asked in runs, also on
    what stands before the run that they are in (`gpu_tok.tables.runs`). behind, before: (first, middle, last), the
    classes of three characters in a row, the middle one ASCII; a cut stands between the first two since the last one is
    behind them, or between the last two since the first one is before them (`gpu_tok.tables.thirds`). Each is empty if
    there are none.
    """

    classes: tuple[str, ...]
    certified: tuple[tuple[int, int], ...]
    taken: tuple[tuple[int, int], ...]
    asked: tuple[tuple[int, int], ...]
    asked_in_runs: tuple[tuple[int, int], ...]
    behind: tuple[tuple[int, ...], ...]
    before: tuple[tuple[int, ...], ...]
    flags: int
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Info:
    """See `Tokenizer.info`. Prints as a table with `rich.print`.

    by_reference: which texts, or parts of them, the reference encodes whole, whatever the grade of `encode`; no entry
    where there are none.
    """

    model: str
    fingerprint: str
    reference: str
    device: str
    device_reason: str
    small_batch_bytes: int
    workers: int
    vocabulary: int
    added_tokens: int
    normalizer: tuple[str, ...]
    pre_tokenizer: tuple[str, ...]
    post_processor: str
    decoder_type: str
    encode: Grade
    decode: Grade
    by_reference: tuple[str, ...]
    cuts: Cuts
    table_bytes: int
    table_bytes_used: int
    table_rows_used: int
    generation: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._facts()
        yield self._cut_pairs()

    def _facts(self) -> Table:
        table = Table(show_header=False, box=None, pad_edge=False)
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        rows = [
            ("model", f"{self.model}, {self.vocabulary:,} pieces, {self.added_tokens:,} added tokens"),
            ("normalizer", ", ".join(self.normalizer) or "none"),
            ("pre_tokenizer", ", ".join(self.pre_tokenizer) or "none"),
            ("post_processor", self.post_processor),
            ("decoder", self.decoder_type),
            ("device", self._device_summary()),
            ("encode", _grade_summary(self.encode)),
            ("decode", _grade_summary(self.decode)),
            ("by reference", "\n".join(self.by_reference)),
            ("cuts", self._cut_summary()),
            ("table", self._table_summary()),
            ("fingerprint", self.fingerprint),
            ("reference", self.reference),
        ]
        for name, value in rows:
            if value:
                table.add_row(name, Text(value))  # as it is: `[a-z]` in a reason is no markup
        return table

    def _device_summary(self) -> str:
        line = f"{self.device} ({self.device_reason}), {self.workers} workers"
        return f"{line}\n{small}" if (small := small_batches(self.small_batch_bytes)) else line

    def _cut_summary(self) -> str:
        count = len(self.cuts.classes)
        line = f"{count} classes, {len(self.cuts.certified)} pairs certified, {len(self.cuts.taken)} taken"
        if self.cuts.asked:
            line += f", {len(self.cuts.asked)} asked of the two characters"
        if self.cuts.asked_in_runs:
            line += f", {len(self.cuts.asked_in_runs)} so in runs"
        return "\n".join((line, *self._third_lines(), *self.cuts.reasons))

    def _third_lines(self) -> Iterator[str]:
        """Which classes are cut where a third character decides: first, middle, last, and a `|` at the cut."""
        behind, before = ([" ".join(map(str, part)) for part in kind] for kind in (self.cuts.behind, self.cuts.before))
        if behind:
            yield "by a third one behind: {} | {}, {}".format(*behind)
        if before:
            yield "by a third one before: {}, {} | {}".format(*before)

    def _table_summary(self) -> str:
        used, budget = self.table_bytes_used / 2**20, self.table_bytes / 2**20
        return f"{self.table_rows_used:,} chunks, {used:.1f} of {budget:.0f} MiB, generation {self.generation}"

    def _cut_pairs(self) -> Table:
        """A square of class pairs: C certified and taken, c certified only, ? asked, r so in runs, a dot for none."""
        title = "cuts (row | column): C taken, c certified, ? asked, r asked in runs"
        table = Table(title=title, box=None, pad_edge=False, title_justify="left")
        table.add_column("class", style="bold")
        for index in range(len(self.cuts.classes)):
            table.add_column(str(index), justify="center")
        table.add_column("like")
        for row, sample in enumerate(self.cuts.classes):
            marks = [self._mark(row, column) for column in range(len(self.cuts.classes))]
            table.add_row(str(row), *marks, sample)
        return table

    def _mark(self, row: int, column: int) -> str:
        pair = (row, column)
        cuts = self.cuts
        kinds = (("C", cuts.taken), ("c", cuts.certified), ("?", cuts.asked), ("r", cuts.asked_in_runs))
        return next((mark for mark, pairs in kinds if pair in pairs), "·")


def small_batches(byte_count: int) -> str:
    """What happens to small batches, in words; "" where nothing special does.

    >>> small_batches(1 << 20)
    'batches under 1,048,576 bytes of text go to the CPU'
    """
    return f"batches under {byte_count:,} bytes of text go to the CPU" if byte_count else ""


def _grade_summary(part: Grade) -> str:
    return "\n".join((f"grade {part.grade}: {part.name}", *part.reasons))


def info_of(tokenizer: Tokenizer) -> Info:
    """Collects what `Tokenizer.info` shows."""
    definition, cold, decoder, used = tokenizer.definition, tokenizer.cold, tokenizer.decoder, tokenizer.table_use()
    return Info(
        model=definition.model["type"],
        fingerprint=definition.fingerprint,
        reference=f"tokenizers {tokenizers.__version__}",
        device=tokenizer.device.name,
        device_reason=tokenizer.device.reason,
        small_batch_bytes=tokenizer.small_batch_bytes,
        workers=tokenizer.workers.count,
        vocabulary=len(definition.vocab),
        added_tokens=len(definition.added_tokens),
        normalizer=tuple(part["type"] for part in definition.normalizers),
        pre_tokenizer=tuple(part["type"] for part in definition.pre_tokenizers),
        post_processor=_type_of(definition.post_processor),
        decoder_type=_type_of(definition.decoder),
        encode=_grade(tokenizer, cold.grade, cold.reasons),
        decode=_grade(tokenizer, decoder.grade, decoder.reasons),
        by_reference=tuple(_by_reference(tokenizer)),
        cuts=_cuts(tokenizer.cuts),
        table_bytes=tokenizer.table.budget,
        table_bytes_used=used.bytes,
        table_rows_used=used.rows,
        generation=used.generation,
    )


def _grade(tokenizer: Tokenizer, grade: int, reasons: Sequence[str]) -> Grade:
    """On a device, what only the reference can do is brought to the host for it."""
    leaves = grade == 3 and tokenizer.device.handle is not None
    return Grade(grade, f"{GRADES[grade]}, on the host" if leaves else GRADES[grade], tuple(reasons))


def _by_reference(tokenizer: Tokenizer) -> Iterator[str]:
    """What the reference encodes whole, in words (`gpu_tok.whole`, `ends.WHOLE`)."""
    if tokenizer.goes_whole:
        yield f"all texts: {tokenizer.goes_whole}"
    tokens, normalized_pass = normalized_tokens(tokenizer.definition), tokenizer.added_tokens.normalized_pass
    if tokens and tokenizer.definition.normalizers:
        shown = ", ".join(_spelled(token["content"]) for token in tokens[:TOKENS_SHOWN])
        more = f" and {len(tokens) - TOKENS_SHOWN} more" if len(tokens) > TOKENS_SHOWN else ""
        when = "that, normalized, hold" if normalized_pass == BY_SUSPICION else "in which normalization makes or alters"
        yield f"sections {when} an added token with `normalized: true`: {shown}{more}"


def _spelled(content: str) -> str:
    return f"{len(content)} spaces" if set(content) == {" "} else repr(content)


def _type_of(part: dict[str, Any] | None) -> str:
    return "none" if part is None else part["type"]


def _cuts(tables: CutTables) -> Cuts:
    classes = tuple(_sample(tables, index) for index in range(len(tables.certified)))
    in_runs = np.zeros_like(tables.asked) if tables.runs is None else tables.runs.asked
    certified, taken, asked, asked_in_runs = (
        tuple((int(left), int(right)) for left, right in np.argwhere(pairs))
        for pairs in (tables.certified, tables.taken, tables.asked, in_runs)
    )
    behind, before = (_members(three) for three in tables.thirds or (None, None))
    return Cuts(classes, certified, taken, asked, asked_in_runs, behind, before, tables.flags, tables.reasons)


def _members(three: Three | None) -> tuple[tuple[int, ...], ...]:
    if three is None or not three.middle.any():
        return ()
    return tuple(tuple(np.flatnonzero(part).tolist()) for part in three)


def _sample(tables: CutTables, index: int) -> str:
    members = np.flatnonzero(tables.class_of == index)
    members = members[(members < 0xD800) | (members > 0xDFFF)]
    shown = ["space" if member == ord(" ") else visible(chr(member)) for member in members[:12]]
    noun = "code point" if len(members) == 1 else "code points"
    return f"{' '.join(shown)}{' ...' if len(members) > 12 else ''} ({len(members):,} {noun})"
