"""The folder that `pack_data.py` makes: tokenizers, texts and wheels, and a manifest that says what they are."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import texts
import timing
import zstandard
from texts import Texts

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = "MANIFEST.json"
SOURCES = ("gpu_tok", "cpu_ref", "kernels")
CODE = (".py", ".cu", ".cuh", ".npz")


@dataclass(frozen=True)
class Packed:
    """tokenizers/NAME.json.zst, corpora/LANGUAGE.jsonl.zst, wheels/*.whl, MANIFEST.json."""

    folder: Path

    @cached_property
    def manifest(self) -> dict[str, Any]:
        path = self.folder / MANIFEST
        if not path.is_file():
            raise SystemExit(f"{path}: not there\nhint: make the folder with bench/pack_data.py")
        return json.loads(path.read_text(encoding="utf-8"))

    @property
    def tokenizers(self) -> list[str]:
        return self._stems("tokenizers")

    @property
    def languages(self) -> list[str]:
        return self._stems("corpora")

    def tokenizer(self, name: str) -> str:
        """The text of a `tokenizer.json`."""
        return decompress((self.folder / "tokenizers" / f"{name}.json.zst").read_bytes()).decode("utf-8")

    @cached_property
    def _texts(self) -> dict[str, list[str]]:
        return {}

    def texts(self, language: str) -> list[str]:
        """All texts of a language; read once."""
        if language not in self._texts:
            self._texts[language] = texts.read(language, self.folder / "corpora")
        return self._texts[language]

    def to_time(self, language: str, megabytes: float) -> Texts:
        """Texts to time, and others of the same language."""
        return texts.load(language, self.folder / "corpora", megabytes)

    @cached_property
    def has_same_sources(self) -> bool:
        """Was it packed with the code that runs now."""
        return self.manifest["sources"] == fingerprint_of_sources()

    @property
    def commit(self) -> str:
        """The commit that is measured; without git, that of the packing, if the code is the same."""
        known = timing.commit()
        return self.manifest["commit"] if known == "unknown" and self.has_same_sources else known

    def damaged(self) -> list[str]:
        """Files that are not what the manifest says."""
        files = self.manifest["files"].items()
        return [name for name, about in files if fingerprint(self.folder / name) != about["sha256"]]

    def _stems(self, folder: str) -> list[str]:
        """Names of files, in the manifest's order: what matters most comes first."""
        names = [Path(name) for name in self.manifest["files"]]
        return [name.name.split(".")[0] for name in names if name.parent.name == folder]


def compress(data: bytes, level: int = 19) -> bytes:
    return zstandard.ZstdCompressor(level=level).compress(data)


def decompress(packed: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(packed)


def fingerprint(path: Path) -> str:
    """SHA-256 of a file; "" where there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def fingerprint_of_sources() -> str:
    """SHA-256 over the code that is measured, its first 16 digits: a tree without git can be recognized by it."""
    paths = sorted(path for folder in SOURCES for path in (ROOT / folder).rglob("*") if path.suffix in CODE)
    whole = hashlib.sha256()
    for path in paths:
        whole.update(f"{path.relative_to(ROOT).as_posix()} {fingerprint(path)}\n".encode())
    return whole.hexdigest()[:16]
