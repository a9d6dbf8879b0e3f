// chunks -> entries: each chunk is looked up in the persistent table, new ones are claimed once a batch.
// cpu_ref/intern.py is the same step, with the same rows and the same hash.
//
//   look_up_chunks   chunks -> entries, and a list of misses
//   claim_misses     equal misses agree on one of them, the winner
//   list_winners     winners, numbered: what the cold path encodes
//   copy_winners     their bytes, one behind the other
//   settle_misses    where the ids that the cold path made lie, for each miss
//   count_late       the ids of tiles with misses, which look_up_chunks could not count
//   publish_winners  winners -> rows of the persistent table, for the batches to come
//
// Kernels that touch one table run in order on one stream, so what one of them wrote is whole for the next.

#include "common.cuh"
#include "entry.cuh"
#include "scan.cuh"
#include "tile.cuh"

constexpr u32 INTERN_THREADS = 256;
constexpr u32 INTERN_WARPS = INTERN_THREADS / WARP;
// Blocks that a multiprocessor holds: with more of them registers would be spilled.
constexpr u32 LOOK_BLOCKS = 4, CLAIM_BLOCKS = 6;
constexpr u32 SHORT = 15;          // bytes of the longest key that lies in its row
constexpr u32 PROBES = 16;         // rows looked at before a chunk counts as not found
constexpr u32 LONGEST_KEPT = 256;  // bytes of the longest chunk that the table keeps
constexpr u32 MOST_FLAGS = 15;     // flags beyond the four of a key belong to chunks that are not kept
constexpr u32 SECTION_LAST = 2;    // gpu_tok/tables/ends.py
constexpr u32 WHOLE = 16;
constexpr u32 LENGTH_SHIFT = 56, FLAGS_SHIFT = 60;
constexpr u64 SEED_LOW = 0x9E3779B97F4A7C15, SEED_HIGH = 0xD6E8FEB86659FD93;

constexpr u32 CLAIM_PROBES = 32;       // slots looked at before a miss is its own winner
constexpr u32 SAMPLES = 16;            // places of 8 bytes that the hash of a long chunk looks at
constexpr u32 NO_MISS = 0xFFFFFFFF;    // an empty slot of the batch table
constexpr u32 NO_ENTRY = 0xFFFFFFFF;   // no row was found
constexpr i64 NOT_COUNTED = -1;        // ids of a tile with misses
constexpr u32 CHUNKS_SEEN = 0, MISSES_SEEN = 1, WINNERS_SEEN = 2;  // words of the report
constexpr u32 ROWS_USED = 0, KEYS_USED = 1, IDS_USED = 2;          // words of `used`

struct Key {
    u64 low, high;  // without flags
};

DEVICE u64 fold_multiply(u64 left, u64 right) { return __umul64hi(left, right) ^ left * right; }

DEVICE u64 mix(Key key) { return fold_multiply(key.low ^ SEED_LOW, key.high ^ SEED_HIGH); }

DEVICE u64 low_bytes(u64 word, u32 count) { return count >= 8 ? word : word & ((1ull << 8 * count) - 1); }

DEVICE u64 hash_bytes(const u8* bytes, i64 at, u32 length, i64 end) {
    u64 mixed = SEED_LOW ^ length;
    const i64 last = at + length - 16;
    for (; at <= last; at += 16) {
        mixed = fold_multiply(load_8(bytes, at, end) ^ mixed, load_8(bytes, at + 8, end) ^ SEED_HIGH);
    }
    mixed ^= load_8(bytes, last, end);
    return fold_multiply(mixed ^ SEED_HIGH, load_8(bytes, last + 8, end) ^ SEED_LOW);
}

// The key of the chunk [at, at + length) of a text that ends at `end`.
DEVICE Key key_of(const u8* bytes, i64 at, u32 length, i64 end) {
    if (length > SHORT) return {hash_bytes(bytes, at, length, end), length};
    const u64 low = low_bytes(load_8(bytes, at, end), length);
    const u64 high = length > 8 ? low_bytes(load_8(bytes, at + 8, end), length - 8) : 0;
    return {low, high | (u64)length << LENGTH_SHIFT};
}

