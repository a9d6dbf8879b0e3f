"""The split patterns of well-known tokenizers, and strings that reach every state of their automata."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import numpy as np
from tokenizers import Regex, pre_tokenizers

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
BEHIND_NUMBERS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BEHIND_CASES = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
ANY_LETTER = r"[^\r\n\p{L}\p{N}]?\p{L}+"


def by_case(upper: str, lower: str, tail: str) -> str:
    before = r"[^\r\n\p{L}\p{N}]?"
    return f"{before}[{upper}]*[{lower}]+{tail}|{before}[{upper}]+[{lower}]*{tail}"


NO_HAN = r"&&[^\p{Han}]"
# Llama 3 and GLM-4 have cl100k's, Llama 4 has o200k's; GPT-NeoX, RoBERTa, Whisper, ModernBERT, Phi-2 and StarCoder have
# GPT-2's, in some behind other parts.
PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "cl100k": CONTRACTIONS + "|" + ANY_LETTER + r"|\p{N}{1,3}" + BEHIND_NUMBERS,
    "cl100k possessive": CONTRACTIONS
    + r"|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s*[\r\n]|\s+(?!\S)|\s",
    "qwen": CONTRACTIONS + "|" + ANY_LETTER + r"|\p{N}" + BEHIND_NUMBERS,
    "qwen3.5": CONTRACTIONS
    + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": by_case(UPPER, LOWER, CONTRACTIONS + "?") + r"|\p{N}{1,3}" + BEHIND_CASES,
    "tekken": by_case(UPPER, LOWER, "") + r"|\p{N}" + BEHIND_CASES,
    "kimi": r"[\p{Han}]+|"
    + by_case(UPPER + NO_HAN, LOWER + NO_HAN, CONTRACTIONS + "?")
    + r"|\p{N}{1,3}"
    + BEHIND_NUMBERS,
    "deepseek numbers": r"\p{N}{1,3}",
    "deepseek han": "[一-龥\u3040-ゟ゠-ヿ]+",
    "deepseek words": r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
    + "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    "clip": r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    "falcon": "[0-9][0-9][0-9]",
}


def reference_matches(pattern: str, text: str) -> list[tuple[int, int]]:
    """The matches as the oracle finds them: what it keeps when all that lies between them is removed."""
    return [span for _match, span in finder(pattern).pre_tokenize_str(text)]


def finder(pattern: str) -> pre_tokenizers.Split:
    return pre_tokenizers.Split(Regex(pattern), "removed", invert=True)


def representatives(atom_of: np.ndarray, of_each: int) -> list[str]:
    """Some characters of each atom, spread over it."""
    by_atom = [np.flatnonzero(atom_of == atom) for atom in range(int(atom_of.max()) + 1)]
    by_atom = [members[(members < 0xD800) | (members > 0xDFFF)] for members in by_atom]
    return [
        "".join(chr(members[(len(members) - 1) * i // max(1, of_each - 1)]) for i in range(of_each))
        for members in by_atom
        if len(members)
    ]


def strings_over(alphabet: str, most: int, seed: int = 1, longest: int = 12) -> Iterator[str]:
    """`most` strings: all of 1, 2, 3... characters as long as a length fits whole, then random ones."""
    left = most
    for length in range(1, longest):
        if len(alphabet) ** length > left:
            break
        left -= len(alphabet) ** length
        yield from map("".join, itertools.product(alphabet, repeat=length))
    source = random.Random(seed)
    yield from ("".join(source.choices(alphabet, k=source.randint(3, longest))) for _ in range(left))
