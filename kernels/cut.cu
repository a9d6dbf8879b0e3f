// bytes -> cuts: a bit for each byte at which a chunk begins. cpu_ref/cut.py is the same step.
//
//   cut_words      bytes -> cuts between code points whose classes say so; checks that the bytes are UTF-8
//   cut_sections   a cut where each section begins, none inside added tokens
//   count_chunks   the cuts of each tile, for the prefix sum

#include "common.cuh"
#include "scan.cuh"
#include "tile.cuh"
#include "utf8.cuh"

constexpr u32 CUT_THREADS = 256;
constexpr u32 MOST_CLASSES = 32;  // bits in a row of `taken`
constexpr u32 ASCII = 128;

// The tables as a block keeps them. 128 bytes and 32 words lie in one row of the banks each, so no two lanes wait for
// one another.
struct CutTables {
    u32 taken[MOST_CLASSES];
    u8 class_of[ASCII];
};

struct CutState {
    u32 last_class;  // of the last code point
    i64 at;          // its end: where the next one begins
};

DEVICE void report_bad(u64* first_bad, i64 at) { atomicMin(first_bad, (u64)at); }

// The state after the code point that begins last before `begin`; it may reach into what is behind.
DEVICE CutState state_before(const u8* bytes, i64 begin, i64 count, const u8* class_of, const CutTables& tables) {
    if (begin == 0) return {0, 0};
    i64 at = begin - 1;
    if (bytes[at] < ASCII) return {tables.class_of[bytes[at]], begin};
    while (at > 0 && at > begin - 4 && is_continuation(bytes[at])) at--;
    const CodePoint last = code_point_at(bytes, at, count);
    const i64 end = at + last.length;
    return {class_of[last.value], end > begin ? end : begin};
}

DEVICE u32 taken_at(const CutTables& tables, u32 last_class, u32 this_class) {
    return tables.taken[last_class] >> this_class & 1;
}

// The cuts of 8 bytes, all of them ASCII.
DEVICE u32 cut_ascii(u64 eight_bytes, const CutTables& tables, u32& last_class) {
    u32 cuts = 0;
    UNROLL
    for (u32 i = 0; i < 8; i++) {
        const u32 this_class = tables.class_of[eight_bytes >> 8 * i & 0x7F];
        cuts |= taken_at(tables, last_class, this_class) << i;
        last_class = this_class;
    }
    return cuts;
}

// The cuts of the bytes [begin, end), at most 8; the last code point may reach further.
DEVICE u32 cut_code_points(const u8* bytes, i64 begin, i64 end, i64 count, const u8* class_of, const CutTables& tables,
                           CutState& state, u64* first_bad) {
    u32 cuts = 0;
    while (state.at < end) {
        const CodePoint found = code_point_at(bytes, state.at, count);
        if (found.length == 0) report_bad(first_bad, state.at);
        const u32 this_class = found.value < ASCII ? tables.class_of[found.value] : class_of[found.value];
        cuts |= taken_at(tables, state.last_class, this_class) << (u32)(state.at - begin);
        state = {this_class, state.at + (found.length == 0 ? 1 : found.length)};
    }
    return cuts;
}