DEVICE bool same_bytes(const u8* left, i64 left_at, const u8* right, i64 right_at, i64 length) {
    for (i64 i = 0; i < length; i += 8) {
        if (load_8(left, left_at + i, left_at + length) != load_8(right, right_at + i, right_at + length)) return false;
    }
    return true;
}

// The entry of a chunk, or NO_ENTRY. No hash is taken as proof: the key is compared byte for byte.
DEVICE u32 find_entry(const Row* rows, i64 row_count, const u8* keys, const u8* bytes, i64 at, u32 length, u32 flags,
                      i64 end) {
    const Key key = key_of(bytes, at, length, end);
    const u64 mixed = mix(key), high = key.high | (u64)flags << FLAGS_SHIFT;
    for (u32 probe = 0; probe < PROBES; probe++) {
        const u64 number = (mixed + probe) & (row_count - 1);
        const Bytes16 head = *reinterpret_cast<const Bytes16*>(&rows[number].low);
        if (head.high == 0) return NO_ENTRY;
        if (head.high != high || head.low != key.low) continue;
        const uint4 words = *reinterpret_cast<const uint4*>(rows[number].words);
        if (length > SHORT && !same_bytes(keys, words.x, bytes, at, length)) continue;
        const bool is_one_id = words.w == 1 && (words.x & KIND) == 0;
        return is_one_id ? ONE_ID | words.x : (u32)number;
    }
    return NO_ENTRY;
}

// What a warp knows of its tile; `cuts` and `rank` are of the lane's word.
struct Tile {
    i64 begin;                  // bytes
    i64 first_chunk;            // its number in the batch
    i64 section, section_end;   // the sections that begin in the tile and are not placed yet
    u32 chunks, cuts, rank;
};

DEVICE Tile read_tile(i64 tile, i64 count, const u32* mask, const i64* tile_chunk, const i64* tile_section) {
    const i64 word = tile * TILE_WORDS + lane();
    const u32 cuts = word * WORD < count ? mask[word] : 0;
    const u32 through = warp_scan((u32)__popc(cuts));
    const u32 chunks = __shfl_sync(WHOLE_WARP, through, WARP - 1);
    return {tile * TILE, tile_chunk[tile], tile_section[tile], tile_section[tile + 1],
            chunks,      cuts,             through - __popc(cuts)};
}

// Writes where the chunks of a tile begin.
//
//   cuts    1001 0000 | 0100 ...         two lanes of 8 bytes, say
//   start   0 3 9
DEVICE void list_starts(const Tile& tile, u16* start) {
    u32 place = tile.rank;
    for (u32 left = tile.cuts; left != 0; left &= left - 1) start[place++] = (u16)(lane() * WORD + __ffs(left) - 1);
    __syncwarp();  // the list is whole
}

// Writes for each section that begins at one of the 32 chunks from `first` on, or behind the last chunk, how many ids of
// its tile come before it. ids: of the chunks before `first`.
DEVICE void place_sections(Tile& tile, u32 first, WarpScan scan, i64 ids, const i64* section_start,
                           i64* section_before) {
    while (tile.section < tile.section_end) {
        const i64 section = tile.section + lane();
        const bool exists = section < tile.section_end;
        const u32 offset = exists ? (u32)(section_start[section] - tile.begin) : 0;
        const u32 cuts = __shfl_sync(WHOLE_WARP, tile.cuts, offset / WORD);
        const u32 rank = __shfl_sync(WHOLE_WARP, tile.rank, offset / WORD);
        const u32 chunk = rank + __popc(cuts & ((1u << offset % WORD) - 1));
        const bool is_here = exists && (chunk < first + WARP || first + WARP >= tile.chunks);
        const i64 before = __shfl_sync(WHOLE_WARP, scan.before, (chunk - first) % WARP);
        if (is_here) section_before[section] = ids + (chunk - first < WARP ? before : scan.total);
        const u32 placed = __popc(__ballot_sync(WHOLE_WARP, is_here));
        tile.section += placed;
        if (placed < WARP) break;
    }
}

