"""When two disagree: the first text, the word and the position where they part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer

FNV_OFFSET = 0xCBF29CE484222325
FNV_PRIME = 0x100000001B3


def assert_same_ids(
    reference: Tokenizer,
    texts: Sequence[str],
    actual: Iterable[Any],
    add_special_tokens: bool = True,
    name: str = "actual",
) -> None:
    """Raises AssertionError unless the rows are what the reference makes of the texts.

    actual: one row of ids a text, in any form: lists, arrays, or a TokenBatch.
    """
    expected = [row.ids for row in reference.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)]
    rows = as_lists(actual)
    if rows == expected:
        return
    assert len(rows) == len(expected), f"{name} has {len(rows)} rows for {len(expected)} texts"
    row = next(index for index, (left, right) in enumerate(zip(expected, rows, strict=True)) if left != right)
    raise AssertionError(report(reference, texts[row], rows[row], row, add_special_tokens, name))


def assert_same_texts(expected: Sequence[str], actual: Sequence[str], rows: Sequence[Any] = ()) -> None:
    """Raises AssertionError, with the first text that differs, unless all are equal."""
    assert len(expected) == len(actual), f"{len(actual)} texts, not {len(expected)}"
    for row, (left, right) in enumerate(zip(expected, actual, strict=True)):
        if left != right:
            at = first_difference(left, right)
            ids = f"\n  ids       {list(rows[row])[:40]}" if len(rows) else ""
            raise AssertionError(
                f"text {row} parts at character {at}\n  expected  {left[max(0, at - 20) : at + 20]!r}"
                f"\n  actual    {right[max(0, at - 20) : at + 20]!r}{ids}"
            )


def report(
    reference: Tokenizer, text: str, actual: list[int], row: int = 0, add_special_tokens: bool = True, name: str = ""
) -> str:
    """Where a row parts from the reference's: the position, the word that it belongs to, and both sides' pieces."""
    encoding = reference.encode(text, add_special_tokens=add_special_tokens)
    at = first_difference(encoding.ids, actual)
    begin, end = encoding.offsets[at] if at < len(encoding.ids) else (len(text), len(text))
    window = slice(max(0, at - 3), at + 5)
    return "\n".join(
        [
            f"text {row} ({len(text)} characters) parts at id {at} of {len(encoding.ids)} ({name}: {len(actual)})",
            f"  text      {text[max(0, begin - 30) : begin]!r} >{text[begin:end]!r}< {text[end : end + 30]!r}",
            f"  word      {_word_at(encoding, text, at)!r}",
            f"  reference {encoding.ids[window]} {encoding.tokens[window]}",
            f"  {name or 'actual':9} {actual[window]} {[reference.id_to_token(number) for number in actual[window]]}",
        ]
    )


def first_difference(left: Sequence[Any], right: Sequence[Any]) -> int:
    """The first index at which two sequences differ; the length of the shorter one where it begins the other."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((index for index, (one, other) in pairs if one != other), min(len(left), len(right)))


def as_lists(rows: Any) -> list[list[int]]:
    """Rows of ids as lists of Python ints, from a TokenBatch, a Ragged, arrays or lists."""
    if hasattr(rows, "flat") and hasattr(rows, "starts"):
        rows = [rows.flat[begin:end] for begin, end in zip(rows.starts, rows.starts[1:], strict=False)]
    if hasattr(rows, "to_list"):
        return rows.to_list()
    return [np.asarray(row).tolist() for row in rows]


def fnv1a(ids: Any) -> int:
    """FNV-1a, 64-bit, over ids as little-endian 32-bit words: slow and plain, as the definition says it.

    >>> hex(fnv1a([]))
    '0xcbf29ce484222325'
    """
    return fnv1a_of_bytes(np.asarray(ids).astype("<u4").tobytes())


def fnv1a_of_bytes(data: bytes) -> int:
    value = FNV_OFFSET
    for byte in data:
        value = ((value ^ byte) * FNV_PRIME) & 0xFFFFFFFFFFFFFFFF
    return value


def _word_at(encoding: Any, text: str, at: int) -> str:
    word = encoding.word_ids[at] if at < len(encoding.word_ids) else None
    if word is None:
        return ""
    spans = [span for span, number in zip(encoding.offsets, encoding.word_ids, strict=True) if number == word]
    return text[min(begin for begin, _ in spans) : max(end for _, end in spans)]
