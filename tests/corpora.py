"""Real texts from the shared folder, when it is there: bounded samples, spread over each file."""

from __future__ import annotations

import io
from functools import lru_cache

import orjson
import zstandard
from package_vocabularies import Absent
from vocabularies import shared_folder

LANGUAGES = ("en", "code", "zh", "ja", "ko", "ru", "ar", "hi", "th", "vi", "multi", "markdown", "json")
LONGEST_TEXT = 20_000


@lru_cache(maxsize=64)
def _whole(language: str) -> tuple[str, ...]:
    path = shared_folder() / "corpora" / f"{language}.jsonl.zst"
    if not path.is_file():
        raise Absent(f"no texts in {path}")
    with path.open("rb") as packed:
        lines = io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(packed))
        return tuple(orjson.loads(line)["text"] for line in lines)


def whole(language: str) -> list[str]:
    """All texts of a language; raises `Absent` where there are none."""
    return list(_whole(language))


def sample(language: str, byte_count: int) -> list[str]:
    """Texts from all over a file, about `byte_count` bytes of them, each cut at 20,000 characters."""
    texts = whole(language)
    total = sum(min(len(text), LONGEST_TEXT) for text in texts)
    step = max(1, total // max(1, byte_count))
    chosen: list[str] = []
    taken = 0
    for text in texts[::step]:
        if taken >= byte_count:
            break
        chosen.append(text[:LONGEST_TEXT])
        taken += len(chosen[-1].encode("utf-8"))
    return chosen
