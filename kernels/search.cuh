// Matches of patterns. cpu_ref/search.py is the same; how automata are laid out is gpu_tok/tables/searches.py.

#pragma once

#include "characters.cuh"

constexpr u32 ATOM_ROW = 0x110000;    // of atom_of, for each automaton
constexpr u32 ACCEPTS = 1, NEXT = 1;  // of an entry of `step`

// atom_of: u8[ATOM_ROW]. first: where the row of its first state begins in `step`. last: how far behind the begin of a
// row its entry for the end of a word stands.
struct Search {
    const u8* atom_of;
    const u32* step;
    i64 first, last;
};

// Where the match ends that begins at `at`, at the end of its word at most; `at` if there is none.
DEVICE i64 match_end(const Search& search, const u32* text, i64 at, i64 count) {
    i64 end = at;
    u32 row = search.step[search.first + search.atom_of[text[at] & LETTER]] >> NEXT;
    while (row != 0) {
        at++;
        const bool is_inside = at < count && !begins_at(text, at);
        const u32 entry = search.step[row + (is_inside ? search.atom_of[text[at]] : (u32)search.last)];
        if (entry & ACCEPTS) end = at;
        row = entry >> NEXT;
    }
    return end;
}
