// Counts loads and stores of global memory. Kernels that are compiled with -fsanitize=thread call __tsan_read4(address)
// and the like before each access; these are ours instead of libtsan's, so kernels are counted as they are.
//
//   between two warp-wide points     lane 0 reads bytes 0-3, lane 1 bytes 4-7, ... lane 31 bytes 124-127
//   counted                          128 bytes, 4 sectors of 32 bytes, busiest lane 1 access of 32: imbalance 1
//
// A sector counts once per warp between two warp-wide points (a barrier, a warp intrinsic, the end of the block): what
// the first-level cache would hold is not fetched twice. Sectors are numbered from the start of a buffer, as buffers on
// a GPU begin at multiples of 256.
#ifdef EMU_COUNT
#include "counters.h"

#include <algorithm>

namespace emu {

struct Traffic {
    u64 read_bytes, read_sectors, written_bytes, written_sectors;
};

struct Counts {  // the layout is known to gpu_tok/emulated.py
    Traffic streaming, table;
    u64 atomics, accesses, busiest_times_32;
};

struct Range {
    u64 begin, end;
    u64 is_table;
};

struct SeenSectors {  // a set that is emptied by counting up `generation`
    struct Slot {
        u64 key, generation;
    };
    std::vector<Slot> slots = std::vector<Slot>(1024);
    u64 generation = 1;
    size_t count = 0;

    void clear() {
        generation++;
        count = 0;
    }
    bool add(u64 key) {
        if (2 * (count + 1) > slots.size()) grow();
        size_t place = size_t(mixed(key)) & (slots.size() - 1);
        while (slots[place].generation == generation) {
            if (slots[place].key == key) return false;
            place = (place + 1) & (slots.size() - 1);
        }
        slots[place] = {key, generation};
        count++;
        return true;
    }
    void grow() {
        std::vector<Slot> old(2 * slots.size());
        old.swap(slots);
        count = 0;
        for (const Slot& slot : old) {
            if (slot.generation == generation) add(slot.key);
        }
    }
};

struct WarpCounts {
    SeenSectors read, written;
    u32 accesses[WARP];
};

static Counts counts;
static std::vector<Range> ranges;  // sorted; none overlap
static WarpCounts of_warp[MOST_WARPS];

void count_warp_point(u32 warp) {
    WarpCounts& own = of_warp[warp];
    own.read.clear();
    own.written.clear();
    u32 busiest = 0;
    for (u32& accesses : own.accesses) {
        busiest = std::max(busiest, accesses);
        accesses = 0;
    }
    counts.busiest_times_32 += 32ull * busiest;
}

void count_barrier(u32 warps) {
    for (u32 warp = 0; warp < warps; warp++) count_warp_point(warp);
}

static const Range* range_of(u64 address) {
    auto after =
        std::upper_bound(ranges.begin(), ranges.end(), address, [](u64 a, const Range& r) { return a < r.begin; });
    return after == ranges.begin() || address >= (after - 1)->end ? nullptr : &*(after - 1);
}

static void count(const void* pointer, size_t bytes, bool writes) {
    const u64 address = u64(pointer);
    const Range* range = range_of(address);
    if (range == nullptr) return;  // shared memory, or the thread's own
    WarpCounts& own = of_warp[threadIdx.x / WARP];
    Traffic& traffic = range->is_table ? counts.table : counts.streaming;
    (writes ? traffic.written_bytes : traffic.read_bytes) += bytes;
    const u64 first = (address - range->begin) / 32, last = (address + bytes - 1 - range->begin) / 32;
    for (u64 sector = first; sector <= last; sector++) {
        bool fresh = (writes ? own.written : own.read).add(u64(range - ranges.data()) << 48 | sector);
        (writes ? traffic.written_sectors : traffic.read_sectors) += fresh;
    }
    own.accesses[threadIdx.x % WARP]++;
    counts.accesses++;
}

// An atomic is done by the second-level cache; it is counted by itself, and is no traffic of the other two kinds.
void count_relaxed(const void* address, size_t bytes, Access access) {
    if (access != Access::update) return count(address, bytes, access == Access::store);
    if (range_of(u64(address)) == nullptr) return;
    counts.atomics++;
    counts.accesses++;
    of_warp[threadIdx.x / WARP].accesses[threadIdx.x % WARP]++;
}

}  // namespace emu

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED void emu_count_from_zero(const emu::Range* sorted, long long count) {
    emu::ranges.assign(sorted, sorted + count);
    emu::counts = {};
    emu::count_barrier(emu::MOST_WARPS);
    emu::counts = {};
}
EXPORTED void emu_counts(emu::Counts* result) { *result = emu::counts; }

#define HOOK(kind, bytes, writes)                                                             \
    EXPORTED void __tsan_##kind##bytes(void* address) { emu::count(address, bytes, writes); } \
    EXPORTED void __tsan_unaligned_##kind##bytes(void* address) { emu::count(address, bytes, writes); }
#define HOOKS(bytes) HOOK(read, bytes, false) HOOK(write, bytes, true)
HOOKS(1) HOOKS(2) HOOKS(4) HOOKS(8) HOOKS(16) EXPORTED void __tsan_read_range(void* address, unsigned long bytes) {
    emu::count(address, bytes, false);
}
EXPORTED void __tsan_write_range(void* address, unsigned long bytes) { emu::count(address, bytes, true); }
EXPORTED void __tsan_vptr_update(void**, void*) {}
EXPORTED void __tsan_func_entry(void*) {}
EXPORTED void __tsan_func_exit() {}
EXPORTED void __tsan_init() {}
#endif
