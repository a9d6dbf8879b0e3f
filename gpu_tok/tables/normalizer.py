"""The normalizer as a small program over a buffer of code points.

Each part is a row of steps: a *map* makes a few code points of each one, by itself; *reorder* sorts the marks behind a
base; *compose* joins pairs; *replace* writes a text for each match of a pattern; *strip* and *prepend* act at an end of
a text. Neighbouring maps are fused, so BERT uncased is three steps:

    BertNormalizer                   clean, pad CJK, take apart | reorder | delete marks, lowercase
    NFC                              take apart | reorder | compose
    Prepend "▁", Replace " " by "▁"  prepend | map
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_tok.tables import ends, unicode
from gpu_tok.tables.atoms import only
from gpu_tok.tables.automaton import Automaton
from gpu_tok.tables.definition import Definition, Part
from gpu_tok.tables.refusal import CannotCompile
from gpu_tok.tables.regex import compile_literal, compile_regex
from gpu_tok.tables.searches import Searches

REORDER, COMPOSE = -1, -2  # steps that are no map
REPLACE, STRIP, PREPEND = -3, -4, -5
ATOMS, FIRST, LAST, TEMPLATE = 0, 1, 2, 3  # columns of `operand`
NEEDS_LEFT, NEEDS_RIGHT = 1, 2  # of a STRIP: the end flag that a text must have for that side, or 0
ITSELF = 0xFFFFFFFF  # in a template: the code point that is mapped
DELETED = 0xFF  # in `ascii`: nothing is left
CLASS, SECOND = 0x3F, 0x80  # in `combining`: the rank of the class; may be the second of a composition
CLASSES = CLASS + 1
PAIR_SLOTS, FIRST_FACTOR, SECOND_FACTOR = 4096, 37, 1031  # of the hash of pairs
SPACE = 0x20


class NormalizerTables(NamedTuple):
    """What `cpu_ref.normalize` reads. Every array is writable and contiguous, so that kernels compile once.

    steps: int64[n]; a map's number, or which other step it is. slot: uint16[maps, 0x110000], the template of each code
    point, 0 where it stays. Template t is template[template_starts[t]:template_starts[t + 1]], uint32 with ITSELF.
    combining: uint8[0x110000], rank of the combining class, and SECOND; uint8[1] where no step looks at it.
    pair: uint32[PAIR_SLOTS, 3], an open hash of (first, second, composed), 0 where free.
    operand: int64[n, 4], of each step: where the pattern of a REPLACE lies, and which template it or PREPEND writes;
    for a STRIP the row of atom_of in which white space is 1, and which end flags it needs. atom_of: uint8[rows,
    0x110000] and step: uint32, all patterns (`gpu_tok.tables.searches`); one element each where there are none.
    ascii: uint8[128], what the whole program makes of each character of an ASCII text, if that can be said of it alone:
    then ascii_end is 0x80, else 0. expansion: at most so many code points come out for each one, after any step.
    """

    steps: npt.NDArray[np.int64]
    slot: npt.NDArray[np.uint16]
    template_starts: npt.NDArray[np.int64]
    template: npt.NDArray[np.uint32]
    combining: npt.NDArray[np.uint8]
    pair: npt.NDArray[np.uint32]
    ascii: npt.NDArray[np.uint8]
    operand: npt.NDArray[np.int64]
    atom_of: npt.NDArray[np.uint8]
    step: npt.NDArray[np.uint32]
    ascii_end: int
    expansion: int


class Map(NamedTuple):
    """A step on single code points: c becomes templates[slot[c]], in which ITSELF stands for c; templates[0] is c."""

    slot: npt.NDArray[np.uint16]
    templates: list[tuple[int, ...]]


class Replace(NamedTuple):
    """A step that writes a text for each match."""

    automaton: Automaton
    content: tuple[int, ...]
    where: str


class Strip(NamedTuple):
    """A step that takes white space from the ends of a text that has the end flags; 0 for a side that stays."""

    needs_left: int
    needs_right: int


class Prepend(NamedTuple):
    """A step that puts a text before one that begins a section, unless that is empty."""

    content: tuple[int, ...]


Step = Map | Replace | Strip | Prepend | int


def compile_normalizer(definition: Definition) -> NormalizerTables:
    """The program of a definition's normalizer. Raises CannotCompile at the first part without a native form.

    >>> compile_normalizer(definition).steps  # of bert-base-uncased
    array([ 0, -1,  1])
    """
    steps: list[Step] = []
    for where, part in definition.parts("normalizer"):
        for step in _steps_of(where, part):
            before = steps[-1] if steps else None
            if isinstance(step, Map) and isinstance(before, Map):
                steps[-1] = _fused(before, step)
            else:
                steps.append(step)
    maps = [step for step in steps if isinstance(step, Map)]
    if sum(len(each.templates) for each in maps) > np.iinfo(np.uint16).max:
        raise CannotCompile("normalizer", "too many different images of code points")
    return _laid_out(steps, maps)


def _steps_of(where: str, part: Part) -> list[Step]:
    match part["type"]:
        case "BertNormalizer":
            return _bert(part)
        case "Lowercase":
            return [_image("lowercase")]
        case "StripAccents":
            return [_deleting("accent")]
        case "NFD" | "NFKD" as form:
            return [_image(form.lower()), REORDER]
        case "NFC" | "NFKC" as form:
            return [_image(form.lower().replace("c", "d")), REORDER, COMPOSE]
        case "Replace":
            return [_replace(part, where)]
        case "Strip":
            return [Strip(ends.SECTION_FIRST * part["strip_left"], ends.SECTION_LAST * part["strip_right"])]
        case "Prepend":
            return [Prepend(_code_points(part["prepend"]))]
        case other:
            raise CannotCompile(where, f"`{other}` has no native form")


def _bert(part: Part) -> list[Step]:
    """The four options in the reference's order; `strip_accents: null` follows `lowercase`."""
    steps: list[Step] = []
    if part["clean_text"]:
        slot = unicode.has("bert_deleted") + unicode.has("bert_space") * np.uint16(2)
        steps.append(Map(slot, [(ITSELF,), (), (SPACE,)]))
    if part["handle_chinese_chars"]:
        steps.append(Map(unicode.has("bert_cjk").astype(np.uint16), [(ITSELF,), (SPACE, ITSELF, SPACE)]))
    strip_accents = part["strip_accents"]
    if part["lowercase"] if strip_accents is None else strip_accents:
        steps += [_image("nfd"), REORDER, _deleting("bert_mark")]
    if part["lowercase"]:
        steps.append(_image("lowercase"))
    return steps


