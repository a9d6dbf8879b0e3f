// texts -> sections of text and added tokens, as the reference divides them. cpu_ref/added_tokens.py is the same step.
//
//   mark_places       bytes -> a bit for each byte at which anything may begin, in tiles where a token may begin
//   divide_sections   sections -> texts and tokens of one kind; launched once to count them, once to write them

#include "added_tokens.cuh"
#include "common.cuh"
#include "tile.cuh"

constexpr u32 TOKEN_THREADS = 256;
constexpr u32 DIVIDE_BLOCKS = 4;  // that a multiprocessor holds: with more of them registers would be spilled
constexpr u32 BLOCK = 64;         // bytes of text that a word of marks stands for
constexpr u32 BYTES = 256;        // values of one
constexpr u32 LSTRIP = 1, RSTRIP = 2, SINGLE_WORD = 4, PASSED_OVER = 8;  // what a token asks for
constexpr u32 SECTION_FIRST = 1, SECTION_LAST = 2, DOCUMENT_FIRST = 4, SUBSECTION_FIRST = 8, WHOLE = 16;
constexpr u32 SUSPECTED = 128;  // a flag: the host has still to see whether this section holds a `normalized` token
constexpr i64 TEXT = -1;        // the id of a section of text
constexpr i64 FOR_HOST = -1;    // a count: text would be covered twice, or the reference panics
constexpr u32 FOR_HOST_SEEN = 0, SUSPECTS_SEEN = 1;

struct alignas(16) Section {
    i64 start, end;  // bytes
    i64 id, flags;
};

struct Token {
    i32 id;
    u32 asked;
};

// The text and what is to be found in it.
struct Search {
    const u8 *bytes, *tile_tokens;
    const u64* places;
    u32 kind;
    const Token* token;
    TokenTables tables;
};

// How far a section is done. White space that `rstrip` eats is looked for once: matches may lie in what it covers.
struct Progress {
    i64 at, text_from;
    i64 white_from, white_end;
};

struct FoundToken {
    i32 number;
    i64 start, end;  // with the white space that it eats
};

DEVICE u32 meaning_at(const Search& search, i64 at, i64 end) {
    return search.tables.code_point[code_point_at(search.bytes, at, end).value];
}

// Which of 8 bytes can be a first one, a bit each.
DEVICE u32 openings_of(u64 eight_bytes, const u8 (&opens)[BYTES]) {
    u32 marks = 0;
    UNROLL
    for (u32 i = 0; i < 8; i++) marks |= (u32)opens[eight_bytes >> 8 * i & 0xFF] << i;
    return marks;
}

// Marks the bytes at which anything may begin. Any grid of TOKEN_THREADS; a thread makes a word of marks, or none where
// cut_words has seen that no token begins in the tile.
//
//   bytes       a b < x > c [ d        tokens <x> and [MASK]
//   places      0 0 1 0 0 0 0 0        `[` can begin one, but `[d` cannot
//
// bytes: u8[count], at a multiple of 16. tile_tokens: u8[tiles], as cut_words left them. opens: u8[256], 1 for first
// bytes; begins: u8[65536], by two bytes. places: u64[(count + 63) / 64], those of other tiles are left alone.
KERNEL LAUNCHED_AS(TOKEN_THREADS)
    mark_places(const u8* bytes, i64 count, const u8* tile_tokens, const u8* opens, const u8* begins, u64* places) {
    SHARED(u8[BYTES], first);
    first[threadIdx.x] = opens[threadIdx.x];
    __syncthreads();  // the table is whole
    for (i64 block = grid_thread(); block * BLOCK < count; block += grid_threads()) {
        if (tile_tokens[block * BLOCK / TILE] == 0) continue;
        u64 marks = 0;
        for (u32 part = 0; part < BLOCK; part += 16) {
            const Bytes16 loaded = load_16(bytes, block * BLOCK + part, count);
            const u32 opened = openings_of(loaded.low, first) | openings_of(loaded.high, first) << 8;
            for (u32 left = opened; left != 0; left &= left - 1) {
                const u32 offset = part + __ffs(left) - 1;
                const i64 at = block * BLOCK + offset;
                if (at < count && what_begins(bytes, at, count, begins) != 0) marks |= 1ull << offset;
            }
        }
        places[block] = marks;
    }
}

