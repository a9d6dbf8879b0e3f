// Characters of texts in the arena: a u32 each. A code point, or later a symbol's id; and once texts are split into
// words, the bit BEGINS where a word does.

#pragma once

#include "common.cuh"

constexpr u32 BEGINS = 1u << 31;
constexpr u32 LETTER = 0x1FFFFF;  // the bits of a code point, or of an id

DEVICE bool begins_at(const u32* text, i64 at) { return (text[at] & BEGINS) != 0; }

// Makes room before all characters.
DEVICE void move_up(u32* text, i64 count, i64 shift) {
    if (shift == 0) return;
    for (i64 at = count - 1; at >= 0; at--) text[at + shift] = text[at];
}

// Moves what has not been read, [at, end), to the end of the room: from there it is never overtaken, for the room holds
// all code points with the longest image of each.
//
//   text    \u0130 x y . . .        lowercase, room 6; the first one becomes two, and would overtake x
//           . . . . x y              moved
//           i \u0307 x y . .         4 in the end
DEVICE void move_rest(u32* text, i64& at, i64& end, i64 room) {
    const i64 shift = room - end;
    for (i64 i = end - 1; i >= at; i--) text[i + shift] = text[i];
    at += shift;
    end = room;
}
