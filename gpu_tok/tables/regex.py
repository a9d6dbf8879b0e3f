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

from gpu_tok.tables.atoms import atoms_of, only
from gpu_tok.tables.automaton import Accept, Ahead, Automaton, Fork, Instruction, Read, determine
from gpu_tok.tables.regex_syntax import Either, Look, Node, One, Parser, Repeat, Row

MOST_INSTRUCTIONS = 20_000


def compile_regex(pattern: str, where: str = "pattern") -> Automaton:
    """The automaton of a pattern; `where` names its place in tokenizer.json. Raises CannotCompile."""
    parser = Parser(pattern, where)
    try:
        return _compile(parser.parse(), parser)
    except RecursionError:
        raise parser.refuse("a pattern nested too deeply") from None


def compile_literal(text: str, where: str = "pattern") -> Automaton:
    """The automaton that finds a text, as `Split` does with a pattern of kind `String`. Raises CannotCompile."""
    parser = Parser("", where)
    return _compile(Row(tuple(One(parser.number(only(c))) for c in text)), parser)


def _compile(node: Node, parser: Parser) -> Automaton:
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
        is impossible, which the next character shows; behind the most, anywhere."""
        behind_the_most = then
        if node.possessive:
            one = self.parser.single(node.body)
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
            entry = behind_the_most
            for _ in range(node.most - least):
                entry = self.add(Fork((self.build(node.body, entry), then)))
        for _ in range(least):
            entry = self.build(node.body, entry)
        return entry
