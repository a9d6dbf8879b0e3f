// chunks -> entries: each chunk is looked up in the persistent table. cpu_ref/intern.py is the same step, with the same
// rows and the same hash. What is new goes to the batch table (batch_table.cu).
//
//   look_up_chunks   chunks -> entries, and a list of misses
//   count_late       the ids of spans with misses, which look_up_chunks could not count
//
// Kernels that touch one table run in order on one stream, so what one of them wrote is whole for the next.

#include "common.cuh"
#include "entry.cuh"
#include "key.cuh"
#include "report.cuh"
#include "scan.cuh"
#include "tile.cuh"

constexpr u32 INTERN_THREADS = 256;
constexpr u32 INTERN_WARPS = INTERN_THREADS / WARP;
// Blocks that a multiprocessor holds: with more of them registers would be spilled.
constexpr u32 LOOK_BLOCKS = 4, COUNT_BLOCKS = 6;
constexpr u32 TAIL = 32;      // bytes behind a span that are kept with it, for its last chunk
constexpr u32 SLACK = 16;     // bytes that may be loaded behind them
constexpr u32 WINDOW = 1024;  // chunks whose starts are listed at a time; most spans have no more
constexpr u32 SECTION_LAST = 2;  // gpu_tok/tables/ends.py
constexpr u32 WHOLE = 16;
constexpr u32 NO_ENTRY = 0xFFFFFFFF;  // no row was found
constexpr i64 NOT_COUNTED = -1;       // ids of a span with misses

struct Found {
    u32 entry;
    u32 count;  // of its ids
};

// The entry of a chunk, or NO_ENTRY. No hash is taken as proof: the key is compared byte for byte.
DEVICE Found find_entry(const Row* rows, i64 row_count, const u8* keys, const u8* bytes, i64 at, u32 length, u32 flags,
                        i64 end) {
    const Key key = key_of(bytes, at, length, end);
    const u64 mixed = mix(key), high = key.high | (u64)flags << FLAGS_SHIFT;
    for (u32 probe = 0; probe < PROBES; probe++) {
        const u64 number = (mixed + probe) & (row_count - 1);
        const Bytes16 head = *reinterpret_cast<const Bytes16*>(&rows[number].low);
        if (head.high == 0) break;
        if (head.high != high || head.low != key.low) continue;
        const uint4 words = *reinterpret_cast<const uint4*>(rows[number].words);
        if (length > SHORT && !same_bytes(keys, words.x, bytes, at, length)) continue;
        const bool is_one_id = words.w == 1 && (words.x & KIND) == 0;
        return {is_one_id ? ONE_ID | words.x : (u32)number, words.w & ~IN_POOL};
    }
    return {NO_ENTRY, 0};
}

// What a warp knows of its span; `cuts` and `rank` are of the lane's bytes.
struct Span {
    i64 begin;                 // bytes
    i64 first_entry;           // where the entries of its chunks begin
    i64 section, section_end;  // the sections that begin in the span and are not placed yet
    u64 cuts;
    u32 chunks, rank;
};

DEVICE Span read_span(i64 span, i64 count, const u32* mask, const i64* tile_chunk, const i64* tile_section) {
    const i64 word = (span * WARP + lane()) * (SPAN_WORD / WORD), tiles = (count + TILE - 1) / TILE;
    u64 cuts = word * WORD < count ? mask[word] : 0;
    if ((word + 1) * WORD < count) cuts |= (u64)mask[word + 1] << WORD;
    const u32 through = warp_scan((u32)__popcll(cuts));
    const u32 chunks = __shfl_sync(WHOLE_WARP, through, WARP - 1);
    const i64 first_entry = entry_at(span, chunks_before(span, tile_chunk, tiles));
    const i64 section = tile_section[SPAN_TILES * span];
    const i64 section_end = tile_section[min(SPAN_TILES * (span + 1), tiles)];
    return {span * SPAN, first_entry, section, section_end, cuts, chunks, through - (u32)__popcll(cuts)};
}

// A span as a warp keeps it: each of its bytes is read once, 16 at a time, for the chunks overlap in the words that
// they are loaded by.
struct alignas(16) KeptSpan {
    u8 bytes[SPAN + TAIL + SLACK];
    u16 start[WINDOW + 2];  // of some of its chunks, and of the chunk behind them
};

DEVICE void keep_bytes(i64 begin, const u8* bytes, i64 count, u8* kept) {
    for (u32 at = 16 * lane(); at < SPAN + TAIL; at += 16 * WARP) {
        if (begin + at < count) *reinterpret_cast<Bytes16*>(kept + at) = load_16(bytes, begin + at, count);
    }
}

