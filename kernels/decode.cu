// ids -> bytes: count what each tile of ids becomes, then write it where a prefix sum has placed it.
// cpu_ref/decode.py is the same step, gpu_tok/tables/decode.py says what the rows of the table are.
//
//   find_heads       marks the first token of each row that leaves something: it has a form of its own
//   count_bytes      the bytes that each tile of ids becomes, for the prefix sum
//   write_bytes      these bytes, and where each row of them begins
//
// and where bytes are no UTF-8 and become U+FFFD:
//
//   mark_starts      a bit for each byte at which a row begins
//   count_repaired   the bytes that each tile of bytes becomes, for the prefix sum
//   write_repaired   these bytes, and where each row of them begins

#include "common.cuh"
#include "scan.cuh"
#include "utf8.cuh"

constexpr u32 DECODE_THREADS = 256;
constexpr u32 OWN_IDS = 2;  // ids of a tile that one thread decodes
constexpr u32 TILE_IDS = DECODE_THREADS * OWN_IDS;
constexpr u32 PART = 16;  // bytes of a tile that one thread repairs
constexpr u32 TILE_BYTES = DECODE_THREADS * PART;
constexpr u32 STAGE_BYTES = 16384;  // a tile of inline tokens, or of repaired bytes, wherever it begins
constexpr u32 TRIES = 4;            // ids that a lane looks at by itself for its row's head
static_assert(TILE_IDS * 15 + 15 <= STAGE_BYTES && TILE_BYTES * 3 + 3 + 15 <= STAGE_BYTES, "a tile fits into a stage");

// The code of a token: its length up to 15, or
constexpr u32 LONG = 16;     // its bytes lie in the pool
constexpr u32 PARTIAL = 32;  // it is no UTF-8 by itself
constexpr u32 DROPPED = 64;  // it leaves nothing
constexpr u64 LAST_ID = 0xFFFFFFFF;

// Words of the report.
constexpr u32 BAD_ID = 0;    // ~place of the first id that cannot be one; 0 where all can
constexpr u32 BYTES = 1;     // all bytes
constexpr u32 DOUBTFUL = 2;  // whether the bytes have to be looked at; then: whether they have to be repaired

// Ids as they came: of 4 or 8 bytes, of which [begin, end) belong to rows.
struct Ids {
    const void* ids;
    i64 id_bytes, begin, end;
};

// What ids become. heads: null where the first token of a row has no form of its own; then there is one row an id.
struct Tokens {
    const Bytes16* rows;
    i64 size;
    const u32* heads;
};

DEVICE u32 code_of(const Bytes16& token) { return (u32)(token.high >> 56); }

DEVICE i64 count_of(const Bytes16& token) {
    const u32 code = code_of(token);
    return code & LONG ? (i64)(token.high & ~0ULL >> 8) : code & 15;
}

DEVICE i64 id_at(const Ids& ids, i64 at) {
    return ids.id_bytes == 4 ? (i64) static_cast<const i32*>(ids.ids)[at] : static_cast<const i64*>(ids.ids)[at];
}

DEVICE bool is_marked(const u32* mask, i64 at) { return mask[at / 32] >> (u32)(at % 32) & 1; }
DEVICE void mark(u32* mask, i64 at) { atomicOr(&mask[at / 32], 1u << (u32)(at % 32)); }

// The row of an id in the table; that of a dropped token where there is no such id.
DEVICE Bytes16 token_of(i64 id, bool is_head, const Tokens& tokens) {
    if ((u64)id >= (u64)tokens.size) return {0, (u64)DROPPED << 56};
    return tokens.rows[is_head ? id : tokens.size + id];
}

DEVICE bool leaves_something(const Ids& ids, i64 at, const Tokens& tokens) {
    return code_of(token_of(id_at(ids, at), true, tokens)) < DROPPED;
}

// The warp's search for the head of a row in [at, end), 32 ids at a time.
DEVICE void mark_head(const Ids& ids, i64 at, i64 end, const Tokens& tokens, u32* heads) {
    for (; at < end; at += WARP) {
        const bool found = at + lane() < end && leaves_something(ids, at + lane(), tokens);
        const u32 all_found = __ballot_sync(WHOLE_WARP, found);
        if (all_found == 0) continue;
        if (lane() == 0) mark(heads, at + __ffs(all_found) - 1);
        return;
    }
}

