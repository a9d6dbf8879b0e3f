"""Pre-tokenizer parts -> splitters: where a text may be cut so that a part makes the same words of both sides.

A pre-tokenizer is a sequence of parts, and each part sees the words of the part before as whole texts. A cut between
two characters is harmless to a sequence if, for some part k, it is independent at every part up to k and always a
boundary at part k: then the parts behind k never see both sides at once.

    Digits(individual_digits=False) on "a1 b":   a | 1 | ' b'
    atom_of                                      0   1   0 0      0: no digit, 1: a digit
    boundary[0, 1], boundary[1, 0]               True;  boundary[0, 0], boundary[1, 1] False: no cut is certain there
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gpu_tok.tables import regex, unicode
from gpu_tok.tables.atoms import Atoms, atoms_of, only
from gpu_tok.tables.automaton import Runs, Triples
from gpu_tok.tables.classes import Pairs
from gpu_tok.tables.definition import Part
from gpu_tok.tables.pairs import unspaced
from gpu_tok.tables.refusal import CannotCompile
from gpu_tok.tables.unicode import Property

GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class Splitter:
    """One part of a pre-tokenizer, over atoms: the classes of code points that it cannot tell apart.

    atom_of: uint8 or uint16[0x110000], of the characters that this part is given.
    independent: bool[n, n]. [a, b] says that the part makes the same of the texts `x a` and `b y` as of `x a b y`,
    whatever x and y are, but for a word that may run across the cut where that is no boundary.
    harmless: bool[n, n], more than `independent`: also where a match runs across that the parts divide in two.
    runs: what more is harmless where it is known what stands before a run of unspaced characters.
    boundary: bool[n, n]. [a, b] says that no word runs across the cut, given that the cut is independent.
    together: bool[n, n]. [a, b] says that never a word ends between them; both are in it.
    if_behind, if_before: bool[n, n, n], where the part is independent if a third character is known
    (`Automaton.independent_if_behind`, `Automaton.independent_if_before`); None where that tells nothing more.
    prefix: what the part puts before a word that it is given, unless the word begins with it; "" if nothing.
    prefix_scheme: "always" (before every word that the part before made, so before the first word behind some cuts) or
    "first" (at byte 0 of the document only).
    replaces: (c, d): the parts behind see the code point d in the place of c.
    makes_bytes: the parts behind see bytes as characters; their splitters say nothing about characters.
    """

    where: str
    atom_of: Atoms
    independent: Pairs
    harmless: Pairs
    runs: Runs
    boundary: Pairs
    together: Pairs
    if_behind: Triples | None = None
    if_before: Triples | None = None
    prefix: str = ""
    prefix_scheme: Literal["always", "first", "never"] = "never"
    replaces: tuple[int, int] | None = None
    makes_bytes: bool = False


def splitter_of(part: Part, where: str) -> Splitter:
    """The splitter of one part of `Definition.pre_tokenizers`; `where` names its place in tokenizer.json.

    Raises CannotCompile where it has none: then nothing is known about cuts behind the part before.
    """
    compile_part = _PARTS.get(part["type"])
    if compile_part is None:
        raise CannotCompile(where, f"no cuts are known for `{part['type']}`")
    return compile_part(part, where)


def _bert(part: Part, where: str) -> Splitter:
    """White space is removed, each punctuation character is a word."""
    apart = unicode.has("bert_whitespace") | unicode.has("bert_punctuation")
    return _by_character(where, [apart], lambda apart: apart[0][:, None] | apart[0][None, :])


def _whitespace(part: Part, where: str) -> Splitter:
    r"""`\w+|[^\w\s]+`: runs of one kind; white space is removed."""
    sets = [unicode.has("whitespace_w"), unicode.has("whitespace_s")]

    def boundary(kinds: list[Pairs]) -> Pairs:
        word, white = kinds
        return (word[:, None] != word[None, :]) | white[:, None] | white[None, :]

    return _by_character(where, sets, boundary)


def _whitespace_split(part: Part, where: str) -> Splitter:
    return _by_predicate(where, unicode.has("white"), "Removed")


def _punctuation(part: Part, where: str) -> Splitter:
    return _by_predicate(where, unicode.has("punctuation"), part["behavior"])


def _digits(part: Part, where: str) -> Splitter:
    return _by_predicate(where, unicode.has("numeric"), "Isolated" if part["individual_digits"] else "Contiguous")


def _char_delimiter(part: Part, where: str) -> Splitter:
    return _by_predicate(where, only(part["delimiter"]), "Removed")


def _metaspace(part: Part, where: str) -> Splitter:
    """' ' becomes the replacement, and with `split` a word begins before every replacement."""
    replacement = part["replacement"]
    marks = only(" " + replacement) if part["split"] else only("")
    return _by_predicate(
        where,
        marks,
        "MergedWithNext",
        prefix=replacement,
        prefix_scheme=part["prepend_scheme"],
        replaces=(ord(" "), ord(replacement)),
    )


def _byte_level(part: Part, where: str) -> Splitter:
    added: dict[str, Any] = {"makes_bytes": True}
    if part["add_prefix_space"]:
        added |= {"prefix": " ", "prefix_scheme": "always"}
    if part["use_regex"]:
        return _by_automaton(where, regex.compile_regex(GPT2_PATTERN, where), "Isolated", False, **added)
    return _by_predicate(where, only(""), "Isolated", **added)


def _split(part: Part, where: str) -> Splitter:
    pattern = part["pattern"]
    if "String" in pattern:
        automaton = regex.compile_literal(pattern["String"], where)
    else:
        automaton = regex.compile_regex(pattern["Regex"], where)
    return _by_automaton(where, automaton, part["behavior"], part["invert"])


_PARTS: dict[str, Callable[[Part, str], Splitter]] = {
    "BertPreTokenizer": _bert,
    "Whitespace": _whitespace,
    "WhitespaceSplit": _whitespace_split,
    "Punctuation": _punctuation,
    "Digits": _digits,
    "CharDelimiterSplit": _char_delimiter,
    "Metaspace": _metaspace,
    "ByteLevel": _byte_level,
    "Split": _split,
}


def _by_predicate(where: str, matched: Property, behavior: str, **added: Any) -> Splitter:
    """A splitter that matches each character of a set alone."""
    return _by_character(where, [matched], lambda kinds: boundaries(kinds[0], ~kinds[0], behavior), **added)


def _by_character(where: str, sets: list[Property], boundary: Callable[[list[Pairs]], Pairs], **added: Any) -> Splitter:
    """A splitter that looks at one character, or at the kinds of two neighbours: independent everywhere."""
    atom_of, members = atoms_of(sets)
    pairs = boundary(list(members))
    everywhere = np.ones_like(pairs)
    runs = Runs(everywhere[0], everywhere, everywhere)
    return Splitter(where, atom_of, everywhere, everywhere, runs, pairs, ~pairs, **added)


def _by_automaton(where: str, automaton: regex.Automaton, behavior: str, invert: bool, **added: Any) -> Splitter:
    outside = automaton.never_inside()
    pairs = boundaries(automaton.always_inside(), outside, behavior, invert)
    together = np.outer(outside, outside) & (behavior != "Removed" or not invert)
    weight = np.bincount(automaton.atom_of[unspaced()], minlength=len(pairs))
    harmless, runs = automaton.harmless(), automaton.runs(weight)
    return Splitter(
        where,
        automaton.atom_of,
        automaton.independent(),
        harmless,
        runs,
        pairs,
        together,
        automaton.independent_if_behind(),
        automaton.independent_if_before(),
        **added,
    )


def boundaries(inside: Pairs, outside: Pairs, behavior: str, invert: bool = False) -> Pairs:
    """Where a word always ends, given that no match runs across: bool[n, n].

    inside, outside: bool[n], the atoms that are always, and those that are never, inside a match.

        behavior            a|b is a boundary if
        Isolated, Removed   a or b is inside: each match is apart. Removed, inverted: always, what lies between matches
                            is dropped
        Contiguous          one of them is inside, the other outside: neighbouring matches are one word
        MergedWithPrevious  a is inside: a match ends its word. Inverted, b is: what lies between ends its word
        MergedWithNext      b is inside, inverted a
    """
    first, second = inside[:, None], inside[None, :]
    every = np.ones((len(inside), len(inside)), bool)
    if behavior == "Removed" and invert:
        return every
    if behavior in ("Isolated", "Removed"):
        return first | second
    if behavior == "Contiguous":
        return (first & outside[None, :]) | (outside[:, None] & second)
    return every & (first if (behavior == "MergedWithPrevious") != invert else second)