def _replace(part: Part, where: str) -> Step:
    """One character is a map; a longer literal and a pattern are searched for."""
    pattern, content = part["pattern"], _code_points(part["content"])
    if "Regex" in pattern:
        return Replace(compile_regex(pattern["Regex"], where), content, where)
    if len(pattern["String"]) != 1:
        return Replace(compile_literal(pattern["String"], where), content, where)
    return Map(only(pattern["String"]).astype(np.uint16), [(ITSELF,), content])


def _code_points(text: str) -> tuple[int, ...]:
    return tuple(map(ord, text))


def _deleting(name: str) -> Map:
    return Map(unicode.has(name).astype(np.uint16), [(ITSELF,), ()])


def _image(name: str) -> Map:
    changed, rows = unicode.image_changes(name)
    slot = np.zeros(unicode.CODE_POINTS, np.uint16)
    slot[changed] = np.arange(1, len(changed) + 1)
    flat, starts = rows.flat.tolist(), rows.starts.tolist()
    return Map(slot, [(ITSELF,)] + [tuple(flat[begin:end]) for begin, end in pairwise(starts)])


def _fused(first: Map, second: Map) -> Map:
    """One map that does what two do, one behind the other.

    What becomes of c depends on first's template and, where that holds ITSELF, on second's slot for c.
    """
    keeps = np.array([ITSELF in template for template in first.templates])
    key = first.slot * np.int64(len(second.templates)) + keeps[first.slot] * second.slot
    changed = np.flatnonzero(key)
    keys, inverse = np.unique(key[changed], return_inverse=True)
    numbers: dict[tuple[int, ...], int] = {(ITSELF,): 0}
    number_of_key = np.zeros(len(keys), np.int64)
    for index, (of_first, of_second) in enumerate(zip(*divmod(keys, len(second.templates)), strict=True)):
        template = tuple(
            made
            for part in first.templates[of_first]
            for made in (second.templates[of_second] if part == ITSELF else _applied(second, part))
        )
        number_of_key[index] = numbers.setdefault(template, len(numbers))
    if len(numbers) > np.iinfo(np.uint16).max:
        raise CannotCompile("normalizer", "too many different images of code points")
    slot = np.zeros(unicode.CODE_POINTS, np.uint16)
    slot[changed] = number_of_key[inverse]
    return Map(slot, list(numbers))


