// Launching a kernel: what Python (gpu_tok/emulated.py) and replay.cpp call.
#include <cstdio>
#include <mutex>
#include <utility>

#include "block.h"

namespace emu {

const Launch* launch;
const char* garbage;

#ifdef EMU_ASAN
constexpr size_t GAP = 64;  // poisoned: what is one too far is nobody's
#else
constexpr size_t GAP = 0;
#endif

static size_t used;  // bytes of an arena that the sites of this launch have been given

size_t shared_used() { return used; }

struct SpinLock {
    bool taken = false;
    void lock() {
        while (__atomic_exchange_n(&taken, true, __ATOMIC_ACQUIRE)) yield();
    }
    void unlock() { __atomic_store_n(&taken, false, __ATOMIC_RELEASE); }
};

constexpr size_t NO_ROOM = ~size_t(0);

static size_t place_once(SharedSite& site) {
    static SpinLock placing;  // not a mutex: ThreadSanitizer would take its order for the kernel's
    std::lock_guard<SpinLock> hold(placing);
    if (site.place >> 32 == launch->number) return u32(site.place);
    size_t alignment = site.alignment < 16 ? 16 : site.alignment;
    size_t offset = (used + alignment - 1) / alignment * alignment;
    if (offset + site.bytes > SHARED_BYTES) return NO_ROOM;
    used = offset + site.bytes + GAP;
    __atomic_store_n(&site.place, launch->number << 32 | offset, __ATOMIC_RELEASE);
    return offset;
}

// A site is placed when it is reached for the first time in a launch: in the order of its kernel, after those before.
size_t place_shared(SharedSite& site) {
    u64 known = __atomic_load_n(&site.place, __ATOMIC_ACQUIRE);
    if (known >> 32 == launch->number) return u32(known);
    size_t offset = place_once(site);
    if (offset == NO_ROOM) fail_here("shared memory of more than " + std::to_string(SHARED_BYTES) + " bytes a block");
    return offset;
}

template <size_t... I>
static void call_with(void* kernel, const u64* arguments, std::index_sequence<I...>) {
    reinterpret_cast<void (*)(decltype(I, u64())...)>(kernel)(arguments[I]...);
}

// More arguments than a kernel takes do no harm: the caller removes them.
void call(const Launch& l) {
    if (l.argument_count <= 6) return call_with(l.kernel, l.arguments, std::make_index_sequence<6>());
    if (l.argument_count <= 12) return call_with(l.kernel, l.arguments, std::make_index_sequence<12>());
    return call_with(l.kernel, l.arguments, std::make_index_sequence<32>());
}

static void make_garbage(u64 seed) {
    static u64 bytes[SHARED_BYTES / 8];
    Random random{mixed(~seed)};
    for (u64& eight : bytes) eight = u64(random.next()) << 32 | random.next();
    garbage = reinterpret_cast<const char*>(bytes);
}

}  // namespace emu

// Runs a kernel. Returns 0, or 1 and says in `message` what was wrong.
extern "C" __attribute__((visibility("default"))) int emu_launch(void* kernel, const char* name, long long grid,
                                                                 long long block, const unsigned long long* arguments,
                                                                 long long count, unsigned long long seed,
                                                                 char* message, long long message_bytes) {
    using namespace emu;
    static std::mutex one_at_a_time;
    std::lock_guard<std::mutex> hold(one_at_a_time);
    static u64 launches = 0;
    u64 padded[32] = {};
    for (long long i = 0; i < count; i++) padded[i] = arguments[i];
    Launch asked{kernel, name, grid, u32(block), padded, u32(count), seed, ++launches};
    launch = &asked;
    used = 0;
    make_garbage(seed);
    try {
        run_blocks(asked);
    } catch (const Failure& failure) {
        snprintf(message, size_t(message_bytes), "%s", failure.finding.c_str());
        return 1;
    }
    return 0;
}
