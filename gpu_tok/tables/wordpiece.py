"""The model `WordPiece`: its vocabulary as a trie, and what becomes of words that it cannot spell."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpu_tok.tables.definition import Definition
from gpu_tok.tables.refusal import CannotCompile
from gpu_tok.tables.trie import build_trie
from gpu_tok.tables.trie_rows import Rows

LARGEST = int(np.iinfo(np.int32).max)


class WordPieceTables(NamedTuple):
    """row, continuation_root: see `gpu_tok.tables.trie.Trie`. unknown_id: what a word becomes that the pieces cannot
    spell, or that has more than `max_characters`."""

    row: Rows
    continuation_root: int
    unknown_id: int
    max_characters: int


def compile_wordpiece(definition: Definition) -> WordPieceTables:
    """The model of a definition; raises CannotCompile where it is none, or has no token for unknown words.

    The vocabulary is asked of the loaded reference: where two pieces share an id, the file that it writes has lost one.
    """
    model = definition.model
    if model["type"] != "WordPiece":
        raise CannotCompile("model", f"`{model['type']}` is not `WordPiece`")
    vocab = definition.reference.get_vocab(with_added_tokens=False)
    if model["unk_token"] not in vocab:
        raise CannotCompile("model.unk_token", f"{model['unk_token']!r} is no piece: unknown words are an error")
    if max(vocab.values()) > LARGEST:
        raise CannotCompile("model.vocab", f"the id {max(vocab.values())} does not fit into 31 bits")
    trie = build_trie(vocab, model["continuing_subword_prefix"])
    max_characters = min(model["max_input_chars_per_word"], LARGEST)
    return WordPieceTables(trie.row, trie.continuation_root, vocab[model["unk_token"]], max_characters)