// Cuts between the code points whose classes say so. Any grid of CUT_THREADS; a thread makes a word of the mask.
//
//   bytes      t h e _ c a t ,       classes: letter 0, space 1, other 2
//   taken      letter: 110  space: 000  other: 001      bit b of row a: cut between a and b
//   cuts             ^       ^       bits 3 and 7
//
// bytes: u8[count], at a multiple of 16. class_of: u8[0x110000]; taken: u32[32]. mask: u32[(count + 31) / 32], bits
// behind the end are 0. first_bad: takes the least place of a byte that is no UTF-8.
KERNEL LAUNCHED_AS(CUT_THREADS) cut_words(const u8* bytes, i64 count, const u8* class_of, const u32* taken, u32* mask,
                                          u64* first_bad) {
    SHARED(CutTables, tables);
    if (threadIdx.x < ASCII) tables.class_of[threadIdx.x] = class_of[threadIdx.x];
    if (threadIdx.x < MOST_CLASSES) tables.taken[threadIdx.x] = taken[threadIdx.x];
    __syncthreads();  // the tables are whole

    for (i64 word = grid_thread(); word * WORD < count; word += grid_threads()) {
        const i64 begin = word * WORD;
        const Bytes16 first = load_16(bytes, begin, count), second = load_16(bytes, begin + 16, count);
        const u64 eights[4] = {first.low, first.high, second.low, second.high};
        CutState state = state_before(bytes, begin, count, class_of, tables);
        u32 cuts = 0;
        UNROLL
        for (u32 part = 0; part < 4; part++) {
            const i64 at = begin + 8 * part;
            if (at == state.at && at + 8 <= count && is_ascii(eights[part])) {
                cuts |= cut_ascii(eights[part], tables, state.last_class) << 8 * part;
                state.at = at + 8;
            } else {
                cuts |= cut_code_points(bytes, at, min(at + 8, count), count, class_of, tables, state, first_bad)
                        << 8 * part;
            }
        }
        mask[word] = cuts;
    }
}

// Clears the bits [begin, end) of the mask, the lanes of a warp side by side.
DEVICE void clear_cuts(i64 begin, i64 end, u32* mask) {
    for (i64 word = begin / WORD + lane(); word * WORD < end; word += WARP) {
        const u32 from = word * WORD < begin ? WHOLE_WARP << (u32)(begin % WORD) : WHOLE_WARP;
        const u32 to = end - word * WORD < WORD ? ~(WHOLE_WARP << (u32)(end % WORD)) : WHOLE_WARP;
        atomicAnd(&mask[word], ~(from & to));
    }
}

// Cuts where sections begin, and nowhere inside closed ones. Any grid of CUT_THREADS; a lane a section, then the warp
// together for each closed one.
//
//   bytes      t h e [ S E P ] .      sections: 0-3, closed 3-8, 8-9
//   mask       1 0 0 1 1 0 0 1 1
//   after      1 0 0 1 0 0 0 0 1
//
// section_start: i64[sections + 1]. closed: u8[sections], 1 for added tokens and whole sections; null when there are
// none. mask: as cut_words left it. A section that begins inside a code point is reported in first_bad.
KERNEL LAUNCHED_AS(CUT_THREADS) cut_sections(const u8* bytes, const i64* section_start, const i64* section_count,
                                             const u8* closed, u32* mask, u64* first_bad) {
    const i64 sections = section_count[0];
    // a warp stays together: its lanes share the ballot below
    for (i64 first = grid_thread() - lane(); first < sections; first += grid_threads()) {
        const i64 section = first + lane();
        bool is_closed = false;
        i64 start = 0, end = 0;
        if (section < sections) {
            start = section_start[section];
            end = section_start[section + 1];
            is_closed = closed != nullptr && closed[section] != 0;
        }
        if (start < end) {
            if (is_continuation(bytes[start])) report_bad(first_bad, start);
            atomicOr(&mask[start / WORD], 1u << (u32)(start % WORD));
        }
        for (u32 left = __ballot_sync(WHOLE_WARP, is_closed); left != 0; left &= left - 1) {
            const u32 owner = __ffs(left) - 1;
            clear_cuts(__shfl_sync(WHOLE_WARP, start, owner) + 1, __shfl_sync(WHOLE_WARP, end, owner), mask);
        }
    }
}

// Counts the chunks that begin in each tile of TILE_WORDS words. Any grid of CUT_THREADS; a warp a tile.
//
//   mask           1010...  0000...  | 1000...         two tiles
//   tile_chunks    2                   1
KERNEL LAUNCHED_AS(CUT_THREADS) count_chunks(const u32* mask, i64 words, i64* tile_chunks) {
    const i64 tiles = (words + TILE_WORDS - 1) / TILE_WORDS;
    for (i64 tile = grid_thread() / WARP; tile < tiles; tile += grid_threads() / WARP) {
        const i64 word = tile * TILE_WORDS + lane();
        const u32 chunks = warp_sum(word < words ? (u32)__popc(mask[word]) : 0);
        if (lane() == 0) tile_chunks[tile] = chunks;
    }
}
