"""Pieces of words: normalize -> split -> *match*. Greedy longest match, as `WordPiece::tokenize` of the reference."""

from __future__ import annotations

import numpy as np

from cpu_ref.compiled import kernel
from cpu_ref.trie import step_code_point
from gpu_tok.tables.trie_rows import ID, LINK, NO_PIECE, PARENT, WORD_ROOT


@kernel
def match(code_point, word, word_starts, model, ids, ends, id_starts):
    """Writes the ids of texts, where each piece ends, and which ids each text has, id_starts.

    code_point: uint32. word: int64[n, 2], rows (start, end) in it; text i has `word_starts[i]:word_starts[i + 1]`.
    ids, ends: int32 and int64, room for one a code point. A word that is too long, or that the pieces cannot spell to
    its end, is one unknown.

        word     u n a f f a b l e
        pieces   un   ##aff  ##able
        ends     2    5      9
    """
    row, continuation_root, max_characters = model.row, model.continuation_root, model.max_characters
    count = 0
    for text in range(len(word_starts) - 1):
        id_starts[text] = count
        for index in range(word_starts[text], word_starts[text + 1]):
            piece_end, end = word[index, 0], word[index, 1]
            first, root = count, np.int64(WORD_ROOT)
            may_be_spelled = end - piece_end <= max_characters
            while may_be_spelled and piece_end < end:
                at, node, piece_id = piece_end, root, NO_PIECE
                while at < end:
                    letter = np.int64(code_point[at])
                    if letter < 0x80:
                        slot = row[node, LINK] + letter
                        if row[slot, PARENT] != node:
                            break
                        node = slot
                    else:
                        node = step_code_point(row, node, letter)
                        if node < 0:
                            break
                    at += 1
                    if row[node, ID] != NO_PIECE:
                        piece_id, piece_end = row[node, ID], at
                if piece_id == NO_PIECE:
                    break
                ids[count], ends[count] = piece_id, piece_end
                count += 1
                root = continuation_root
            if piece_end < end:
                count = first + 1
                ids[first], ends[first] = model.unknown_id, end
    id_starts[len(word_starts) - 1] = count
