"""Which characters a BPE model can bring into one piece, and between which classes of them it never does.

A merge joins the last character of its first part and the first character of its second part. So two neighbours that no
merge has there stay apart, whatever stands around them, and both sides merge as if the other was not there.

    merges   ▁ t, ▁t h, e r, ▁th er     pairs   (▁, t) (t, h) (e, r) (h, e)     apart   (r, ▁) (e, t) (\\n, t) ...

A character is one of three kinds of symbol at first: its own entry, its bytes (`byte_fallback`), or unknown.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_tok.tables.atoms import only
from gpu_tok.tables.classes import SURROGATES, Pairs, joint_classes
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.pairs import Joinable, unspaced
from gpu_tok.tables.refusal import CannotCompile
from gpu_tok.tables.unicode import CODE_POINTS, has

CodePoints = npt.NDArray[np.uint32]
Symbols = npt.NDArray[np.uint8]
SPACES = " \u2581"
OWN, BYTES, UNKNOWN = range(3)
SCRIPTS = "Latin Cyrillic Greek Armenian Georgian Hebrew Arabic Devanagari Bengali Tamil Han Hiragana Katakana Hangul"


class Joins(NamedTuple):
    """What a BPE model does with neighbours.

    first, second: uint32[pairs] each, the characters that some merge puts side by side, in order and no pair twice.
    symbol: uint8[0x110000]: OWN, BYTES or UNKNOWN. apart: bool[3, 3]; [s, t] says that a character of symbol s and one
    of symbol t behind it never depend on each other, but for merges between two of symbol OWN.
    """

    first: CodePoints
    second: CodePoints
    symbol: Symbols
    apart: Pairs


class ClassJoins(NamedTuple):
    """class_of: uint16[0x110000]. apart: bool[classes, classes]; [a, b]: no merge joins a character of class a and one
    of class b behind it."""

    class_of: npt.NDArray[np.uint16]
    apart: Pairs


def joins_of(definition: Definition) -> Joins:
    """The pairs of characters that the model's merges join.

    >>> joins = joins_of(llama_2)
    >>> (joins.second == ord("▁")).sum(), chr(joins.first[joins.second == ord("▁")][0])
    (1, '▁')

    Raises CannotCompile where the model is no BPE or merges are not all that joins characters.
    """
    refuse_other_models(definition)
    if definition.model["ignore_merges"]:
        raise CannotCompile("model", "ignore_merges takes whole words, which a part of a word may be")
    merges = [pair for pair in definition.model["merges"] if pair[0] and pair[1]]
    first = np.array([ord(left[-1]) for left, _right in merges], np.uint64)
    second = np.array([ord(right[0]) for _left, right in merges], np.uint64)
    pairs = np.unique(first << np.uint64(32) | second)
    symbol = _symbols(definition.model)
    apart = _apart(definition.model, bool((symbol == UNKNOWN).any()))
    return Joins((pairs >> np.uint64(32)).astype(np.uint32), pairs.astype(np.uint32), symbol, apart)


def refuse_other_models(definition: Definition) -> None:
    """Everything by which a neighbour could matter other than by a merge between two characters."""
    model = definition.model
    if model["type"] != "BPE":
        raise CannotCompile("model", f"inside words of `{model['type']}` no cuts are known")
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model[name]:
            raise CannotCompile("model", f"{name} {model[name]!r} makes ids depend on where words begin and end")
    if model["dropout"]:
        raise CannotCompile("model", "dropout makes merges random")
    if len(set(definition.vocab.values())) != definition.reference.get_vocab_size(with_added_tokens=False):
        raise CannotCompile("model", "pieces share an id, so merges of one join characters of the other")
    parts = {part for pair in model["merges"] for part in pair}
    symbols = {model["unk_token"], *(_byte_piece(byte) for byte in range(256) if model["byte_fallback"])}
    if parts & symbols:
        raise CannotCompile("model", f"merges join {min(parts & symbols)!r}, which stands for unknown characters")


def _symbols(model: dict[str, Any]) -> Symbols:
    """What each character is before any merge. Characters of 2 to 4 bytes have theirs if all of these are entries."""
    vocab = model["vocab"]
    symbol = np.full(CODE_POINTS, UNKNOWN, np.uint8)
    if model["byte_fallback"]:
        symbol[all_bytes_in(np.array([_byte_piece(byte) in vocab for byte in range(256)]))] = BYTES
    symbol[[ord(piece) for piece in vocab if len(piece) == 1]] = OWN
    symbol[SURROGATES.start : SURROGATES.stop - 1] = OWN  # they never occur
    return symbol


def all_bytes_in(held: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The code points all of whose UTF-8 bytes are held: bool[0x110000]. held: bool[256]."""
    code_point = np.arange(CODE_POINTS)
    fits = held[np.minimum(code_point, 0x7F)]
    for leads, least, most, further in (
        (0xC0, 0x80, 0x800, 1),
        (0xE0, 0x800, 0x10000, 2),
        (0xF0, 0x10000, 0x110000, 3),
    ):
        several = code_point[least:most]
        fits[least:most] = held[leads | (several >> 6 * further)]
        for at in range(further):
            fits[least:most] &= held[0x80 | ((several >> 6 * at) & 0x3F)]
    return fits


