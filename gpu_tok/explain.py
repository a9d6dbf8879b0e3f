"""What each stage makes of one text, in the reference's words, and where gpu_tok cuts it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpu_tok.batch import TextBatch
from gpu_tok.errors import TextError, TextTypeError
from gpu_tok.stages import ReferenceStages, Section
from gpu_tok.tables.cuts import CutTables, cuts_between

if TYPE_CHECKING:
    from gpu_tok.tokenizer import Tokenizer

CUT, CERTIFIED = "|", "¦"


@dataclass(frozen=True)
class PartGrade:
    """How a part runs: 1 native, 3 the reference; and why it is not better."""

    part: str
    grade: int
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """See `Tokenizer.explain`. Prints as tables with `rich.print`.

    ids: of the whole text, special tokens included, without truncation and padding; tokens: their spelling.
    certified, taken: the bytes of the text before which it may be cut, and before which it is.
    """

    text: str
    sections: tuple[Section, ...]
    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    certified: tuple[int, ...]
    taken: tuple[int, ...]
    grades: tuple[PartGrade, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def render(self) -> RenderableType:
        """The stages as tables, for a Rich console."""
        return Group(self._facts(), self._words()) if self.sections else self._facts()

    def __rich__(self) -> RenderableType:
        return self.render()

    def _facts(self) -> Table:
        table = Table(show_header=False, box=None, pad_edge=False)
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        table.add_row("text", Text(visible(self.text)))
        legend = f"\n{CUT} cut  {CERTIFIED} could be cut" if self.certified or self.taken else ""
        table.add_row("cuts", Text.assemble(self.cut_text(), (legend, "dim")))
        for part in self.grades:
            name = "native" if part.grade == 1 else "the reference"
            table.add_row(part.part, Text("\n".join((f"grade {part.grade}: {name}", *part.reasons))))
        table.add_row("ids", Text(" ".join(map(str, self.ids))))
        table.add_row("tokens", Text(" ".join(visible(token) for token in self.tokens)))
        return table

    def _words(self) -> Table:
        table = Table()
        for heading in ("bytes", "section", "normalized", "word", "pieces", "ids"):
            table.add_column(heading, overflow="fold")
        for section in self.sections:
            place = f"{section.start}:{section.end}"
            if section.added_id is not None:
                table.add_row(place, "added token", "", "", Text(visible(section.normalized)), str(section.added_id))
            lines = [
                (Text(visible(word.text)), Text(_spelled(word.pieces)), _spelled(word.ids)) for word in section.words
            ]
            if section.added_id is None:
                lines = lines or [(Text(""), Text(""), "")]
            for at, line in enumerate(lines):
                head = (place, Text(visible(section.text)), Text(visible(section.normalized))) if at == 0 else ("",) * 3
                table.add_row(*head, *line)
            table.add_section()
        return table

    def cut_text(self) -> str:
        """The text with a mark at each cut: `|` where it is taken, `¦` where it is certified and not taken."""
        raw, taken = self.text.encode(), set(self.taken)
        pieces, begin = [], 0
        for at in sorted({*self.certified, *self.taken}):
            pieces += [visible(raw[begin:at].decode()), CUT if at in taken else CERTIFIED]
            begin = at
        return "".join([*pieces, visible(raw[begin:].decode())])


def explain(tokenizer: Tokenizer, text: str) -> Explanation:
    """What each stage makes of a text; raises `TextError` where it has no UTF-8 form.

    >>> [word.pieces for word in explain(tokenizer, "The cats").sections[0].words]     # bert-base-uncased
    [('the',), ('cats',)]
    """
    _check(text)
    stages = ReferenceStages(tokenizer.definition)
    sections = stages.sections(text)
    encoding = stages.whole.encode(text)
    certified, taken = cut_places(text, sections, tokenizer.cuts)
    grades = (
        PartGrade("cold path", tokenizer.cold.grade, tuple(tokenizer.cold.reasons)),
        PartGrade("decoder", tokenizer.decoder.grade, tuple(tokenizer.decoder.reasons)),
    )
    return Explanation(
        text, tuple(sections), tuple(encoding.ids), tuple(encoding.tokens), tuple(certified), tuple(taken), grades
    )


def _check(text: str) -> None:
    if not isinstance(text, str):
        raise TextTypeError(0, f"is {type(text).__name__}, not str", "explain takes one text")
    try:
        TextBatch.of([text])
    except TextError as error:
        raise TextError(0, error.finding.partition(": ")[2], "repair the text first") from None


def cut_places(text: str, sections: list[Section], cuts: CutTables) -> tuple[list[int], list[int]]:
    """The bytes before which a text may be cut and is cut, both inside sections only."""
    certified: list[int] = []
    taken: list[int] = []
    for section in sections:
        if section.added_id is None:
            inner_certified, inner_taken = inner_cuts(section.text, cuts)
            certified += [section.start + at for at in inner_certified]
            taken += [section.start + at for at in inner_taken]
    return certified, taken


def inner_cuts(section: str, cuts: CutTables) -> tuple[list[int], list[int]]:
    """The same for one section, in bytes of its own."""
    code_point = np.frombuffer(section.encode("utf-32-le"), np.uint32)
    byte = np.cumsum(1 + (code_point >= 0x80) + (code_point >= 0x800) + (code_point >= 0x10000))[:-1]
    certified, taken = cuts_between(code_point, cuts)
    return byte[certified].tolist(), byte[taken].tolist()


def visible(text: str) -> str:
    """A text with what cannot be seen as escapes: `\\n`, `\\u200b`.

    >>> visible("a\\tb")
    'a\\\\tb'
    """
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def _spelled(values: tuple[Any, ...]) -> str:
    return " ".join(visible(str(value)) for value in values)
