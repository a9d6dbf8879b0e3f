// A tile is the text that a warp cuts: a lane has one word of the mask, a bit for each byte at which a chunk begins. A
// span is the text that a warp looks up: two tiles, so that what is read and written at both ends is a smaller part of
// it.
//
//   bytes    t h e _ c a t ...  32 bytes a lane, 64 in a span  |  the next lane's
//   cuts     1 0 0 1 0 0 0 ...
//   rank     0                                                 |  2         cuts in the words of lower lanes

#pragma once

#include "common.cuh"

constexpr u32 WORD = 32;          // bytes of text that one word of the mask stands for
constexpr u32 TILE_WORDS = WARP;  // words of the mask in a tile
constexpr u32 TILE = TILE_WORDS * WORD;
constexpr u32 SPAN_TILES = 2;
constexpr u32 SPAN = SPAN_TILES * TILE;
constexpr u32 SPAN_WORD = SPAN / WARP;  // bytes of a lane
constexpr u32 NEAR_WORDS = 8;           // 32 bytes
constexpr u32 SECTOR_ENTRIES = 8;       // of 4 bytes each in the 32 bytes that memory reads and writes at once

// Chunks that begin before a span. tile_chunk: i64[tiles + 1], those that begin before each tile.
DEVICE i64 chunks_before(i64 span, const i64* tile_chunk, i64 tiles) {
    return tile_chunk[min(SPAN_TILES * span, tiles)];
}

// Where the entries of a span begin, of which `chunks` chunks begin before it: in a sector of their own, which no other
// warp reads or writes. All entries together take up to 7 a span more than there are chunks.
//
//   chunks that begin in spans   3 9 1
//   entry_at                     0 8 24      a span's entries end at or before those of the next
DEVICE i64 entry_at(i64 span, i64 chunks) {
    return (chunks + (SECTOR_ENTRIES - 1) * span) & ~(i64)(SECTOR_ENTRIES - 1);
}

// The place of the first cut in tile `tile` or behind it; `count`, the text's end, where there is none. The whole warp
// calls it; so many tiles without a cut are passed in one step.
//
// tile_chunk: i64[tiles + 1], chunks that begin before each tile.
DEVICE i64 first_cut_from(i64 tile, i64 tiles, const i64* tile_chunk, const u32* mask, i64 count) {
    const i64 near = tile * TILE_WORDS + lane();  // it is nearly always in the first sector of the mask
    const u32 near_cuts = lane() < NEAR_WORDS && near * WORD < count ? mask[near] : 0;
    const u32 near_words = __ballot_sync(WHOLE_WARP, near_cuts != 0);
    if (near_words != 0) {
        const u32 owner = __ffs(near_words) - 1;
        return (near - lane() + owner) * WORD + __ffs(__shfl_sync(WHOLE_WARP, near_cuts, owner)) - 1;
    }
    for (i64 first = tile; first < tiles; first += WARP) {
        const i64 own = first + lane();
        const u32 cut_tiles = __ballot_sync(WHOLE_WARP, own < tiles && tile_chunk[own] < tile_chunk[own + 1]);
        if (cut_tiles == 0) continue;
        const i64 word = (first + __ffs(cut_tiles) - 1) * TILE_WORDS + lane();
        const u32 cuts = word * WORD < count ? mask[word] : 0;
        const u32 cut_words = __ballot_sync(WHOLE_WARP, cuts != 0);
        const u32 owner = __ffs(cut_words) - 1;
        const u32 found = __shfl_sync(WHOLE_WARP, cuts, owner);
        return (word - lane() + owner) * WORD + __ffs(found) - 1;
    }
    return count;
}
