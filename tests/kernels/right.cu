// Small kernels that are right: any order of threads, warps and blocks gives the same.

#include "common.cuh"
#include "scan.cuh"

constexpr u32 THREADS = 256;
constexpr u32 BINS = 256;

// Exclusive prefix sums of each block's own elements. Launched as a thread per element.
//
//   value     3 1 0 2 | 5 1 ...      a bar where the next block begins
//   before    0 3 4 4 | 0 5 ...
//   total           6 |  ...
KERNEL LAUNCHED_AS(THREADS) scan_blocks(const u32* value, i64 count, u32* before, u32* total) {
    SHARED(u32[MOST_WARPS], scratch);
    const i64 i = grid_thread();
    const BlockScan<u32> sums = block_scan(i < count ? value[i] : 0, scratch);
    if (i < count) before[i] = sums.before;
    if (threadIdx.x == 0) total[blockIdx.x] = sums.total;
}

// The sum of all elements. Any grid.
KERNEL LAUNCHED_AS(THREADS) reduce(const u32* value, i64 count, u64* total) {
    u64 sum = 0;
    for (i64 i = grid_thread(); i < count; i += grid_threads()) sum += value[i];
    sum = warp_sum(sum);
    if (lane() == 0) atomicAdd(total, sum);
}

struct Bins {
    u32 count[BINS];
};

// How often each byte occurs: in shared memory first, then into the result. Any grid.
KERNEL LAUNCHED_AS(THREADS) histogram(const u8* bytes, i64 count, u32* byte_count) {
    SHARED(Bins, bins);
    for (u32 bin = threadIdx.x; bin < BINS; bin += blockDim.x) bins.count[bin] = 0;
    __syncthreads();  // the bins are empty
    for (i64 i = grid_thread(); i < count; i += grid_threads()) atomicAdd(&bins.count[bytes[i]], 1u);
    __syncthreads();  // the bins are full
    for (u32 bin = threadIdx.x; bin < BINS; bin += blockDim.x) {
        if (bins.count[bin] != 0) atomicAdd(&byte_count[bin], bins.count[bin]);
    }
}

// Copies the rows that `source_row` names, one behind the other. A warp a row; any grid.
//
//   flat t h e c a t      start 0 3 6      source_row 1 0      copied  c a t t h e      copied_start 0 3
KERNEL LAUNCHED_AS(THREADS)
    copy_rows(const u8* flat, const i64* start, const u32* source_row, const i64* copied_start, i64 rows, u8* copied) {
    for (i64 row = grid_thread() / WARP; row < rows; row += grid_threads() / WARP) {
        const i64 from = start[source_row[row]], end = start[source_row[row] + 1];
        for (i64 i = from + lane(); i < end; i += WARP) copied[copied_start[row] + i - from] = flat[i];
    }
}

// Each distinct key gets one slot of a table of a power of two; slot_of_key is that slot's first writer. Any grid.
KERNEL LAUNCHED_AS(THREADS) claim(const u64* key, i64 count, u64* table, i64 mask, u32* claimed) {
    for (i64 i = grid_thread(); i < count; i += grid_threads()) {
        for (u64 slot = key[i] & mask;; slot = (slot + 1) & mask) {
            u64 found = load_relaxed(&table[slot]);
            if (found == 0) found = atomicCAS(&table[slot], 0, key[i]);
            if (found == 0) atomicAdd(claimed, 1u);
            if (found == 0 || found == key[i]) break;
        }
    }
}

// A thread passes a value to the next block's threads through a flag; fences order the two. Launched as two blocks.
KERNEL LAUNCHED_AS(THREADS) pass_on(u32* flag, u64* value, u64* received) {
    if (blockIdx.x == 0) {
        value[threadIdx.x] = 1000 + threadIdx.x;
        __threadfence();
        store_relaxed(&flag[threadIdx.x], 1u);
    } else if (load_relaxed(&flag[threadIdx.x]) == 1) {
        __threadfence();
        received[threadIdx.x] = value[threadIdx.x];
    }
}

struct Lanes {
    u32 value[WARP];
};

// Every warp intrinsic once. Launched as one warp. result: u32[8 * 32].
KERNEL LAUNCHED_AS(THREADS) intrinsics(const u32* value, u32* result) {
    const u32 own = value[lane()];
    u32* row = result + lane();
    row[0 * WARP] = __shfl_sync(WHOLE_WARP, own, (lane() * 7) % WARP);
    row[1 * WARP] = __shfl_up_sync(WHOLE_WARP, own, 3);
    row[2 * WARP] = __shfl_down_sync(WHOLE_WARP, own, 5);
    row[3 * WARP] = __shfl_xor_sync(WHOLE_WARP, own, 9);
    row[4 * WARP] = __ballot_sync(WHOLE_WARP, own & 1);
    row[5 * WARP] = __match_any_sync(WHOLE_WARP, own % 4);
    row[6 * WARP] = __any_sync(WHOLE_WARP, own > 1000) + 2 * __all_sync(WHOLE_WARP, own < 1000);
    // the halves of a warp go their own ways
    if (lane() < 16) {
        row[7 * WARP] = __shfl_sync(0x0000FFFFu, own, 15);
    } else {
        row[7 * WARP] = __ballot_sync(0xFFFF0000u, 1) + __shfl_down_sync(0xFFFF0000u, own, 1, 16);
    }
}