// The number of the flagged lanes' misses in the batch; `counter` counts them.
DEVICE i64 take_numbers(bool is_mine, u64* counter) {
    const u32 mine = __ballot_sync(WHOLE_WARP, is_mine);
    if (mine == 0) return 0;
    const u32 leader = __ffs(mine) - 1;
    u64 first = 0;
    if (lane() == leader) first = atomicAdd(counter, (u64)__popc(mine));
    return (i64)__shfl_sync(WHOLE_WARP, first, leader) + __popc(mine & ((1u << lane()) - 1));
}

// The flags of a chunk's key: those of its section, as far as the chunk has that end and the tokenizer minds.
DEVICE u32 flags_of(u32 section_flags, bool is_first, bool is_last, u32 flag_mask) {
    if (section_flags & WHOLE) return section_flags;
    u32 flags = section_flags;
    if (!is_first) flags &= SECTION_LAST;
    if (!is_last) flags &= ~SECTION_LAST;
    return flags & flag_mask;
}

// Finds the entry of each chunk. Any grid of INTERN_THREADS; a warp a tile, a lane a chunk.
//
//   bytes           t h e _ c a t _ x y z z y
//   entries         the: ONE_ID | 1996    _cat: ONE_ID | 4937    _xyzzy: MISS | 0
//   tile_ids        NOT_COUNTED, for there is a miss         section_before  0
//
// bytes: u8[count] at a multiple of 16; mask: u32[(count + 31) / 32], the cuts. tile_chunk: i64[tiles + 1], chunks before
// each tile; section_start: i64[sections + 1]; tile_section: i64[tiles + 1], sections that begin before each tile.
// section_kind: i32[sections], the id of an added token, or the complement of a section's flags; null where all sections
// are text and no flag matters. rows: Row[row_count], a power of two or 0; keys: their pool.
// entries: u32[entry_room]; tile_ids: i64[tiles]; section_before: i64[sections], zeros before the first chunk; misses:
// Miss[miss_room], in any order. report: u64[8], counts all misses, also those that there was no room for.
KERNEL LAUNCHED_AS(INTERN_THREADS, LOOK_BLOCKS)
    look_up_chunks(const u8* bytes, i64 count, const u32* mask, const i64* tile_chunk, const i64* section_start,
                   const i64* tile_section, const i32* section_kind, i64 flag_mask, const Row* rows, i64 row_count,
                   const u8* keys, u32* entries, i64 entry_room, i64* tile_ids, i64* section_before, Miss* misses,
                   i64 miss_room, u64* report) {
    struct Lists {
        u16 start[INTERN_WARPS][TILE];
    };
    SHARED(Lists, lists);
    u16* start = lists.start[threadIdx.x / WARP];
    const i64 tiles = (count + TILE - 1) / TILE;
    if (grid_thread() == 0) report[CHUNKS_SEEN] = tile_chunk[tiles];
    for (i64 number = grid_thread() / WARP; number < tiles; number += grid_threads() / WARP) {
        Tile tile = read_tile(number, count, mask, tile_chunk, tile_section);
        if (tile.chunks == 0) {
            if (lane() == 0) tile_ids[number] = 0;
            continue;
        }
        list_starts(tile, start);
        const i64 first_section = tile.section;
        const i64 next_start = first_cut_from(number + 1, tiles, tile_chunk, mask, count);
        i64 ids = 0;
        bool is_counted = true;
        for (u32 first = 0; first < tile.chunks; first += WARP) {
            const u32 own = first + lane();
            u32 entry = 0, flags = 0;
            i64 at = 0, length = 0;
            bool is_new = false;
            if (own < tile.chunks) {
                at = tile.begin + start[own];
                const i64 end = own + 1 < tile.chunks ? tile.begin + start[own + 1] : next_start;
                length = end - at;
                i32 kind = ~0;
                if (section_kind != nullptr) {
                    const i64 section = upper_bound(section_start, first_section, tile.section_end, at) - 1;
                    kind = section_kind[section];
                    flags = flags_of(~kind, at == section_start[section], end == section_start[section + 1], flag_mask);
                }
                entry = NO_ENTRY;
                if (kind >= 0) {
                    entry = ONE_ID | kind;
                } else if (length <= LONGEST_KEPT && flags <= MOST_FLAGS && row_count > 0) {
                    entry = find_entry(rows, row_count, keys, bytes, at, (u32)length, flags, count);
                }
                is_new = entry == NO_ENTRY;
            }
            const i64 miss = take_numbers(is_new, &report[MISSES_SEEN]);
            if (is_new) {
                entry = MISS | (u32)miss;
                if (miss < miss_room) misses[miss] = {at, (u32)length, flags};
            }
            if (own < tile.chunks && tile.first_chunk + own < entry_room) entries[tile.first_chunk + own] = entry;
            is_counted = is_counted && __ballot_sync(WHOLE_WARP, is_new) == 0;
            if (!is_counted) continue;
            const WarpScan scan = scan_counts(own < tile.chunks ? count_of(entry, rows, nullptr) : 0);
            place_sections(tile, first, scan, ids, section_start, section_before);
            ids += scan.total;
        }
        if (lane() == 0) tile_ids[number] = is_counted ? ids : NOT_COUNTED;
        __syncwarp();  // nobody reads the list any more
    }
}

