"""Vocabularies that the tests make themselves: trained by the reference on the repository's own texts, or written out.

They are small, so they meet unknown pieces, byte fallback and long splits far more often than real ones do.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from package_vocabularies import (
    CL100K_PATTERN,
    added_token,
    bert_definition,
    byte_letters,
    byte_level_definition,
    split_then_bytes,
)
from texts import TEXTS
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

ROOT = Path(__file__).resolve().parent
METASPACE = "\u2581"
BERT_SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


@lru_cache(maxsize=1)
def training_texts() -> list[str]:
    """The table of hard texts and the sources of two test modules: some 40 KB of many scripts, English and code."""
    sources = [(ROOT / name).read_text(encoding="utf-8") for name in ("package_vocabularies.py", "oracle.py")]
    return [text for text in TEXTS if len(text) < 500] * 2 + [line for source in sources for line in source.split("\n")]


def trained(tokenizer: Tokenizer, trainer: Any) -> dict[str, Any]:
    """The description of a tokenizer after training on the repository's texts."""
    tokenizer.train_from_iterator(training_texts(), trainer)
    return json.loads(tokenizer.to_str())


# WordPiece


@lru_cache(maxsize=1)
def bert_vocab() -> dict[str, int]:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=2500, special_tokens=BERT_SPECIALS, show_progress=False)
    return trained(tokenizer, trainer)["model"]["vocab"]


def bert() -> str:
    """All of BERT: its normalizer, pre-tokenizer, template and decoder."""
    return json.dumps(bert_definition(bert_vocab(), lowercase=True))


def wordpiece_in_steps() -> str:
    """The same work in general parts, with added tokens of every flag and a limit of 20 characters a word."""
    described = bert_definition(bert_vocab(), lowercase=True)
    count = len(bert_vocab())
    described["normalizer"] = {
        "type": "Sequence",
        "normalizers": [{"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, {"type": "NFC"}],
    }
    described["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "WhitespaceSplit"},
            {"type": "Punctuation", "behavior": "Isolated"},
            {"type": "Digits", "individual_digits": True},
        ],
    }
    described["added_tokens"] += [
        added_token("[LEFT]", count, lstrip=True),
        added_token("[RIGHT]", count + 1, rstrip=True),
        added_token("abc", count + 2, special=False, single_word=True),
        added_token("hello", count + 3, special=False, normalized=True),
        added_token("hello world", count + 4, special=False, normalized=False),
        added_token("  ", count + 5, special=False, normalized=False),
    ]
    described["model"]["max_input_chars_per_word"] = 20
    return json.dumps(described)


def tiny_wordpiece() -> str:
    """A handful of pieces, so that most words are unknown, and words of more than eight characters are too."""
    pieces = [*BERT_SPECIALS, *"abcdefgh", *("##" + letter for letter in "abcdef"), "ab", "abc", "##bcd", "##cdef", "é"]
    pieces += ["the", "##the", "1", "##1", ".", ",", "'", "s", "中", "国", "##国", "un", "##aff", "##able"]
    described = bert_definition({piece: at for at, piece in enumerate(pieces)}, lowercase=False)
    described["model"]["max_input_chars_per_word"] = 8
    return json.dumps(described)


# Byte-level BPE


@lru_cache(maxsize=1)
def byte_level_model() -> dict[str, Any]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1500, initial_alphabet=alphabet, special_tokens=["<|endoftext|>"], show_progress=False
    )
    return trained(tokenizer, trainer)["model"]


def byte_level() -> str:
    """GPT-2's shape: its own split pattern, no normalizer."""
    model = byte_level_model()
    parts = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    end = added_token("<|endoftext|>", model["vocab"]["<|endoftext|>"])
    return json.dumps(byte_level_definition(model["vocab"], model["merges"], parts, [end]))


def ignore_merges() -> str:
    """Llama 3's and Qwen's shape: a Split pattern, NFC, and whole words taken from the vocabulary before any merge.

    Some entries have no merge that leads to them.
    """
    model = byte_level_model()
    vocab = dict(model["vocab"])
    for word in ("Ġunreachable", "zzzz", "Ġsquared", "ä½łå¥½"):
        vocab.setdefault(word, len(vocab))
    end = added_token("<|endoftext|>", vocab["<|endoftext|>"])
    described = byte_level_definition(vocab, model["merges"], split_then_bytes(CL100K_PATTERN), [end])
    described["normalizer"] = {"type": "NFC"}
    described["model"]["ignore_merges"] = True
    return json.dumps(described)


