"""Encodings of tiktoken as definitions: ranks, a pattern and special tokens become a `tokenizer.json`.

tiktoken cuts a text into words by its pattern. A word that is a token is that token (`ignore_merges`); in any other the
two neighbours that *together* are the token of the lowest rank are merged, the leftmost of equal ones, until none are.
A `tokenizer.json` lists pairs, and one pair for each token says all of it: see `pair_of`.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from tokenizers import pre_tokenizers

from gpu_tok.errors import DefinitionError
from gpu_tok.tables.decode import BYTE_OF
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.rust_patterns import to_oniguruma

Ranks = Mapping[bytes, int]

_NEVER = 1 << 62  # the rank of what is no token
_GZIP = b"\x1f\x8b"
_LETTERS = {byte: letter for letter, byte in BYTE_OF.items()}
_IN_UTF8 = {*range(0xC0), *range(0xC2, 0xF5)}
_NEEDED = 'from_tiktoken(path, pattern=r"...", special_tokens={"<|endoftext|>": 100257})'


class Shape(NamedTuple):
    """What a file of ranks leaves open: the pattern, the special tokens with their ids, and a normalizer."""

    pattern: str
    special_tokens: Mapping[str, int]
    normalizer: dict[str, Any] | None = None


_END = "<|endoftext|>"
_FILL = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")
_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
_O200K_UPPER, _O200K_LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_O200K_UPPER}]*[{_O200K_LOWER}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[{_O200K_UPPER}]+[{_O200K_LOWER}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN_TOKENS = (_END, "<|im_start|>", "<|im_end|>", *(f"<|extra_{number}|>" for number in range(205)))

SHAPES = {
    "gpt2": Shape(_GPT2, {_END: 50256}),
    "r50k_base": Shape(_GPT2, {_END: 50256}),
    "p50k_base": Shape(_GPT2, {_END: 50256}),
    "cl100k_base": Shape(
        _CL100K, {_END: 100257, **dict(zip(_FILL, range(100258, 100261), strict=True)), "<|endofprompt|>": 100276}
    ),
    "o200k_base": Shape(_O200K, {_END: 199999, "<|endofprompt|>": 200018}),
    "qwen": Shape(_QWEN, {token: 151643 + at for at, token in enumerate(_QWEN_TOKENS)}, {"type": "NFC"}),
}  # of files that carry these names


def load_tiktoken(
    encoding: Any,
    pattern: str | None = None,
    special_tokens: Mapping[str, int] | None = None,
    find_special_tokens: bool = True,
) -> Definition:
    """The definition of an encoding object, an encoding's name, or a file of ranks; see `Tokenizer.from_tiktoken`."""
    if isinstance(encoding, (str, Path)):
        if _is_file_name(encoding):
            ranks, shape = read_ranks(encoding), _shape_of(Path(encoding), pattern, special_tokens)
            return definition_of(ranks, shape, find_special_tokens)
        encoding = _named(str(encoding))
    try:
        ranks = encoding._mergeable_ranks
        own = Shape(encoding._pat_str, encoding._special_tokens)
    except AttributeError:
        raise DefinitionError(
            f"from_tiktoken({type(encoding).__name__}) is no encoding of tiktoken",
            'pass a tiktoken.Encoding, a name as "o200k_base", or the path of a .tiktoken file',
        ) from None
    return definition_of(ranks, _changed(own, pattern, special_tokens), find_special_tokens)


