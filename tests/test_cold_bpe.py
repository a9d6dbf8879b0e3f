"""The native cold path of BPE, whole: chunks with every combination of ends, against the reference's variants."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest
import texts
import vocabularies
from random_definitions import random_strings

from cpu_ref import cold_bpe
from gpu_tok.batch import TextBatch
from gpu_tok.tables import ends
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.native import NativeBpe, compile_native
from gpu_tok.tables.variants import flags_that_matter, variant

NAMES = vocabularies.names(vocabularies.BYTE_LEVEL, vocabularies.SENTENCEPIECE)
ALL_ENDS = ends.SECTION_FIRST | ends.SECTION_LAST | ends.DOCUMENT_FIRST | ends.SUBSECTION_FIRST


@cache
def native(name: str) -> tuple[Definition, NativeBpe]:
    """All of them have a native form; CannotCompile is a failure."""
    definition = Definition.from_str(vocabularies.text(name))
    tables = compile_native(definition)
    assert isinstance(tables, NativeBpe)
    return definition, tables


def encode(tables: NativeBpe, given: list[str], flags: int) -> list[list[int]]:
    batch = TextBatch.of(given)
    each = np.full(len(given), flags, np.uint8)
    ids, starts = cold_bpe.encode_bpe_chunks(batch.bytes, batch.starts, tables, each)
    return [ids[starts[row] : starts[row + 1]].tolist() for row in range(len(given))]


def all_flags(definition: Definition) -> list[int]:
    matter = flags_that_matter(definition)
    return [flags for flags in range(ALL_ENDS + 1) if flags & ~matter == 0]


def check(name: str, given: list[str]) -> None:
    definition, tables = native(name)
    for flags in all_flags(definition):
        expected = variant(definition, flags).encode_batch_fast(given, add_special_tokens=False)
        for text, ids, row in zip(given, encode(tables, given, flags), expected, strict=True):
            assert ids == row.ids, f"{name}, flags {flags}: {text[:100]!r}"


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_the_references_for_all_ends(name, definition_text):
    definition_text(name)
    check(name, [*texts.TEXTS, *random_strings(random.Random(1), 500), *texts.random_code_points(2, 20)])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("language", ["en", "code", "zh", "multi"])
def test_ids_are_the_references_for_real_texts(name, language, definition_text, real_texts):
    definition_text(name)
    check(name, real_texts(language, 300_000))


@pytest.mark.parametrize("name", ["own/byte-level", "own/ignore-merges", "own/prepend"])
@pytest.mark.parametrize("letters", ["a", "_", "ab", "0123456789+/AZaz", "中国人", " ", "\n ", "é"])
def test_chunks_of_a_hundred_thousand_characters(name, letters, definition_text):
    definition_text(name)
    pick = random.Random(3)
    check(name, ["".join(pick.choices(letters, k=100_000)), "x", ""])


def test_no_chunks():
    _definition, tables = native("own/byte-level")
    assert encode(tables, [], 0) == []
    assert encode(tables, ["", ""], ALL_ENDS) == [[], []]


@pytest.mark.parametrize("name", ["own/byte-level", "own/prepend", "own/metaspace-first"])
def test_what_the_steps_make_is_shown(name):
    definition, tables = native(name)
    shown = cold_bpe.trace(" cats é".encode(), ALL_ENDS, tables)
    reference = variant(definition, ALL_ENDS)
    normalized = reference.normalizer.normalize_str(" cats é") if reference.normalizer else " cats é"
    words = [normalized]
    if reference.pre_tokenizer is not None:
        words = [word for word, _span in reference.pre_tokenizer.pre_tokenize_str(normalized)]
    assert (shown.text, list(shown.words)) == (normalized, words)
    assert shown.ids.tolist() == reference.encode(" cats é", add_special_tokens=False).ids
