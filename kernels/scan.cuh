// Sums and prefix sums over a warp and over a block.

#pragma once

#include "common.cuh"

constexpr u32 MOST_WARPS = 32;  // a block has 1024 threads at most

template <typename T>
DEVICE T warp_sum(T value) {
    for (u32 step = WARP / 2; step > 0; step /= 2) value += __shfl_xor_sync(WHOLE_WARP, value, step);
    return value;
}

// The sum of the values of this lane and those below it.
//
//   value    3 1 0 2 ...
//   result   3 4 4 6 ...
template <typename T>
DEVICE T warp_scan(T value) {
    for (u32 step = 1; step < WARP; step *= 2) {
        const T below = __shfl_up_sync(WHOLE_WARP, value, step);
        if (lane() >= step) value += below;
    }
    return value;
}

template <typename T>
struct BlockScan {
    T before;  // the sum of the threads below this one
    T total;   // the sum of the block
};

// Prefix sums over a block of whole warps; `scratch` is shared and holds a T a warp. All threads call it.
//
//   thread   0  1 ... 31 | 32 33 ...          value 1 everywhere
//   scratch       32     |     32             sums of the warps
//   before   0  1 ... 31 | 32 33 ...
template <typename T>
DEVICE BlockScan<T> block_scan(T value, T (&scratch)[MOST_WARPS]) {
    const u32 warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    const T through = warp_scan(value);
    if (lane() == WARP - 1) scratch[warp] = through;
    __syncthreads();  // the sums of all warps are in scratch
    BlockScan<T> result = {through - value, 0};
    for (u32 other = 0; other < warps; other++) {
        if (other < warp) result.before += scratch[other];
        result.total += scratch[other];
    }
    __syncthreads();  // scratch may be written again
    return result;
}