// Marks the head of each row. Any grid of DECODE_THREADS; a lane a row, then the warp together for each row that begins
// with more than TRIES dropped tokens.
//
//   ids     [CLS] the cat | [PAD] [PAD] a |        with special tokens dropped
//   heads   0     1   0     0     0     1
//
// ids: i32|i64[n]. start: i64[row_count + 1]. rows: as for count_bytes. heads: u32[(n + 31) / 32], all 0 before.
KERNEL LAUNCHED_AS(DECODE_THREADS) find_heads(const void* ids, i64 id_bytes, const i64* start, i64 row_count,
                                              const Bytes16* rows, i64 size, u32* heads) {
    const Ids all = {ids, id_bytes, 0, 0};
    const Tokens tokens = {rows, size, heads};
    // a warp stays together: its lanes share the ballots below
    for (i64 first = grid_thread() - lane(); first < row_count; first += grid_threads()) {
        const i64 row = first + lane();
        i64 at = row < row_count ? start[row] : 0;
        const i64 end = row < row_count ? start[row + 1] : 0, last_try = min(end, at + TRIES);
        while (at < last_try && !leaves_something(all, at, tokens)) at++;
        const bool is_open = at == last_try && at < end;
        if (at < last_try) mark(heads, at);
        for (u32 left = __ballot_sync(WHOLE_WARP, is_open); left != 0; left &= left - 1) {
            const u32 owner = __ffs(left) - 1;
            mark_head(all, __shfl_sync(WHOLE_WARP, at, owner), __shfl_sync(WHOLE_WARP, end, owner), tokens, heads);
        }
    }
}

DEVICE Bytes16 token_at(const Ids& ids, i64 at, const Tokens& tokens) {
    if (at < ids.begin || at >= ids.end) return {0, (u64)DROPPED << 56};
    return token_of(id_at(ids, at), tokens.heads == nullptr || is_marked(tokens.heads, at), tokens);
}

template <typename T>
struct Sums {
    T of_warp[MOST_WARPS];
};

// Counts the bytes that each tile of TILE_IDS ids becomes. Any grid of DECODE_THREADS; a block a tile.
//
//   ids          the ##n -1 | cat        two tiles
//   tile_bytes   4            4          (of "then", " cat")
//   report       ~2, 8, 0
//
// ids: i32|i64[n], of which [start[0], start[row_count]) count. rows: 16 bytes each, [size] for heads, then [size] for
// the others unless heads is null. tile_bytes: i64[tiles], n / TILE_IDS + 1 of them. report: u64[3], all 0 before.
KERNEL LAUNCHED_AS(DECODE_THREADS)
    count_bytes(const void* ids, i64 id_bytes, const i64* start, i64 row_count, const Bytes16* rows, i64 size,
                const u32* heads, i64 tiles, i64* tile_bytes, u64* report) {
    SHARED(Sums<i64>, sums);
    const Ids all = {ids, id_bytes, start[0], start[row_count]};
    const Tokens tokens = {rows, size, heads};
    for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        i64 bytes = 0;
        u32 codes = 0;
        UNROLL
        for (u32 own = 0; own < OWN_IDS; own++) {
            const i64 at = tile * TILE_IDS + threadIdx.x * OWN_IDS + own;
            const Bytes16 token = token_at(all, at, tokens);
            bytes += count_of(token);
            codes |= code_of(token);
            if (at >= all.begin && at < all.end && (u64)id_at(all, at) > LAST_ID) atomicMax(&report[BAD_ID], ~(u64)at);
        }
        if (__any_sync(WHOLE_WARP, codes & PARTIAL) && lane() == 0) store_relaxed(&report[DOUBTFUL], 1ULL);
        bytes = block_scan(bytes, sums.of_warp).total;
        if (threadIdx.x == 0) {
            tile_bytes[tile] = bytes;
            atomicAdd(&report[BYTES], (u64)bytes);
        }
    }
}

