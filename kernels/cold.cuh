// What the cold paths of all models begin with: new chunks -> normalized code points, a thread a chunk.

#pragma once

#include "common.cuh"
#include "entry.cuh"
#include "normalize.cuh"
#include "report.cuh"

constexpr u32 COLD_THREADS = 128;
constexpr u32 COLD_BLOCKS = 8;  // that a multiprocessor holds: with more of them registers would be spilled

// Normalizes each winner, into room that it takes from the arena: normalize_chunks of cold.cu says what all arguments
// are. room_of(miss, size, least): words that a chunk asks for, when its code points alone need `least`; the arena is
// u32[arena_room].
template <typename RoomOf>
DEVICE void normalize_winners(const u8* bytes, const Miss* misses, const u32* winners, i64 host_flags,
                              const Normalizer& tables, i64 opening, i64 growth, u32* arena, i64 arena_room,
                              Late* of_winner, u64* report, RoomOf room_of) {
    const i64 last = (i64)report[WINNERS_SEEN];
    for (i64 own = grid_thread(); own < last; own += grid_threads()) {
        const Miss miss = misses[winners[own]];
        if (miss.flags & host_flags) {
            spoil(report, NEEDS_HOST);
            return;
        }
        const i64 start = miss.start, end = start + miss.length;
        const Size size = size_of(bytes, start, end, tables);
        const i64 least = size.is_ascii ? size.count : (size.count + opening) * growth;
        const i64 room = room_of(miss, size, least);
        const i64 at = (i64)atomicAdd(&report[WORK_ASKED], (u64)room);
        if (at + room > arena_room) continue;  // the next kernel says so: the others have to be counted, too
        u32* text = arena + at;
        const i64 count = size.is_ascii ? map_ascii(bytes, start, end, tables.ascii, text)
                                        : normalize(bytes, start, end, miss.flags, tables, text, least);
        of_winner[own] = {at, count};
    }
}

// Is the arena too small for what normalize_winners was asked for. Then it says so.
DEVICE bool lacks_room(i64 arena_room, u64* report) {
    if ((i64)report[WORK_ASKED] <= arena_room) return false;
    if (grid_thread() == 0) spoil(report, TOO_SMALL);
    return true;
}
