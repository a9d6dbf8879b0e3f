"""All tables of the native cold path (grade 1): normalizer, words and model of one definition."""

from __future__ import annotations

from typing import NamedTuple

from gpu_tok.tables.bpe import BpeTables, compile_bpe
from gpu_tok.tables.definition import Definition
from gpu_tok.tables.normalizer import NormalizerTables, compile_normalizer
from gpu_tok.tables.word_stages import WordStages, compile_word_stages
from gpu_tok.tables.wordpiece import WordPieceTables, compile_wordpiece
from gpu_tok.tables.words import WordTables, compile_words


class NativeTables(NamedTuple):
    """WordPiece: the tables of the three steps that `cpu_ref.cold` takes."""

    normalizer: NormalizerTables
    words: WordTables
    model: WordPieceTables


class NativeBpe(NamedTuple):
    """BPE: the same three steps, for `cpu_ref.cold_bpe`."""

    normalizer: NormalizerTables
    stages: WordStages
    model: BpeTables


def compile_native(definition: Definition) -> NativeTables | NativeBpe:
    """The tables of a definition; raises CannotCompile naming the first part that has no native form.

    >>> compile_native(Definition.from_file("bert-base-uncased.json")).model.unknown_id
    100
    """
    normalizer = compile_normalizer(definition)
    if definition.model["type"] == "BPE":
        return NativeBpe(normalizer, compile_word_stages(definition), compile_bpe(definition))
    return NativeTables(normalizer, compile_words(definition), compile_wordpiece(definition))
