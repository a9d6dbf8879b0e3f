"""Random normalizers and pre-tokenizers, with the parameters that real ones have, and strings that trouble them."""

from __future__ import annotations

import random
from typing import Any

GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BEHAVIORS = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")

ALPHABET = [
    *map(chr, [0x301, 0x323, 0x308, 0x345, 0x1161, 0x1100, 0x11A8, 0xAC00, 0x200D, 0xFE0F, 0x1F1E6, 0x1F468, 0xFDFA]),
    *map(chr, [0x338F, 0x2581, 0x85, 0xA0, 0x3000, 0x200B, 0x130, 0x17F, 0x212A, 0, 0xFEFF, 13, 10, 9, 0xE000, 0xFB01]),
    *map(chr, [0xBA, 0xB4, 0xA8, 0x3099, 0x306F, 0xFF8A, 0xFF9E, 0xB2, 0xBD, 0x660, 0x4E2D, 0xD55C, 0xE9, 0x1E9E]),
    *map(
        chr, [0x3A3, 0x600, 0x915, 0x94D, 1, 0x7F, 0x0B, 0x1C, 0x2028, 0xFFFD, 0x3131, 0x314F, 0xF900, 0x20000, 0x378]
    ),
    *"abbcAzZ09.,!'\"`_-()sStde      ",
    *("  ", "\r\n", "``", "''", "'s", "ab", "a ", "aa"),
]
SMALL_ALPHABET = [*" \n.a1é▁-", "  ", "ab", "\u0301", "\x01", "'s"]


def random_strings(source: random.Random, count: int) -> list[str]:
    alphabets = (ALPHABET, SMALL_ALPHABET)
    return ["".join(source.choices(alphabets[at % 2], k=source.randint(1, 9))) for at in range(count)]


def random_normalizer(source: random.Random, others: list[dict[str, Any]]) -> dict[str, Any]:
    literals = [
        ("``", '"'),
        (" ", "▁"),
        ("\u200d", ""),
        ("ab", ""),
        ("a ", "b"),
        ("aa", "a"),
        ("e", " e "),
        (". ", "."),
    ]
    patterns = [
        (r"\s+", " "),
        (r" {2,}", "▁"),
        ("[ab]", ""),
        ("a+", ""),
        ("(ab|b)c", "x"),
        (r"\p{M}", ""),
        (r"\d+", "0"),
    ]
    literal, pattern = source.choice(literals), source.choice(patterns)
    bert = {
        name: source.random() < 0.6 for name in ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
    }
    return source.choice(
        [
            *(
                {"type": kind}
                for kind in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel")
            ),
            {"type": "BertNormalizer", **bert},
            {"type": "Strip", "strip_left": source.random() < 0.6, "strip_right": source.random() < 0.6},
            {"type": "Prepend", "prepend": source.choice("▁ a")},
            {"type": "Replace", "pattern": {"String": literal[0]}, "content": literal[1]},
            {"type": "Replace", "pattern": {"Regex": pattern[0]}, "content": pattern[1]},
            *others,
        ]
    )


def random_pre_tokenizer(source: random.Random) -> dict[str, Any]:
    pattern = source.choice(
        [
            {"Regex": r"'s|'t| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"},
            {"Regex": r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"},
            *({"Regex": regex} for regex in (r"\s+", r"\d{1,3}", r"\w+|[^\w\s]+", "[一-龥]+", r" ?\S+")),
            *({"String": literal} for literal in (" ", "▁", "ab")),
        ]
    )
    scheme = source.choice(["always", "first", "never"])
    return source.choice(
        [
            *({"type": kind} for kind in ("BertPreTokenizer", "Whitespace", "WhitespaceSplit", "UnicodeScripts")),
            {"type": "Punctuation", "behavior": source.choice(BEHAVIORS)},
            {"type": "Digits", "individual_digits": source.random() < 0.5},
            {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": source.random() < 0.7},
            GPT2 | {"add_prefix_space": source.random() < 0.6, "use_regex": source.random() < 0.7},
            {"type": "CharDelimiterSplit", "delimiter": source.choice("- a")},
            *[{"type": "Split", "pattern": pattern, "behavior": source.choice(BEHAVIORS), "invert": False}] * 2,
            {"type": "Split", "pattern": pattern, "behavior": source.choice(BEHAVIORS), "invert": True},
        ]
    )
