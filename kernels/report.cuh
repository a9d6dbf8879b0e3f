// The report of a batch: eight words that kernels fill and the host reads once. gpu_tok/on_device/report.py has the same.

#pragma once

#include "common.cuh"

constexpr u32 CHUNKS_SEEN = 0, MISSES_SEEN = 1, WINNERS_SEEN = 2, IDS_SEEN = 3;
constexpr u32 FIRST_BAD = 4;    // the least place of a byte that is no UTF-8; ALL_GOOD if there is none
constexpr u32 TOKENS_SEEN = 5;  // places where an added token may begin
constexpr u32 WORK_ASKED = 6;   // words that the cold path's kernels asked of their arena
constexpr u32 SPOILED = 7;      // not 0: what was guessed of this batch is wrong, by the bits below
constexpr u64 TOO_SMALL = 1;    // a buffer
constexpr u64 NEEDS_HOST = 2;   // a new chunk that no kernel encodes
constexpr u64 HAS_TOKENS = 4;   // texts that may hold added tokens, and are not divided yet
constexpr u64 ALL_GOOD = ~0ull;

// Is this batch to be thrown away: then kernels behind the one that noticed return at once, for what they would read is
// not whole.
DEVICE bool is_spoiled(const u64* report) {
    return load_relaxed(&report[SPOILED]) != 0 || load_relaxed(&report[FIRST_BAD]) != ALL_GOOD;
}

// Are its texts to be divided first. No kernel says so itself, so all threads of one see the same, and one that notices
// that a buffer is too small still counts to the end.
DEVICE bool is_undivided(const u64* report) { return (load_relaxed(&report[SPOILED]) & HAS_TOKENS) != 0; }

// Spoils the batch for a reason, one of the bits; others may be there already.
DEVICE void spoil(u64* report, u64 reason) { atomicOr(&report[SPOILED], reason); }

// The number of the flagged lanes' misses in the batch; `counter` counts them.
DEVICE i64 take_numbers(bool is_mine, u64* counter) {
    const u32 mine = __ballot_sync(WHOLE_WARP, is_mine);
    if (mine == 0) return 0;
    const u32 leader = __ffs(mine) - 1;
    u64 first = 0;
    if (lane() == leader) first = atomicAdd(counter, (u64)__popc(mine));
    return (i64)__shfl_sync(WHOLE_WARP, first, leader) + __popc(mine & ((1u << lane()) - 1));
}
