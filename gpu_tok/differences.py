"""Where a difference began: the first stage of a text at which a path and the reference part.

A path that shows its stages is compared stage by stage; of one that shows only ids, the ids are all there is to judge
by, and the finding is marked as inferred.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cpu_ref import cold, cold_bpe
from gpu_tok import added_tokens
from gpu_tok.batch import Ragged, TextBatch, starts_of
from gpu_tok.explain import inner_cuts, visible
from gpu_tok.stages import ReferenceStages, Section
from gpu_tok.tables import ends
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.native import NativeBpe, NativeTables

if TYPE_CHECKING:
    from gpu_tok.tokenizer import Tokenizer

ADDED = "added/special tokens"
NORMALIZATION = "Unicode normalization"
WORDS = "word boundaries"
MATCHING = "matching"
UNKNOWN = "unknown handling"
CUTS = "cuts"  # chunks do not put together what the whole section is
INTERNING = "interning"  # all stages are right, and the path gives other ids: table, placing or gathering
STAGES = (ADDED, NORMALIZATION, WORDS, MATCHING, UNKNOWN, CUTS, INTERNING)

_MOST_SPECIALS = 64  # special tokens that a template may put before a text


class Part(NamedTuple):
    """What a path made of a part of a text: an added token, or text with its stages (None: not shown).

    start, end: bytes. holds_tokens: a part of text in which added tokens were found later, among its ids.
    """

    start: int
    end: int
    added_id: int | None
    normalized: str | None
    words: tuple[str, ...] | None
    ids: tuple[int, ...]
    holds_tokens: bool = False


@dataclass(frozen=True)
class Origin:
    """stage: one of `STAGES`; detail: what was found there; inferred: from the ids alone."""

    stage: str
    detail: str
    inferred: bool = False


Show = Callable[[str], list[Part]]


class CpuStages:
    """The stages of the CPU path, by the tables and kernels that it runs itself."""

    def __init__(self, tokenizer: Tokenizer, cuts: bool = True) -> None:
        """cuts: False takes every section as one chunk."""
        self._tokenizer = tokenizer
        self._cuts = cuts

    def __call__(self, text: str) -> list[Part]:
        batch = TextBatch.of([text])
        found = added_tokens.find_sections(batch.bytes, batch.starts, self._tokenizer.added_tokens)
        parts = []
        for start, end, token_id, flags in zip(
            found.start.tolist(), found.end.tolist(), found.id.tolist(), found.flags.tolist(), strict=True
        ):
            if token_id == added_tokens.TEXT:
                parts.append(self._part(batch.bytes[start:end].tobytes(), start, flags))
            else:
                parts.append(Part(start, end, token_id, None, None, (token_id,)))
        return parts

    def _part(self, section: bytes, start: int, flags: int) -> Part:
        end = start + len(section)
        if flags & ends.WHOLE or self._tokenizer.cold.native is None:
            places = [] if flags & ends.WHOLE else self._places(section)
            ids = self._tokenizer.cold.encode(*_chunks(section, places, flags)).flat
            return Part(start, end, None, None, None, tuple(ids.tolist()), bool(flags & ends.WHOLE))
        tables = self._tokenizer.cold.native
        chunks, chunk_flags = _chunks(section, self._places(section), flags)
        shown = [_shown(chunks.row(row).tobytes(), flag, tables) for row, flag in enumerate(chunk_flags.tolist())]
        texts, words, rows = zip(*shown, strict=True)
        parts = [*chain(*words)]
        _text, undivided, _ids = _shown(section, flags, tables)
        if "".join(parts) == "".join(undivided):  # a cut inside a word is none of the pre-tokenizer's
            parts = [*undivided]
        return Part(start, end, None, "".join(texts), tuple(parts), tuple(chain(*rows)))

    def _places(self, section: bytes) -> list[int]:
        return inner_cuts(section.decode(), self._tokenizer.cuts)[1] if self._cuts else []


def find_origin(
    text: str, ids: list[int], expected: list[int], reference: ReferenceStages, show: Show | None, whole: Show | None
) -> Origin:
    """The stage at which a path's ids began to differ from the expected ones.

    show: the path's stages; whole: the same without cuts. Raises nothing: what cannot be shown is inferred.
    """
    body = reference.ids(text, add_special_tokens=False)
    around = find_inside(ids, body)
    if around is not None and {*around[0], *around[1]} <= _added_ids(reference.definition):
        right = find_inside(expected, body) or ([], [])
        ours, theirs = (f"{before} before and {behind} behind" for before, behind in (around, right))
        return Origin(ADDED, f"the text's own ids are right, with {ours}, not {theirs}")
    sections = reference.sections(text)
    if show is None:
        return _infer(ids, expected, reference)
    found = _first_difference(show(text), sections, reference.definition)
    if found is None:
        return Origin(INTERNING, "every stage gives the reference's result; the table, placing or gathering does not")
    if found.stage != ADDED and whole is not None:
        undivided = _first_difference(whole(text), sections, reference.definition)
        if undivided is None:
            return Origin(CUTS, f"in one piece the section is right; in chunks: {found.detail}")
    return found


def _first_difference(parts: list[Part], sections: list[Section], definition: Definition) -> Origin | None:
    opaque = [part for part in parts if part.holds_tokens]
    expected_tokens = [
        (section.start, section.end, section.added_id)
        for section in sections
        if section.added_id is not None and not any(part.start <= section.start < part.end for part in opaque)
    ]
    tokens = [(part.start, part.end, part.added_id) for part in parts if part.added_id is not None]
    if tokens != expected_tokens:
        return Origin(ADDED, _first_of("token (start, end, id)", tokens, expected_tokens))
    for part in parts:
        if part.added_id is None:
            inside = [section for section in sections if _lies_in(section, part)]
            origin = _compare(part, inside, definition)
            if origin is not None:
                return origin
    return None


def _lies_in(section: Section, part: Part) -> bool:
    return part.start <= section.start < part.end or (section.start, section.end) == (part.start, part.end)


def _compare(part: Part, sections: list[Section], definition: Definition) -> Origin | None:
    normalized = "".join(section.normalized for section in sections)
    words = [word for section in sections for word in section.words]
    if part.normalized is not None and part.normalized != normalized:
        return Origin(NORMALIZATION, _first_of("normalized text", part.normalized, normalized))
    spelled = [word.text for word in words]
    if part.words is not None and list(part.words) != spelled:
        return Origin(WORDS, _first_of("word", part.words, spelled))
    expected: list[int] = []
    for section in sections:
        expected += [section.added_id] if section.added_id is not None else []
        expected += [piece_id for word in section.words for piece_id in word.ids]
    if list(part.ids) == expected:
        return None
    if part.words is None and not part.holds_tokens:
        return Origin(CUTS, _first_of("id", part.ids, expected))
    stage = UNKNOWN if _unknown_parts(part.ids, expected, definition) else MATCHING
    return Origin(stage, _first_of("id", part.ids, expected))


def _infer(ids: list[int], expected: list[int], reference: ReferenceStages) -> Origin:
    """Judges by the ids alone, in the window where they differ."""
    definition = reference.definition
    left, right = _window(ids, expected)
    detail = f"ids {left[:8]} in the place of {right[:8]}"
    if _unknown_parts(left, right, definition):
        return Origin(UNKNOWN, detail, inferred=True)
    added = _added_ids(definition) - {unknown_id(definition)}
    if [token for token in left if token in added] != [token for token in right if token in added]:
        return Origin(ADDED, detail, inferred=True)
    ours, theirs = (reference.whole.decode(row, skip_special_tokens=False) for row in (ids, expected))
    if ours == theirs:
        return Origin(MATCHING, detail, inferred=True)
    stage = WORDS if "".join(ours.split()) == "".join(theirs.split()) else NORMALIZATION
    return Origin(stage, f"{detail}; decoded, character {_first_of('', ours, theirs).strip()}", inferred=True)


def unknown_id(definition: Definition) -> int | None:
    """The id of the model's unknown token."""
    if "unk_id" in definition.model:
        return definition.model["unk_id"]
    token = definition.model.get("unk_token")
    return None if token is None else definition.reference.token_to_id(token)


