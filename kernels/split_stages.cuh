// Words of pre-tokenizers that are more than one look at two neighbours: normalize -> *split by stages* -> merge.
// cpu_ref/split_stages.py is the same step; what a stage is stands in gpu_tok/tables/word_stages.py.
//
// A character says itself whether a word begins there. So words need no list, what belongs to none is taken out, and
// every stage works in place.
//
//   text     I ' m   中 .          GPT-2's stages
//   split    I ' m   中 .          begins 1 1 0 1 0 1
//   bytes    I ' m Ġ ä ¸ Ń .       begins 1 1 0 1 0 0 0 1

#pragma once

#include "search.cuh"
#include "utf8.cuh"

constexpr i64 SPLIT = 0, TO_BYTES = 2;  // kinds of stages; 1 rewrites
constexpr u32 GAP = 0, MATCH = 1;       // kinds of what a search divides a word into
constexpr i64 STAGE_COLUMNS = 6;

// The rows of `stage`, by kind: what their columns mean says WordStages.
struct SplitStage {
    i64 kind, atoms, first, last, parted, removed;
};
struct RewriteStage {
    i64 kind, prefix, needs, at_start, replaced, replacement;
};

struct Stages {
    const i64* stage;
    i64 stage_count;
    const u8* atom_of;
    const u32 *step, *byte_character;
};

// Splits each word at the matches in it; returns how many characters are left. is_whole becomes false where what the
// text begins with is taken out.
DEVICE i64 split_words(const SplitStage& stage, const Stages& tables, u32* text, i64 count, bool& is_whole) {
    const Search search = {tables.atom_of + stage.atoms * ATOM_ROW, tables.step, stage.first, stage.last};
    i64 made = 0;
    u32 left = GAP;
    for (i64 at = 0; at < count;) {
        const i64 match = match_end(search, text, at, count);
        const u32 right = match > at ? MATCH : GAP;
        const i64 end = right == MATCH ? match : at + 1;
        u32 begins = text[at] & BEGINS;
        if (begins == 0 && (stage.parted >> (2 * left + right) & 1)) begins = BEGINS;
        left = right;
        if (stage.removed >> right & 1) {
            is_whole = is_whole && at > 0;
            at = end;
            continue;
        }
        for (; at < end; at++) {
            text[made++] = (text[at] & LETTER) | begins;
            begins = 0;
        }
    }
    return made;
}

// Makes of each character those of its UTF-8 bytes; returns how many.
DEVICE i64 write_bytes(const u32* byte_character, u32* text, i64 count) {
    i64 shift = 0;
    for (i64 at = 0; at < count; at++) shift += utf8_length(text[at] & LETTER) - 1;
    move_up(text, count, shift);
    i64 made = 0;
    for (i64 at = shift; at < count + shift; at++) {
        const u32 letter = text[at] & LETTER, length = utf8_length(letter);
        u32 begins = text[at] & BEGINS;
        for (u32 i = 0; i < length; i++) {
            text[made++] = byte_character[utf8_byte(letter, length, i)] | begins;
            begins = 0;
        }
    }
    return made;
}

// Does the prefix go before this character, in a text that has the end flags for it.
DEVICE bool takes_prefix(const RewriteStage& stage, u32 character, bool opens_text) {
    if (!(character & BEGINS) || (stage.at_start && !opens_text)) return false;
    const u32 letter = character & LETTER;
    return (letter == stage.replaced ? stage.replacement : letter) != stage.prefix;
}

// Replaces characters and puts prefixes before words; returns how many characters there are.
//
//   text    t h e   c a t     begins 1 0 0 0 0 0 0        a prefix _, and _ for each space
//           _ t h e _ c a t   begins 1 0 0 0 0 0 0 0
DEVICE i64 rewrite(const RewriteStage& stage, u32 flags, bool is_whole, u32* text, i64 count) {
    const bool puts = stage.prefix >= 0 && (flags & stage.needs) == stage.needs;
    i64 shift = 0;
    for (i64 at = 0; puts && at < count; at++) shift += takes_prefix(stage, text[at], is_whole && at == 0);
    move_up(text, count, shift);
    i64 made = 0;
    for (i64 at = 0; at < count; at++) {
        const u32 character = text[at + shift], letter = character & LETTER;
        u32 begins = character & BEGINS;
        if (puts && takes_prefix(stage, character, is_whole && at == 0)) {
            text[made++] = (u32)stage.prefix | begins;
            begins = 0;
        }
        text[made++] = (letter == stage.replaced ? (u32)stage.replacement : letter) | begins;
    }
    return made;
}

// Runs all stages over the code points of one chunk; returns how many characters there are. flags: the chunk's.
DEVICE i64 split_text(const Stages& tables, u32 flags, u32* text, i64 count) {
    if (count == 0) return 0;
    bool is_whole = true;
    text[0] |= BEGINS;
    for (i64 i = 0; i < tables.stage_count; i++) {
        const i64* row = tables.stage + i * STAGE_COLUMNS;
        if (row[0] == SPLIT) {
            count = split_words(*reinterpret_cast<const SplitStage*>(row), tables, text, count, is_whole);
        } else if (row[0] == TO_BYTES) {
            count = write_bytes(tables.byte_character, text, count);
        } else {
            count = rewrite(*reinterpret_cast<const RewriteStage*>(row), flags, is_whole, text, count);
        }
    }
    return count;
}
