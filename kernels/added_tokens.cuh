// What kernels know of added tokens. gpu_tok/tables/added_tokens.py makes the tables and says what they hold.

#pragma once

#include "common.cuh"
#include "utf8.cuh"

constexpr u32 RAW = 1, NORMALIZED = 2, SUSPECT = 4;  // what can begin at a pair of bytes
constexpr u32 WORD_CHARACTER = 1, WHITE = 2, SUSPICIOUS = 4, FOLLOWS = 8, JOINS = 16;  // what a code point means
constexpr i64 RAW_ROOT = 0;
constexpr i32 NO_TOKEN = -1;

struct alignas(16) TrieRow {
    i32 link, parent, token, unused;
};

// trie: a double array that ends in numbers of tokens, those of raw text below row 0, those of normalized text below
// `normalized_root`. begins: u8[65536], by two bytes. code_point: u8[0x110000].
struct TokenTables {
    const TrieRow* trie;
    i64 normalized_root;
    const u8 *begins, *code_point;
};

struct TokenMatch {
    i32 token;  // its number; NO_TOKEN if none begins there
    i64 end;
};

// What may begin with the two bytes at `at`; behind the last one stands a zero.
DEVICE u32 what_begins(const u8* bytes, i64 at, i64 end, const u8* begins) {
    const u32 next = at + 1 < end ? bytes[at + 1] : 0;
    return begins[(u32)bytes[at] << 8 | next];
}

enum class Match { shortest, longest };

// A token that begins at `at`.
DEVICE TokenMatch match_token(const u8* bytes, i64 at, i64 end, const TrieRow* trie, i64 root, Match which) {
    TokenMatch found = {NO_TOKEN, at};
    i64 node = root;
    for (i64 place = at; place < end; place++) {
        const i64 slot = trie[node].link + bytes[place];
        if (trie[slot].parent != node) break;
        node = slot;
        if (trie[slot].token == NO_TOKEN) continue;
        found = {trie[slot].token, place + 1};
        if (which == Match::shortest) break;
    }
    return found;
}

// Can a `normalized` token come about from the code points at `at`. A suspicious one that is not ASCII, or can make its
// successor too, needs none.
DEVICE bool is_suspect(const u8* bytes, i64 at, i64 end, const u8* meaning) {
    const u32 first = code_point_at(bytes, at, end).value;
    if ((meaning[first] & SUSPICIOUS) == 0) return false;
    if (first >= 0x80 || (meaning[first] & FOLLOWS) != 0) return true;
    return at + 1 < end && (meaning[code_point_at(bytes, at + 1, end).value] & FOLLOWS) != 0;
}

// May a token begin at `at`, when nobody asks what it touches: false says that none does.
DEVICE bool may_begin_token(const u8* bytes, i64 at, i64 end, const TokenTables& tables) {
    const u32 kinds = what_begins(bytes, at, end, tables.begins);
    if ((kinds & SUSPECT) != 0 && is_suspect(bytes, at, end, tables.code_point)) return true;
    for (u32 kind = RAW; kind <= NORMALIZED; kind *= 2) {
        const i64 root = kind == RAW ? RAW_ROOT : tables.normalized_root;
        if ((kinds & kind) == 0) continue;
        if (match_token(bytes, at, end, tables.trie, root, Match::shortest).token != NO_TOKEN) return true;
    }
    return false;
}
