"""Ids and decoded texts beside the reference's: first some of everything, then everything at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from gpu_tok import Tokenizer
from gpu_tok.batch import TextBatch, TokenBatch, row_ranges
from gpu_tok.parity import ParityReport, check
from on_gpu import compare
from on_gpu.setting import Setting

SHORT_ROWS = 64  # ids of a row that is cut off and filled up
BATCH_BYTES = 64 << 20
MOST_SHOWN = 3


def short_tasks(setting: Setting) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    for name in setting.names:
        yield name, partial(short, setting, name)


def all_tasks(setting: Setting) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """All tokenizers on some of each language, then all of them on all texts of a language, and the next."""
    for name in setting.data.tokenizers:
        yield f"{name}/some of each", partial(parity_of, setting, name, some_of_each)
    for language in setting.data.languages:
        for name in setting.data.tokenizers:
            yield f"{name}/{language}", partial(parity_of, setting, name, partial(texts_of, language))


def texts_of(language: str, setting: Setting) -> list[str]:
    return setting.data.texts(language)


def some_of_each(setting: Setting) -> list[str]:
    """Whole texts of every language, a few of each, shortened where they are long; and the empty text."""
    sizes, chosen = setting.sizes, [""]
    for language in setting.data.languages:
        texts = setting.data.texts(language)
        step = max(1, len(texts) // sizes.parity_rows)
        most = max(16, sizes.parity_bytes // sizes.parity_rows // len(setting.data.languages))
        chosen += [text[:most] for text in texts[::step][: sizes.parity_rows]]
    return chosen


def short(setting: Setting, name: str) -> dict[str, Any]:
    """A small batch cold, warm, cut off and filled up, and decoded; `difference` has the first of each that differs."""
    texts = some_of_each(setting)
    tokenizer = setting.empty_tokenizer(name)
    report = check(
        tokenizer, TextBatch.of(texts), {state: encode_by(tokenizer) for state in ("cold", "warm")}, most_shown=1
    )
    found: dict[str, Any] = {each.path: vars(each) for each in report.differences}
    for state, pair in (("padded", padded(setting, name, texts)), ("decoded", decoded(setting, name, texts))):
        if difference := compare.first_difference(*pair):
            found[state] = difference
    return summary(report) | {"difference": found or None}


def encode_by(tokenizer: Tokenizer) -> Callable[[TextBatch], TokenBatch]:
    return lambda texts: tokenizer.encode_batch(texts, truncation=False, padding=False).to_host()


def padded(setting: Setting, name: str, texts: list[str]) -> tuple[Any, Any]:
    """Rows cut off at SHORT_ROWS ids and filled up to the longest."""
    reference = setting.reference(name)
    reference.enable_truncation(SHORT_ROWS)
    reference.enable_padding(pad_id=0)
    expected = compare.as_rows([row.ids for row in reference.encode_batch(texts)], np.int32)
    options: Any = {"truncation": True, "max_length": SHORT_ROWS, "padding": "longest", "pad_id": 0}
    return compare.rows_of(setting.tokenizer(name).encode_batch(texts, **options)), expected


def decoded(setting: Setting, name: str, texts: list[str]) -> tuple[Any, Any]:
    """The texts of the reference's ids."""
    reference = setting.reference(name)
    rows = [row.ids for row in reference.encode_batch_fast(texts)]
    ours = setting.tokenizer(name).decode_bytes(rows)
    expected = [text.encode("utf-8") for text in reference.decode_batch(rows)]
    return compare.bytes_of(ours), compare.as_rows(expected, np.uint8)


def parity_of(setting: Setting, name: str, texts: Callable[[Setting], list[str]]) -> dict[str, Any]:
    """All texts, in batches."""
    batch, tokenizer = TextBatch.of(texts(setting)), setting.tokenizer(name)
    parts = (
        TextBatch(batch.bytes, batch.starts[begin : end + 1], batch.valid)
        for begin, end in row_ranges(batch.starts, BATCH_BYTES)
    )
    report = check(tokenizer, parts, {"device": encode_by(tokenizer)}, most_shown=MOST_SHOWN)
    return summary(report) | {"difference": [vars(each) for each in report.differences] or None}


def summary(report: ParityReport) -> dict[str, Any]:
    return {
        "same": report.same,
        "texts": report.documents,
        "bytes": report.bytes,
        "ids": report.ids,
        "hashes": report.hashes,
        "different_texts": report.different,
    }
