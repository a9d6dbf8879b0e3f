"""The tree of a pattern: what `gpu_tok.tables.regex` takes, read by recursive descent."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

import numpy as np

from gpu_tok.tables.atoms import only
from gpu_tok.tables.regex_sets import SetParser
from gpu_tok.tables.unicode import Property

REFUSED_GROUPS = {
    "(?<=": "look-behind",
    "(?<!": "look-behind",
    "(?>": "an atomic group",
    "(?<": "a named group",
    "(?'": "a named group",
    "(?#": "a comment",
    "(?~": "an absent group",
    "(?(": "a condition",
}
REFUSED_CHARACTERS = {"^": "an anchor", "$": "an anchor", ".": "any character", "*": "a quantifier of nothing"}
REFUSED_CHARACTERS |= {"+": "a quantifier of nothing", "?": "a quantifier of nothing"}
LIGATURES = {"ff", "fi", "fl", "ss", "st"}  # letters that, case ignored, also match one character: ﬀ ﬁ ﬂ ß ﬆ


@dataclass(frozen=True)
class One:
    """One character of a set; `letter` is the lower-case letter that it spells where case is ignored."""

    set: int
    letter: str = ""


@dataclass(frozen=True)
class Look:
    """The next character is of the set, or (negative) is not."""

    set: int
    negative: bool


@dataclass(frozen=True)
class Row:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Either:
    branches: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    body: Node
    least: int
    most: int | None
    possessive: bool = False


Node = One | Look | Row | Either | Repeat


class Parser(SetParser):
    """Reads one pattern. Sets of characters are numbered as they come; equal ones share a number."""

    def __init__(self, pattern: str, where: str) -> None:
        super().__init__(pattern, where)
        self.sets: list[Property] = []
        self._number: dict[bytes, int] = {}

    def parse(self) -> Node:
        node = self._either()
        if self.at < len(self.pattern):
            raise self.refuse("a closing parenthesis without its opening one")
        return node

    def number(self, held: Property) -> int:
        key = np.packbits(held).tobytes()
        if key not in self._number:
            self._number[key] = len(self.sets)
            self.sets.append(held)
        return self._number[key]

    def _either(self) -> Node:
        ignore_case = self.ignore_case
        if self.take("(?i)"):
            self.ignore_case = True
        branches = [self._row()]
        while self.take("|"):
            branches.append(self._row())
        self.ignore_case = ignore_case
        return branches[0] if len(branches) == 1 else Either(tuple(branches))

    def _row(self) -> Node:
        parts: list[Node] = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            parts.append(self._quantified(self._part()))
        if any(_may_be_ligature(left, right) for left, right in itertools.pairwise(parts)):
            raise self.refuse("letters that also match a ligature where case is ignored")
        return Row(tuple(parts))

    def _part(self) -> Node:
        character = self.pattern[self.at]
        if character == "(":
            return self._group()
        if character == "[":
            return One(self.number(self.bracket()))
        if character == "\\":
            return self._one(self.escape())
        if character in REFUSED_CHARACTERS or self._next_quantifier():
            what = REFUSED_CHARACTERS.get(character, "a quantifier of nothing")
            raise self.refuse(f"`{character}` ({what})")
        self.at += 1
        return self._one(character)

    def _one(self, held: str | Property) -> One:
        """A single character by itself, or a class."""
        if not isinstance(held, str):
            if self.ignore_case:
                raise self.refuse("a class of characters where case is ignored")
            return One(self.number(held))
        letter = held.lower() if self.ignore_case and held.isalpha() else ""
        return One(self.number(self.fold(only(held))), letter)

    def _group(self) -> Node:
        for opening, what in REFUSED_GROUPS.items():
            if self.next_is(opening) and not self.next_is("(?:"):
                raise self.refuse(f"`{opening}` ({what})")
        look = self.take_re(r"\(\?([=!])")
        flags = None if look else self.take_re(r"\(\?(i|-i)?:")
        if not look and not flags:
            if self.next_is("(?"):
                raise self.refuse("an unknown kind of group")
            self.at += 1
        ignore_case = self.ignore_case
        if flags and flags[1]:
            self.ignore_case = flags[1] == "i"
        node = self._either()
        self.ignore_case = ignore_case
        if not self.take(")"):
            raise self.refuse("an opening parenthesis without its closing one")
        return self._look(node, negative=look[1] == "!") if look else node

    def _look(self, node: Node, negative: bool) -> Node:
        if self._next_quantifier():
            raise self.refuse("a repeated look-ahead")
        one = self.single(node)
        if one is None:
            raise self.refuse("look-ahead at more than one character")
        return Look(one.set, negative)

    def single(self, node: Node) -> One | None:
        """The node as one character of a set, where it is that."""
        if isinstance(node, Row) and len(node.parts) == 1:
            return self.single(node.parts[0])
        if isinstance(node, Either):
            ones = [self.single(branch) for branch in node.branches]
            held = [self.sets[one.set] for one in ones if one is not None]
            return One(self.number(np.logical_or.reduce(held))) if len(held) == len(ones) else None
        return node if isinstance(node, One) else None

    def _next_quantifier(self) -> re.Match[str] | None:
        return re.compile(r"[?*+]|\{(\d+)(,?)(\d*)\}|\{,(\d+)\}").match(self.pattern, self.at)

    def _quantified(self, node: Node) -> Node:
        found = self._next_quantifier()
        if not found:
            return node
        self.at = found.end()
        least, most = _bounds(found)
        simple = found[0] in "?*+"
        possessive = simple and self.take("+")
        if self.next_is("?"):
            raise self.refuse("a lazy quantifier")
        if self._nullable(node) and found[0] != "?":
            raise self.refuse("a repeated part that can be empty")
        if possessive and self.single(node) is None:
            raise self.refuse("a possessive quantifier behind more than one character")
        if most is not None and most < least:
            raise self.refuse("a quantifier with its bounds exchanged")
        if most != 1 and _may_be_ligature(node, node):
            raise self.refuse("letters that also match a ligature where case is ignored")
        repeat = Repeat(node, least, most, possessive)
        if not simple and self.take("+"):
            repeat = Repeat(repeat, 1, None)
        if self._next_quantifier():
            raise self.refuse("a quantifier of a quantifier")
        return repeat

    def _nullable(self, node: Node) -> bool:
        if isinstance(node, Row):
            return all(self._nullable(part) for part in node.parts)
        if isinstance(node, Either):
            return any(self._nullable(branch) for branch in node.branches)
        if isinstance(node, Repeat):
            return node.least == 0 or self._nullable(node.body)
        return isinstance(node, Look)


def _bounds(found: re.Match[str]) -> tuple[int, int | None]:
    if found[0] in "?*+":
        return {"?": (0, 1), "*": (0, None), "+": (1, None)}[found[0]]
    if found[4]:
        return 0, int(found[4])
    least = int(found[1])
    if not found[2]:
        return least, least
    return least, int(found[3]) if found[3] else None


def _may_be_ligature(left: Node, right: Node) -> bool:
    return any(x + y in LIGATURES for x in _ends(left, -1) for y in _ends(right, 0))


def _ends(node: Node, end: int) -> set[str]:
    """The letters that a node can begin (0) or end (-1) with where case is ignored."""
    if isinstance(node, One):
        return {node.letter} - {""}
    if isinstance(node, Row):
        letters: set[str] = set()
        for part in node.parts if end == 0 else reversed(node.parts):
            letters |= _ends(part, end)
            if not (isinstance(part, Repeat) and part.least == 0):
                break
        return letters
    if isinstance(node, Either):
        return set().union(*(_ends(branch, end) for branch in node.branches))
    return _ends(node.body, end) if isinstance(node, Repeat) else set()