def definition_of(ranks: Ranks, shape: Shape, find_special_tokens: bool = True, first_id: int = 0) -> Definition:
    """The definition that gives tiktoken's ids, which are the ranks and `first_id` more.

    >>> definition_of(ranks, Shape(r"\\p{L}+|[^\\p{L}]+", {"<end>": 300})).model["merges"][:2]
    [['Ġ', 't'], ['h', 'e']]

    Raises `DefinitionError` where that cannot be: a byte without a rank, ranks or ids that two tokens share.
    """
    _check_ranks(ranks)
    spelled = {"".join(map(_LETTERS.__getitem__, token)): rank + first_id for token, rank in ranks.items()}
    split = {
        "type": "Split",
        "pattern": {"Regex": to_oniguruma(shape.pattern)},
        "behavior": "Removed",  # with invert: what the pattern does not match is no word, as in tiktoken
        "invert": True,
    }
    letters = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    definition = Definition.from_str(
        orjson.dumps(
            {
                "version": "1.0",
                "added_tokens": _added_tokens(shape.special_tokens),
                "normalizer": shape.normalizer,
                "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, letters]},
                "post_processor": None,
                "decoder": {**letters, "add_prefix_space": True, "use_regex": True},
                "model": {
                    "type": "BPE",
                    "vocab": _with_special_tokens(spelled, shape.special_tokens),
                    "merges": merges_of(ranks),
                    "ignore_merges": True,
                },
            }
        ).decode(),
        name="the tokenizer.json of these ranks",
    )
    definition.reference.encode_special_tokens = not find_special_tokens
    _check_no_word_is_special(definition, shape.special_tokens, find_special_tokens)
    return definition


def merges_of(ranks: Ranks) -> list[tuple[str, str]]:
    """The merges of a `tokenizer.json`, in order of rank.

    >>> merges_of({b"a": 0, b"b": 1, b"ab": 2, b"aab": 3})
    [('a', 'b'), ('a', 'ab')]
    """
    longer = sorted((token for token in ranks if len(token) > 1), key=ranks.__getitem__)
    pairs = (pair for token in longer if (pair := pair_of(token, ranks)))
    return [("".join(map(_LETTERS.__getitem__, a)), "".join(map(_LETTERS.__getitem__, b))) for a, b in pairs]


def pair_of(token: bytes, ranks: Ranks) -> tuple[bytes, bytes] | None:
    """The only two parts that tiktoken ever merges into a token: those that are left of the token as a word by itself.

    >>> pair_of(b"aab", {b"a": 0, b"b": 1, b"ab": 2, b"aab": 3})
    (b'a', b'ab')

    None where more than two are left: then no merge makes it, and only a whole word is this token.

    That there is one such pair, whatever the ranks: let two parts become this token somewhere in a word. Merges are not
    undone, so each merge before was within the token's bytes or outside of them. Those within were, each in its turn,
    the lowest and leftmost of the whole word, so also of the pairs within. They are the merges of the token as a word
    by itself, which leave the same two parts. So a list with this pair alone chooses as tiktoken does at every step.
    """
    ends = list(range(len(token) + 1))
    rank = ranks.get
    found = [rank(token[at : at + 2], _NEVER) for at in range(len(token) - 1)]  # of a part and the next one
    while len(found) > 1:
        lowest = min(found)
        if lowest == _NEVER:
            return None
        at = found.index(lowest)
        del found[at], ends[at + 1]
        if at < len(found):
            found[at] = rank(token[ends[at] : ends[at + 2]], _NEVER)
        if at > 0:
            found[at - 1] = rank(token[ends[at - 1] : ends[at + 1]], _NEVER)
    return token[: ends[1]], token[ends[1] :]


def read_ranks(path: str | Path) -> dict[bytes, int]:
    """The ranks of a `.tiktoken` file, also gzipped: a token in base64, a space and its rank on each line."""
    try:
        data = Path(path).read_bytes()
        data = gzip.decompress(data) if data.startswith(_GZIP) else data
    except (OSError, EOFError, zlib.error) as error:
        finding = getattr(error, "strerror", None) or error
        raise DefinitionError(f"{path}: cannot be read: {finding}", "name a .tiktoken file") from error
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(data.splitlines(), 1):
        if not line:
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise DefinitionError(
                f"{path}: line {number} is {line[:60]!r}, no token in base64 and its rank",
                "name a .tiktoken file; a tokenizer.json is for Tokenizer.from_file",
            ) from None
    return ranks


def _is_file_name(encoding: str | Path) -> bool:
    """Names of encodings have letters, digits, `_` and `-` alone."""
    return isinstance(encoding, Path) or Path(encoding).is_file() or not re.fullmatch(r"[\w-]+", encoding)


