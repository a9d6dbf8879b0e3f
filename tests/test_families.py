"""The shapes of byte-level families whose files are not at hand: their patterns and switches, around a small model.

The files at hand (`vocabularies.SHARED`) go through all the other tests, so families that share a shape with one of
them are not here: r50k and p50k (gpt2), GLM-4 and Phi-4 (cl100k), Qwen2 (qwen3), later DeepSeek (deepseek-v3).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import oracle
import own_vocabularies
import pytest
import texts
from compare import assert_same_ids
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from package_vocabularies import added_token, byte_letters, byte_level_definition, split_then_bytes
from patterns import PATTERNS

from gpu_tok import Tokenizer

GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
DIGITS = {"type": "Digits", "individual_digits": True}
UNREACHED = ("Ġunreached", "zzzz", "123", "ä½łå¥½", "âĢĻs")  # by merges


def shaped(pre_tokenizer: dict[str, Any], normalizer: str | None = None, **switches: Any) -> dict[str, Any]:
    """A definition around the merges that are trained here, with entries that none of them makes."""
    model = own_vocabularies.byte_level_model()
    vocab = dict(model["vocab"])
    for piece in UNREACHED:
        vocab.setdefault(piece, len(vocab))
    end = added_token("<|endoftext|>", vocab["<|endoftext|>"])
    described = byte_level_definition(vocab, model["merges"], pre_tokenizer, [end])
    described["normalizer"] = normalizer and {"type": normalizer}
    described["model"] |= switches
    return described


def with_white_space(described: dict[str, Any]) -> dict[str, Any]:
    """Runs of spaces and of tabs are added tokens, found in normalized text."""
    first_id = len(described["model"]["vocab"])
    runs = [*(" " * count for count in range(31, 1, -1)), *("\t" * count for count in range(9, 1, -1))]
    described["added_tokens"] += [
        added_token(run, first_id + at, special=False, normalized=True) for at, run in enumerate(runs)
    ]
    return described


def lacking(described: dict[str, Any], *absent: int) -> dict[str, Any]:
    """Some bytes have no token, and nothing stands for what is unknown."""
    gone = {byte_letters()[byte] for byte in absent}
    model = described["model"]
    pieces = [piece for piece in model["vocab"] if not gone & {*piece}]
    model["vocab"] = {piece: at for at, piece in enumerate(pieces)}
    model["merges"] = [pair for pair in model["merges"] if not gone & {*"".join(pair)}]
    described["added_tokens"][0]["id"] = model["vocab"]["<|endoftext|>"]
    return described


FAMILIES: dict[str, Callable[[], dict[str, Any]]] = {
    "phi-2": lambda: with_white_space(shaped(GPT2)),
    "starcoder": lambda: lacking(shaped({"type": "Sequence", "pretokenizers": [DIGITS, GPT2]}), 0xF1, 0xC1, 0x01, 0x7F),
    "llama-4": lambda: shaped(split_then_bytes(PATTERNS["o200k"]), ignore_merges=True),
    "qwen3.5": lambda: shaped(split_then_bytes(PATTERNS["qwen3.5"]), "NFC"),
}
HARD = [*texts.TEXTS, *texts.random_texts(21, 150), *texts.random_code_points(22, 50)]


@functools.cache
def definition(name: str) -> str:
    return json.dumps(FAMILIES[name]())


@functools.cache
def tokenizer(name: str, device: str) -> Tokenizer:
    if device != "cpu":
        return tokenizer(name, "cpu").to(device)
    return Tokenizer.from_str(definition(name), device="cpu", workers=1, table_bytes=1 << 22)


@pytest.mark.parametrize("name", FAMILIES)
def test_ids_equal_the_reference_and_all_steps_are_native(name: str, device: str) -> None:
    ours = tokenizer(name, device)
    assert (ours.info().encode.grade, ours.info().decode.grade) == (1, 1)
    rows = oracle.encode(oracle.load(definition(name)), HARD)
    for _pass in ("cold", "warm"):
        assert_same_ids(oracle.load(definition(name)), HARD, ours.encode_batch(HARD))
    assert ours.decode_batch(rows) == oracle.decode(oracle.load(definition(name)), rows)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some.sampled_from([*FAMILIES]), texts.strategy())
def test_any_text_has_the_ids_of_the_reference(device: str, name: str, text: str) -> None:
    assert_same_ids(oracle.load(definition(name)), [text], tokenizer(name, device).encode_batch([text]))


@pytest.mark.parametrize("name", ["llama-4", "qwen3.5"])
def test_entries_that_merges_cannot_reach_are_taken_only_where_merges_are_ignored(name: str, device: str) -> None:
    vocab = oracle.load(definition(name)).get_vocab()
    ids = tokenizer(name, device).encode_batch([" unreached", "你好"], padding=False).to_list()
    assert (ids == [[vocab["Ġunreached"]], [vocab["ä½łå¥½"]]]) == (name == "llama-4")
