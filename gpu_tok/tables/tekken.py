"""Mistral's `tekken.json` as a definition: tiktoken's ranks behind special tokens.

The ids of special tokens come first; a token's id is its rank and the count of special tokens.

    id   0 <unk>  1 <s>  2 </s> ... 999 <SPECIAL_999>   1000 "\\x00" ... 1255 "\\xff"   1256 "  " ...
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Any

import orjson

from gpu_tok.errors import DefinitionError
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.tiktoken import Shape, definition_of

EARLY_SPECIAL_TOKENS = [
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
]  # of files up to version 7, which do not list theirs
_LISTED_SINCE = 8


def load_tekken(path: str | Path, find_special_tokens: bool = False) -> Definition:
    """The definition of a `tekken.json`; see `Tokenizer.from_tekken`."""
    try:
        file = orjson.loads(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        finding = getattr(error, "strerror", None) or error
        raise DefinitionError(f"{path}: cannot be read: {finding}", "name a tekken.json file") from error
    try:
        config = file["config"]
        special_count = int(config["default_num_special_tokens"])
        ranks = _ranks(file["vocab"], int(config["default_vocab_size"]) - special_count)
        special_tokens = _special_tokens(file, special_count)
        shape = Shape(config["pattern"], special_tokens)
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise DefinitionError(
            f"{path}: is no tekken.json: {type(error).__name__}: {error}",
            "name the tekken.json of a Mistral model; a tokenizer.json is for Tokenizer.from_file",
        ) from error
    return definition_of(ranks, shape, find_special_tokens, first_id=special_count)


def _ranks(vocab: list[dict[str, Any]], count: int) -> dict[bytes, int]:
    """The tokens that are used, which may be fewer than the file has."""
    if not 0 < count <= len(vocab):
        raise ValueError(f"{count} of {len(vocab)} tokens are used")
    ranks = {base64.b64decode(token["token_bytes"]): token["rank"] for token in vocab[:count]}
    if sorted(ranks.values()) != list(range(count)):
        raise ValueError("the ranks of its tokens are not 0, 1, 2, ... each once")
    return ranks


def _special_tokens(file: dict[str, Any], count: int) -> dict[str, int]:
    """Ids by content, filled up with numbered ones."""
    listed = file.get("special_tokens")
    if listed is None:
        version = str(file["config"].get("version"))
        if int(version.removeprefix("v").partition("m")[0]) >= _LISTED_SINCE:
            raise ValueError(f"a file of version {version} has to list its special tokens")
        listed = [{"token_str": token, "rank": at} for at, token in enumerate(EARLY_SPECIAL_TOKENS)]
    tokens = {token["token_str"]: int(token["rank"]) for token in listed}
    tokens |= {f"<SPECIAL_{token_id}>": token_id for token_id in range(len(listed), count)}
    if sorted(tokens.values()) != list(range(count)):
        raise ValueError(f"its special tokens are not {count} with the ids 0, 1, 2, ...")
    return tokens