def byte_gap() -> str:
    """A vocabulary in which some bytes have no token and nothing stands for the unknown: they vanish."""
    letters = byte_letters()
    vocab = {letters[byte]: at for at, byte in enumerate(byte for byte in range(256) if byte % 5 and byte != 0x0A)}
    merges = []
    for left, right in (("t", "h"), ("Ġ", "t"), ("h", "e"), ("th", "e"), ("Ġt", "h"), ("Ġth", "e"), ("a", "a")):
        if left in vocab and right in vocab:
            merges.append([left, right])
            vocab[left + right] = len(vocab)
    parts = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    return json.dumps(byte_level_definition(vocab, merges, parts, []))


def word_end() -> str:
    """CLIP's shape: words end in `</w>`, lower case, a removing split, an unknown token."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(
        vocab_size=1200, end_of_word_suffix="</w>", special_tokens=["<unk>"], show_progress=False, limit_alphabet=300
    )
    described = trained(tokenizer, trainer)
    described["decoder"] = {"type": "BPEDecoder", "suffix": "</w>"}
    return json.dumps(described)


# SentencePiece-like BPE


@lru_cache(maxsize=1)
def sentencepiece_model() -> dict[str, Any]:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    specials = ["<unk>", "<s>", "</s>", *BYTE_TOKENS]
    trainer = trainers.BpeTrainer(vocab_size=1500, special_tokens=specials, show_progress=False, limit_alphabet=250)
    return trained(tokenizer, trainer)["model"]


def sentencepiece_definition() -> dict[str, Any]:
    model = sentencepiece_model()
    begin = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    both = [begin, {"Sequence": {"id": "A", "type_id": 0}}]
    return {
        "version": "1.0",
        "added_tokens": [added_token(piece, model["vocab"][piece]) for piece in ("<unk>", "<s>", "</s>")],
        "post_processor": {
            "type": "TemplateProcessing",
            "single": both,
            "pair": [*both, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [model["vocab"]["<s>"]], "tokens": ["<s>"]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": METASPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": model,
    }


def prepend() -> str:
    """Llama 2's shape: `Prepend` and `Replace`, no pre-tokenizer, so a document is one word; byte fallback."""
    described = sentencepiece_definition()
    described["normalizer"] = {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": METASPACE},
            {"type": "Replace", "pattern": {"String": " "}, "content": METASPACE},
        ],
    }
    return json.dumps(described)


def metaspace_first() -> str:
    """Later Llama's and Mistral's shape: `Metaspace` before the first word only, unsplit."""
    described = sentencepiece_definition()
    described["pre_tokenizer"] = {
        "type": "Metaspace",
        "replacement": METASPACE,
        "prepend_scheme": "first",
        "split": False,
    }
    return json.dumps(described)


# Unigram and WordLevel


@lru_cache(maxsize=1)
def unigram_description() -> dict[str, Any]:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    trainer = trainers.UnigramTrainer(
        vocab_size=1500, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    described = trained(tokenizer, trainer)
    described["decoder"] = described["pre_tokenizer"]
    return described


def unigram() -> str:
    """T5's shape: NFKC, `Metaspace`, unknown pieces fused; scores that no power of two makes exact."""
    return json.dumps(unigram_description())


def unigram_bytes() -> str:
    """ALBERT's and XLM-R's parts with byte fallback, scores rounded to multiples of 2^-22, and ties among them."""
    described = json.loads(unigram())
    vocab = [[piece, round(score * 2**22) / 2**22] for piece, score in described["model"]["vocab"]]
    vocab += [[piece, -9.5] for piece in BYTE_TOKENS]
    known = {piece for piece, _ in vocab}
    vocab += [[piece, -8.0] for piece in ("ab", "ba", "aba", "bab", "abab") if piece not in known]
    described["model"].update(vocab=vocab, byte_fallback=True)
    described["normalizer"] = {
        "type": "Sequence",
        "normalizers": [
            {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
            {"type": "NFKD"},
            {"type": "StripAccents"},
            {"type": "Lowercase"},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        ],
    }
    return json.dumps(described)


def word_level() -> str:
    """The fourth model of the reference, rare in practice: a word is in the vocabulary or unknown."""
    words = ["<unk>", "the", "The", "a", "hello", "world", ",", ".", "1", "中文"]
    return json.dumps(
        {
            "version": "1.0",
            "added_tokens": [added_token("<unk>", 0)],
            "normalizer": None,
            "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": None,
            "decoder": None,
            "model": {
                "type": "WordLevel",
                "vocab": {word: at for at, word in enumerate(words)},
                "unk_token": "<unk>",
            },
        }
    )