// Counts the ids of the tiles that have misses. Any grid of INTERN_THREADS; a warp a tile.
//
// entries, tile_ids, section_before: as look_up_chunks left them; late: Late[misses].
KERNEL LAUNCHED_AS(INTERN_THREADS, CLAIM_BLOCKS)
    count_late(i64 count, const u32* mask, const i64* tile_chunk, const i64* section_start, const i64* tile_section,
               const Row* rows, const u32* entries, const Late* late, i64* tile_ids, i64* section_before) {
    const i64 tiles = (count + TILE - 1) / TILE;
    for (i64 number = grid_thread() / WARP; number < tiles; number += grid_threads() / WARP) {
        const bool is_counted = tile_ids[number] != NOT_COUNTED;
        __syncwarp();  // all lanes have read what lane 0 writes below
        if (is_counted) continue;
        Tile tile = read_tile(number, count, mask, tile_chunk, tile_section);
        i64 ids = 0;
        for (u32 first = 0; first < tile.chunks; first += WARP) {
            const u32 own = first + lane();
            const bool exists = own < tile.chunks;
            const WarpScan scan = scan_counts(exists ? count_of(entries[tile.first_chunk + own], rows, late) : 0);
            place_sections(tile, first, scan, ids, section_start, section_before);
            ids += scan.total;
        }
        if (lane() == 0) tile_ids[number] = ids;
    }
}

// The hash of a miss. That of a long one looks at some of its bytes; they are all compared in the end.
DEVICE u64 hash_miss(const u8* bytes, const Miss& miss, i64 end) {
    if (miss.length <= LONGEST_KEPT) return mix(key_of(bytes, miss.start, miss.length, end));
    u64 mixed = SEED_LOW ^ miss.length;
    for (u32 sample = 0; sample < SAMPLES; sample++) {
        const i64 at = miss.start + (i64)(miss.length - 8) * sample / (SAMPLES - 1);
        mixed = fold_multiply(load_8(bytes, at, end) ^ mixed, SEED_HIGH);
    }
    return mixed;
}

DEVICE bool same_chunk(const u8* bytes, const Miss& left, const Miss& right) {
    return left.length == right.length && left.flags == right.flags &&
           same_bytes(bytes, left.start, bytes, right.start, left.length);
}

// The miss that stands for this one and all its equals; the miss itself where it is the first, or finds no slot.
//
// A slot holds the number of a miss: one word, so it is never half written, and what it names, the list of misses and the
// text, does not change while this kernel runs. A relaxed load is enough to see it, and spares most of the atomics.
DEVICE u32 claim(u32 number, const u8* bytes, i64 end, const Miss* misses, u32* slots, i64 slot_count) {
    const Miss mine = misses[number];
    const u64 mixed = hash_miss(bytes, mine, end);
    for (u32 probe = 0; probe < CLAIM_PROBES; probe++) {
        u32* slot = &slots[(mixed + probe) & (slot_count - 1)];
        u32 rival = load_relaxed(slot);
        if (rival == NO_MISS) rival = atomicCAS(slot, NO_MISS, number);
        if (rival == NO_MISS) return number;
        if (same_chunk(bytes, misses[rival], mine)) return rival;
    }
    return number;
}

