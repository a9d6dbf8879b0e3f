"""What is measured: this project, the reference, and the native peers when they are installed.

Each takes its texts in the form that suits it best, made before the clock starts, and gives ids in the form that it
has: flat arrays (gpu_tok, nanotoken), an awkward Array (gigatoken), Encodings (the reference). Turning these into one
form to compare them is not timed. No system adds special tokens, since gigatoken cannot. One thread or several is set
by the environment before this module is imported (`RAYON_NUM_THREADS`), except for gpu_tok's `workers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from gpu_tok.tables.decode import BYTE_OF
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.splitters import GPT2_PATTERN


class Unsupported(Exception):  # noqa: N818 - no error: the table shows the reason
    """This system is not installed, or does not load this tokenizer."""


class System:
    """One system with an empty table. `prepare` is not timed, `encode` and `decode` are; the rest compares."""

    name = ""
    lacks = ""
    rounds_at_most = 100

    def __init__(self, path: Path, threads: int) -> None:
        raise NotImplementedError

    def prepare(self, texts: list[str]) -> Any:
        """The texts in the form that `encode` takes."""
        return texts

    def encode(self, prepared: Any) -> Any:
        raise NotImplementedError

    def ids(self, encoded: Any) -> tuple[np.ndarray, np.ndarray]:
        """Flat ids and the starts of rows."""
        raise NotImplementedError

    def prepare_ids(self, rows: list[np.ndarray]) -> Any:
        """Rows of ids in the form that `decode` takes."""
        return rows

    def decode(self, prepared: Any) -> Any:
        raise NotImplementedError

    def texts(self, decoded: Any) -> list[bytes]:
        """Each decoded text as UTF-8."""
        return [text.encode("utf-8") for text in decoded]


class Reference(System):
    """Hugging Face tokenizers, by its fastest call: no offsets."""

    name = "tokenizers"
    rounds_at_most = 2  # a second and more each, and it keeps no table

    def __init__(self, path: Path, threads: int) -> None:
        import tokenizers

        self.tokenizer = tokenizers.Tokenizer.from_file(str(path))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()

    def encode(self, prepared: Any) -> Any:
        return self.tokenizer.encode_batch_fast(prepared, add_special_tokens=False)

    def ids(self, encoded: Any) -> tuple[np.ndarray, np.ndarray]:
        return flatten([row.ids for row in encoded])

    def prepare_ids(self, rows: list[np.ndarray]) -> Any:
        return [row.tolist() for row in rows]

    def decode(self, prepared: Any) -> Any:
        return self.tokenizer.decode_batch(prepared, skip_special_tokens=False)


class GpuTok(System):
    """This project, on texts that lie in one flat array."""

    name = "gpu_tok"

    def __init__(self, path: Path, threads: int) -> None:
        import gpu_tok

        self.module = gpu_tok
        self.tokenizer = gpu_tok.Tokenizer.from_file(str(path), device="cpu", workers=threads)

    def prepare(self, texts: list[str]) -> Any:
        return self.module.TextBatch.of(texts)

    def encode(self, prepared: Any) -> Any:
        return self.tokenizer.encode_batch(prepared, add_special_tokens=False, truncation=False, padding=False)

    def ids(self, encoded: Any) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(encoded.ids), np.asarray(encoded.starts)

    def prepare_ids(self, rows: list[np.ndarray]) -> Any:
        from gpu_tok.batch import Ragged

        return Ragged(*flatten(rows))

    def decode(self, prepared: Any) -> Any:
        return self.tokenizer.decode_bytes(prepared, skip_special_tokens=False)

    def texts(self, decoded: Any) -> list[bytes]:
        flat, starts = decoded.bytes, decoded.starts
        return [flat[begin:end].tobytes() for begin, end in pairwise(starts)]


class GpuTokStrings(GpuTok):
    """This project, on a list of Python strings; decoding to one."""

    name = "gpu_tok, list[str]"

    def prepare(self, texts: list[str]) -> Any:
        return texts

    def decode(self, prepared: Any) -> Any:
        return self.tokenizer.decode_batch(prepared, skip_special_tokens=False)

    def texts(self, decoded: Any) -> list[bytes]:
        return [text.encode("utf-8") for text in decoded]


class Nanotoken(System):
    name = "nanotoken"
    lacks = "models other than WordPiece, pairs, offsets, overflow; decoding takes a list a row"

    def __init__(self, path: Path, threads: int) -> None:
        import nanotoken

        try:
            self.tokenizer = nanotoken.Tokenizer(str(path))
        except nanotoken.UnsupportedTokenizerError as error:
            raise Unsupported(str(error).split("\n")[0]) from error
        self.parallel = threads > 1

    def prepare(self, texts: list[str]) -> Any:
        return [text.encode("utf-8") for text in texts]

    def encode(self, prepared: Any) -> Any:
        return self.tokenizer.encode_batch(prepared, add_special_tokens=False, parallel=self.parallel)

    def ids(self, encoded: Any) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(encoded.ids), np.asarray(encoded.offsets)

    def prepare_ids(self, rows: list[np.ndarray]) -> Any:
        return [row.astype(np.uint32) for row in rows]

    def decode(self, prepared: Any) -> Any:
        return self.tokenizer.decode_batch(prepared, skip_special_tokens=False)


class NanotokenStrings(Nanotoken):
    name = "nanotoken, list[str]"

    def prepare(self, texts: list[str]) -> Any:
        return texts


class Gigatoken(System):
    name = "gigatoken"
    lacks = "WordPiece, Unigram, special tokens, offsets, pairs; decoding takes one row a call"

    def __init__(self, path: Path, threads: int) -> None:
        import gigatoken

        try:
            self.tokenizer = gigatoken.Tokenizer(str(path))
        except Exception as error:  # it raises what its parser raises
            raise Unsupported(str(error).split("\n")[0]) from error
        self.parallel = threads > 1

    def prepare(self, texts: list[str]) -> Any:
        return [text.encode("utf-8") for text in texts]

    def encode(self, prepared: Any) -> Any:
        return self.tokenizer.encode_batch(prepared, parallel=self.parallel)

    def ids(self, encoded: Any) -> tuple[np.ndarray, np.ndarray]:
        import awkward

        counts = np.asarray(awkward.num(encoded))
        return np.asarray(awkward.flatten(encoded)), np.concatenate([[0], np.cumsum(counts)])

    def prepare_ids(self, rows: list[np.ndarray]) -> Any:
        return [row.astype(np.uint32) for row in rows]

    def decode(self, prepared: Any) -> Any:
        return [self.tokenizer.decode(row) for row in prepared]

    def texts(self, decoded: Any) -> list[bytes]:
        return list(decoded)


class Tiktoken(System):
    """tiktoken with the pieces of a `tokenizer.json`, whose ids serve as ranks: whether they may, the ids show."""

    name = "tiktoken"
    lacks = "all but byte-level BPE with one pattern; it keeps no table and works on strings"
    rounds_at_most = Reference.rounds_at_most

    def __init__(self, path: Path, threads: int) -> None:
        import tiktoken

        definition = Definition.from_file(path)
        if definition.model["type"] != "BPE" or definition.json["normalizer"]:
            raise Unsupported("no byte-level BPE without a normalizer")
        pieces = definition.model["vocab"].items()
        ranks = {bytes(map(BYTE_OF.__getitem__, piece)): rank for piece, rank in pieces if set(piece) <= BYTE_OF.keys()}
        self.encoding = tiktoken.Encoding(
            path.stem,
            pat_str=pattern_of(definition.pre_tokenizers),
            mergeable_ranks=ranks,
            special_tokens={token["content"]: token["id"] for token in definition.added_tokens},
        )
        self.threads = threads

    def encode(self, prepared: Any) -> Any:
        return self.encoding.encode_batch(prepared, num_threads=self.threads, allowed_special="all")

    def ids(self, encoded: Any) -> tuple[np.ndarray, np.ndarray]:
        return flatten(encoded)

    def prepare_ids(self, rows: list[np.ndarray]) -> Any:
        return [row.tolist() for row in rows]

    def decode(self, prepared: Any) -> Any:
        return self.encoding.decode_batch(prepared, num_threads=self.threads)


def pattern_of(pre_tokenizers: Sequence[dict[str, Any]]) -> str:
    """The one pattern that pre-tokenizers split by."""
    match [part["type"] for part in pre_tokenizers]:
        case ["ByteLevel"] if pre_tokenizers[0]["use_regex"]:
            return GPT2_PATTERN
        case ["Split", "ByteLevel"] if "Regex" in pre_tokenizers[0]["pattern"]:
            return str(pre_tokenizers[0]["pattern"]["Regex"])
    raise Unsupported("more than one pattern")


SYSTEMS: tuple[type[System], ...] = (Reference, GpuTok, GpuTokStrings, Nanotoken, NanotokenStrings, Gigatoken, Tiktoken)


def make(kind: type[System], path: Path, threads: int) -> System:
    """A system with an empty table, asked once so that what it builds late is built; raises `Unsupported`."""
    try:
        system = kind(path, threads)
        system.encode(system.prepare(["a"]))
    except ModuleNotFoundError as error:
        if error.name not in ("gpu_tok", "nanotoken", "gigatoken", "tiktoken"):
            raise
        raise Unsupported("not installed") from error
    return system


def flatten(rows: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ids as int32 flat ids and int64 starts."""
    starts = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=starts[1:])
    arrays = [np.asarray(row, np.int32) for row in rows]
    return (np.concatenate(arrays) if arrays else np.zeros(0, np.int32)), starts
