// The threads of a block as fibers on one OS thread.
//
// A fiber runs threads one after another on its own stack until one has to wait; only then another fiber takes over.
// So a kernel that never waits is a plain loop, and a wait costs one switch.
#ifndef EMU_THREADS
#include <sys/mman.h>
#include <ucontext.h>

#include <new>
#include <vector>

#include "block.h"
#ifdef EMU_COUNT
#include "counters.h"
#endif
#include "switch.h"
#include "watchdog.h"

uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace emu {

constexpr size_t STACK_BYTES = 64 << 10;
constexpr int MEAN_ATOMICS_BETWEEN_YIELDS = 16;

struct Fiber {
    Context context;
    u32 number;
};

static Block block;
static u32 current;                         // the thread that runs
static Fiber* fiber_of[MOST_WARPS * WARP];  // of a thread that has begun and not ended
static Fiber* running;
static std::vector<Fiber*> idle, all;
static Context host;
static bool failed;
static std::string failure;
static Random schedule;
int atomics_until_yield;
static volatile u64 moves;       // counted up when a thread ends, or comes to a warp-wide point
static volatile bool in_kernel;  // and not in the emulator

[[noreturn]] static void run_threads();

static Fiber* make_fiber() {
    size_t guard = 4096;
    void* stack = mmap(nullptr, STACK_BYTES + guard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED) throw std::bad_alloc();  // ends the process: there is nothing under a fiber to catch it
    mprotect(stack, guard, PROT_NONE);  // a stack that overflows ends the process instead of spoiling its neighbour
    Fiber* fiber = new Fiber{{}, u32(all.size())};
    // stacks that begin at the same place of a page would all fall into the same sets of the cache
    size_t used = STACK_BYTES + guard - fiber->number * 832 % 16384;
    prepare(fiber->context, stack, used, run_threads);
    all.push_back(fiber);
    return fiber;
}

// One of the bits that are set: the first in the circle, counted from a place that is drawn.
static u32 draw_bit(u32 bits) {
    u32 turn = schedule.next() % 32;
    u32 turned = bits >> turn | bits << ((32 - turn) % 32);
    return (u32(__builtin_ctz(turned)) + turn) % 32;
}

// Takes the next thread that may run: one of the same warp while there is one, unless the warp is to give way.
static bool choose_next(bool leave_warp = false) {
    u32 w = current / WARP;
    if (leave_warp || block.warp[w].ready == 0) {
        if (block.warp[w].ready == 0) block.warps_ready &= ~(1u << w);
        if (block.warps_ready == 0) return false;
        w = draw_bit(block.warps_ready);
    }
    u32 l = draw_bit(block.warp[w].ready);
    block.warp[w].ready &= ~(1u << l);
    current = w * WARP + l;
    threadIdx.x = current;
    return true;
}

static void switch_to(Fiber* next, Context& from) {
    running = next;
    exchange_contexts(from, next->context);
}

// Fibers that an error left behind hold nothing but their stacks.
void fail_here(const std::string& finding) {
    failed = true;
    failure = finding;
    Context nobody;
    exchange_contexts(nobody, host);
    __builtin_unreachable();
}

// Runs the current thread, then each next one that has not begun; goes to sleep when the next one waits on a fiber.
[[noreturn]] static void run_threads() {
    for (;;) {
        fiber_of[current] = running;
        call(*launch);
        fiber_of[current] = nullptr;
        moves = moves + 1;
        block.end(current);
        bool found = choose_next();
        if (found && fiber_of[current] == nullptr) continue;
        if (!found && !block.all_ended()) fail_here(block.why_stuck());
        Fiber* self = running;
        idle.push_back(self);
        exchange_contexts(self->context, found ? (running = fiber_of[current])->context : host);
    }
}

static Fiber* take_idle() {
    if (idle.empty()) return make_fiber();
    Fiber* fiber = idle.back();
    idle.pop_back();
    return fiber;
}

static void give_way(bool leave_warp = false) {
    Fiber* self = running;
    const u32 number = current;
    if (!choose_next(leave_warp)) fail_here(block.why_stuck());
    if (current == number) return;
    switch_to(fiber_of[current] != nullptr ? fiber_of[current] : take_idle(), self->context);
}

void yield() {
    atomics_until_yield = int(schedule.next() % (2 * MEAN_ATOMICS_BETWEEN_YIELDS));
    block.warp[current / WARP].ready |= 1u << current % WARP;
    block.warps_ready |= 1u << current / WARP;
    give_way(true);
}

__attribute__((noinline)) void barrier(Site site) {
    moves = moves + 1;
    const bool all_here = block.arrive_at_barrier(current, site);
#ifdef EMU_COUNT
    if (all_here) count_barrier(block.warps);
#endif
    if (!all_here) give_way();
}

__attribute__((noinline)) u64 exchange(WarpOp op, u32 mask, u64 value, u32 source, Site site) {
    moves = moves + 1;
    Thread& self = block.thread(current);
    const bool all_here = block.arrive_in_warp(current, op, mask, value, source, site);
#ifdef EMU_COUNT
    if (all_here) count_warp_point(current / WARP);
#endif
    if (!all_here) give_way();
    return self.result;
}

u32 lane() { return current % WARP; }

void fence() {}

void* shared(SharedSite& site) {
    bool known = site.place >> 32 == launch->number;
    size_t offset = place_shared(site);
    if (!known) std::memcpy(block.arena + offset, garbage + offset, site.bytes);
    return block.arena + offset;
}

void fail_at(Site site, const char* finding) {
    fail_here(std::string(finding) + ", " + at(site) + ", " + block.where(current));
    __builtin_unreachable();
}

// Ends a launch in which nothing has moved since the last look.
static void look(int) {
    static u64 moves_seen;
    if (in_kernel && moves == moves_seen) {
        in_kernel = false;
        fail_here("no thread has ended, or come to a barrier or warp intrinsic, for " + std::to_string(emu_patience) +
                  " ms; the one that runs, and perhaps waits in a loop for another, is " + block.where(current));
    }
    moves_seen = moves;
}

static void run_block(i64 index) {
    block.begin(index, launch->block, launch->seed);
    std::memcpy(block.arena, garbage, shared_used());
    blockIdx.x = u32(index);
    current = block.random.next() % block.size;
    choose_next();
    in_kernel = true;
    switch_to(take_idle(), host);
    in_kernel = false;
#ifdef EMU_COUNT
    count_barrier(block.warps);
#endif
    if (!failed) return;
    for (Fiber* fiber : all) {
        munmap(stack_of(fiber->context), STACK_BYTES + 4096);
        delete fiber;
    }
    all.clear();
    idle.clear();
    std::memset(fiber_of, 0, sizeof fiber_of);
    throw Failure{failure};
}

void run_blocks(const Launch& asked) {
    alignas(256) static char arena[SHARED_BYTES];
    block.arena = arena;
    failed = false;
    schedule.state = mixed(asked.seed);
    atomics_until_yield = int(schedule.next() % (2 * MEAN_ATOMICS_BETWEEN_YIELDS));
    blockDim = {asked.block, 1, 1};
    gridDim = {u32(asked.grid), 1, 1};
    Watchdog watchdog(look);
    for (u32 index : block_order(asked)) run_block(index);
}

}  // namespace emu
#endif