def _applied(step: Map, code_point: int) -> tuple[int, ...]:
    return tuple(code_point if part == ITSELF else part for part in step.templates[step.slot[code_point]])


def _laid_out(steps: list[Step], maps: list[Map]) -> NormalizerTables:
    """One pool of templates for all steps; template 0 is the unchanged code point of each map."""
    templates: list[tuple[int, ...]] = [(ITSELF,)]
    slot = np.zeros((len(maps), unicode.CODE_POINTS), np.uint16)
    for number, each in enumerate(maps):
        slot[number] = np.where(each.slot == 0, 0, each.slot + np.uint16(len(templates) - 1))
        templates += each.templates[1:]
    searches = Searches()
    map_numbers = iter(range(len(maps)))
    rows = [_row(step, map_numbers, searches, templates) for step in steps]
    ascii = _ascii(steps)
    return NormalizerTables(
        steps=np.array([number for number, _operand in rows], np.int64),
        slot=slot,
        template_starts=np.cumsum([0] + [len(template) for template in templates], dtype=np.int64),
        template=np.array([part for template in templates for part in template], np.uint32),
        combining=_combining() if REORDER in steps else np.zeros(1, np.uint8),
        pair=_pairs() if COMPOSE in steps else np.zeros((1, 3), np.uint32),
        ascii=np.zeros(128, np.uint8) if ascii is None else ascii,
        operand=np.array([operand for _number, operand in rows], np.int64).reshape(len(rows), 4),
        atom_of=searches.atom_of() if searches.count else np.zeros((1, 1), np.uint8),
        step=searches.step(),
        ascii_end=0 if ascii is None else 0x80,
        expansion=math.prod(_growth(step) for step in steps),
    )


def _row(
    step: Step, map_numbers: Iterator[int], searches: Searches, templates: list[tuple[int, ...]]
) -> tuple[int, list[int]]:
    """A step's number and its operand; adds what the operand refers to."""
    if isinstance(step, int):
        return step, [0, 0, 0, 0]
    if isinstance(step, Map):
        return next(map_numbers), [0, 0, 0, 0]
    if isinstance(step, Strip):
        return STRIP, [searches.add_atoms(unicode.has("white")), step.needs_left, step.needs_right, 0]
    templates.append(step.content)
    if isinstance(step, Prepend):
        return PREPEND, [0, 0, 0, len(templates) - 1]
    return REPLACE, [*searches.add(step.automaton, step.where), len(templates) - 1]


def _growth(step: Step) -> int:
    """At most so many code points come of each one."""
    if isinstance(step, Map):
        return max(map(len, step.templates))
    if isinstance(step, Replace):
        return max(1, len(step.content))
    return 1 + len(step.content) if isinstance(step, Prepend) else 1


def _ascii(steps: list[Step]) -> npt.NDArray[np.uint8] | None:
    """What a text of ASCII becomes, character by character, for nothing there moves or composes; None if a character
    becomes more than one of ASCII, or if more than one is looked at."""
    if not all(isinstance(step, (Map, int)) for step in steps):
        return None
    table = np.full(128, DELETED, np.uint8)
    for code_point in range(128):
        image: tuple[int, ...] = (code_point,)
        for each in steps:
            if isinstance(each, Map):
                image = tuple(made for part in image for made in _applied(each, part))
        if len(image) > 1 or any(part >= 128 for part in image):
            return None
        table[code_point] = image[0] if image else DELETED
    return table


def _combining() -> npt.NDArray[np.uint8]:
    return unicode.combining_class() | unicode.has("seconds") * np.uint8(SECOND)


def _pairs() -> npt.NDArray[np.uint32]:
    """The search for a pair begins at its slot and goes on until one is free."""
    pair = np.zeros((PAIR_SLOTS, 3), np.uint32)
    for first, second, composed in unicode.compositions().tolist():
        at = (first * FIRST_FACTOR + second * SECOND_FACTOR) & (PAIR_SLOTS - 1)
        while pair[at, 0]:
            at = (at + 1) & (PAIR_SLOTS - 1)
        pair[at] = first, second, composed
    return pair
