// Chunks, the tables that know their ids, and the entries that name a place in one of them.
//
//   entry   0 row              a row of the persistent table
//           1 0 miss           the ids of the cold path, by the number of the miss in this batch
//           1 1 id             the only id of the chunk itself: nine chunks in ten, and the gather looks nowhere else

#pragma once

#include "common.cuh"
#include "scan.cuh"

constexpr u32 MISS = 2u << 30;
constexpr u32 ONE_ID = 3u << 30;
constexpr u32 KIND = 3u << 30;  // the bits that tell the last two apart
constexpr u32 INLINE_IDS = 3;
constexpr u32 IN_POOL = 1u << 31;  // bit of a row's count: its ids lie in the pool

// A row of the persistent table, cpu_ref/intern.py's layout: a table may move between the two. Empty: high is 0.
//
//   short key   |  15 bytes of the chunk        | length, flags |  id  |  id  |  id  | count |
//   long key    |  hash  |  length              | flags         | key_at | ids_at | - | count, IN_POOL |
struct alignas(32) Row {
    u64 low, high;
    u32 words[4];  // three ids and the count; or the places in the pools of the key and of the ids, -, the count
};

// A chunk that no row was found for. Its number in the batch is where it stands in the list of misses.
struct alignas(16) Miss {
    i64 start;
    u32 length, flags;
};

// The ids that the cold path made of a miss: `late_ids[at]` and those behind it.
struct alignas(16) Late {
    i64 at, count;
};

DEVICE bool is_row(u32 entry) { return entry >> 31 == 0; }
DEVICE bool is_miss(u32 entry) { return (entry & KIND) == MISS; }
DEVICE u32 number_of(u32 entry) { return entry & ~KIND; }  // of a miss; or the id

struct Ids {
    const i32* at;
    i64 count;
};

// Where the ids of an entry lie that is no single id.
DEVICE Ids ids_of(u32 entry, const Row* rows, const i32* pool, const Late* late, const i32* late_ids) {
    if (is_miss(entry)) {
        const Late found = late[number_of(entry)];
        return {late_ids + found.at, found.count};
    }
    const Row& row = rows[entry];
    const u32 count = row.words[3];
    if (count & IN_POOL) return {pool + row.words[1], (i64)(count & ~IN_POOL)};
    return {reinterpret_cast<const i32*>(row.words), (i64)count};
}

DEVICE i64 count_of(u32 entry, const Row* rows, const Late* late) {
    if (is_row(entry)) return rows[entry].words[3] & ~IN_POOL;
    return is_miss(entry) ? late[number_of(entry)].count : 1;
}

struct WarpScan {
    i64 before;      // the sum of the lanes below this one
    i64 total;       // the sum of the warp
    bool has_large;  // is any of them above 3
};

// Prefix sums of counts over a warp. Counts below 4, the usual ones, take three ballots; others five shuffles more.
//
//   count    1 1 3 0 2 ...
//   before   0 1 2 5 5 ...
DEVICE WarpScan scan_counts(i64 count) {
    if (__ballot_sync(WHOLE_WARP, count > 3) != 0) {
        const i64 through = warp_scan(count);
        return {through - count, __shfl_sync(WHOLE_WARP, through, WARP - 1), true};
    }
    const u32 ones = __ballot_sync(WHOLE_WARP, count & 1), twos = __ballot_sync(WHOLE_WARP, count & 2);
    const u32 below = (1u << lane()) - 1;
    return {__popc(ones & below) + 2 * __popc(twos & below), __popc(ones) + 2 * __popc(twos), false};
}

// The first number in [low, high) for which `is_behind` is false: it is true for all before, and for none from there
// on.
template <typename IsBehind>
DEVICE i64 first_not(i64 low, i64 high, IsBehind is_behind) {
    while (low < high) {
        const i64 middle = low + (high - low) / 2;
        if (is_behind(middle)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}
