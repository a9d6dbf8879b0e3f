r"""The patterns of `Split`, as Oniguruma reads them (its Ruby syntax), to automata.

>>> compile_regex(r"\p{N}{1,3}| ?\p{L}+").find_matches("1234 cats")
[(0, 3), (3, 4), (4, 9)]

Taken: characters and their escapes, `[...]` with ranges, nesting and `&&`, `\s \d \w \p{..}` and their negations,
`|`, `(...)`, `(?:...)`, `(?i:...)` over ASCII, `? * + {m,n}`, possessive `?+ *+ ++` behind one character, and
look-ahead at one character. All else raises CannotCompile with the reason: it is refused, never read differently.

A pattern that Oniguruma reads in a special way has it here too: `{m,n}+` repeats the repeated (it is not possessive),
`&&` binds weaker than everything but `^` in a set, `(?i)` reaches to the end of its group.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from gpu_tok.tables import unicode
from gpu_tok.tables.atoms import Property, atoms_of, only
from gpu_tok.tables.automaton import Accept, Ahead, Automaton, Fork, Instruction, Read, determine
from gpu_tok.tables.refusal import CannotCompile

MOST_INSTRUCTIONS = 20_000

CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a", "e": "\x1b"}
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
REFUSED_ESCAPES = dict.fromkeys("bBAzZGyY", "an anchor") | dict.fromkeys("kg123456789", "a back reference")
REFUSED_CHARACTERS = {"^": "an anchor", "$": "an anchor", ".": "any character", "*": "a quantifier of nothing"}
REFUSED_CHARACTERS |= {"+": "a quantifier of nothing", "?": "a quantifier of nothing"}
FOLDED = {"s": "\u017f", "k": "\u212a"}  # what else equals an ASCII letter when case is ignored
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


def compile_regex(pattern: str, where: str = "pattern") -> Automaton:
    """The automaton of a pattern; `where` names its place in tokenizer.json. Raises CannotCompile."""
    parser = Parser(pattern, where)
    return _compile(parser.parse(), parser, where)


def compile_literal(text: str, where: str = "pattern") -> Automaton:
    """The automaton that finds a text, as `Split` does with a pattern of kind `String`. Raises CannotCompile."""
    parser = Parser("", where)
    return _compile(Row(tuple(One(parser.number(only(c))) for c in text)), parser, where)


class Parser:
    """Recursive descent over one pattern. Sets of characters are numbered as they come; equal ones share a number."""

    def __init__(self, pattern: str, where: str) -> None:
        self.pattern, self.where = pattern, where
        self.at = 0
        self.ignore_case = False
        self.sets: list[Property] = []
        self._number: dict[bytes, int] = {}

    def parse(self) -> Node:
        node = self._either()
        if self.at < len(self.pattern):
            raise self.refuse("a closing parenthesis without its opening one")
        return node

    def refuse(self, what: str) -> CannotCompile:
        return CannotCompile(self.where, f"{what}, at character {self.at} of the pattern {self.pattern!r}")

    def number(self, held: Property) -> int:
        key = np.packbits(held).tobytes()
        if key not in self._number:
            self._number[key] = len(self.sets)
            self.sets.append(held)
        return self._number[key]

    def _next_is(self, text: str) -> bool:
        return self.pattern.startswith(text, self.at)

    def _take(self, text: str) -> bool:
        taken = self._next_is(text)
        self.at += len(text) * taken
        return taken

    def _take_re(self, pattern: str) -> re.Match[str] | None:
        found = re.compile(pattern).match(self.pattern, self.at)
        if found:
            self.at = found.end()
        return found

    def _either(self) -> Node:
        ignore_case = self.ignore_case
        if self._take("(?i)"):
            self.ignore_case = True
        branches = [self._row()]
        while self._take("|"):
            branches.append(self._row())
        self.ignore_case = ignore_case
        return branches[0] if len(branches) == 1 else Either(tuple(branches))

    def _row(self) -> Node:
        parts: list[Node] = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            parts.append(self._quantified(self._part()))
        for left, right in _neighbours(parts):
            if _ends(left, -1) and any(x + y in LIGATURES for x in _ends(left, -1) for y in _ends(right, 0)):
                raise self.refuse("letters that also match a ligature where case is ignored")
        return Row(tuple(parts))

    def _part(self) -> Node:
        character = self.pattern[self.at]
        if character == "(":
            return self._group()
        if character == "[":
            self.at += 1
            return One(self.number(self._set()))
        if character == "\\":
            return self._one(self._escape())
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
        return One(self.number(self._fold(only(held))), letter)

    def _group(self) -> Node:
        for opening, what in REFUSED_GROUPS.items():
            if self._next_is(opening) and not self._next_is("(?:"):
                raise self.refuse(f"`{opening}` ({what})")
        look = self._take_re(r"\(\?([=!])")
        flags = None if look else self._take_re(r"\(\?(i|-i)?:")
        if not look and not flags:
            if self._next_is("(?"):
                raise self.refuse("an unknown kind of group")
            self.at += 1
        ignore_case = self.ignore_case
        if flags and flags[1]:
            self.ignore_case = flags[1] == "i"
        node = self._either()
        self.ignore_case = ignore_case
        if not self._take(")"):
            raise self.refuse("an opening parenthesis without its closing one")
        return self._look(node, negative=look[1] == "!") if look else node

    def _look(self, node: Node, negative: bool) -> Node:
        if self._next_quantifier():
            raise self.refuse("a repeated look-ahead")
        one = self._single(node)
        if one is None:
            raise self.refuse("look-ahead at more than one character")
        return Look(one.set, negative)

    def _single(self, node: Node) -> One | None:
        """The node as one character of a set, where it is that."""
        if isinstance(node, Row) and len(node.parts) == 1:
            return self._single(node.parts[0])
        if isinstance(node, Either):
            ones = [self._single(branch) for branch in node.branches]
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
        possessive = simple and self._take("+")
        if self._next_is("?"):
            raise self.refuse("a lazy quantifier")
        if self._nullable(node) and found[0] != "?":
            raise self.refuse("a repeated part that can be empty")
        if possessive and self._single(node) is None:
            raise self.refuse("a possessive quantifier behind more than one character")
        if most is not None and most < least:
            raise self.refuse("a quantifier with its bounds exchanged")
        if most != 1 and any(x + y in LIGATURES for x in _ends(node, -1) for y in _ends(node, 0)):
            raise self.refuse("letters that also match a ligature where case is ignored")
        repeat = Repeat(node, least, most, possessive)
        if not simple and self._take("+"):
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

    def _escape(self) -> str | Property:
        r"""What stands behind a backslash: a character, or a class."""
        self.at += 1
        if found := self._take_re(r"[pP]\{(\^?)([^{}^]+)\}"):
            held = self._named(rf"\p{{{found[2]}}}", f"re_{found[2]}")
            return ~held if (found[0][0] == "P") != bool(found[1]) else held
        if found := self._take_re(r"[sdwSDW]"):
            held = unicode.has(f"re_{found[0].lower()}")
            return ~held if found[0].isupper() else held
        if found := self._take_re(r"x\{([0-9A-Fa-f]{1,6})\}|x([0-7][0-9A-Fa-f])|u([0-9A-Fa-f]{4})"):
            code_point = int(found[1] or found[2] or found[3], 16)
            if code_point > 0x10FFFF or 0xD800 <= code_point < 0xE000:
                raise self.refuse("an escape that is no character")
            return chr(code_point)
        if found := self._take_re(r"[tnrfvae]"):
            return CONTROLS[found[0]]
        if found := self._take_re(r"[^0-9A-Za-z]"):
            if ord(found[0]) < 0x80:
                return found[0]
        character = self.pattern[self.at : self.at + 1]
        raise self.refuse(f"`\\{character}` ({REFUSED_ESCAPES.get(character, 'an escape unknown here')})")

    def _named(self, spelled: str, name: str) -> Property:
        try:
            return unicode.has(name)
        except (KeyError, ValueError):
            raise self.refuse(f"`{spelled}` (a class unknown here)") from None

    def _set(self) -> Property:
        """What stands between `[` and `]`. `&&` joins whole lists of items; `^` negates all of it."""
        begin = self.at
        negative = self._take("^")
        if negative and self.ignore_case:
            raise self.refuse("a negated set where case is ignored")
        if self._next_is("]"):
            raise self.refuse("a set that begins with `]`")
        operands = [only("")]
        first = self.at
        while not self._take("]"):
            if self.at >= len(self.pattern):
                self.at = begin
                raise self.refuse("a set without its end")
            if self._take("&&"):
                if self.at == first + 2 or self._next_is("]") or self._next_is("&"):
                    raise self.refuse("`&&` with nothing beside it")
                operands.append(only(""))
                first = self.at
            else:
                operands[-1] = operands[-1] | self._item(first=self.at == first)
        held = np.logical_and.reduce(operands)
        return ~held if negative else self._fold(held)

    def _item(self, first: bool) -> Property:
        """A character, a range, a class or a nested set."""
        if self._next_is("[:"):
            raise self.refuse("a POSIX class")
        if self._take("["):
            return self._set()
        if self._next_is("-") and not first and not self._next_is("-]"):
            raise self.refuse("`-` within a set")
        low = self._item_character()
        if not isinstance(low, str):
            if self.ignore_case:
                raise self.refuse("a class of characters where case is ignored")
            return low
        if not self._next_is("-") or self._next_is("-]"):
            return only(low)
        self.at += 1
        if low == "-" or self._next_is("[") or self._next_is("&&") or self._next_is("-"):
            raise self.refuse("`-` within a set")
        high = self._item_character()
        if not isinstance(high, str) or high < low:
            raise self.refuse("a range that is none")
        held = only("")
        held[ord(low) : ord(high) + 1] = True
        return held

    def _item_character(self) -> str | Property:
        if self._next_is("\\"):
            return self._escape()
        if self.at >= len(self.pattern):
            raise self.refuse("a set without its end")
        self.at += 1
        return self.pattern[self.at - 1]

    def _fold(self, held: Property) -> Property:
        """With `ignore_case`, adds what equals a character of the set when case is ignored."""
        if not self.ignore_case:
            return held
        if held[0x80:].any():
            raise self.refuse("a character beyond ASCII where case is ignored")
        characters = "".join(chr(c) for c in np.flatnonzero(held))
        both = characters.lower() + characters.upper()
        return only(both + "".join(FOLDED.get(c, "") for c in both))


def _bounds(found: re.Match[str]) -> tuple[int, int | None]:
    if found[0] in "?*+":
        return {"?": (0, 1), "*": (0, None), "+": (1, None)}[found[0]]
    if found[4]:
        return 0, int(found[4])
    least = int(found[1])
    if not found[2]:
        return least, least
    return least, int(found[3]) if found[3] else None


def _neighbours(parts: list[Node]) -> list[tuple[Node, Node]]:
    return list(zip(parts, parts[1:], strict=False))


def _ends(node: Node, end: int) -> set[str]:
    """The letters that a node can begin (0) or end (-1) with where case is ignored; a part that can be empty counts
    for its neighbours too."""
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


def _compile(node: Node, parser: Parser, where: str) -> Automaton:
    builder = Builder(parser)
    begin = builder.build(node, builder.add(Accept()))
    atom_of, members = atoms_of(parser.sets)
    return determine(builder.instructions, begin, atom_of, members, parser.refuse)


class Builder:
    """Turns a tree into instructions, from the end to the beginning: each node is told what comes behind it."""

    def __init__(self, parser: Parser) -> None:
        self.parser = parser
        self.instructions: list[Instruction] = []

    def add(self, instruction: Instruction) -> int:
        if len(self.instructions) >= MOST_INSTRUCTIONS:
            raise self.parser.refuse(f"a pattern of more than {MOST_INSTRUCTIONS} instructions")
        self.instructions.append(instruction)
        return len(self.instructions) - 1

    def build(self, node: Node, then: int) -> int:
        if isinstance(node, One):
            return self.add(Read(node.set, then))
        if isinstance(node, Look):
            return self.add(Ahead(node.set, node.negative, then))
        if isinstance(node, Row):
            for part in reversed(node.parts):
                then = self.build(part, then)
            return then
        if isinstance(node, Either):
            return self.add(Fork(tuple(self.build(branch, then) for branch in node.branches)))
        return self._repeat(node, then)

    def _repeat(self, node: Repeat, then: int) -> int:
        """Greedy: once more comes before going on. Possessive, behind one character: going on only where once more
        is impossible, which the next character shows."""
        if node.possessive:
            one = self.parser._single(node.body)
            assert one is not None
            then = self.add(Ahead(one.set, True, then))
        least = node.least
        if node.most is None:
            loop = self.add(Fork(()))
            body = self.build(node.body, loop)
            self.instructions[loop] = Fork((body, then))
            entry = body if least else loop
            least = max(least - 1, 0)
        else:
            entry = then
            for _ in range(node.most - least):
                entry = self.add(Fork((self.build(node.body, entry), then)))
        for _ in range(least):
            entry = self.build(node.body, entry)
        return entry
