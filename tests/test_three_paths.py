"""Random tokenizers and texts through every path: the CPU, the kernels on the emulator, and the oracle.

A longer run is `pytest -m slow tests/test_three_paths.py --hypothesis-profile long`.
"""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import oracle
import pytest
import vocabularies
from hypothesis import given, settings
from hypothesis import strategies as st
from own_vocabularies import training_texts
from random_definitions import ALPHABET, random_normalizer, random_pre_tokenizer
from test_added_tokens import collide

from gpu_tok import Tokenizer
from gpu_tok.errors import GpuTokError
from gpu_tok.tables.definition import Definition

MODELS = vocabularies.names(sources=["own"])
DEVICES = ("cpu", "emulated")

texts = st.lists(st.one_of(st.text(st.sampled_from("".join(ALPHABET)), max_size=60), st.text(max_size=30)), max_size=6)
contents = st.text(st.sampled_from("".join(ALPHABET)), min_size=1, max_size=4).filter(str.strip)
seeds = st.integers(0, 2**32 - 1)


@st.composite
def added_tokens(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Up to three tokens with any flags; their ids are those behind the vocabulary."""
    names = ("lstrip", "rstrip", "single_word", "normalized", "special")
    return [
        {"content": content} | {name: draw(st.booleans()) for name in names}
        for content in draw(st.lists(contents, max_size=3, unique=True))
    ]


def switched(model: dict[str, Any], source: random.Random) -> dict[str, Any]:
    """A BPE with some of its switches the other way, or with fewer entries."""
    for switch in ("ignore_merges", "byte_fallback", "fuse_unk"):
        model[switch] = bool(model.get(switch)) ^ (source.random() < 0.4)
    if source.random() < 0.3:
        model["unk_token"] = source.choice([None, *model["vocab"]])
    if source.random() < 0.3:
        gone = {piece for piece in model["vocab"] if source.random() < 0.05} - {model.get("unk_token")}
        model["vocab"] = {piece: at for piece, at in model["vocab"].items() if piece not in gone}
        model["merges"] = [pair for pair in model["merges"] if not gone & {*pair, "".join(pair)}]
    if source.random() < 0.1:
        model |= {"merges": [], "continuing_subword_prefix": source.choice(["a", "Ġ", "▁"])}
    return model


def definition_of(model: str, seed: int, tokens: list[dict[str, Any]]) -> str:
    """A definition with this model, its switches, normalizer and pre-tokenizer by the seed (often the model's own)."""
    source = random.Random(seed)
    described = json.loads(vocabularies.text(model))
    if described["model"]["type"] == "BPE" and source.random() < 0.5:
        described["model"] = switched(described["model"], source)
    if source.random() < 0.5:
        described["normalizer"] = random_normalizer(source, [])
    if source.random() < 0.5:
        described["pre_tokenizer"] = random_pre_tokenizer(source)
    known = described["model"]["vocab"]
    first_id = len(known) + 100
    taken = {token["content"] for token in described["added_tokens"]}
    new = [token | {"id": first_id + at} for at, token in enumerate(tokens) if token["content"] not in taken]
    described["added_tokens"] += [
        token for token in new if not isinstance(known, dict) or token["content"] not in known
    ]
    return json.dumps(described | {"truncation": None, "padding": None})


def check(model: str, seed: int, tokens: list[dict[str, Any]], batch: list[str]) -> None:
    definition = definition_of(model, seed, tokens)
    try:
        if collide(Definition.from_str(definition)):
            return
        expected = oracle.encode(oracle.load(definition), batch)
    except BaseException:  # a text or a definition that the reference refuses; its panics are no exceptions
        expected = None
    tokenizer = None
    for device in DEVICES:
        try:
            tokenizer = tokenizer.to(device) if tokenizer else Tokenizer.from_str(definition, device=device)
            for _pass in ("cold", "warm"):
                rows = tokenizer.encode_batch(batch).to_list()
                assert rows == expected, f"{device}: {rows} and not {expected}"
        except GpuTokError:
            assert expected is None, f"{device} refuses what the reference takes"


@given(st.sampled_from(MODELS), seeds, added_tokens(), texts)
@settings(max_examples=40)
def test_all_paths_give_the_same_ids(model, seed, tokens, batch):
    check(model, seed, tokens, batch)


@pytest.mark.slow
@given(st.sampled_from(MODELS), seeds, added_tokens(), texts)
def test_all_paths_give_the_same_ids_for_many(model, seed, tokens, batch):
    check(model, seed, tokens, batch)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["own/bert", "own/byte-level"])
def test_one_text_of_64_megabytes(name):
    pick = random.Random(64)
    words = [*training_texts(), *("".join(pick.choices("abcdefgh", k=pick.randrange(1, 9))) for _ in range(50_000))]
    text = " ".join(pick.choices(words, k=2_000_000))
    text = (text * (1 + (64 << 20) // len(text)))[: 64 << 20]
    definition = vocabularies.text(name)
    here, there = (Tokenizer.from_str(definition, device=device).encode_batch([text, "a"]) for device in DEVICES)
    assert np.array_equal(here.ids, there.ids)
    assert np.array_equal(here.starts, there.starts)