def _unknown_parts(left: tuple[int, ...] | list[int], right: list[int], definition: Definition) -> bool:
    """Is there an unknown on one side only, where two rows differ, or is it another one."""
    unknown = unknown_id(definition)
    ours, theirs = _window(list(left), right)
    return unknown is not None and (unknown in ours) != (unknown in theirs)


def _window(left: list[int], right: list[int]) -> tuple[list[int], list[int]]:
    """Both rows without what they begin and end with alike."""
    begin = first_difference(left, right)
    tail = first_difference(left[begin:][::-1], right[begin:][::-1])
    return left[begin : len(left) - tail], right[begin : len(right) - tail]


def find_inside(ids: list[int], body: list[int]) -> tuple[list[int], list[int]] | None:
    """What stands before and behind `body` in `ids`; None if it is not there within the first `_MOST_SPECIALS`."""
    for begin in range(min(len(ids) - len(body), _MOST_SPECIALS) + 1):
        if ids[begin : begin + len(body)] == body:
            return ids[:begin], ids[begin + len(body) :]
    return None


def _added_ids(definition: Definition) -> set[int]:
    return {token["id"] for token in definition.added_tokens}


def first_difference(left: object, right: object) -> int:
    """The first index at which two sequences differ; the length of the shorter one where it begins the other."""
    pairs = enumerate(zip(left, right, strict=False))  # type: ignore[call-overload]
    return next((at for at, (one, other) in pairs if one != other), min(len(left), len(right)))  # type: ignore[arg-type]


def _first_of(what: str, actual: object, expected: object) -> str:
    at = first_difference(actual, expected)
    ours, theirs = (values[at : at + (12 if isinstance(values, str) else 1)] for values in (actual, expected))  # type: ignore[index]
    shown = [visible(str(values if isinstance(values, str) else list(values))) for values in (ours, theirs)]
    return f"{what} {at}: {shown[0] or 'nothing'}, not {shown[1] or 'nothing'}"


def _shown(chunk: bytes, flags: int, tables: NativeTables | NativeBpe) -> tuple[str, Sequence[str], list[int]]:
    """The normalized text, the words and the ids of one chunk."""
    if isinstance(tables, NativeBpe):
        by_stages = cold_bpe.trace(chunk, flags, tables)
        return by_stages.text, by_stages.words, by_stages.ids.tolist()
    made = cold.trace(chunk, tables)
    return made.text, [made.text[start:end] for start, end in made.word.tolist()], made.ids.tolist()


def _chunks(section: bytes, places: list[int], flags: int) -> tuple[Ragged, np.ndarray]:
    """A section as chunks, each with the flags of the ends that it has."""
    counts = np.diff([0, *places, len(section)])
    row_flags = np.zeros(len(counts), np.uint8)
    row_flags[0] |= flags & ~ends.SECTION_LAST
    row_flags[-1] |= flags & ends.SECTION_LAST
    return Ragged(np.frombuffer(section, np.uint8), starts_of(counts)), row_flags
