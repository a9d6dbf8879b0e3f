"""What `gpu-tok demo` works on: texts written for this project, and tokenizers trained on them by `make`."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import orjson

WORDPIECE, BYTE_LEVEL_BPE = "wordpiece.json", "byte_level_bpe.json"


def texts() -> list[dict[str, Any]]:
    """The sample texts: `{"kind": "en", "text": "..."}`; the kind is a language or what else the text is."""
    lines = files(__name__).joinpath("texts.jsonl").read_bytes().splitlines()
    return [orjson.loads(line) for line in lines]


def tokenizer_json(name: str = WORDPIECE) -> str:
    """The text of one of the tokenizers that ship here."""
    return files(__name__).joinpath(name).read_text(encoding="utf-8")
