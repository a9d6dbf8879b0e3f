"""Normalizer parts -> steps: where each can be cut, and what it makes of both sides (`gpu_tok.tables.images`).

`steps_of(part, where)` gives the steps of one part of `Definition.normalizers`, or raises CannotCompile: then a text is
not cut at all.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from gpu_tok.batch import Ragged, starts_of
from gpu_tok.tables import unicode
from gpu_tok.tables.atoms import Atoms, atoms_of, only
from gpu_tok.tables.charsmap import read_charsmap
from gpu_tok.tables.classes import Pairs
from gpu_tok.tables.definition import Part
from gpu_tok.tables.images import (
    NO_MORE,
    NOTHING,
    CodePoints,
    Step,
    by_code_point,
    deletes,
    ends_of,
    identity,
    ragged,
)
from gpu_tok.tables.refusal import CannotCompile
from gpu_tok.tables.regex import compile_regex
from gpu_tok.tables.unicode import CODE_POINTS, Property, has

EVERYTHING: Property = np.ones(CODE_POINTS, bool)
HANGUL_SYLLABLES, TRAILING = range(0xAC00, 0xD7A4), 28  # each syllable without a trailing jamo begins a row of 28
JAMO = (range(0x1100, 0x1200), range(0xA960, 0xA980), range(0xD7B0, 0xD800))
REGIONAL_INDICATORS = range(0x1F1E6, 0x1F200)


def steps_of(part: Part, where: str) -> list[Step]:
    """The steps of one normalizer part. Raises CannotCompile where it has none."""
    compile_part = _PARTS.get(part["type"])
    if compile_part is None:
        raise CannotCompile(where, f"no cuts are known under `{part['type']}`")
    return list(compile_part(part, where))


def _bert(part: Part, where: str) -> Iterator[Step]:
    if part["clean_text"]:
        yield deletes(where, has("bert_deleted"))
        spaces = np.flatnonzero(has("bert_space"))
        yield by_code_point(where, spaces, Ragged(np.full(len(spaces), 32, np.uint32), np.arange(len(spaces) + 1)))
    if part["handle_chinese_chars"]:
        ideographs = np.flatnonzero(has("bert_cjk"))
        padded = np.full((len(ideographs), 3), 32, np.uint32)
        padded[:, 1] = ideographs
        yield by_code_point(where, ideographs, Ragged(padded.ravel(), np.arange(len(ideographs) + 1) * 3))
    if part["lowercase"] if part["strip_accents"] is None else part["strip_accents"]:
        yield _decomposition(where, "nfd")
        yield deletes(where, has("bert_mark"))
    if part["lowercase"]:
        yield from _lowercase(part, where)


def _lowercase(part: Part, where: str) -> Iterator[Step]:
    yield by_code_point(where, *unicode.image_changes("lowercase"))


def _strip_accents(part: Part, where: str) -> Iterator[Step]:
    yield deletes(where, has("accent"))


def _nfd(part: Part, where: str) -> Iterator[Step]:
    yield _decomposition(where, part["type"].lower())


def _nfc(part: Part, where: str) -> Iterator[Step]:
    yield _composition(where, part["type"].lower(), part["type"].lower().replace("c", "d"))


def _decomposition(where: str, form: str) -> Step:
    """NFD, NFKD: marks are sorted, so no cut before one; behind one any mark may stand last."""
    step = by_code_point(where, *unicode.image_changes(form))
    moves = unicode.combining_class() > 0
    moves_first = moves[step.first.code_point]
    marks = np.flatnonzero(moves).astype(np.uint32)
    last = step.last._replace(set_of=np.where(moves_first, 1, 0).astype(np.int32), sets=(step.last.sets[0], marks))
    return Step(where, step.first, last, step.replaced, step.made, moves_first.astype(np.uint8), _not_before(1, 2))


def _composition(where: str, form: str, decomposed_form: str) -> Step:
    """NFC, NFKC: no cut before a mark or the second of a composition. A first character may become any composed one
    that begins like it; behind a mark or a second, any composed one or any mark may stand last."""
    step = by_code_point(where, *unicode.image_changes(form))
    base_of = by_code_point(where, *unicode.image_changes(decomposed_form)).first.code_point
    joins = (unicode.combining_class() > 0) | has("seconds")
    joins_first = joins[base_of]
    composed = _composed()
    several = _composed_by_base(base_of, composed)
    first = ends_of(several=several)._replace(code_point=step.first.code_point)
    possible = joins.copy()
    possible[composed] = True
    sets = (step.last.sets[0], np.flatnonzero(possible).astype(np.uint32))
    last = step.last._replace(set_of=joins_first.astype(np.int32), sets=sets)
    made = np.union1d(step.made, composed)
    return Step(where, first, last, step.replaced, made, joins_first.astype(np.uint8), _not_before(1, 2))


def _composed() -> CodePoints:
    """All that NFC makes by joining: the composed characters and the Hangul syllables."""
    return np.union1d(unicode.compositions()[:, 2], np.array(HANGUL_SYLLABLES)).astype(np.uint32)


def _composed_by_base(base_of: CodePoints, composed: CodePoints) -> dict[int, CodePoints]:
    """What each code point may become by marks or jamo behind it: composed characters with the same base."""
    syllables = np.array(HANGUL_SYLLABLES, np.uint32)
    bases = base_of[composed]
    order = np.argsort(bases, kind="stable")
    kinds, begins = np.unique(bases[order], return_index=True)
    of_base = dict(zip(kinds.tolist(), np.split(composed[order], begins[1:]), strict=True))
    owners = np.setdiff1d(np.flatnonzero(np.isin(base_of, kinds)), syllables)
    several = {int(owner): of_base[int(base_of[owner])] for owner in owners}
    for begin in range(0, len(syllables), TRAILING):  # only a trailing jamo can join a syllable
        several[int(syllables[begin])] = syllables[begin : begin + TRAILING]
    return several


def _prepend(part: Part, where: str) -> Iterator[Step]:
    made = np.array([ord(c) for c in part["prepend"]], np.uint32)
    yield Step(where, identity(), identity(), made=made, minds_left=EVERYTHING)


def _strip(part: Part, where: str) -> Iterator[Step]:
    """Strip eats white space from the ends, so no cut between two characters that may both be white."""
    white = has("white")
    splits = np.array([[True, True], [True, False]])
    left, right = (white if part[f"strip_{side}"] else None for side in ("left", "right"))
    yield Step(
        where,
        identity(),
        identity(),
        atom_of=white.astype(np.uint8),
        splits=splits,
        minds_left=left,
        minds_right=right,
        strips_left=left,
        strips_right=right,
    )


def _replace(part: Part, where: str) -> Iterator[Step]:
    pattern, content = part["pattern"], part["content"]
    if "String" in pattern:
        yield _replace_literal(where, pattern["String"], content)
    else:
        yield _replace_pattern(where, pattern["Regex"], content)


def _replace_literal(where: str, literal: str, content: str) -> Step:
    """No cut between two characters that are neighbours in the literal."""
    if not literal:
        raise CannotCompile(where, "it replaces the empty text")
    if len(literal) == 1:
        return by_code_point(where, np.array([ord(literal)]), ragged([[ord(c) for c in content]]))
    characters = sorted(set(literal))
    atom_of = np.zeros(CODE_POINTS, np.uint8)
    splits = np.ones((len(characters) + 1, len(characters) + 1), bool)
    for number, character in enumerate(characters[:254], 1):
        atom_of[ord(character)] = number
    for one, other in itertools.pairwise(literal):
        splits[atom_of[ord(one)], atom_of[ord(other)]] = False
    return _may_become(where, only(literal[0]), only(literal[-1]), content, atom_of, splits)


def _replace_pattern(where: str, pattern: str, content: str) -> Step:
    """No cut where a match could run across or a look-ahead minds the end; a match becomes the content."""
    if "$" in content:
        raise CannotCompile(where, f"its content {content!r} may name groups of the pattern")
    automaton = compile_regex(pattern, where)
    atom_of, splits = automaton.atom_of, automaton.independent()
    always = automaton.always_inside()[atom_of]
    may_be = ~automaton.never_inside()[atom_of]
    if not content:
        return _may_become(where, may_be, may_be, content, atom_of, splits)
    members = np.flatnonzero(always)
    rows = np.tile(np.array([ord(c) for c in content], np.uint32), len(members))
    surely = by_code_point(where, members, Ragged(rows, np.arange(len(members) + 1) * len(content)))
    perhaps = _may_become(where, may_be & ~always, may_be & ~always, content, atom_of, splits)
    first = perhaps.first._replace(code_point=surely.first.code_point)
    last = perhaps.last._replace(code_point=surely.last.code_point)
    return Step(where, first, last, always, perhaps.made, atom_of, splits)


def _may_become(where: str, begins: Property, ends: Property, content: str, atom_of: Atoms, splits: Pairs) -> Step:
    """A match that begins (ends) with such a character may become the content, or the character stays."""
    made = np.array([ord(c) for c in content], np.uint32)
    if not content:
        return Step(where, ends_of(vanishing=begins), ends_of(vanishing=ends), NOTHING, made, atom_of, splits)
    first = identity()._replace(set_of=begins.astype(np.int32), sets=(NO_MORE, made[:1]))
    last = identity()._replace(set_of=ends.astype(np.int32), sets=(NO_MORE, made[-1:]))
    return Step(where, first, last, NOTHING, made, atom_of, splits)


def _precompiled(part: Part, where: str) -> Iterator[Step]:
    """Cuts stand at grapheme borders that hold in any context; within a cluster anything may be dropped."""
    try:
        charsmap = read_charsmap(part["precompiled_charsmap"])
    except (ValueError, IndexError) as error:
        raise CannotCompile(where, f"its precompiled_charsmap cannot be read: {error}") from None
    single = {ord(key): value for key, value in charsmap.items() if len(key) == 1}
    longer = {key: value for key, value in charsmap.items() if len(key) > 1}
    if any(has("joins_right")[ord(key[0])] for key in charsmap):
        raise CannotCompile(where, "a key begins with a character that takes the letter behind it into its cluster")
    changed = np.array(sorted(single), np.int64)
    alone = by_code_point(where, changed, ragged([[ord(c) for c in single[c]] for c in changed.tolist()]))
    several: dict[int, CodePoints] = {}
    vanishing = alone.first.set_of != 0
    for key, value in longer.items():
        if not value:
            vanishing[ord(key[0])] = True
        else:
            owner = ord(key[0])
            several[owner] = np.append(several.get(owner, np.zeros(0, np.uint32)), np.uint32(ord(value[0])))
    first = ends_of(vanishing=vanishing, several=several)._replace(code_point=alone.first.code_point)
    # behind CR a LF is dropped; behind anything a mark may be, and then what stands last is the image of what it joined
    behind_return = {10: np.array([ord(c) for c in single.get(13, "\r")[-1:]], np.uint32)}
    vanishes_last = (alone.last.set_of != 0) | has("joins_left")
    vanishes_last[10] |= single.get(13, "\r") == ""
    last = ends_of(vanishing=vanishes_last, several=behind_return)._replace(code_point=alone.last.code_point)
    made = [ord(c) for value in charsmap.values() for c in value]
    atom_of, splits = _clusters()
    yield Step(where, first, last, alone.replaced, np.unique(np.array(made, np.uint32)), atom_of, splits)


def _clusters() -> tuple[npt.NDArray[np.uint8], Pairs]:
    """Between which kinds of characters a grapheme cluster ends in any context; all else counts as inside one."""
    plain = has("white").copy()
    plain[32:127] = True
    hangul, indicators = NOTHING.copy(), NOTHING.copy()
    for jamo in (*JAMO, HANGUL_SYLLABLES):
        hangul[jamo.start : jamo.stop] = True
    indicators[REGIONAL_INDICATORS.start : REGIONAL_INDICATORS.stop] = True
    unsure = has("joins_right") | has("re_Cf") | has("re_Cn")  # joins the next, or another version might have it so
    sets = [plain, only("\r"), only("\n"), has("joins_left"), indicators, hangul, unsure]
    atom_of, (is_plain, carriage, line, joins, indicator, syllable, unsure_atom) = atoms_of(sets)
    splits = ~(joins[None, :] | unsure_atom[None, :] | unsure_atom[:, None])
    splits &= ~(carriage[:, None] & line[None, :])
    splits &= ~(indicator[:, None] & indicator[None, :]) & ~(syllable[:, None] & syllable[None, :])
    splits &= ~joins[:, None] | is_plain[None, :]
    return atom_of.astype(np.uint8), splits


def _nmt(part: Part, where: str) -> Iterator[Step]:
    """`Nmt` looks at one character at a time, so all are asked for in one text."""
    from tokenizers.normalizers import Nmt

    asked = [c for c in unicode.code_points().tolist() if c != ord("a")]
    images = Nmt().normalize_str("a".join(map(chr, asked))).split("a")
    changed = [(c, image) for c, image in zip(asked, images, strict=True) if image != chr(c)]
    yield by_code_point(where, np.array([c for c, _ in changed]), ragged([[*map(ord, image)] for _, image in changed]))


def _byte_level(part: Part, where: str) -> Iterator[Step]:
    """Each byte becomes a character of its own; asked for in one text."""
    from tokenizers.normalizers import ByteLevel

    asked = unicode.code_points()
    made = np.frombuffer(ByteLevel().normalize_str("".join(map(chr, asked))).encode("utf-32-le"), np.uint32)
    byte_count = 1 + (asked >= 0x80).astype(np.int64) + (asked >= 0x800) + (asked >= 0x10000)
    yield by_code_point(where, asked, Ragged(made, starts_of(byte_count)))


def _not_before(atom: int, atoms: int) -> Pairs:
    splits = np.ones((atoms, atoms), bool)
    splits[:, atom] = False
    return splits


_PARTS: dict[str, Callable[[Part, str], Iterator[Step]]] = {
    "BertNormalizer": _bert,
    "Lowercase": _lowercase,
    "StripAccents": _strip_accents,
    "NFD": _nfd,
    "NFKD": _nfd,
    "NFC": _nfc,
    "NFKC": _nfc,
    "Prepend": _prepend,
    "Strip": _strip,
    "Replace": _replace,
    "Precompiled": _precompiled,
    "Nmt": _nmt,
    "ByteLevel": _byte_level,
}