// Equal misses agree on one of them. Any grid of INTERN_THREADS; a thread a miss.
//
//   misses   0 xyzzy   1 plugh   2 xyzzy
//   winner   2         1         2            or 0 1 0: whoever comes first
//
// miss_count: u64[1]. slots: u32[slot_count], a power of two and at least twice the misses, all NO_MISS.
KERNEL LAUNCHED_AS(INTERN_THREADS, CLAIM_BLOCKS)
    claim_misses(const u8* bytes, i64 count, const Miss* misses, const u64* miss_count, u32* slots, i64 slot_count,
                 u32* winner) {
    const i64 last = (i64)miss_count[0];
    for (i64 miss = grid_thread(); miss < last; miss += grid_threads()) {
        winner[miss] = claim((u32)miss, bytes, count, misses, slots, slot_count);
    }
}

// Numbers the winners. Any grid of INTERN_THREADS; a thread a miss.
//
//   winner         2 1 2
//   number         - 0 1         of winners only, in any order
//   winners        1 2           winner_length  5 5
KERNEL LAUNCHED_AS(INTERN_THREADS)
    list_winners(const u32* winner, const Miss* misses, const u64* miss_count, u32* number, u32* winners,
                 i64* winner_length, u8* winner_flags, u64* report) {
    const i64 last = (i64)miss_count[0];
    for (i64 first = grid_thread() - lane(); first < last; first += grid_threads()) {
        const i64 miss = first + lane();
        const bool has_won = miss < last && winner[miss] == miss;
        const i64 own = take_numbers(has_won, &report[WINNERS_SEEN]);
        if (!has_won) continue;
        number[miss] = (u32)own;
        winners[own] = (u32)miss;
        winner_length[own] = misses[miss].length;
        winner_flags[own] = (u8)misses[miss].flags;
    }
}

// Copies the winners' bytes one behind the other. Any grid of INTERN_THREADS; a warp a winner.
//
// winner_start: i64[winner_count + 1]; copied: u8[winner_start[winner_count]].
KERNEL LAUNCHED_AS(INTERN_THREADS) copy_winners(const u8* bytes, const Miss* misses, const u32* winners,
                                                i64 winner_count, const i64* winner_start, u8* copied) {
    for (i64 own = grid_thread() / WARP; own < winner_count; own += grid_threads() / WARP) {
        const Miss miss = misses[winners[own]];
        for (i64 at = lane(); at < miss.length; at += WARP) copied[winner_start[own] + at] = bytes[miss.start + at];
    }
}

// Where the ids of each miss lie. Any grid of INTERN_THREADS; a thread a miss.
//
// late_start: i64[winners + 1], the ids that the cold path made of each winner. late: Late[misses].
KERNEL LAUNCHED_AS(INTERN_THREADS) settle_misses(const u32* winner, const u32* number, const u64* miss_count,
                                                 const i64* late_start, Late* late) {
    const i64 last = (i64)miss_count[0];
    for (i64 miss = grid_thread(); miss < last; miss += grid_threads()) {
        const i64 own = number[winner[miss]];
        late[miss] = {late_start[own], late_start[own + 1] - late_start[own]};
    }
}

struct Pools {
    u8* keys;
    i32* ids;
    i64 key_room, id_room;
};

// Room for `count` elements in a pool; -1 when it is full. What did not fit stays taken: giving it back could hand the
// same place out twice.
DEVICE i64 take_room(u64* used, i64 count, i64 room) {
    const i64 at = (i64)atomicAdd(used, (u64)count);
    return at + count <= room ? at : -1;
}