// The first place from `at` on where something of these kinds may begin; `end` if nowhere.
DEVICE i64 next_place(const Search& search, i64 at, i64 end, u32 kinds) {
    while (at < end) {
        if (search.tile_tokens[at / TILE] == 0) {
            at = (at / TILE + 1) * TILE;
            continue;
        }
        const u64 left = search.places[at / BLOCK] >> (u32)(at % BLOCK);
        if (left == 0) {
            at = (at / BLOCK + 1) * BLOCK;
            continue;
        }
        at += __ffsll((i64)left) - 1;
        if (at >= end) break;
        if ((what_begins(search.bytes, at, end, search.tables.begins) & kinds) != 0) return at;
        at++;
    }
    return end;
}

// Where the code point before `at` > `lowest` begins.
DEVICE i64 code_point_before(const u8* bytes, i64 at, i64 lowest) {
    at--;
    while (at > lowest && is_continuation(bytes[at])) at--;
    return at;
}

// Does no word character touch a token, within its section.
DEVICE bool stands_alone(const Search& search, const Section& section, i64 start, i64 end) {
    if (start > section.start) {
        const i64 before = code_point_before(search.bytes, start, section.start);
        if ((meaning_at(search, before, section.end) & WORD_CHARACTER) != 0) return false;
    }
    return end == section.end || (meaning_at(search, end, section.end) & WORD_CHARACTER) == 0;
}

// Where the white space that ends at `at` begins, not before `lowest`.
DEVICE i64 white_start(const Search& search, i64 at, i64 lowest, i64 end) {
    while (at > lowest) {
        const i64 before = code_point_before(search.bytes, at, lowest);
        if ((meaning_at(search, before, end) & WHITE) == 0) break;
        at = before;
    }
    return max(at, lowest);
}

// Where the white space that begins at `at` ends.
DEVICE i64 white_end(const Search& search, i64 at, i64 end, Progress& progress) {
    if (progress.white_from <= at && at < progress.white_end) return progress.white_end;
    progress.white_from = at;
    while (at < end) {
        const CodePoint found = code_point_at(search.bytes, at, end);
        if ((search.tables.code_point[found.value] & WHITE) == 0) break;
        at += found.length;
    }
    progress.white_end = at;
    return at;
}

// The next token of a section, or none. A match that `single_word` or `encode_special_tokens` discards has still
// swallowed its text. What `rstrip` eats is searched on, and a token found there begins inside it.
DEVICE FoundToken next_token(const Search& search, const Section& section, Progress& progress) {
    const i64 root = search.kind == NORMALIZED ? search.tables.normalized_root : RAW_ROOT;
    while (true) {
        const i64 at = next_place(search, progress.at, section.end, search.kind);
        if (at >= section.end) return {NO_TOKEN, at, at};
        const TokenMatch match = match_token(search.bytes, at, section.end, search.tables.trie, root, Match::longest);
        progress.at = match.token == NO_TOKEN ? at + 1 : match.end;
        if (match.token == NO_TOKEN) continue;
        const u32 asked = search.token[match.token].asked;
        if ((asked & PASSED_OVER) != 0) continue;
        if ((asked & SINGLE_WORD) != 0 && !stands_alone(search, section, at, match.end)) continue;
        FoundToken found = {match.token, at, match.end};
        if ((asked & LSTRIP) != 0) found.start = white_start(search, at, progress.text_from, section.end);
        if ((asked & RSTRIP) != 0) found.end = white_end(search, match.end, section.end, progress);
        return found;
    }
}

// Has a raw section a pair of code points by which a `normalized` token may come about.
DEVICE bool holds_suspect(const Search& search, const Section& section) {
    for (i64 at = section.start;; at++) {
        at = next_place(search, at, section.end, SUSPECT);
        if (at >= section.end) return false;
        if (is_suspect(search.bytes, at, section.end, search.tables.code_point)) return true;
    }
}

