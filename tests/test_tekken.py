"""Mistral's tekken.json: the ids of mistral-common, which asks tiktoken with the file's ranks and adds a constant."""

from __future__ import annotations

import base64
import json
import pickle
from pathlib import Path
from typing import Any

import oracle
import pytest
from package_vocabularies import Absent, file_of
from texts import TEXTS

from gpu_tok import Tokenizer
from gpu_tok.errors import DefinitionError
from gpu_tok.tables.tekken import EARLY_SPECIAL_TOKENS, load_tekken

tiktoken = pytest.importorskip("tiktoken")

PATTERN = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
MERGED = [b"th", b"the", b" the", b"[IN", "中".encode(), b"never used"]


def described(**changed: Any) -> dict[str, Any]:
    tokens = [*(bytes([byte]) for byte in range(256)), *MERGED]
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(t).decode(), "token_str": None} for rank, t in enumerate(tokens)
    ]
    config = {"pattern": PATTERN, "num_vocab_tokens": len(tokens), "default_vocab_size": len(tokens) - 1 + 25}
    return {"config": {**config, "default_num_special_tokens": 25, "version": "v3"}, "vocab": vocab, **changed}


def written(folder: Path, file: dict[str, Any]) -> Path:
    path = folder / "tekken.json"
    path.write_text(json.dumps(file))
    return path


def expected_ids(file: dict[str, Any], texts: list[str]) -> list[list[int]]:
    """As `Tekkenizer.__init__` and `Tekkenizer.encode` of mistral-common do it, without `bos` and `eos`."""
    special_count = file["config"]["default_num_special_tokens"]
    used = file["vocab"][: file["config"]["default_vocab_size"] - special_count]
    ranks = {base64.b64decode(token["token_bytes"]): token["rank"] for token in used}
    encoding = tiktoken.Encoding("t", pat_str=file["config"]["pattern"], mergeable_ranks=ranks, special_tokens={})
    return [[rank + special_count for rank in encoding.encode(text)] for text in texts]


def test_a_real_file_gives_the_ids_of_mistral_common(real_texts):
    try:
        path = file_of("mistral-common", "mistral_common/data/tekken_240718.json")
    except Absent as absent:
        pytest.skip(str(absent))
    texts = [text for text in TEXTS if len(text) < 500] + ["Hello [INST]", "<s>a</s>", "a\n  "]
    texts += [text for language in ("en", "code", "zh", "multi") for text in real_texts(language, 10_000)]
    definition = load_tekken(path)
    assert oracle.encode(definition.reference, texts) == expected_ids(json.loads(path.read_bytes()), texts)
    assert [(token["id"], token["content"]) for token in definition.added_tokens] == [
        (at, EARLY_SPECIAL_TOKENS[at] if at < 20 else f"<SPECIAL_{at}>") for at in range(1000)
    ]
    assert definition.reference.encode("Hello [INST]").ids == [22177, 1766, 3174, 3074, 1093]


@pytest.mark.slow
def test_mistral_common_itself_gives_the_same_ids(real_texts):
    """Where it can be imported, which needs more than the test extra has."""
    theirs = pytest.importorskip("mistral_common.tokens.tokenizers.tekken", exc_type=ImportError).Tekkenizer
    texts = [text for text in TEXTS if len(text) < 5000] + real_texts("multi", 20_000)
    for name in ("tekken_240718.json", "tekken_240911.json"):
        path = file_of("mistral-common", f"mistral_common/data/{name}")
        tok, tekkenizer = Tokenizer.from_tekken(path, device="cpu"), theirs.from_file(path)
        rows = tok.encode_batch(texts).to_list()
        assert rows == [tekkenizer.encode(text, bos=False, eos=False) for text in texts]
        assert tok.decode_batch(rows) == [tekkenizer.decode(row) for row in rows]


def test_a_tokenizer_encodes_and_decodes(device, tmp_path):
    path, texts = written(tmp_path, described()), ["the the 中中é", "[INST]the</s>", "never used", ""]
    tok = Tokenizer.from_tekken(path, device=device)
    rows = tok.encode_batch(texts)
    assert rows.to_list() == expected_ids(described(), texts)
    assert tok.decode_batch(rows) == texts
    assert pickle.loads(pickle.dumps(tok)).encode_batch(texts).to_list() == rows.to_list()
    assert tok.decode_batch([[1, rows[0][0], 2]]) == ["the"]


def test_special_tokens_are_found_where_that_is_asked_for(tmp_path):
    path = written(tmp_path, described())
    found = load_tekken(path, find_special_tokens=True).reference
    assert found.encode("[INST]the</s>").ids == [3, 257 + 25, 2]
    assert min(load_tekken(path).reference.encode("[INST]the</s>").ids) >= 25


def test_listed_special_tokens_are_taken_and_filled_up(tmp_path):
    listed = [{"rank": at, "token_str": f"<{at}>", "is_control": True} for at in range(3)]
    file = described(special_tokens=listed)
    file["config"]["version"] = "v13"
    tokens = load_tekken(written(tmp_path, file)).added_tokens
    assert [token["content"] for token in tokens] == ["<0>", "<1>", "<2>", *(f"<SPECIAL_{at}>" for at in range(3, 25))]
    assert [token["id"] for token in tokens] == list(range(25))


@pytest.mark.parametrize(
    ("changed", "finding"),
    [
        ({"vocab": described()["vocab"][1:]}, "the ranks of its tokens are not 0, 1, 2"),
        ({"vocab": []}, "261 of 0 tokens are used"),
        ({"config": {}}, "KeyError"),
        ({"special_tokens": [{"rank": 1, "token_str": "<s>"}]}, "its special tokens are not 25"),
        ({"config": {**described()["config"], "version": "v11"}}, "a file of version v11 has to list"),
        ({"config": {**described()["config"], "pattern": "\\b"}}, "pattern: "),
    ],
)
def test_files_that_are_not_whole_say_so(tmp_path, changed, finding):
    with pytest.raises(DefinitionError, match=f"{finding}(.|\n)*\nhint: "):
        load_tekken(written(tmp_path, described(**changed)))


def test_what_is_no_such_file(tmp_path):
    with pytest.raises(DefinitionError, match=r"none\.json: cannot be read: No such file"):
        load_tekken(tmp_path / "none.json")
    (tmp_path / "text.json").write_text("[1")
    with pytest.raises(DefinitionError, match=r"text\.json: cannot be read: "):
        load_tekken(tmp_path / "text.json")
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(DefinitionError, match=r"list\.json: is no tekken.json"):
        load_tekken(tmp_path / "list.json")