def _apart(model: dict[str, Any], has_unknown: bool) -> Pairs:
    """Which symbols never depend on each other, merges aside.

    Without an unknown token, unknown characters vanish and their neighbours meet. With one, it is put behind the bytes
    that follow the character, up to the next entry or the end, and unknown characters may become one: an entry on one
    side of a cut makes both harmless. So do bytes on both sides if nothing is unknown.

        vocab <unk> a b <0xC3> <0xA9>    '中éb' -> <0xC3> <0xA9> <unk> b, so no cut in 中|é; and none in é|é
    """
    apart = np.zeros((3, 3), bool)
    if model["unk_token"] is None:
        apart[:UNKNOWN, :UNKNOWN] = True
    else:
        apart[OWN, :] = apart[:, OWN] = True
        apart[BYTES, BYTES] = not has_unknown
    return apart


def class_joins(joins: Joins) -> ClassJoins:
    """A partition of the characters, small and yet with many classes that never join.

    Scripts, letters, digits and the like are classes at first, since texts that merges were learnt from often were
    divided there. Of each, those are apart that no merge joins to anything behind, to anything before but a space, or
    to a space behind. Any partition would be sound.
    """
    marks = np.zeros(CODE_POINTS, np.uint8)
    spaces = np.isin(joins.first, [*map(ord, SPACES)])
    marks[joins.first] |= 1
    marks[joins.second[~spaces]] |= 2
    marks[joins.first[np.isin(joins.second, [*map(ord, SPACES)]) & ~spaces]] |= 4
    class_of, (_kind, _marks, symbol) = joint_classes([kinds(), marks, joins.symbol])
    apart = joins.apart[np.ix_(symbol, symbol)]
    apart[class_of[joins.first], class_of[joins.second]] = False
    return ClassJoins(class_of, apart)


def joinable(joins: Joins) -> Joinable:
    """The pairs of `unspaced()` among them; a kind is 0 or a symbol and 1."""
    asked = unspaced()
    both = asked[joins.first] & asked[joins.second]
    apart = np.pad(joins.apart, (1, 0))
    return Joinable(joins.first[both], joins.second[both], np.where(asked, joins.symbol + 1, 0).astype(np.uint8), apart)


@lru_cache(maxsize=1)
def kinds() -> npt.NDArray[np.uint8]:
    """Kinds of characters that languages and trainers treat alike: uint8[0x110000]."""
    sets = [*map(only, (*SPACES, "\n")), *map(has, ("re_L", "re_Lu", "re_M", "re_N"))]
    sets += [has(f"re_{script}") for script in SCRIPTS.split()]
    return joint_classes([held.astype(np.uint8) for held in sets])[0].astype(np.uint8)


def _byte_piece(byte: int) -> str:
    return f"<0x{byte:02X}>"