// Bytes that a block has made and that belong side by side, from a multiple of 16 on.
struct alignas(16) Stage {
    u8 bytes[STAGE_BYTES];
};

// Copies [begin, end) of the output out of the stage, which begins at `window`, a multiple of 16 as `out` is.
//
//   stage    . . t h | e _ c a | t . . .       a bar every 16 bytes (here 4)
//   out          1 1     4       1             bytes in a store: whole sixteens at once, the ends one by one
DEVICE void copy_out(const Stage& stage, i64 window, i64 begin, i64 end, u8* out) {
    for (i64 at = window + 16 * threadIdx.x; at < end; at += 16 * DECODE_THREADS) {
        if (at >= begin && at + 16 <= end) {
            *reinterpret_cast<Bytes16*>(out + at) = *reinterpret_cast<const Bytes16*>(stage.bytes + (at - window));
        } else {
            for (i64 byte = max(at, begin); byte < min(at + 16, end); byte++) out[byte] = stage.bytes[byte - window];
        }
    }
}

// Puts the bytes of a token that fall into the stage there, the first at `at`, which may lie before or behind it. All
// lanes of a warp call it: a long token is copied by all of them.
DEVICE void put_token(const Bytes16& token, i64 at, const u8* pool, Stage& stage) {
    const bool is_long = (code_of(token) & LONG) != 0;
    const u32 inline_count = is_long ? 0 : code_of(token) & 15;
    for (u32 byte = 0; byte < inline_count; byte++) {
        const u8 value = (u8)((byte < 8 ? token.low : token.high) >> 8 * (byte & 7));
        if ((u64)(at + byte) < STAGE_BYTES) stage.bytes[at + byte] = value;
    }
    for (u32 left = __ballot_sync(WHOLE_WARP, is_long); left != 0; left &= left - 1) {
        const u32 owner = __ffs(left) - 1;
        const u8* bytes = pool + __shfl_sync(WHOLE_WARP, token.low, owner);
        const i64 count = __shfl_sync(WHOLE_WARP, count_of(token), owner), to = __shfl_sync(WHOLE_WARP, at, owner);
        const i64 begin = max(to, 0LL), end = min(to + count, (i64)STAGE_BYTES);
        for (i64 place = begin + lane(); place < end; place += WARP) stage.bytes[place] = bytes[place - to];
    }
}

struct DecodeTile {
    Sums<i64> sums;
    union {
        i64 place[TILE_IDS];  // of each id's bytes in the tile
        Stage stage;
    };
};

// Writes the bytes of ids, and where each row begins. Any grid of DECODE_THREADS; a block a tile.
//
//   ids         the ##n | cat sat |      start 0 2 4
//   place       0   3     4   8          in the tile
//   out         t h e n _ c a t _ s a t
//   out_start   0       4               12
//
// Parameters as for count_bytes. tile_place: i64[tiles], the bytes of the tiles before. tile_row: i64[tiles + 1], the
// first row that begins in the tile or behind it. out_start: i64[row_count + 1]. out: u8[bytes], at a multiple of 16.
KERNEL LAUNCHED_AS(DECODE_THREADS, 4)
    write_bytes(const void* ids, i64 id_bytes, const i64* start, i64 row_count, const Bytes16* rows, i64 size,
                const u32* heads, const u8* pool, i64 tiles, const i64* tile_place, const i64* tile_row, i64* out_start,
                u8* out) {
    SHARED(DecodeTile, shared);
    const Ids all = {ids, id_bytes, start[0], start[row_count]};
    const Tokens tokens = {rows, size, heads};
    for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        Bytes16 token[OWN_IDS];
        i64 place[OWN_IDS], own_bytes = 0;
        UNROLL
        for (u32 own = 0; own < OWN_IDS; own++) {
            token[own] = token_at(all, tile * TILE_IDS + threadIdx.x * OWN_IDS + own, tokens);
            place[own] = own_bytes;
            own_bytes += count_of(token[own]);
        }
        const BlockScan<i64> sums = block_scan(own_bytes, shared.sums.of_warp);
        UNROLL
        for (u32 own = 0; own < OWN_IDS; own++) {
            place[own] += sums.before;
            shared.place[threadIdx.x * OWN_IDS + own] = place[own];
        }
        __syncthreads();  // all places are there
        const i64 begin = tile_place[tile], end = begin + sums.total;
        for (i64 row = tile_row[tile] + threadIdx.x; row < tile_row[tile + 1]; row += DECODE_THREADS) {
            out_start[row] = begin + shared.place[start[row] - tile * TILE_IDS];
        }
        __syncthreads();  // the places have been read: the stage lies over them
        for (i64 window = begin & ~15LL; window < end; window += STAGE_BYTES) {
            UNROLL
            for (u32 own = 0; own < OWN_IDS; own++) {
                put_token(token[own], begin + place[own] - window, pool, shared.stage);
            }
            __syncthreads();  // the stage is full
            copy_out(shared.stage, window, max(begin, window), min(end, window + STAGE_BYTES), out);
            __syncthreads();  // the stage may be written again
        }
    }
}

