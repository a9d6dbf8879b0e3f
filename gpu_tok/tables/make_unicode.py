"""Makes `unicode.npz` by asking the reference about every code point: `python -m gpu_tok.tables.make_unicode`.

Predicates on single characters are asked over long texts of many code points; normalizers, whose results depend on
neighbours, are asked one code point at a time. A few minutes in all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from gpu_tok.tables.unicode import CODE_POINTS, PATH, Property, blocks, code_points, matched_by

Images = dict[int, str]  # code point -> what a normalizer makes of it, where that is something else

CATEGORIES = "L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Cn Co"
SCRIPTS = (
    "Arabic Armenian Bengali Bopomofo Cyrillic Devanagari Ethiopic Georgian Greek Gujarati Gurmukhi Han Hangul Hebrew "
    "Hiragana Kannada Katakana Khmer Lao Latin Malayalam Myanmar Sinhala Tamil Telugu Thai Tibetan"
)
NAMES = f"{CATEGORIES} {SCRIPTS}".split()
PATTERNS = {"re_s": r"\s", "re_w": r"\w", "re_d": r"\d"} | {f"re_{name}": rf"\p{{{name}}}" for name in NAMES}
NORMALIZERS: dict[str, Any] = {
    "lowercase": normalizers.Lowercase(),
    "nfd": normalizers.NFD(),
    "nfkd": normalizers.NFKD(),
    "nfc": normalizers.NFC(),
    "nfkc": normalizers.NFKC(),
}
LOW_MARK, HIGH_MARK = "\u0334", "\u0345"  # of the lowest and of the highest combining class
HANGUL = range(0xAC00, 0xD7A4)


def ask_splitter(splitter: Any) -> tuple[Property, Property]:
    """Which code points a splitter by predicate makes words of their own, and which it deletes: bool[0x110000] both.

    Each is asked between two letters: `aca` is `a c a`, `a a` or one word.
    """
    alone, deleted = np.zeros(CODE_POINTS, bool), np.zeros(CODE_POINTS, bool)
    for asked in blocks():
        covered = np.zeros(2 * len(asked), bool)
        for _word, (begin, end) in splitter.pre_tokenize_str("".join("a" + chr(c) for c in asked) + "a"):
            covered[begin:end] = True
            if end - begin == 1 and begin % 2 == 1:
                alone[asked[begin // 2]] = True
        deleted[asked] = ~covered[1::2]
    return alone, deleted


def ask_images(normalizer: Any) -> Images:
    normalize = normalizer.normalize_str
    images = ((c, normalize(chr(c))) for c in code_points().tolist())
    return {c: made for c, made in images if made != chr(c)}


def ask_added(single: bool) -> Property:
    r"""The \w of `single_word`, or the \s of `lstrip`: which code points a token minds before it."""
    tokenizer = Tokenizer(models.WordLevel({"?": 0}, "?"))
    tokenizer.add_tokens([AddedToken("qz", single_word=single, lstrip=not single, normalized=False)])
    found = np.zeros(CODE_POINTS, bool)
    for asked in blocks():
        encodings = tokenizer.encode_batch_fast([chr(c) + "qz" for c in asked])
        found[asked] = [len(encoding) == 1 for encoding in encodings]
    return found


def bert_properties() -> dict[str, Property]:
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    clean = ask_images(normalizers.BertNormalizer(**off | {"clean_text": True}))
    padded = ask_images(normalizers.BertNormalizer(**off | {"handle_chinese_chars": True}))
    stripped = ask_images(normalizers.BertNormalizer(**off | {"strip_accents": True}))
    assert set(clean.values()) == {"", " "}
    assert all(made == f" {chr(c)} " for c, made in padded.items())
    return {
        "bert_deleted": _where(clean, lambda made: made == ""),
        "bert_space": _where(clean | {32: " "}, lambda made: made == " "),
        "bert_cjk": _where(padded, lambda made: True),
        "bert_mark": _where(stripped, lambda made: made == ""),
    }


def splitter_properties() -> dict[str, Property]:
    bert_punctuation, bert_whitespace = ask_splitter(pre_tokenizers.BertPreTokenizer())
    symbol, whitespace_s = ask_splitter(pre_tokenizers.Whitespace())
    whitespace_w = ~symbol & ~whitespace_s
    whitespace_w[0xD800:0xE000] = False
    return {
        "bert_punctuation": bert_punctuation,
        "bert_whitespace": bert_whitespace,
        "white": ask_splitter(pre_tokenizers.WhitespaceSplit())[1],
        "numeric": ask_splitter(pre_tokenizers.Digits(individual_digits=True))[0],
        "punctuation": ask_splitter(pre_tokenizers.Punctuation())[0],
        "whitespace_w": whitespace_w,
        "whitespace_s": whitespace_s,
    }


def grapheme_properties() -> dict[str, Property]:
    """Which code points share a grapheme cluster with a letter before (Extend, ZWJ, SpacingMark) or behind (Prepend).

    Asks a `Precompiled` that knows only the key `a` and deletes it. It deletes the whole cluster `ac`, if c joins the
    `a`; and of `ca` with an accent it leaves the accent, if c joins the `a` so that no cluster begins with `a`.
    """
    units = np.zeros(0x200, "<u4")  # a double array: index of a child = its parent's offset ^ its label
    units[0] = 0x100 << 10
    units[0x100 ^ ord("a")] = 1 << 10 | 1 << 8 | ord("a")
    units[0x100 ^ ord("a") ^ 1] = 1 << 31
    deletes_a = np.array(units.nbytes, "<u4").tobytes() + units.tobytes() + b"\0"
    normalizer = normalizers.Precompiled(deletes_a)
    every = [chr(c) for c in code_points().tolist() if chr(c) not in "a|"]

    def differing(form: str) -> Property:
        made = normalizer.normalize_str("".join(form.format(c) for c in every)).split("|")
        return _where(dict(zip(map(ord, every), map(str.__ne__, every, made), strict=False)), lambda differs: differs)

    return {"joins_left": differing("a{}|"), "joins_right": differing("{}a\u0301|")}


def combining_classes(nfd: Images) -> npt.NDArray[np.uint8]:
    """Ranks of the combining classes: uint8[0x110000].

    A mark moves in front of the mark of the highest class, or lets the mark of the lowest class move in front of it.
    Then all marks in one text come back sorted by class, and two neighbours have one class if they do not change
    places.
    """
    order = normalizers.NFD().normalize_str
    simple = [chr(c) for c in code_points().tolist() if c not in nfd]
    moves = [c for c in simple if order("a" + HIGH_MARK + c) == "a" + c + HIGH_MARK != "a" + HIGH_MARK + c]
    waits = [c for c in simple if order("a" + c + LOW_MARK) == "a" + LOW_MARK + c != "a" + c + LOW_MARK]
    marks = order("a" + "".join(sorted({*moves, *waits})))[1:]
    ranks = np.zeros(CODE_POINTS, np.uint8)
    rank = 1
    for at, mark in enumerate(marks):
        if at and order("a" + mark + marks[at - 1]) != "a" + mark + marks[at - 1]:
            rank += 1
        ranks[ord(mark)] = rank
    for c, made in nfd.items():
        ranks[c] = ranks[ord(made[0])]
    assert rank < 64, "the native reordering counts on few classes"
    return ranks


def find_compositions(nfd: Images, nfc: Images) -> list[tuple[int, int, int]]:
    """(first, second, composed), without Hangul: what NFD takes apart and NFC leaves alone is composed."""
    compose = normalizers.NFC().normalize_str
    pairs = []
    for c, made in nfd.items():
        if c in nfc or c in HANGUL:
            continue
        first = compose(made[:-1])
        assert len(first) == 1
        assert compose(first + made[-1]) == chr(c)
        pairs.append((ord(first), ord(made[-1]), c))
    return sorted(pairs)


def make() -> dict[str, Any]:
    """Asks for everything; the members of `unicode.npz` by name."""
    images = {name: ask_images(normalizer) for name, normalizer in NORMALIZERS.items()}
    ranks = combining_classes(images["nfd"])
    pairs = find_compositions(images["nfd"], images["nfc"])
    seconds = {second for _first, second, _composed in pairs}
    seconds |= {ord(jamo) for c in HANGUL for jamo in images["nfd"][c][1:]}
    starter = ranks == 0
    starter[0xD800:0xE000] = False
    properties = bert_properties() | splitter_properties()
    properties |= {"added_w": ask_added(single=True), "added_s": ask_added(single=False)}
    properties |= {"accent": _where(ask_images(normalizers.StripAccents()), lambda made: made == "")}
    properties |= {"starter": starter, "seconds": _where(dict.fromkeys(seconds, ""), lambda made: True)}
    properties |= {name: matched_by(pattern) for name, pattern in PATTERNS.items()}
    properties |= grapheme_properties()
    members: dict[str, Any] = {"reference": np.array(tokenizers.__version__)}
    members |= {f"has_{name}": _run_lengths(has) for name, has in properties.items()}
    for name, made in images.items():
        members |= _image_members(name, made)
    borders = np.flatnonzero(np.diff(ranks)) + 1
    members["combining_class"] = ranks[np.r_[0, borders]]
    members["combining_class_lengths"] = np.diff(np.r_[0, borders, CODE_POINTS]).astype(np.uint32)
    members["compositions"] = np.array(pairs, np.uint32)
    return members


def _image_members(name: str, images: Images) -> dict[str, Any]:
    changed = np.array(sorted(images), np.uint32)
    rows = [[ord(c) for c in images[int(code_point)]] for code_point in changed]
    return {
        f"image_{name}_steps": np.diff(changed, prepend=np.uint32(0)),
        f"image_{name}_counts": np.array([len(row) for row in rows], np.uint8),
        f"image_{name}": np.array([c for row in rows for c in row], np.uint32),
    }


def _run_lengths(has: Property) -> npt.NDArray[np.uint32]:
    """Lengths of the runs without and with the property in turn, first those without."""
    borders = np.flatnonzero(np.diff(has, prepend=False))
    return np.diff(np.r_[0, borders, CODE_POINTS]).astype(np.uint32)


def _where(images: dict[int, Any], test: Callable[[Any], bool]) -> Property:
    found = np.zeros(CODE_POINTS, bool)
    found[[c for c, made in images.items() if test(made)]] = True
    return found


def main(path: Path = PATH) -> None:
    np.savez_compressed(path, **make())


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
