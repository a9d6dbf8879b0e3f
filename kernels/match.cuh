// Pieces of words: normalize -> split -> *match*. Greedy longest match; cpu_ref/match.py and trie.py are the same step.

#pragma once

#include "common.cuh"

constexpr i32 NO_PIECE = -1;
constexpr i32 WORD_ROOT = 0;  // where a word's first piece begins

// A row of the flattened trie (gpu_tok/tables/trie_rows.py): byte b leads from `node` to node's link + b, if the parent
// of that row is `node`.
struct alignas(16) TrieRow {
    i32 link, parent, id, unused;
};

// row: TrieRow[]. continuation_root: where a word's later pieces begin. unknown_id: what a word becomes that the pieces
// cannot spell, or that has more than max_characters.
struct Pieces {
    const TrieRow* row;
    i64 continuation_root, unknown_id, max_characters;
};

// A node, with what its row says.
struct Node {
    i32 number, link, id;
};

// Follows one byte. False where no piece goes on with it; `node` means nothing then.
DEVICE bool step(const TrieRow* row, u32 byte, Node& node) {
    const i32 next = node.link + (i32)byte;
    const TrieRow found = row[next];
    const bool exists = found.parent == node.number;
    node = {next, found.link, found.id};
    return exists;
}

// Follows the UTF-8 bytes of a code point.
DEVICE bool step_code_point(const TrieRow* row, u32 code_point, Node& node) {
    if (code_point < 0x80) return step(row, code_point, node);
    const u32 length = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
    u32 shift = 6 * (length - 1);
    if (!step(row, ((0xF00 >> length) & 0xFF) | code_point >> shift, node)) return false;
    while (shift > 0) {
        shift -= 6;
        if (!step(row, 0x80 | (code_point >> shift & 0x3F), node)) return false;
    }
    return true;
}

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