// Marks the bytes at which rows begin. Any grid of DECODE_THREADS; a thread a row.
//
// start: i64[row_count + 1], the last one is marked, too. starts: u32[bytes / 32 + 2], all 0 before.
KERNEL LAUNCHED_AS(DECODE_THREADS) mark_starts(const i64* start, i64 row_count, u32* starts) {
    for (i64 row = grid_thread(); row <= row_count; row += grid_threads()) mark(starts, start[row]);
}

// Text with a mark where each row begins and one behind the last.
struct Text {
    const u8* bytes;
    const u32* starts;
    i64 count;
};

// A code point, or bytes that U+FFFD stands for: the longest start of what could have become a code point (Unicode's
// table 3-7), as Rust's from_utf8_lossy has it.
struct Span {
    u32 length;
    bool is_valid;
};

// The end of the row that `at` is in, or at + 4 where it is further away.
DEVICE i64 row_end(const Text& text, i64 at) {
    const u32* word = text.starts + (at + 1) / 32;
    const u64 marks = word[0] | (u64)word[1] << 32;
    const u32 next_marks = (u32)(marks >> (at + 1) % 32) & 7;
    return at + (next_marks == 0 ? 4 : __ffs(next_marks));
}

DEVICE Span span_at(const Text& text, i64 at) {
    const u32 lead = text.bytes[at];
    if (lead < 0x80) return {1, true};
    if (lead < 0xC2 || lead > 0xF4) return {1, false};
    const i64 end = row_end(text, at);
    const u32 low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const u32 high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (at + 1 >= end || text.bytes[at + 1] < low || text.bytes[at + 1] > high) return {1, false};
    const u32 length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    for (u32 more = 2; more < length; more++) {
        if (at + more >= end || !is_continuation(text.bytes[at + more])) return {more, false};
    }
    return {length, true};
}

// Where the first span begins that does not begin before `begin` < count. A span is a byte that begins one for sure,
// and at most three continuations; so it can be found from any place.
//
//   bytes    E4 B8 AD B8 41        begin 1: 3        begin 3: 3 (B8 alone)
DEVICE i64 first_span(const Text& text, i64 begin) {
    for (i64 at = begin; at > begin - 4; at--) {  // the very first byte is marked: nothing before it is looked at
        if (is_continuation(text.bytes[at]) && !is_marked(text.starts, at)) continue;
        return at == begin ? begin : max(begin, at + span_at(text, at).length);
    }
    return begin;
}

// The bytes that the spans become which begin in [begin, end); `is_bad` is set where one of them is not valid.
DEVICE u32 repaired_count(const Text& text, i64 begin, i64 end, bool& is_bad) {
    u32 count = 0;
    for (i64 at = begin < end ? first_span(text, begin) : end; at < end;) {
        const Span span = span_at(text, at);
        count += span.is_valid ? span.length : 3;
        is_bad |= !span.is_valid;
        at += span.length;
    }
    return count;
}

