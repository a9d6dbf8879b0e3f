"""The main job on what ships here: encode, decode back, check against the reference, and time both."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import tokenizers

from gpu_tok.batch import TextBatch
from gpu_tok.demo import BYTE_LEVEL_BPE, WORDPIECE, texts, tokenizer_json
from gpu_tok.tokenizer import Tokenizer

NAMES = {"WordPiece": WORDPIECE, "byte-level BPE": BYTE_LEVEL_BPE}
REPEATS = 3
T = TypeVar("T")


@dataclass(frozen=True)
class Speed:
    """Megabytes of text a second: with an empty table, with the same texts again, and the reference's."""

    cold: float
    warm: float
    reference: float

    @property
    def ratio(self) -> float:
        return self.warm / self.reference


@dataclass(frozen=True)
class Outcome:
    """What one tokenizer made of the texts. `differing` has the first texts whose ids are not the reference's."""

    name: str
    ids: int
    grade: int
    encode: Speed
    decode: Speed
    same_ids: bool
    same_texts: bool
    differing: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        ratios = {"encode_ratio": round(self.encode.ratio, 2), "decode_ratio": round(self.decode.ratio, 2)}
        return {**asdict(self), **ratios}


def sample(megabytes: float) -> list[str]:
    """The demo's texts, over and over, until they make so many megabytes."""
    once = [text["text"] for text in texts()]
    byte_count = sum(len(text.encode()) for text in once)
    return once * max(1, round(megabytes * 1e6 / byte_count))


def run(name: str, rows: list[str], **options: Any) -> Outcome:
    """Encodes and decodes `rows` with one of `NAMES`, and has the reference do the same."""
    definition = tokenizer_json(NAMES[name])
    reference = tokenizers.Tokenizer.from_str(definition)
    batch = TextBatch.of(rows)
    megabytes = batch.byte_count / 1e6

    _warm_up(definition, rows, **options)
    tokenizer = Tokenizer.from_str(definition, **options)
    encoded, cold = timed(lambda: tokenizer.encode_batch(batch, to_host=True))
    warm = _best(lambda: tokenizer.encode_batch(batch, to_host=True))
    expected, reference_time = timed(lambda: reference.encode_batch_fast(rows))
    reference_time = min(reference_time, _best(lambda: reference.encode_batch_fast(rows)))

    expected_ids = [row.ids for row in expected]
    decoded, decode_cold = timed(lambda: tokenizer.decode_bytes(encoded).to_host())
    decode_warm = _best(lambda: tokenizer.decode_bytes(encoded).to_host())
    expected_texts, decode_reference = timed(lambda: reference.decode_batch(expected_ids))
    decode_reference = min(decode_reference, _best(lambda: reference.decode_batch(expected_ids)))

    ids = encoded.to_list()
    differing = dict.fromkeys(text for text, own, other in zip(rows, ids, expected_ids, strict=True) if own != other)
    return Outcome(
        name=name,
        ids=len(encoded.ids),
        grade=tokenizer.info().encode.grade,
        encode=Speed(megabytes / cold, megabytes / warm, megabytes / reference_time),
        decode=Speed(megabytes / decode_cold, megabytes / decode_warm, megabytes / decode_reference),
        same_ids=ids == expected_ids,
        same_texts=decoded.to_list() == expected_texts,
        differing=tuple(differing)[:3],
    )


def _warm_up(definition: str, rows: list[str], **options: Any) -> None:
    """Has the kernels compiled or loaded; the tokenizer that is timed afterwards still has an empty table."""
    tokenizer = Tokenizer.from_str(definition, **options)
    tokenizer.decode_bytes(tokenizer.encode_batch(rows))


def timed(work: Callable[[], T]) -> tuple[T, float]:
    begin = time.perf_counter()
    result = work()
    return result, time.perf_counter() - begin


def _best(work: Callable[[], Any]) -> float:
    return min(timed(work)[1] for _ in range(REPEATS))