// Writes where the chunks from `window` on begin, WINDOW of them and one more.
//
//   cuts    1001 0000 | 0100 ...         two lanes of 8 bytes, say
//   start   0 3 9
DEVICE void list_starts(const Span& span, u32 window, u16* start) {
    u32 place = span.rank - window;  // beyond WINDOW also where it would be negative
    for (u64 left = span.cuts; left != 0; left &= left - 1, place++) {
        if (place <= WINDOW) start[place] = (u16)(lane() * SPAN_WORD + __ffsll(left) - 1);
    }
}

// Writes for each section that begins at one of the 32 chunks from `first` on, or behind the last chunk, how many ids
// of its span come before it. ids: of the chunks before `first`.
DEVICE void place_sections(Span& span, u32 first, WarpScan scan, i64 ids, const i64* section_start,
                           i64* section_before) {
    while (span.section < span.section_end) {
        const i64 section = span.section + lane();
        const bool exists = section < span.section_end;
        const u32 offset = exists ? (u32)(section_start[section] - span.begin) : 0;
        const u64 cuts = __shfl_sync(WHOLE_WARP, span.cuts, offset / SPAN_WORD);
        const u32 rank = __shfl_sync(WHOLE_WARP, span.rank, offset / SPAN_WORD);
        const u32 chunk = rank + __popcll(cuts & ((1ull << offset % SPAN_WORD) - 1));
        const bool is_here = exists && (chunk < first + WARP || first + WARP >= span.chunks);
        const i64 before = __shfl_sync(WHOLE_WARP, scan.before, (chunk - first) % WARP);
        if (is_here) section_before[section] = ids + (chunk - first < WARP ? before : scan.total);
        const u32 placed = __popc(__ballot_sync(WHOLE_WARP, is_here));
        span.section += placed;
        if (placed < WARP) break;
    }
}

// The flags of a chunk's key: those of its section, as far as the chunk has that end and the tokenizer minds.
DEVICE u32 flags_of(u32 section_flags, bool is_first, bool is_last, u32 flag_mask) {
    if (section_flags & WHOLE) return section_flags;
    u32 flags = section_flags;
    if (!is_first) flags &= SECTION_LAST;
    if (!is_last) flags &= ~SECTION_LAST;
    return flags & flag_mask;
}

