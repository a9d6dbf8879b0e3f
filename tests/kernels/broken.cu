// Small kernels with one fault each, for the checks to find.

#include "common.cuh"
#include "scan.cuh"

constexpr u32 THREADS = 64;
constexpr u32 BINS = 256;

struct Bins {
    u32 count[BINS];
};

// The bins are never emptied.
KERNEL LAUNCHED_AS(THREADS) forgets_to_clear(const u8* bytes, i64 count, u32* byte_count) {
    SHARED(Bins, bins);
    for (i64 i = threadIdx.x; i < count; i += blockDim.x) atomicAdd(&bins.count[bytes[i]], 1u);
    __syncthreads();
    for (u32 bin = threadIdx.x; bin < BINS; bin += blockDim.x) byte_count[bin] = bins.count[bin];
}

// Half of the threads never come.
KERNEL LAUNCHED_AS(THREADS) half_a_barrier(const u8* bytes, u32* result) {
    if (threadIdx.x < 40) __syncthreads();
    result[threadIdx.x] = bytes[threadIdx.x];
}

// Some threads return early.
KERNEL LAUNCHED_AS(THREADS) returns_before_barrier(const u8* bytes, u32* result) {
    if (bytes[threadIdx.x] == 0) return;
    __syncthreads();
    result[threadIdx.x] = bytes[threadIdx.x];
}

// Both halves wait, each at a barrier of its own.
KERNEL LAUNCHED_AS(THREADS) two_barriers(const u8* bytes, u32* result) {
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    result[threadIdx.x] = bytes[threadIdx.x];
}

// Lanes above 20 are in the mask and never come.
KERNEL LAUNCHED_AS(THREADS) divergent_shuffle(const u8* bytes, u32* result) {
    if (lane() <= 20) result[threadIdx.x] = __shfl_sync(WHOLE_WARP, (u32)bytes[threadIdx.x], 0);
}

// Lane 0 calls with a mask that it is not in.
KERNEL LAUNCHED_AS(THREADS) outside_mask(const u8* bytes, u32* result) {
    result[threadIdx.x] = __ballot_sync(0xFFFFFFFEu, bytes[threadIdx.x]);
}

// Reads a lane that is not in the mask.
KERNEL LAUNCHED_AS(THREADS) reads_absent_lane(const u8* bytes, u32* result) {
    if (lane() < 16) result[threadIdx.x] = __shfl_sync(0xFFFFu, (u32)bytes[threadIdx.x], 20);
}

// One too far.
KERNEL LAUNCHED_AS(THREADS) reads_too_far(const u8* bytes, i64 count, u32* result) {
    for (i64 i = threadIdx.x; i <= count; i += blockDim.x) atomicAdd(result, (u32)bytes[i]);
}

struct Tile {
    u32 value[THREADS];
};

// One too far in shared memory.
KERNEL LAUNCHED_AS(THREADS) reads_too_far_in_tile(const u8* bytes, u32* result) {
    SHARED(Tile, tile);
    u32* value = tile.value;
    value[threadIdx.x] = bytes[threadIdx.x];
    __syncthreads();
    result[threadIdx.x] = value[threadIdx.x + 1];
}

// A load of 8 bytes at an odd place.
KERNEL LAUNCHED_AS(THREADS) misaligned(const u8* bytes, u64* result) {
    result[threadIdx.x] = *reinterpret_cast<const u64*>(bytes + 8 * threadIdx.x + 1);
}

// Threads read what others write, and no barrier is between.
KERNEL LAUNCHED_AS(THREADS) no_barrier(const u8* bytes, u32* result) {
    SHARED(Tile, tile);
    tile.value[threadIdx.x] = bytes[threadIdx.x];
    result[threadIdx.x] = tile.value[THREADS - 1 - threadIdx.x];
}

// A shuffle orders no memory.
KERNEL LAUNCHED_AS(THREADS) shuffle_for_barrier(const u8* bytes, u32* result) {
    SHARED(Tile, tile);
    tile.value[threadIdx.x] = bytes[threadIdx.x];
    const u32 own = __shfl_sync(WHOLE_WARP, threadIdx.x, lane());
    result[own] = tile.value[own ^ 1];
}

// Right: what the two above lack.
KERNEL LAUNCHED_AS(THREADS) with_barriers(const u8* bytes, u32* result) {
    SHARED(Tile, tile);
    tile.value[threadIdx.x] = bytes[threadIdx.x];
    __syncwarp();  // the neighbour's value is there
    const u32 neighbour = tile.value[threadIdx.x ^ 1];
    __syncthreads();  // everybody's is
    result[grid_thread()] = neighbour + tile.value[THREADS - 1 - threadIdx.x];
}

// Two blocks may both find the slot empty.
KERNEL LAUNCHED_AS(THREADS) claims_without_atomics(const u64* key, i64 count, u64* table, i64 mask, u32* claimed) {
    for (i64 i = grid_thread(); i < count; i += grid_threads()) {
        for (u64 slot = key[i] & mask;; slot = (slot + 1) & mask) {
            const u64 found = table[slot];
            if (found == 0) {
                table[slot] = key[i];
                atomicAdd(claimed, 1u);
            }
            if (found == 0 || found == key[i]) break;
        }
    }
}

// No fence between the value and its flag.
KERNEL LAUNCHED_AS(THREADS) passes_on_without_fence(u32* flag, u64* value, u64* received) {
    if (blockIdx.x == 0) {
        value[threadIdx.x] = 1000 + threadIdx.x;
        store_relaxed(&flag[threadIdx.x], 1u);
    } else {
        while (load_relaxed(&flag[threadIdx.x]) == 0) __nanosleep(100);
        received[threadIdx.x] = value[threadIdx.x];
    }
}

// Each thread waits for the one behind it, the last for nobody who comes.
KERNEL LAUNCHED_AS(THREADS) waits_for_ever(u32* flag, i64 asks_atomically) {
    volatile u32* plain = &flag[threadIdx.x + 1];
    if (asks_atomically == 0) {
        while (*plain == 0) {
        }
    } else {
        while (load_relaxed(&flag[threadIdx.x + 1]) == 0) __nanosleep(100);
    }
    store_relaxed(&flag[threadIdx.x], 1u);
}

// Says that a byte is not zero, and is wrong.
KERNEL LAUNCHED_AS(THREADS) asserts(const u8* bytes, i64 count) {
    if (threadIdx.x < count) assert(bytes[threadIdx.x] != 0);
}

// More than a block has.
struct Huge {
    u8 bytes[50000];
};
KERNEL LAUNCHED_AS(THREADS) too_much_shared_memory(u8* result) {
    SHARED(Huge, huge);
    huge.bytes[threadIdx.x] = 1;
    result[threadIdx.x] = huge.bytes[threadIdx.x];
}
