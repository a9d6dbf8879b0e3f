// Words that every kernel uses. Read by NVRTC (no standard headers there), nvcc and g++ (through emu/cuda_on_cpu.h).
//
//   KERNEL LAUNCHED_AS(256) name(const u8* bytes, i64 count, u32* mask)     parameters: pointers and 64-bit integers
//   SHARED(Tables, tables); SHARED(u32[8], sums);                           variables of the whole block
//   DEVICE u32 helper(...)                                                  becomes part of its callers

#pragma once

#ifndef __CUDACC__
#include "emu/cuda_on_cpu.h"
#endif

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using i32 = int;
using u64 = unsigned long long;  // not `unsigned long`: CUDA's 64-bit atomics take this one
using i64 = long long;

constexpr u32 WARP = 32;
constexpr u32 WHOLE_WARP = 0xFFFFFFFF;  // every lane, for shuffles and ballots

#define DEVICE static __device__ __forceinline__
// The greatest block, and, where the compiler would take too many registers, how many of them a multiprocessor holds.
#define LAUNCHED_AS(...) __launch_bounds__(__VA_ARGS__)

#ifdef __CUDACC__
template <typename T>
struct Same {
    using type = T;  // so that u32[8] can stand before a name
};
#define KERNEL extern "C" __global__ void
#define SHARED(Type, name) __shared__ Same<Type>::type name
#define UNROLL _Pragma("unroll")

// Loads and stores that may meet atomics of other threads: never torn, never kept in a register, in no order.
// T: a 32-bit or 64-bit integer.
template <typename T>
DEVICE T load_relaxed(const T* address) {
    T value;
    if constexpr (sizeof(T) == 8) {
        asm volatile("ld.relaxed.gpu.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
    } else {
        asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    }
    return value;
}
template <typename T>
DEVICE void store_relaxed(T* address, T value) {
    if constexpr (sizeof(T) == 8) {
        asm volatile("st.relaxed.gpu.u64 [%0], %1;" : : "l"(address), "l"(value) : "memory");
    } else {
        asm volatile("st.relaxed.gpu.u32 [%0], %1;" : : "l"(address), "r"(value) : "memory");
    }
}
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

// The thread's number in the grid and the grid's threads: `for (i64 i = grid_thread(); i < n; i += grid_threads())`.
DEVICE i64 grid_thread() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
DEVICE i64 grid_threads() { return (i64)gridDim.x * blockDim.x; }

DEVICE u32 lane() { return threadIdx.x % WARP; }

// Up to 8 bytes, one by one; zeros behind the end.
DEVICE u64 load_bytes(const u8* bytes, i64 at, i64 end) {
    u64 loaded = 0;
    for (u32 i = 0; i < 8 && at + i < end; i++) loaded |= (u64)bytes[at + i] << 8 * i;
    return loaded;
}

// 16 bytes in one load; the address is a multiple of 16.
struct alignas(16) Bytes16 {
    u64 low, high;
};

// The 16 bytes from `at` on, zeros behind the end. `bytes` and `at` are multiples of 16; nothing is read behind `end`.
DEVICE Bytes16 load_16(const u8* bytes, i64 at, i64 end) {
    if (at + 16 <= end) return *reinterpret_cast<const Bytes16*>(bytes + at);
    return {load_bytes(bytes, at, end), load_bytes(bytes, at + 8, end)};
}

// The 8 bytes from any `at` on, zeros behind the end: two aligned loads. `bytes` is a multiple of 8; nothing is read
// behind `end`.
//
//   bytes     . . . A B C D E | F G H I . . . .       at: where A is; a bar every 8 bytes
//   loaded          A B C D E   F G H
DEVICE u64 load_8(const u8* bytes, i64 at, i64 end) {
    const i64 word_at = at & ~7LL;
    const u32 shift = (u32)(at - word_at) * 8;
    if (word_at + (shift == 0 ? 8 : 16) > end) return load_bytes(bytes, at, end);
    const u64* word = reinterpret_cast<const u64*>(bytes + word_at);
    return shift == 0 ? word[0] : word[0] >> shift | word[1] << (64 - shift);
}