DEVICE bool is_plain(const Text& text, i64 begin) {
    if (begin + PART > text.count) return false;
    const Bytes16 sixteen = load_16(text.bytes, begin, text.count);
    return is_ascii(sixteen.low | sixteen.high);
}

DEVICE u32 part_count(const Text& text, i64 begin, bool& is_bad) {
    if (is_plain(text, begin)) return PART;
    return repaired_count(text, begin, min(begin + PART, text.count), is_bad);
}

// Counts the bytes that each tile of TILE_BYTES bytes becomes. Any grid of DECODE_THREADS; a block a tile.
//
//   bytes          41 E4 B8 | E4 B8 AD       a row ends at the bar
//   becomes        41 EF BF BD E4 B8 AD
//   tile_bytes     7
//   report         0, 7, 1
//
// bytes: u8[count], at a multiple of 16. starts: as mark_starts left them. tile_bytes: i64[tiles], count / TILE_BYTES +
// 1 of them. report: u64[3], all 0 before.
KERNEL LAUNCHED_AS(DECODE_THREADS)
    count_repaired(const u8* bytes, const u32* starts, i64 count, i64 tiles, i64* tile_bytes, u64* report) {
    SHARED(Sums<i64>, sums);
    const Text text = {bytes, starts, count};
    for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        bool is_bad = false;
        const u32 part_bytes = part_count(text, tile * TILE_BYTES + threadIdx.x * PART, is_bad);
        if (__any_sync(WHOLE_WARP, is_bad) && lane() == 0) store_relaxed(&report[DOUBTFUL], 1ULL);
        const i64 tile_total = block_scan((i64)part_bytes, sums.of_warp).total;
        if (threadIdx.x == 0) {
            tile_bytes[tile] = tile_total;
            atomicAdd(&report[BYTES], (u64)tile_total);
        }
    }
}

// Puts what the spans become which begin in [begin, end) into the stage, from `to` on.
DEVICE void put_repaired(const Text& text, i64 begin, i64 end, u8* to) {
    for (i64 at = begin < end ? first_span(text, begin) : end; at < end;) {
        const Span span = span_at(text, at);
        if (span.is_valid) {
            for (u32 byte = 0; byte < span.length; byte++) *to++ = text.bytes[at + byte];
        } else {
            *to++ = 0xEF, *to++ = 0xBF, *to++ = 0xBD;
        }
        at += span.length;
    }
}

struct RepairTile {
    Sums<u32> sums;
    u32 place[DECODE_THREADS];  // of what each part becomes, in the tile
    Stage stage;
};

// Writes the repaired bytes, and where each row of them begins. Any grid of DECODE_THREADS; a block a tile.
//
// Parameters as for count_repaired. start: i64[row_count + 1], the places of the rows in `bytes`. tile_place, tile_row,
// out_start, out: as for write_bytes.
KERNEL LAUNCHED_AS(DECODE_THREADS)
    write_repaired(const u8* bytes, const u32* starts, i64 count, const i64* start, i64 tiles, const i64* tile_place,
                   const i64* tile_row, i64* out_start, u8* out) {
    SHARED(RepairTile, shared);
    const Text text = {bytes, starts, count};
    for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        bool is_bad = false;
        const i64 part = tile * TILE_BYTES + threadIdx.x * PART;
        const BlockScan<u32> places = block_scan(part_count(text, part, is_bad), shared.sums.of_warp);
        shared.place[threadIdx.x] = places.before;
        const i64 begin = tile_place[tile], end = begin + places.total, window = begin & ~15LL;
        put_repaired(text, part, min(part + PART, count), shared.stage.bytes + (begin - window) + places.before);
        __syncthreads();  // the places are there and the stage is full
        for (i64 row = tile_row[tile] + threadIdx.x; row < tile_row[tile + 1]; row += DECODE_THREADS) {
            const i64 own_part = start[row] / PART * PART;
            const u32 place = shared.place[(own_part - tile * TILE_BYTES) / PART];
            out_start[row] = begin + place + repaired_count(text, own_part, start[row], is_bad);
        }
        copy_out(shared.stage, window, begin, end, out);
        __syncthreads();  // places and stage may be written again
    }
}