def _shape_of(path: Path, pattern: str | None, special_tokens: Mapping[str, int] | None) -> Shape:
    known = SHAPES.get(path.name.removesuffix(".gz").removesuffix(".tiktoken"))
    if known is not None:
        return _changed(known, pattern, special_tokens)
    if pattern is None or special_tokens is None:
        missing = " and ".join(
            name for name, value in (("pattern", pattern), ("special_tokens", special_tokens)) if value is None
        )
        raise DefinitionError(
            f"{path}: a file of ranks says nothing about {missing}",
            f"{_NEEDED}; {{}} is for none. Files named {', '.join(SHAPES)} (.tiktoken) need neither",
        )
    return Shape(pattern, special_tokens)


def _changed(shape: Shape, pattern: str | None, special_tokens: Mapping[str, int] | None) -> Shape:
    return shape._replace(
        pattern=shape.pattern if pattern is None else pattern,
        special_tokens=shape.special_tokens if special_tokens is None else special_tokens,
    )


def _named(name: str) -> Any:
    try:
        import tiktoken
    except ImportError:
        raise DefinitionError(
            f"{name!r} is an encoding of the package tiktoken, which is not installed",
            f"pip install tiktoken, or pass the path of {name}.tiktoken",
        ) from None
    if name not in tiktoken.list_encoding_names():
        raise DefinitionError(
            f"{name!r} is neither a file nor an encoding of tiktoken {tiktoken.__version__}",
            f"its encodings are {', '.join(tiktoken.list_encoding_names())}",
        )
    try:
        return tiktoken.get_encoding(name)
    except Exception as error:  # whatever its download raises
        raise DefinitionError(
            f"{name}: tiktoken could not load its ranks: {error}",
            f"check the network, or download {name}.tiktoken and pass its path",
        ) from error


def _added_tokens(special_tokens: Mapping[str, int]) -> list[dict[str, Any]]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    by_id = sorted(special_tokens.items(), key=lambda token: token[1])
    return [{"id": token_id, "content": content, **flags} for content, token_id in by_id]


def _with_special_tokens(vocab: dict[str, int], special_tokens: Mapping[str, int]) -> dict[str, int]:
    """The vocabulary with special tokens, for the reference numbers those that it lacks by itself."""
    taken = {token_id: token for token, token_id in vocab.items()}
    for content, token_id in special_tokens.items():
        if taken.setdefault(token_id, content) != content or vocab.setdefault(content, token_id) != token_id:
            raise DefinitionError(
                f"the special token {content!r} with id {token_id} has its id or its text from another token",
                "leave it out of special_tokens, or give it the id that it has",
            )
    return vocab


def _check_ranks(ranks: Ranks) -> None:
    missing = [byte for byte in sorted(_IN_UTF8) if bytes([byte]) not in ranks]
    if missing:
        raise DefinitionError(
            f"the ranks have no token for the byte 0x{missing[0]:02X}",
            "tiktoken fails at texts with this byte; check that the file is whole",
        )
    if len(set(ranks.values())) < len(ranks):
        raise DefinitionError("two tokens have the same rank", "check that the file is whole and not two in one")


def _check_no_word_is_special(definition: Definition, special_tokens: Mapping[str, int], found: bool) -> None:
    """A special token is in the vocabulary, where a word that is spelled so would find it."""
    for content in special_tokens:
        try:
            text = bytes([BYTE_OF[letter] for letter in content]).decode()
        except (KeyError, UnicodeDecodeError):
            continue  # no text has this spelling
        if found and text == content:
            continue  # never in a word: it is taken out before
        pre_tokenizer: pre_tokenizers.PreTokenizer = definition.reference.pre_tokenizer
        if [word for word, _span in pre_tokenizer.pre_tokenize_str(text)] == [content]:
            raise DefinitionError(
                f"the special token {content!r} is also a word of ordinary text",
                "leave it out of special_tokens, or pass find_special_tokens=True",
            )
