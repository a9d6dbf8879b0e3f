// Words of normalized code points: normalize -> *split* -> match. cpu_ref/split.py is the same step; the rules are
// gpu_tok/tables/words.py's.

#pragma once

#include "common.cuh"

// class_of: u8[0x110000]; parted: u8[class_count * class_count], a word ends between a pair; removed: u8[class_count],
// belongs to no word.
struct Words {
    const u8* class_of;
    i64 class_count;
    const u8 *parted, *removed;
};

struct Word {
    i64 end;
    bool is_removed;
};

// The word that begins at `at` < `count`.
//
//   text        t h e _ c a t !
//   word_at 0   {3, false}         word_at 3   {4, true}
DEVICE Word word_at(const u32* text, i64 at, i64 count, const Words& words) {
    u32 left = words.class_of[text[at]];
    const bool is_removed = words.removed[left];
    for (at++; at < count; at++) {
        const u32 right = words.class_of[text[at]];
        if (words.parted[left * words.class_count + right]) break;
        left = right;
    }
    return {at, is_removed};
}
