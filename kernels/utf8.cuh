// UTF-8, one code point at a time.

#pragma once

#include "common.cuh"

constexpr u64 HIGH_BITS = 0x8080808080808080;
constexpr u32 REPLACEMENT = 0xFFFD;  // stands for bytes that are no UTF-8; the batch is refused in the end

struct CodePoint {
    u32 value;
    u32 length;  // in bytes; 0 where no code point begins
};

DEVICE bool is_ascii(u64 eight_bytes) { return (eight_bytes & HIGH_BITS) == 0; }
DEVICE bool is_continuation(u8 byte) { return (byte & 0xC0) == 0x80; }

// The code point that begins at `at` < `end`, of bytes that nobody has checked yet; never reads at `end` or behind it.
// Overlong forms, surrogates and values over U+10FFFF are none.
//
//   bytes    E4 B8 AD 41
//   at 0     {0x4E2D, 3}        at 1     {REPLACEMENT, 0}        at 3     {0x41, 1}
DEVICE CodePoint code_point_at(const u8* bytes, i64 at, i64 end) {
    const CodePoint none = {REPLACEMENT, 0};
    const u32 first = bytes[at];
    if (first < 0x80) return {first, 1};
    const u32 length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (first < 0xC2 || first > 0xF4 || at + length > end) return none;
    u32 value = first & (0x7F >> length);
    for (u32 i = 1; i < length; i++) {
        const u8 next = bytes[at + i];
        if (!is_continuation(next)) return none;
        value = value << 6 | (next & 0x3F);
    }
    const u32 smallest = length == 2 ? 0x80 : length == 3 ? 0x800 : 0x10000;
    const bool is_surrogate = value >= 0xD800 && value < 0xE000;
    if (value < smallest || value > 0x10FFFF || is_surrogate) return none;
    return {value, length};
}

// The code point that begins at `at`, of bytes that have been checked.
DEVICE CodePoint checked_code_point_at(const u8* bytes, i64 at) {
    const u32 first = bytes[at];
    if (first < 0x80) return {first, 1};
    const u32 length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    u32 value = first & (0x7F >> length);
    for (u32 i = 1; i < length; i++) value = value << 6 | (bytes[at + i] & 0x3F);
    return {value, length};
}

DEVICE u32 utf8_length(u32 value) { return value < 0x80 ? 1 : value < 0x800 ? 2 : value < 0x10000 ? 3 : 4; }

// Byte number `index` of the UTF-8 of a code point that has `length` of them.
//
//   value    0x4E2D, length 3        index 0 1 2: E4 B8 AD
DEVICE u32 utf8_byte(u32 value, u32 length, u32 index) {
    if (length == 1) return value;
    const u32 shifted = value >> 6 * (length - 1 - index);
    return index == 0 ? ((0xF00 >> length) & 0xFF) | shifted : 0x80 | (shifted & 0x3F);
}