// The first probe at which a row is free; PROBES when none is, or when the key has a row already.
//
// Rows of earlier kernels are whole. Of one that a rival claims at this moment, `high` may be there and `low` not yet, and
// long keys are not compared beyond their hash: so this may take another chunk's row for the own one. All that follows is
// that a chunk is not kept, which changes no ids.
DEVICE u32 first_free(Key key, u64 high, u64 mixed, Row* rows, i64 row_count) {
    for (u32 probe = 0; probe < PROBES; probe++) {
        const Row& row = rows[(mixed + probe) & (row_count - 1)];
        const u64 other = load_relaxed(&row.high);
        if (other == 0) return probe;
        if (other == high && load_relaxed(&row.low) == key.low) return PROBES;
    }
    return PROBES;
}

// Writes a row where no other stands. `high` claims it; nobody reads the other words before the kernel's end.
DEVICE void write_row(Key key, u64 high, u64 mixed, u32 probe, const u32 (&words)[4], Row* rows, i64 row_count) {
    for (; probe < PROBES; probe++) {
        Row& row = rows[(mixed + probe) & (row_count - 1)];
        if (load_relaxed(&row.high) != 0 || atomicCAS(&row.high, 0ull, high) != 0) continue;
        store_relaxed(&row.low, key.low);
        UNROLL
        for (u32 i = 0; i < 4; i++) row.words[i] = words[i];
        return;
    }
}

// Puts the ids, and a key that is longer than its row, where they are kept. False when a pool is full.
DEVICE bool fill_words(const u8* bytes, const Miss& miss, const i32* ids, i64 count, const Pools& pools, u64* used,
                       u32 (&words)[4]) {
    const u32 pooled = miss.length > SHORT ? miss.length : 0;
    if (pooled == 0 && count <= INLINE_IDS) {
        for (u32 i = 0; i < INLINE_IDS; i++) words[i] = i < count ? (u32)ids[i] : 0;
        words[3] = (u32)count;
        return true;
    }
    const i64 key_at = take_room(&used[KEYS_USED], pooled, pools.key_room);
    const i64 ids_at = take_room(&used[IDS_USED], count, pools.id_room);
    if (key_at < 0 || ids_at < 0) return false;
    for (i64 i = 0; i < pooled; i++) pools.keys[key_at + i] = bytes[miss.start + i];
    for (i64 i = 0; i < count; i++) pools.ids[ids_at + i] = ids[i];
    words[0] = (u32)key_at;
    words[1] = (u32)ids_at;
    words[2] = 0;
    words[3] = (u32)count | IN_POOL;
    return true;
}

// Keeps the winners and their ids for later batches. Any grid of INTERN_THREADS; a thread a winner.
//
// late_ids, late_start: i32[], i64[winner_count + 1], the winners' ids. rows: Row[row_count], of which at most row_limit
// get used; keys, pool: u8[key_room], i32[id_room]. used: u64[3], how much of each was asked for: more than there is when
// it is full. What finds no room is left out, and is new again in the next batch.
KERNEL LAUNCHED_AS(INTERN_THREADS)
    publish_winners(const u8* bytes, i64 count, const Miss* misses, const u32* winners, i64 winner_count,
                    const i32* late_ids, const i64* late_start, Row* rows, i64 row_count, i64 row_limit, u8* keys,
                    i64 key_room, i32* pool, i64 id_room, u64* used) {
    const Pools pools = {keys, pool, key_room, id_room};
    for (i64 own = grid_thread(); own < winner_count; own += grid_threads()) {
        const Miss miss = misses[winners[own]];
        if (miss.length > LONGEST_KEPT || miss.flags > MOST_FLAGS) continue;
        const Key key = key_of(bytes, miss.start, miss.length, count);
        const u64 mixed = mix(key), high = key.high | (u64)miss.flags << FLAGS_SHIFT;
        const u32 probe = first_free(key, high, mixed, rows, row_count);
        if (probe == PROBES || take_room(&used[ROWS_USED], 1, row_limit) < 0) continue;
        u32 words[4];
        const i64 ids_at = late_start[own];
        if (!fill_words(bytes, miss, late_ids + ids_at, late_start[own + 1] - ids_at, pools, used, words)) continue;
        write_row(key, high, mixed, probe, words, rows, row_count);
    }
}
