// Pieces of words: normalize -> split -> *match*. Greedy longest match; cpu_ref/match.py and trie.py are the same step.

#pragma once

#include "trie.cuh"

// row: TrieRow[]. continuation_root: where a word's later pieces begin. unknown_id: what a word becomes that the pieces
// cannot spell, or that has more than max_characters.
struct Pieces {
    const TrieRow* row;
    i64 continuation_root, unknown_id, max_characters;
};

struct Piece {
    i64 end;
    i32 id;  // NO_PIECE if none begins here
};

// The longest piece that begins at `at`.
DEVICE Piece longest_piece(const u32* text, i64 at, i64 end, i64 root, const TrieRow* row) {
    Node node = {(i32)root, row[root].link, NO_PIECE};
    Piece longest = {at, NO_PIECE};
    while (at < end && step_code_point(row, text[at], node)) {
        at++;
        if (node.id != NO_PIECE) longest = {at, node.id};
    }
    return longest;
}

// Writes the ids of the word [at, end) to ids[made] and behind it; returns the new count. They may lie where the text
// is: a piece has a code point at least, so no id comes before what it was made of has been read.
//
//   text   u n a f f a b l e
//   ids    un   ##aff   ##able
DEVICE i64 match_word(const u32* text, i64 at, i64 end, const Pieces& pieces, i32* ids, i64 made) {
    const i64 first = made;
    i64 root = end - at <= pieces.max_characters ? WORD_ROOT : -1;
    while (root >= 0 && at < end) {
        const Piece piece = longest_piece(text, at, end, root, pieces.row);
        if (piece.id == NO_PIECE) break;
        ids[made++] = piece.id;
        at = piece.end;
        root = pieces.continuation_root;
    }
    if (at == end) return made;
    ids[first] = (i32)pieces.unknown_id;
    return first + 1;
}