// The flags of what is left of a section as text: a raw section, or a sub-section where tokens are normalized.
DEVICE u32 ends_of(i64 start, i64 end, const Section& section, u32 kind) {
    u32 flags = SUBSECTION_FIRST;
    if (start == section.start) flags |= section.flags & (SECTION_FIRST | DOCUMENT_FIRST);
    if (end == section.end) flags |= section.flags & SECTION_LAST;
    return kind == NORMALIZED ? flags : flags | SECTION_FIRST | SECTION_LAST;
}

// Where the parts of a section go; what finds no room is only counted.
struct Parts {
    Section* divided;
    i64 room, count;
};

DEVICE void put(Parts& parts, i64 start, i64 end, i64 id, i64 flags) {
    if (parts.count < parts.room) parts.divided[parts.count] = {start, end, id, flags};
    parts.count++;
}

// Writes the texts and tokens of a section of text. Returns how many, or FOR_HOST.
DEVICE i64 divide_text(const Search& search, const Section& section, Parts parts) {
    Progress progress = {section.start, section.start, -1, -1};
    bool is_covered_twice = false;
    while (true) {
        const FoundToken found = next_token(search, section, progress);
        if (found.number == NO_TOKEN) break;
        const bool has_next = search.kind == NORMALIZED && progress.at < section.end;
        if (has_next && (meaning_at(search, progress.at, section.end) & JOINS) != 0) {
            parts.count = 0;
            put(parts, section.start, section.end, TEXT, section.flags | WHOLE);
            return parts.count;
        }
        const i64 text_from = progress.text_from;
        if (found.start > found.end) return FOR_HOST;
        if (text_from < found.start) {
            put(parts, text_from, found.start, TEXT, ends_of(text_from, found.start, section, search.kind));
        }
        is_covered_twice = is_covered_twice || found.start < text_from;
        if (found.start < found.end) put(parts, found.start, found.end, search.token[found.number].id, 0);
        progress.text_from = found.end;
    }
    const i64 text_from = progress.text_from;
    if (text_from != section.end || section.start == section.end) {
        put(parts, text_from, section.end, TEXT, ends_of(text_from, section.end, section, search.kind));
    }
    return is_covered_twice ? FOR_HOST : parts.count;
}

// Divides sections of text at the tokens of one kind. Any grid of TOKEN_THREADS; a thread a section.
//
//   bytes       a b < x > c d      token <x>, id 7
//   sections    0-7: text
//   divided     0-2: text   2-5: 7   5-7: text
//
// bytes, tile_tokens, places: as mark_places has them. sections: Section[section_count]. kind: RAW or NORMALIZED. trie,
// normalized_root, begins, code_point: TokenTables; token: Token[tokens]. first: null to count; else
// i64[section_count + 1], where the parts of each section go. counts: i64[section_count], written when counting;
// divided: Section[first[section_count]], written otherwise. noticed: u64[2], added to when counting: the sections that
// the host has to divide, and those that are SUSPECTED.
KERNEL LAUNCHED_AS(TOKEN_THREADS, DIVIDE_BLOCKS)
    divide_sections(const u8* bytes, const u8* tile_tokens, const u64* places, const Section* sections,
                    i64 section_count, i64 kind, const TrieRow* trie, i64 normalized_root, const u8* begins,
                    const u8* code_point, const Token* token, const i64* first, i64* counts, Section* divided,
                    u64* noticed) {
    const Search search = {bytes, tile_tokens, places, (u32)kind, token, {trie, normalized_root, begins, code_point}};
    for (i64 number = grid_thread(); number < section_count; number += grid_threads()) {
        const Section section = sections[number];
        const bool counts_only = first == nullptr;
        Parts parts = {nullptr, 0, 0};
        if (!counts_only) parts = {divided + first[number], first[number + 1] - first[number], 0};
        i64 count = 1;
        if (section.id != TEXT) {
            put(parts, section.start, section.end, section.id, section.flags);
        } else if (search.kind == NORMALIZED && holds_suspect(search, section)) {
            put(parts, section.start, section.end, TEXT, section.flags | SUSPECTED);
            if (counts_only) atomicAdd(&noticed[SUSPECTS_SEEN], 1ull);
        } else {
            count = divide_text(search, section, parts);
        }
        if (!counts_only) continue;
        counts[number] = count == FOR_HOST ? 0 : count;
        if (count == FOR_HOST) atomicAdd(&noticed[FOR_HOST_SEEN], 1ull);
    }
}
