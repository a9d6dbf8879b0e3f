// The threads of a block as OS threads, two blocks at once: for the sanitizers, and to see true rivalry.
//
// This file is built without instrumentation and its locks are hidden from ThreadSanitizer: what it is told about order
// is exactly what CUDA promises. __syncthreads and __syncwarp order memory; shuffles, ballots and atomics do not;
// __threadfence does together with atomics.
#ifdef EMU_THREADS
#include <sys/mman.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "block.h"

#ifdef EMU_TSAN
extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
}
#else
static void __tsan_acquire(void*) {}
static void __tsan_release(void*) {}
static void AnnotateIgnoreSyncBegin(const char*, int) {}
static void AnnotateIgnoreSyncEnd(const char*, int) {}
#endif
#ifdef EMU_ASAN
extern "C" {
void __asan_poison_memory_region(const volatile void* address, size_t bytes);
void __asan_unpoison_memory_region(const volatile void* address, size_t bytes);
}
#else
static void __asan_poison_memory_region(const volatile void*, size_t) {}
static void __asan_unpoison_memory_region(const volatile void*, size_t) {}
#endif

__thread uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace emu {

constexpr u32 BLOCKS_AT_ONCE = 2;
constexpr i64 MOST_BLOCKS = 1 << 16;
// Each block has an arena of its own, so that only its own threads ever meet there. Behind its shared variables are
// addresses that stand for the order of memory: two for barriers, two a lane for __syncwarp; used in turn.
constexpr size_t ARENA_BYTES = SHARED_BYTES + 4096;

struct Unwind {};  // thrown through a kernel when the launch has failed

// A lock whose order ThreadSanitizer does not see; nor does it see what happens while it is held.
struct HiddenLock {
    struct Ignored {
        Ignored() { AnnotateIgnoreSyncBegin(__FILE__, __LINE__); }
        ~Ignored() { AnnotateIgnoreSyncEnd(__FILE__, __LINE__); }
    } ignored;
    std::unique_lock<std::mutex> lock;
    explicit HiddenLock(std::mutex& mutex) : lock(mutex) {}
};

struct Slot {  // runs one block after another
    std::mutex mutex;
    std::condition_variable may_go_on[MOST_WARPS], between_blocks;
    Block block;
    u32 running;       // threads that do not wait
    u32 left, rounds;  // threads that have left this block; blocks done
};

struct Own {  // of an OS thread
    Slot* slot;
    u32 number;
    u32 barriers, warp_syncs;  // how many: neighbours in time use different addresses
    const void* atomics[4];    // the last ones, for a fence
    u32 atomic_count, released_by_fence;
};
static __thread Own own;

static Slot slots[BLOCKS_AT_ONCE];
static char* arenas;
static std::vector<u32> order;  // of the blocks; the slots take them by turns, so neighbours never share a thread
static std::atomic<bool> failed;
static std::mutex failing;
static std::string failure;

void fail_here(const std::string& finding) {
    {
        HiddenLock hold(failing);
        if (!failed) failure = finding;
        failed = true;
    }
    throw Unwind();
}

u32 lane() { return own.number % WARP; }

void yield() {
    if (failed) throw Unwind();
    std::this_thread::sleep_for(std::chrono::microseconds(20));  // many may spin on few cores
}

// After a failure: nobody sleeps on. Taking the lock makes sure that who has just looked at `failed` sleeps already.
static void wake_all() {
    for (Slot& slot : slots) {
        HiddenLock hold(slot.mutex);
        for (auto& warp : slot.may_go_on) warp.notify_all();
        slot.between_blocks.notify_all();
    }
}

// Sleeps until another thread has set this one ready. Called with the slot's lock held.
static void wait(Slot& slot, HiddenLock& hold) {
    Block& block = slot.block;
    Warp& warp = block.warp[own.number / WARP];
    const u32 bit = 1u << own.number % WARP;
    slot.running--;
    while ((warp.ready & bit) == 0 && !failed) {
        if (slot.running == 0) fail_here(block.why_stuck());
        slot.may_go_on[own.number / WARP].wait(hold.lock);
    }
    if (failed) throw Unwind();
    warp.ready &= ~bit;
}

static u32 all_ready(const Block& block) {
    u32 count = 0;
    for (u32 w = 0; w < block.warps; w++) count += u32(__builtin_popcount(block.warp[w].ready));
    return count;
}

void barrier(Site site) {
    Slot& slot = *own.slot;
    char* order = slot.block.arena + SHARED_BYTES + own.barriers++ % 2;
    __tsan_release(order);
    {
        HiddenLock hold(slot.mutex);
        if (slot.block.arrive_at_barrier(own.number, site)) {
            slot.running += all_ready(slot.block);
            for (u32 w = 0; w < slot.block.warps; w++) slot.may_go_on[w].notify_all();
        } else {
            wait(slot, hold);
        }
    }
    __tsan_acquire(order);
}

u64 exchange(WarpOp op, u32 mask, u64 value, u32 source, Site site) {
    Slot& slot = *own.slot;
    Thread& self = slot.block.thread(own.number);
    char* order = slot.block.arena + SHARED_BYTES + (2 + 2 * (own.number / WARP) + own.warp_syncs % 2) * WARP;
    if (op == WarpOp::sync) {
        own.warp_syncs++;
        __tsan_release(&order[lane()]);
    }
    {
        HiddenLock hold(slot.mutex);
        const u32 ready = slot.block.warp[own.number / WARP].ready;
        if (slot.block.arrive_in_warp(own.number, op, mask, value, source, site)) {
            slot.running += u32(__builtin_popcount(slot.block.warp[own.number / WARP].ready & ~ready));
            slot.may_go_on[own.number / WARP].notify_all();
        } else {
            wait(slot, hold);
        }
    }
    if (op == WarpOp::sync) {
        for (u32 rest = mask; rest != 0; rest &= rest - 1) __tsan_acquire(&order[__builtin_ctz(rest)]);
    }
    return self.result;
}

// A fence orders what was written before it for those who see a later atomic write, and what is read after it with the
// atomics seen before. ThreadSanitizer knows no fences, so the next few atomic writes release, and the last few
// acquire.
void fence() {
    for (const void* address : own.atomics) {
        if (address != nullptr) __tsan_acquire(const_cast<void*>(address));
    }
    own.released_by_fence = 4;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void before_atomic(const void* address, bool writes) {
    if (failed) throw Unwind();  // a thread that waits for another's atomic would wait for ever
    if (!writes || own.released_by_fence == 0) return;
    own.released_by_fence--;
    __tsan_release(const_cast<void*>(address));
}
void after_atomic(const void* address) { own.atomics[own.atomic_count++ % 4] = address; }

void* shared(SharedSite& site) {
    Slot& slot = *own.slot;
    char* place = slot.block.arena + place_shared(site);
    __asan_unpoison_memory_region(place, site.bytes);
    return place;
}

void fail_at(Site site, const char* finding) {
    fail_here(std::string(finding) + ", " + at(site) + ", " + own.slot->block.where(own.number));
    __builtin_unreachable();
}

// By hand: memcpy would be seen by the sanitizers as the kernel's own writing.
__attribute__((optimize("no-tree-loop-distribute-patterns"))) static void fill(char* arena) {
    __asan_unpoison_memory_region(arena, SHARED_BYTES);
    for (size_t i = 0; i < SHARED_BYTES; i += 8) {
        *reinterpret_cast<u64*>(arena + i) = *reinterpret_cast<const u64*>(garbage + i);
    }
    __asan_poison_memory_region(arena, SHARED_BYTES);  // but what its kernel declares, when it does
}

// Returns false when no block is left. The last thread to come in sets the next block up.
static bool begin_block(Slot& slot) {
    HiddenLock hold(slot.mutex);
    const u32 round = slot.rounds;
    if (++slot.left == launch->block) {
        slot.left = 0;
        i64 index = (&slot - slots) + i64(BLOCKS_AT_ONCE) * slot.rounds++;
        if (index < launch->grid) {
            slot.block.begin(order[size_t(index)], launch->block, launch->seed);
            slot.block.arena = arenas + size_t(index) * ARENA_BYTES;
            fill(slot.block.arena);
        } else {
            slot.block.index = -1;
        }
        slot.running = launch->block;
        slot.between_blocks.notify_all();
    } else {
        while (slot.rounds == round && !failed) slot.between_blocks.wait(hold.lock);
    }
    if (failed) throw Unwind();
    if (slot.block.index < 0) return false;
    slot.block.warp[own.number / WARP].ready &= ~(1u << own.number % WARP);
    blockIdx = {u32(slot.block.index), 0, 0};
    return true;
}

static void end_thread(Slot& slot) {
    HiddenLock hold(slot.mutex);
    slot.block.end(own.number);
    slot.running--;
    if (slot.running == 0 && !slot.block.all_ended()) fail_here(slot.block.why_stuck());
}

static void run_thread(Slot& slot, u32 number) {
    own = {};
    own.slot = &slot;
    own.number = number;
    threadIdx = {number, 0, 0};
    blockDim = {launch->block, 1, 1};
    gridDim = {u32(launch->grid), 1, 1};
    try {
        while (begin_block(slot)) {
            call(*launch);
            end_thread(slot);
        }
    } catch (const Unwind&) {
        wake_all();
    }
}

void run_blocks(const Launch& asked) {
    if (asked.grid > MOST_BLOCKS) throw Failure{"more than 65536 blocks: too many for OS threads"};
    const size_t bytes = size_t(asked.grid) * ARENA_BYTES;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw Failure{"no memory for the blocks' shared variables"};
    arenas = static_cast<char*>(memory);
    order = block_order(asked);
    failed = false;
    std::vector<std::thread> threads;
    for (Slot& slot : slots) {
        slot.left = slot.rounds = 0;
        for (u32 number = 0; number < asked.block; number++) {
            threads.emplace_back([&slot, number] { run_thread(slot, number); });
        }
    }
    for (std::thread& thread : threads) thread.join();
    __asan_unpoison_memory_region(arenas, bytes);
    munmap(memory, bytes);
    if (failed) throw Failure{failure};
}

}  // namespace emu
#endif
