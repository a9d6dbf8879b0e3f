// A block of threads as both ways of running it see it: who waits where, who may go on, and why nobody can.
#pragma once

#include <string>
#include <vector>

#include "cuda_on_cpu.h"

namespace emu {

using i64 = long long;

constexpr u32 WARP = 32;
constexpr u32 MOST_WARPS = 32;
constexpr size_t SHARED_BYTES = 48 << 10;  // what CUDA grants a block without asking for more

enum class State : unsigned char { ready, at_barrier, in_warp, ended };

struct Thread {
    State state;
    WarpOp op;
    u32 mask, source;
    u64 value, result;
    Site site;
    u32 synced;  // the mask of the __syncwarp it came out of; 0 after others
};

struct Warp {
    u32 ready;    // lanes that may run
    u32 waiting;  // lanes in a warp intrinsic
    Thread lanes[WARP];
};

struct Random {
    u64 state;
    u32 next() {  // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        return u32((state * 0x2545f4914f6cdd1dull) >> 32);
    }
};

u64 mixed(u64 seed);  // a seed for Random: never 0, unlike for neighbours

struct Block {
    i64 index;
    u32 size, warps;
    u32 warps_ready;  // warps with a lane that may run
    u32 at_barrier, ended;
    Random random;
    char* arena;
    Warp warp[MOST_WARPS];

    void begin(i64 index, u32 size, u64 seed);
    Thread& thread(u32 number) { return warp[number / WARP].lanes[number % WARP]; }

    // Both return whether the others were all here already, so that the caller need not wait.
    bool arrive_at_barrier(u32 number, Site site);
    bool arrive_in_warp(u32 number, WarpOp op, u32 mask, u64 value, u32 source, Site site);
    void end(u32 number);
    bool all_ended() const { return ended == size; }

    std::string why_stuck();
    std::string where(u32 number);  // "block 3, thread 70 (warp 2, lane 6)"

 private:
    void release(u32 warp_number, u32 lanes);
    void complete(Warp& warp, WarpOp op, u32 mask);
};

struct Failure {
    std::string finding;
};

struct Launch {
    void* kernel;
    const char* name;
    i64 grid;
    u32 block;
    const u64* arguments;  // padded with zeros to the next size that call() knows
    u32 argument_count;
    u64 seed;
    u64 number;  // of all launches of the process
};

extern const Launch* launch;  // the one that runs; there is one at a time
extern const char* garbage;   // SHARED_BYTES of it, anew for each launch

std::vector<u32> block_order(const Launch& launch);  // all blocks, shuffled by the seed
void call(const Launch& launch);                     // a thread's whole run
void run_blocks(const Launch& launch);               // fibers.cpp or threads.cpp; throws Failure
std::string at(Site site);                           // "scan.cuh:31"
size_t place_shared(SharedSite& site);               // its offset in an arena
size_t shared_used();                                // bytes of an arena that this launch has placed
void fail_here(const std::string& finding);          // ends the launch; fibers.cpp or threads.cpp

}  // namespace emu
