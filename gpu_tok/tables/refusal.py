"""How a part of a definition says that it has no native form."""

from __future__ import annotations


class CannotCompile(Exception):  # noqa: N818 - a signal between compilers, not an error that users see
    """No native form; a slower exact grade takes the part.

    part: where it stands in tokenizer.json, e.g. "pre_tokenizer.pretokenizers[1]". reason: what was found there.
    """

    def __init__(self, part: str, reason: str) -> None:
        super().__init__(f"{part}: {reason}")
        self.part = part
        self.reason = reason
