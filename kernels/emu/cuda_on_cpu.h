// What CUDA C++ needs to be compiled by g++ and run on the CPU. Kernels include it through common.cuh; host code and
// kernels see the names of CUDA, what is behind them is in namespace emu (runtime.cpp, block.cpp).
//
//   -DEMU_THREADS   a thread of a block is an OS thread and two blocks run at once: for the sanitizers
//   -DEMU_COUNT     global memory is counted: built with -fsanitize=thread, linked with counters.cpp instead of libtsan
//   neither         a thread of a block is a fiber: for speed, and for a schedule that follows from a seed
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#define __global__ __attribute__((visibility("default")))
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)

#define KERNEL extern "C" __global__ void

// A block's shared variable: the same bytes for all threads of a block, garbage at first. Sites are told apart by a
// static of their own, since a macro cannot ask which kernel it stands in.
#define SHARED(Type, name)                                                \
    static ::emu::SharedSite name##_site{sizeof(Type), alignof(Type), 0}; \
    auto& name = *reinterpret_cast<std::remove_reference_t<Type>*>(::emu::shared(name##_site))

#ifdef EMU_THREADS
#define EMU_PER_THREAD __thread
#else
#define EMU_PER_THREAD
#endif

// Where a call stands: default arguments are evaluated at the caller.
#define EMU_SITE ::emu::Site site = {__builtin_FILE(), __builtin_LINE()}

struct uint3 {
    unsigned x, y, z;
};
using dim3 = uint3;

extern EMU_PER_THREAD uint3 threadIdx, blockIdx, blockDim, gridDim;
constexpr int warpSize = 32;

#define EMU_VECTOR(Type, Element, bytes)                                                 \
    struct alignas(bytes) Type##2 { Element x, y; };                                     \
    struct alignas(2 * (bytes) > 16 ? 16 : 2 * (bytes)) Type##4 { Element x, y, z, w; }; \
    inline Type##2 make_##Type##2(Element x, Element y) { return {x, y}; }               \
    inline Type##4 make_##Type##4(Element x, Element y, Element z, Element w) { return {x, y, z, w}; }
EMU_VECTOR(uchar, unsigned char, 2)
EMU_VECTOR(ushort, unsigned short, 4)
EMU_VECTOR(int, int, 8)
EMU_VECTOR(uint, unsigned, 8)
EMU_VECTOR(longlong, long long, 16)
EMU_VECTOR(ulonglong, unsigned long long, 16)
#undef EMU_VECTOR

namespace emu {

using u32 = unsigned;
using u64 = unsigned long long;

struct Site {
    const char* file;
    int line;
};

struct SharedSite {
    size_t bytes, alignment;
    u64 place;  // launch number and offset + 1; see shared()
};

enum class WarpOp { sync, shuffle, ballot, match };

void* shared(SharedSite& site);
void barrier(Site site);
u64 exchange(WarpOp op, u32 mask, u64 value, u32 source, Site site);  // meets the other lanes of mask
[[noreturn]] void fail_at(Site site, const char* finding);
u32 lane();
void yield();

// ---- atomics -------------------------------------------------------------------------------------------------------

template <class T>
struct Same {
    using type = T;
};
template <class T>
using same = typename Same<T>::type;  // not deduced: atomicAdd(&u64_counter, 1) takes the type from the address

#ifdef EMU_THREADS
void before_atomic(const void* address, bool writes);  // tells ThreadSanitizer what __threadfence orders
void after_atomic(const void* address);

template <class T, class Change>
T update(T* address, Change change) {
    before_atomic(address, true);
    T old = __atomic_load_n(address, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(address, &old, change(old), true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    after_atomic(address);
    return old;
}
template <class T>
T load(const T* address) {
    before_atomic(address, false);
    T value = __atomic_load_n(address, __ATOMIC_RELAXED);
    after_atomic(address);
    return value;
}
template <class T>
void store(T* address, T value) {
    before_atomic(address, true);
    __atomic_store_n(address, value, __ATOMIC_RELAXED);
}
#else
enum class Access { load, store, update };
extern int atomics_until_yield;
void count_relaxed(const void* address, size_t bytes, Access access);

inline void before_atomic([[maybe_unused]] const void* address, [[maybe_unused]] size_t bytes,
                          [[maybe_unused]] Access access) {
#ifdef EMU_COUNT
    count_relaxed(address, bytes, access);
#endif
    if (--atomics_until_yield < 0) yield();  // another thread may come in between, as on a GPU
}

// Only one fiber runs at a time, so plain loads and stores are atomic; counted above, hence not instrumented.
template <class T, class Change>
__attribute__((no_sanitize("thread"))) T update(T* address, Change change) {
    before_atomic(address, sizeof(T), Access::update);
    T old = *const_cast<volatile T*>(address);
    *const_cast<volatile T*>(address) = change(old);
    return old;
}
template <class T>
__attribute__((no_sanitize("thread"))) T load(const T* address) {
    before_atomic(address, sizeof(T), Access::load);
    return *const_cast<const volatile T*>(address);
}
template <class T>
__attribute__((no_sanitize("thread"))) void store(T* address, T value) {
    before_atomic(address, sizeof(T), Access::store);
    *const_cast<volatile T*>(address) = value;
}
#endif

void fence();

template <class T>
u64 bits_of(T value) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>, "warp intrinsics move at most 8 bytes");
    u64 bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    return bits;
}
template <class T>
T from_bits(u64 bits) {
    T value;
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}

}  // namespace emu

template <class T>
T atomicAdd(T* address, emu::same<T> value) {
    return emu::update(address, [&](T old) { return T(old + value); });
}
template <class T>
T atomicSub(T* address, emu::same<T> value) {
    return emu::update(address, [&](T old) { return T(old - value); });
}
template <class T>
T atomicMin(T* address, emu::same<T> value) {
    return emu::update(address, [&](T old) { return value < old ? value : old; });
}
template <class T>
T atomicMax(T* address, emu::same<T> value) {
    return emu::update(address, [&](T old) { return value > old ? value : old; });
}
template <class T>
T atomicOr(T* address, emu::same<T> value) {
    return emu::update(address, [&](T old) { return T(old | value); });
}
template <class T>
T atomicAnd(T* address, emu::same<T> value) {
    return emu::update(address, [&](T old) { return T(old & value); });
}
template <class T>
T atomicXor(T* address, emu::same<T> value) {
    return emu::update(address, [&](T old) { return T(old ^ value); });
}
template <class T>
T atomicExch(T* address, emu::same<T> value) {
    return emu::update(address, [&](T) { return value; });
}
template <class T>
T atomicCAS(T* address, emu::same<T> expected, emu::same<T> value) {
    return emu::update(address, [&](T old) { return old == expected ? value : old; });
}

// Loads and stores that may meet atomics of other threads: `ld.relaxed.gpu` and `st.relaxed.gpu` on a GPU.
template <class T>
T load_relaxed(const T* address) {
    return emu::load(address);
}
template <class T>
void store_relaxed(T* address, emu::same<T> value) {
    emu::store(address, value);
}

template <class T>
__forceinline__ T __ldg(const T* address) {
    return *address;
}

inline void __threadfence() { emu::fence(); }
inline void __threadfence_block() { emu::fence(); }
inline void __nanosleep(unsigned) { emu::yield(); }

// ---- barriers and warps --------------------------------------------------------------------------------------------

inline void __syncthreads(EMU_SITE) { emu::barrier(site); }
inline void __syncwarp(unsigned mask = 0xffffffffu, EMU_SITE) { emu::exchange(emu::WarpOp::sync, mask, 0, 0, site); }

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize, EMU_SITE) {
    unsigned from = (emu::lane() & ~(width - 1u)) | (unsigned(source) & (width - 1u));
    return emu::from_bits<T>(emu::exchange(emu::WarpOp::shuffle, mask, emu::bits_of(value), from, site));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize, EMU_SITE) {
    unsigned lane = emu::lane(), from = (lane & (width - 1u)) < delta ? lane : lane - delta;
    return emu::from_bits<T>(emu::exchange(emu::WarpOp::shuffle, mask, emu::bits_of(value), from, site));
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize, EMU_SITE) {
    unsigned lane = emu::lane(), from = (lane & (width - 1u)) + delta >= unsigned(width) ? lane : lane + delta;
    return emu::from_bits<T>(emu::exchange(emu::WarpOp::shuffle, mask, emu::bits_of(value), from, site));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize, EMU_SITE) {
    unsigned lane = emu::lane(), from = lane ^ unsigned(lane_mask);
    if ((from | (width - 1u)) > (lane | (width - 1u))) from = lane;  // of a later group of lanes: its own
    return emu::from_bits<T>(emu::exchange(emu::WarpOp::shuffle, mask, emu::bits_of(value), from, site));
}
inline unsigned __ballot_sync(unsigned mask, int predicate, EMU_SITE) {
    return unsigned(emu::exchange(emu::WarpOp::ballot, mask, predicate != 0, 0, site));
}
inline int __any_sync(unsigned mask, int predicate, EMU_SITE) { return __ballot_sync(mask, predicate, site) != 0; }
inline int __all_sync(unsigned mask, int predicate, EMU_SITE) { return __ballot_sync(mask, predicate, site) == mask; }
template <class T>
unsigned __match_any_sync(unsigned mask, T value, EMU_SITE) {
    return unsigned(emu::exchange(emu::WarpOp::match, mask, emu::bits_of(value), 0, site));
}

// ---- bits ----------------------------------------------------------------------------------------------------------

__forceinline__ int __popc(unsigned x) { return __builtin_popcount(x); }
__forceinline__ int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
__forceinline__ int __ffs(int x) { return __builtin_ffs(x); }
__forceinline__ int __ffsll(long long x) { return __builtin_ffsll(x); }
__forceinline__ int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
__forceinline__ int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
__forceinline__ unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
__forceinline__ unsigned __umulhi(unsigned a, unsigned b) { return unsigned(((unsigned long long)a * b) >> 32); }
__forceinline__ unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return unsigned((((unsigned long long)high << 32) | low) >> (shift & 31));
}
__forceinline__ unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return unsigned(((((unsigned long long)high << 32) | low) << (shift & 31)) >> 32);
}
__forceinline__ unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    unsigned long long bytes = ((unsigned long long)b << 32) | a;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        unsigned choice = selector >> (4 * i), byte = unsigned(bytes >> (8 * (choice & 7))) & 0xff;
        if (choice & 8) byte = byte & 0x80 ? 0xff : 0;  // the sign of the byte, spread over it
        result |= byte << (8 * i);
    }
    return result;
}
__forceinline__ unsigned __brev(unsigned x) {
    x = __builtin_bswap32(x);
    x = ((x >> 4) & 0x0f0f0f0fu) | ((x & 0x0f0f0f0fu) << 4);
    x = ((x >> 2) & 0x33333333u) | ((x & 0x33333333u) << 2);
    return ((x >> 1) & 0x55555555u) | ((x & 0x55555555u) << 1);
}
__forceinline__ unsigned long long __brevll(unsigned long long x) {
    return ((unsigned long long)__brev(unsigned(x)) << 32) | __brev(unsigned(x >> 32));
}

template <class A, class B>
__forceinline__ std::common_type_t<A, B> min(A a, B b) {
    return b < a ? b : a;
}
template <class A, class B>
__forceinline__ std::common_type_t<A, B> max(A a, B b) {
    return a < b ? b : a;
}

#undef assert
#define assert(condition) \
    ((condition) ? void() : ::emu::fail_at({__builtin_FILE(), __builtin_LINE()}, "assertion failed: " #condition))