// Finds the entry of each chunk. Any grid of INTERN_THREADS; a warp a span, a lane a chunk.
//
//   bytes           t h e _ c a t _ x y z z y
//   entries         the: ONE_ID | 1996    _cat: ONE_ID | 4937    _xyzzy: MISS | 0
//   span_ids        NOT_COUNTED, for there is a miss         section_before  0
//
// bytes: u8[count] at a multiple of 16; mask: u32[(count + 31) / 32], the cuts. tile_chunk: i64[tiles + 1], chunks
// before each tile; section_start: i64[sections + 1]; tile_section: i64[tiles + 1], sections that begin before each
// tile. section_kind: i32[sections], the id of an added token, or the complement of a section's flags; null where all
// sections are text and no flag matters. rows: Row[row_count], a power of two or 0; keys: their pool. entries:
// u32[entry_room + 7 * spans], for entry_room chunks; those of a span from entry_at on. span_ids: i64[spans];
// section_before: i64[sections], zeros before the first chunk; misses: Miss[miss_room], in any order. report: u64[8],
// counts all chunks and misses, also those that there was no room for, and says so. Of texts that are still to be
// divided nothing is looked up.
KERNEL LAUNCHED_AS(INTERN_THREADS, LOOK_BLOCKS)
    look_up_chunks(const u8* bytes, i64 count, const u32* mask, const i64* tile_chunk, const i64* section_start,
                   const i64* tile_section, const i32* section_kind, i64 flag_mask, const Row* rows, i64 row_count,
                   const u8* keys, u32* entries, i64 entry_room, i64* span_ids, i64* section_before, Miss* misses,
                   i64 miss_room, u64* report) {
    SHARED(KeptSpan[INTERN_WARPS], kept_spans);
    KeptSpan& kept = kept_spans[threadIdx.x / WARP];
    if (is_undivided(report)) return;
    const i64 tiles = (count + TILE - 1) / TILE, spans = (count + SPAN - 1) / SPAN;
    const i64 entry_end = entry_room + (SECTOR_ENTRIES - 1) * spans;
    if (grid_thread() == 0) {
        report[CHUNKS_SEEN] = tile_chunk[tiles];
        if (tile_chunk[tiles] > entry_room) spoil(report, TOO_SMALL);
    }
    for (i64 number = grid_thread() / WARP; number < spans; number += grid_threads() / WARP) {
        Span span = read_span(number, count, mask, tile_chunk, tile_section);
        if (span.chunks == 0) {
            if (lane() == 0) span_ids[number] = 0;
            continue;
        }
        const i64 first_section = span.section;
        const i64 next_start = first_cut_from(SPAN_TILES * (number + 1), tiles, tile_chunk, mask, count);
        const u32 stored = (span.chunks + SECTOR_ENTRIES - 1) / SECTOR_ENTRIES * SECTOR_ENTRIES;
        i64 own_ids = 0, placed_ids = 0;
        bool is_counted = true;  // all chunks of this lane; the sections of a span where not are placed again later
        for (u32 first = 0; first < span.chunks; first += WARP) {
            const u32 in_window = first % WINDOW + lane();
            if (first % WINDOW == 0) {
                __syncwarp();  // nobody reads the last window any more, or the last span
                if (first == 0) keep_bytes(span.begin, bytes, count, kept.bytes);
                list_starts(span, first, kept.start);
                __syncwarp();  // the span is whole
            }
            const u32 own = first + lane();
            Found found = {0, 0};
            u32 flags = 0;
            i64 at = 0, length = 0;
            if (own < span.chunks) {
                at = span.begin + kept.start[in_window];
                const i64 end = own + 1 < span.chunks ? span.begin + kept.start[in_window + 1] : next_start;
                length = end - at;
                i32 kind = ~0;
                // where no section begins, all chunks are of one that is cut, and only the last can be at an end of it
                const bool is_inside = first_section == span.section_end && own + 1 < span.chunks;
                if (section_kind != nullptr && !is_inside) {
                    const auto is_behind = [&](i64 i) { return section_start[i] <= at; };
                    const i64 section = first_not(first_section, span.section_end, is_behind) - 1;
                    const bool is_first = at == section_start[section], is_last = end == section_start[section + 1];
                    if (is_first || is_last) {
                        kind = section_kind[section];
                        flags = flags_of(~kind, is_first, is_last, flag_mask);
                    }
                }
                found = {NO_ENTRY, 0};
                if (kind >= 0) {
                    found = {ONE_ID | kind, 1};
                } else if (length <= LONGEST_KEPT && flags <= MOST_FLAGS && row_count > 0) {
                    const bool is_kept = end - span.begin <= SPAN + TAIL;
                    found = find_entry(rows, row_count, keys, is_kept ? kept.bytes : bytes,
                                       is_kept ? kept.start[in_window] : at, (u32)length, flags,
                                       is_kept ? (i64)sizeof(kept.bytes) : count);
                }
            }
            const bool is_new = found.entry == NO_ENTRY;
            const i64 miss = take_numbers(is_new, &report[MISSES_SEEN]);
            if (is_new) {
                is_counted = false;
                found.entry = MISS | (u32)miss;
                if (miss < miss_room) misses[miss] = {at, (u32)length, flags};
                if (miss == miss_room) spoil(report, TOO_SMALL);
            }
            const i64 place = span.first_entry + own;
            if (own < stored && place < entry_end) entries[place] = found.entry;
            own_ids += found.count;
            if (span.section == span.section_end) continue;
            const WarpScan scan = scan_counts(found.count);
            place_sections(span, first, scan, placed_ids, section_start, section_before);
            placed_ids += scan.total;
        }
        const bool all_counted = __all_sync(WHOLE_WARP, is_counted);
        const i64 ids = warp_sum(own_ids);
        if (lane() == 0) span_ids[number] = all_counted ? ids : NOT_COUNTED;
    }
}

// Counts the ids of the spans that have misses. Any grid of INTERN_THREADS; a warp a span.
//
// entries, span_ids, section_before: as look_up_chunks left them; late: Late[misses]. report: u64[8].
KERNEL LAUNCHED_AS(INTERN_THREADS, COUNT_BLOCKS)
    count_late(i64 count, const u32* mask, const i64* tile_chunk, const i64* section_start, const i64* tile_section,
               const Row* rows, const u32* entries, const Late* late, const u64* report, i64* span_ids,
               i64* section_before) {
    if (is_spoiled(report) || report[MISSES_SEEN] == 0) return;
    const i64 spans = (count + SPAN - 1) / SPAN;
    for (i64 number = grid_thread() / WARP; number < spans; number += grid_threads() / WARP) {
        const bool is_counted = span_ids[number] != NOT_COUNTED;
        __syncwarp();  // all lanes have read what lane 0 writes below
        if (is_counted) continue;
        Span span = read_span(number, count, mask, tile_chunk, tile_section);
        i64 ids = 0;
        for (u32 first = 0; first < span.chunks; first += WARP) {
            const u32 own = first + lane();
            const bool exists = own < span.chunks;
            const WarpScan scan = scan_counts(exists ? count_of(entries[span.first_entry + own], rows, late) : 0);
            place_sections(span, first, scan, ids, section_start, section_before);
            ids += scan.total;
        }
        if (lane() == 0) span_ids[number] = ids;
    }
}
