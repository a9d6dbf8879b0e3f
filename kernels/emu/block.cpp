#include "block.h"

#include <cstdio>

namespace emu {

u64 mixed(u64 seed) {  // splitmix64
    seed += 0x9e3779b97f4a7c15ull;
    seed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9ull;
    seed = (seed ^ (seed >> 27)) * 0x94d049bb133111ebull;
    return (seed ^ (seed >> 31)) | 1;
}

std::vector<u32> block_order(const Launch& launch) {
    Random random{mixed(launch.seed + 1)};
    std::vector<u32> order(size_t(launch.grid));
    for (u32 i = 0; i < order.size(); i++) {
        u32 other = random.next() % (i + 1);
        order[i] = order[other];
        order[other] = i;
    }
    return order;
}

void Block::begin(i64 block_index, u32 block_size, u64 seed) {
    index = block_index;
    size = block_size;
    warps = (size + WARP - 1) / WARP;
    warps_ready = at_barrier = ended = 0;
    random.state = mixed(seed ^ mixed(u64(index)));
    for (u32 w = 0; w < warps; w++) {
        u32 lanes = size - w * WARP < WARP ? size - w * WARP : WARP;
        warp[w].waiting = warp[w].ready = 0;
        for (u32 l = 0; l < lanes; l++) warp[w].lanes[l].state = State::ready;
        release(w, lanes == WARP ? ~0u : (1u << lanes) - 1);
    }
}

void Block::release(u32 warp_number, u32 lanes) {
    warp[warp_number].ready |= lanes;
    warps_ready |= 1u << warp_number;
}

static bool same_place(Site a, Site b) {
    return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

bool Block::arrive_at_barrier(u32 number, Site site) {
    Thread& self = thread(number);
    self.state = State::at_barrier;
    self.site = site;
    self.synced = 0;
    if (++at_barrier < size) return false;
    at_barrier = 0;
    for (u32 n = 0; n < size; n++) {
        Thread& other = thread(n);
        if (!same_place(other.site, site)) {
            fail_here("threads of a block wait at two barriers: " + where(n) + " at " + at(other.site) + ", " +
                      where(number) + " at " + at(site));
        }
        other.state = State::ready;
        if (n != number) release(n / WARP, 1u << n % WARP);
    }
    return true;
}

bool Block::arrive_in_warp(u32 number, WarpOp op, u32 mask, u64 value, u32 source, Site site) {
    Warp& own = warp[number / WARP];
    const u32 bit = 1u << number % WARP;
    Thread& self = own.lanes[number % WARP];
    self = {State::in_warp, op, mask, source, value, 0, site, 0};
    if ((mask & bit) == 0) fail_here("the mask of a warp intrinsic leaves out the lane that calls it: " + at(site));
    own.waiting |= bit;
    if ((own.waiting & mask) != mask) return false;
    for (u32 rest = mask; rest != 0; rest &= rest - 1) {
        Thread& other = own.lanes[__builtin_ctz(rest)];
        if (other.mask != mask || other.op != op || !same_place(other.site, site))
            return false;  // perhaps it comes yet
    }
    complete(own, op, mask);
    own.waiting &= ~mask;
    if (mask != bit) release(number / WARP, mask & ~bit);
    return true;
}

void Block::complete(Warp& own, WarpOp op, u32 mask) {
    u64 votes = 0;
    if (op == WarpOp::ballot) {
        for (u32 rest = mask; rest != 0; rest &= rest - 1) {
            u32 l = __builtin_ctz(rest);
            votes |= own.lanes[l].value << l;
        }
    }
    for (u32 rest = mask; rest != 0; rest &= rest - 1) {
        Thread& lane = own.lanes[__builtin_ctz(rest)];
        lane.state = State::ready;
        lane.synced = op == WarpOp::sync ? mask : 0;
        if (op == WarpOp::shuffle) {  // what an absent lane would give is undefined
            bool present = (mask >> lane.source & 1) != 0;
            lane.result = present ? own.lanes[lane.source].value : random.next() * 0x100000001ull;
        } else if (op == WarpOp::match) {
            lane.result = 0;
            for (u32 others = mask; others != 0; others &= others - 1) {
                u32 l = __builtin_ctz(others);
                if (own.lanes[l].value == lane.value) lane.result |= 1ull << l;
            }
        } else {
            lane.result = votes;
        }
    }
}

void Block::end(u32 number) {
    thread(number).state = State::ended;
    ended++;
}

std::string at(Site site) {
    const char* name = std::strrchr(site.file, '/');
    return std::string(name ? name + 1 : site.file) + ":" + std::to_string(site.line);
}

std::string Block::where(u32 number) {
    return "block " + std::to_string(index) + ", thread " + std::to_string(number) + " (warp " +
           std::to_string(number / WARP) + ", lane " + std::to_string(number % WARP) + ")";
}

static std::string hex(u32 mask) {
    char text[16];
    snprintf(text, sizeof text, "0x%08x", mask);
    return text;
}

static std::string waits_at(const Thread& thread) {
    if (thread.state == State::ended) return "ended";
    if (thread.state == State::at_barrier) return "waits at __syncthreads, " + at(thread.site);
    return "waits in a warp intrinsic of the lanes " + hex(thread.mask) + ", " + at(thread.site);
}

// Says once for each place where threads are how many there are, and which is the first.
std::string Block::why_stuck() {
    struct Group {
        std::string place;
        u32 first, count;
    };
    std::vector<Group> groups;
    for (u32 n = 0; n < size; n++) {
        std::string place = waits_at(thread(n));
        bool known = false;
        for (Group& group : groups) {
            if (group.place == place) group.count++, known = true;
        }
        if (!known && groups.size() < 8) groups.push_back({place, n, 1});
    }
    std::string text = "no thread of a block can go on:";
    for (const Group& group : groups) {
        text += "\n  " + where(group.first) + " " + group.place;
        if (group.count > 1) text += "; so do " + std::to_string(group.count - 1) + " more";
    }
    return text;
}

}  // namespace emu
