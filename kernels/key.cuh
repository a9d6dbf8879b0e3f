// Keys of chunks: what the persistent table compares, and where it looks first. cpu_ref/intern.py has the same.

#pragma once

#include "common.cuh"
#include "entry.cuh"

constexpr u32 SHORT = 15;          // bytes of the longest key that lies in its row
constexpr u32 PROBES = 16;         // rows looked at before a chunk counts as not found
constexpr u32 LONGEST_KEPT = 256;  // bytes of the longest chunk that the table keeps
constexpr u32 MOST_FLAGS = 15;     // flags beyond the four of a key belong to chunks that are not kept
constexpr u32 LENGTH_SHIFT = 56, FLAGS_SHIFT = 60;
constexpr u64 SEED_LOW = 0x9E3779B97F4A7C15, SEED_HIGH = 0xD6E8FEB86659FD93;

struct Key {
    u64 low, high;  // without flags
};

DEVICE u64 fold_multiply(u64 left, u64 right) { return __umul64hi(left, right) ^ left * right; }

DEVICE u64 mix(Key key) { return fold_multiply(key.low ^ SEED_LOW, key.high ^ SEED_HIGH); }

DEVICE u64 low_bytes(u64 word, u32 count) { return count >= 8 ? word : word & ((1ull << 8 * count) - 1); }

DEVICE u64 hash_bytes(const u8* bytes, i64 at, u32 length, i64 end) {
    u64 mixed = SEED_LOW ^ length;
    const i64 last = at + length - 16;
    for (; at <= last; at += 16) {
        mixed = fold_multiply(load_8(bytes, at, end) ^ mixed, load_8(bytes, at + 8, end) ^ SEED_HIGH);
    }
    mixed ^= load_8(bytes, last, end);
    return fold_multiply(mixed ^ SEED_HIGH, load_8(bytes, last + 8, end) ^ SEED_LOW);
}

// The key of the chunk [at, at + length) of a text that ends at `end`.
DEVICE Key key_of(const u8* bytes, i64 at, u32 length, i64 end) {
    if (length > SHORT) return {hash_bytes(bytes, at, length, end), length};
    const u64 low = low_bytes(load_8(bytes, at, end), length);
    const u64 high = length > 8 ? low_bytes(load_8(bytes, at + 8, end), length - 8) : 0;
    return {low, high | (u64)length << LENGTH_SHIFT};
}

DEVICE bool same_bytes(const u8* left, i64 left_at, const u8* right, i64 right_at, i64 length) {
    for (i64 i = 0; i < length; i += 8) {
        if (load_8(left, left_at + i, left_at + length) != load_8(right, right_at + i, right_at + length)) return false;
    }
    return true;
}
