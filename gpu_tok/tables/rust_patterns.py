r"""Patterns as tiktoken reads them (Rust's `fancy_regex`), spelled as `Split` reads them (Oniguruma's Ruby syntax).

The two agree about `\s`, `\d`, `.` and every `\p{..}` (compared over all code points), and differ in the rest:

    Rust            here                  because in Oniguruma
    \p{N}{1,3}+     \p{N}{1,3} or (?>..)  `{1,3}+` repeats the repeated; here it is possessive
    \s++$           \s++(?!\S)            `$` also stands before a newline; this is the end of the text all the same
    $   ^           \z   \A
    \w              [\p{Alphabetic}..]    `\w` is a smaller class
    \xE9            \x{E9}                `\xE9` is a byte

What is not known to mean the same is refused, never passed on.

>>> to_oniguruma(r"\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$")
'\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s++(?!\\S)'
"""

from __future__ import annotations

import re

from gpu_tok.errors import DefinitionError

_WORD = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}"
_OPENINGS = ("(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>")
_HEX = r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|[xuU]\{([0-9A-Fa-f]{1,6})\})"
_BOUNDS = r"\{\d+(?:,\d*)?\}"


def to_oniguruma(pattern: str) -> str:
    """The pattern in Oniguruma's spelling; raises `DefinitionError` where none is known to match the same."""
    return _Translator(pattern).translate()


class _Translator:
    def __init__(self, pattern: str) -> None:
        self.pattern, self.at, self.depth = pattern, 0, 0

    def translate(self) -> str:
        flag = "(?i)" if self._take(re.escape("(?i)")) else ""
        begin = self.at
        translated = flag + self._either()
        if self.at < len(self.pattern):
            raise self._refuse("a closing parenthesis without its opening one")
        if flag:
            self._check_folding(begin)
        return translated

    def _refuse(self, what: str) -> DefinitionError:
        return DefinitionError(
            f"pattern: {what}, at character {self.at} of {self.pattern!r}",
            "tiktoken and Oniguruma may read it differently; spell that part in another way",
        )

    def _take(self, expression: str) -> re.Match[str] | None:
        found = re.compile(expression).match(self.pattern, self.at)
        if found:
            self.at = found.end()
        return found

    def _next_is(self, *texts: str) -> bool:
        return self.pattern.startswith(texts, self.at)

    def _either(self) -> str:
        branches = [self._branch()]
        while self._take(r"\|"):
            branches.append(self._branch())
        return "|".join(branches)

    def _branch(self) -> str:
        parts: list[str] = []
        while self.at < len(self.pattern) and not self._next_is("|", ")"):
            if self._take(r"\$"):
                parts.append(r"(?!\S)" if parts[-1:] == [r"\s++"] else r"\z")
            elif self._take(r"\^"):
                parts.append(r"\A")
            else:
                parts.append(self._quantified(self._part()))
        return "".join(parts)

    def _part(self) -> str:
        if self._next_is("("):
            return self._group()
        if self._next_is("["):
            return self._set()
        if self._next_is("\\"):
            return self._escape(in_set=False)
        if self._next_is("*", "+", "?", "{"):
            raise self._refuse("a quantifier of nothing, or of a quantifier")
        character = self.pattern[self.at]
        self.at += 1
        return rf"\{character}" if character in "]}" else character

    def _quantified(self, part: str) -> str:
        found = self._take(rf"[?*+]|{_BOUNDS}")
        if not found:
            return part
        counted = found[0][0] == "{"
        if self._take(r"\+"):
            if self.depth == 0 and (self.at == len(self.pattern) or self._next_is("|")):
                return part + found[0]  # nothing stands behind that could ask for less
            return f"(?>{part}{found[0]})" if counted else f"{part}{found[0]}+"
        if self._next_is("?") and counted:
            raise self._refuse("a lazy counted quantifier")
        return part + found[0] + ("?" if self._take(r"\?") else "")

    def _group(self) -> str:
        opening = next((opening for opening in _OPENINGS if self._next_is(opening)), "(")
        if opening == "(" and self._next_is("(?", "(*"):
            raise self._refuse("an unknown kind of group")
        self.at += len(opening)
        begin, self.depth = self.at, self.depth + 1
        body = self._either()
        if opening == "(?i:":
            self._check_folding(begin)
        self.depth -= 1
        if not self._take(r"\)"):
            raise self._refuse("an opening parenthesis without its closing one")
        return f"{'(?:' if opening == '(' else opening}{body})"

    def _check_folding(self, begin: int) -> None:
        """Without case, Oniguruma also takes one character for several letters (`ﬆ` for `st`), and Rust does not."""
        ignored = self.pattern[begin : self.at]
        letters = re.sub(r"[^a-z|()]", "", ignored.lower())
        repeated = re.search(r"[sf][*+{]", ignored.lower())
        if not ignored.isascii() or "\\" in ignored or repeated or re.search("ff|fi|fl|ss|st", letters):
            raise self._refuse("letters whose case is ignored by rules that differ")

    def _set(self) -> str:
        opening = self._take(r"\[\^?\]?")
        assert opening is not None
        parts = [opening[0].replace("]", r"\]")]
        while not self._take(r"\]"):
            if self.at == len(self.pattern):
                raise self._refuse("a set that does not end")
            if self._next_is("[:", "--", "~~"):
                raise self._refuse(f"`{self.pattern[self.at : self.at + 2]}` in a set")
            if self._next_is("["):
                parts.append(self._set())
            elif self._next_is("\\"):
                parts.append(self._escape(in_set=True))
            else:
                parts.append(self.pattern[self.at])
                self.at += 1
        return "".join(parts) + "]"

    def _escape(self, in_set: bool) -> str:
        if found := self._take(r"\\([pP])(?:([A-Z])|\{(\^?)(?:(?:sc|Script|gc|General_Category)=)?([A-Za-z_ ]+)\})"):
            return rf"\{found[1]}{{{found[3] or ''}{found[2] or found[4]}}}"
        if found := self._take(_HEX):
            return rf"\x{{{next(filter(None, found.groups()))}}}"
        if found := self._take(r"\\([wW])"):
            return f"[{'^' if found[1] == 'W' else ''}{_WORD}]"
        if found := self._take(r"\\(?:[sSdDtnrfva]|[!-/:-@\[-`{-~ ])"):
            return found[0]
        if not in_set and (found := self._take(r"\\[Az]")):
            return found[0]
        raise self._refuse(f"`{self.pattern[self.at : self.at + 2]}`")
