"""All tables of the native cold path (grade 1): normalizer, words and model of one definition."""

from __future__ import annotations

from typing import NamedTuple

from gpu_tok.tables.definition import Definition
from gpu_tok.tables.normalizer import NormalizerTables, compile_normalizer
from gpu_tok.tables.wordpiece import WordPieceTables, compile_wordpiece
from gpu_tok.tables.words import WordTables, compile_words


class NativeTables(NamedTuple):
    """What `cpu_ref.cold.encode_chunks` takes: the tables of the three steps."""

    normalizer: NormalizerTables
    words: WordTables
    model: WordPieceTables


def compile_native(definition: Definition) -> NativeTables:
    """The tables of a definition; raises CannotCompile naming the first part that has no native form.

    >>> compile_native(Definition.from_file("bert-base-uncased.json")).model.unknown_id
    100
    """
    return NativeTables(compile_normalizer(definition), compile_words(definition), compile_wordpiece(definition))
