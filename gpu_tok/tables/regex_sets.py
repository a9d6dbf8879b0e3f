r"""The characters of a pattern: escapes, classes and bracket sets, as Oniguruma reads them.

>>> SetParser(r"[a-c&&[^b]]", "pattern").bracket().nonzero()
(array([97, 99]),)
"""

from __future__ import annotations

import re

import numpy as np

from gpu_tok.tables import unicode
from gpu_tok.tables.atoms import only
from gpu_tok.tables.refusal import CannotCompile
from gpu_tok.tables.unicode import Property

CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a", "e": "\x1b"}
REFUSED_ESCAPES = dict.fromkeys("bBAzZGyY", "an anchor") | dict.fromkeys("kg123456789", "a back reference")
NO_WORDS_IN_SETS = "²³¹¼½¾"  # `\w` holds them, but not within a set: a fault of Oniguruma
FOLDED = {"s": "\u017f", "k": "\u212a"}  # what else equals an ASCII letter when case is ignored


class SetParser:
    """A place in a pattern, and what reads single characters and sets of them there."""

    def __init__(self, pattern: str, where: str) -> None:
        self.pattern, self.where = pattern, where
        self.at = 0
        self.ignore_case = False

    def refuse(self, what: str) -> CannotCompile:
        return CannotCompile(self.where, f"{what}, at character {self.at} of the pattern {self.pattern!r}")

    def next_is(self, text: str) -> bool:
        return self.pattern.startswith(text, self.at)

    def take(self, text: str) -> bool:
        taken = self.next_is(text)
        self.at += len(text) * taken
        return taken

    def take_re(self, pattern: str) -> re.Match[str] | None:
        found = re.compile(pattern).match(self.pattern, self.at)
        if found:
            self.at = found.end()
        return found

    def bracket(self) -> Property:
        """A set from its `[` to its `]`."""
        self.at += 1
        return self._set()

    def escape(self) -> str | Property:
        r"""What stands behind a backslash: a character, or a class."""
        self.at += 1
        if found := self.take_re(r"[pP]\{(\^?)([^{}^]+)\}"):
            held = self._named(rf"\p{{{found[2]}}}", f"re_{found[2]}")
            return ~held if (found[0][0] == "P") != bool(found[1]) else held
        if found := self.take_re(r"[sdwSDW]"):
            held = unicode.has(f"re_{found[0].lower()}")
            return ~held if found[0].isupper() else held
        if found := self.take_re(r"x\{([0-9A-Fa-f]{1,6})\}|x([0-7][0-9A-Fa-f])|u([0-9A-Fa-f]{4})"):
            code_point = int(found[1] or found[2] or found[3], 16)
            if code_point > 0x10FFFF or 0xD800 <= code_point < 0xE000:
                raise self.refuse("an escape that is no character")
            return chr(code_point)
        if found := self.take_re(r"[tnrfvae]"):
            return CONTROLS[found[0]]
        if found := self.take_re(r"[ -~\n\r\t](?<![0-9A-Za-z])"):
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
        negative = self.take("^")
        if negative and self.ignore_case:
            raise self.refuse("a negated set where case is ignored")
        if self.next_is("]"):
            raise self.refuse("a set that begins with `]`")
        operands = [only("")]
        first = self.at
        while not self.take("]"):
            if self.at >= len(self.pattern):
                raise self.refuse("a set without its end")
            if self.take("&&"):
                if self.ignore_case:
                    raise self.refuse("`&&` where case is ignored")
                if self.at == first + 2 or self.next_is("]") or self.next_is("&"):
                    raise self.refuse("`&&` with nothing beside it")
                operands.append(only(""))
                first = self.at
            else:
                operands[-1] = operands[-1] | self._item(first=self.at == first)
        held = np.logical_and.reduce(operands)
        return ~held if negative else self.fold(held)

    def _item(self, first: bool) -> Property:
        """A character, a range, a class or a nested set."""
        if self.next_is("[:"):
            raise self.refuse("a POSIX class")
        if self.take("["):
            return self._set()
        if self.next_is("-") and not first and not self.next_is("-]"):
            raise self.refuse("`-` within a set")
        low = self._item_character()
        if not isinstance(low, str):
            if self.ignore_case:
                raise self.refuse("a class of characters where case is ignored")
            return low
        if not self.next_is("-") or self.next_is("-]"):
            return only(low)
        self.at += 1
        if low == "-" or self.next_is("[") or self.next_is("&&") or self.next_is("-"):
            raise self.refuse("`-` within a set")
        high = self._item_character()
        if not isinstance(high, str) or high < low:
            raise self.refuse("a range that is none")
        held = only("")
        held[ord(low) : ord(high) + 1] = True
        return held

    def _item_character(self) -> str | Property:
        if found := self.take_re(r"\\[wW]"):
            words = unicode.has("re_w") & ~only(NO_WORDS_IN_SETS)
            return words if found[0] == r"\w" else ~words
        if self.next_is("\\"):
            return self.escape()
        if self.at >= len(self.pattern):
            raise self.refuse("a set without its end")
        self.at += 1
        return self.pattern[self.at - 1]

    def fold(self, held: Property) -> Property:
        """With `ignore_case`, adds what equals a character of the set when case is ignored."""
        if not self.ignore_case:
            return held
        if held[0x80:].any():
            raise self.refuse("a character beyond ASCII where case is ignored")
        characters = "".join(chr(c) for c in np.flatnonzero(held))
        both = characters.lower() + characters.upper()
        return only(both + "".join(FOLDED.get(c, "") for c in both))
