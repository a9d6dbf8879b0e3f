// The flattened trie of a vocabulary. cpu_ref/trie.py walks the same rows.

#pragma once

#include "utf8.cuh"

constexpr i32 NO_PIECE = -1;
constexpr i32 WORD_ROOT = 0;  // where a word's first piece begins

// A row of the flattened trie (gpu_tok/tables/trie_rows.py): byte b leads from `node` to node's link + b, if the parent
// of that row is `node`.
struct alignas(16) TrieRow {
    i32 link, parent, id, unused;
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
    const u32 length = utf8_length(code_point);
    for (u32 i = 0; i < length; i++) {
        if (!step(row, utf8_byte(code_point, length, i), node)) return false;
    }
    return true;
}
