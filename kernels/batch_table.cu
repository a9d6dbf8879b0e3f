// misses -> their ids, once for each distinct chunk: the table that lives as long as a batch. How many misses and winners
// there are is read from the report; of a spoiled batch nothing is touched.
//
//   claim_misses     equal misses agree on one of them, the winner
//   list_winners     winners, numbered: what the cold path encodes
//   copy_winners     their bytes, one behind the other
//   settle_misses    where the ids that the cold path made lie, for each miss
//   publish_winners  winners -> rows of the persistent table, for the batches to come

#include "common.cuh"
#include "entry.cuh"
#include "key.cuh"
#include "report.cuh"

constexpr u32 BATCH_THREADS = 256;
constexpr u32 BATCH_BLOCKS = 6;      // that a multiprocessor holds: with more of them registers would be spilled
constexpr u32 CLAIM_PROBES = 32;     // slots looked at before a miss is its own winner
constexpr u32 SAMPLES = 16;          // places of 8 bytes that the hash of a long chunk looks at
constexpr u32 NO_MISS = 0xFFFFFFFF;  // an empty slot of the batch table
constexpr u32 ROWS_USED = 0, KEYS_USED = 1, IDS_USED = 2;  // words of `used`

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

// Equal misses agree on one of them. Any grid of BATCH_THREADS; a thread a miss.
//
//   misses   0 xyzzy   1 plugh   2 xyzzy
//   winner   2         1         2            or 0 1 0: whoever comes first
//
// slots: u32[slot_count], a power of two and at least twice the misses, all NO_MISS.
KERNEL LAUNCHED_AS(BATCH_THREADS, BATCH_BLOCKS)
    claim_misses(const u8* bytes, i64 count, const Miss* misses, const u64* report, u32* slots, i64 slot_count,
                 u32* winner) {
    if (is_spoiled(report)) return;
    const i64 last = (i64)report[MISSES_SEEN];
    for (i64 miss = grid_thread(); miss < last; miss += grid_threads()) {
        winner[miss] = claim((u32)miss, bytes, count, misses, slots, slot_count);
    }
}

// Numbers the winners. Any grid of BATCH_THREADS; a thread a miss.
//
//   winner         2 1 2
//   number         - 0 1         of winners only, in any order
//   winners        1 2           winner_length  5 5
KERNEL LAUNCHED_AS(BATCH_THREADS)
    list_winners(const u32* winner, const Miss* misses, u32* number, u32* winners, i64* winner_length, u8* winner_flags,
                 u64* report) {
    if (is_spoiled(report)) return;
    const i64 last = (i64)report[MISSES_SEEN];
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

// Copies the winners' bytes one behind the other. Any grid of BATCH_THREADS; a warp a winner.
//
// winner_start: i64[winner_count + 1]; copied: u8[winner_start[winner_count]].
KERNEL LAUNCHED_AS(BATCH_THREADS) copy_winners(const u8* bytes, const Miss* misses, const u32* winners,
                                                i64 winner_count, const i64* winner_start, u8* copied) {
    for (i64 own = grid_thread() / WARP; own < winner_count; own += grid_threads() / WARP) {
        const Miss miss = misses[winners[own]];
        for (i64 at = lane(); at < miss.length; at += WARP) copied[winner_start[own] + at] = bytes[miss.start + at];
    }
}

// Where the ids of each miss lie. Any grid of BATCH_THREADS; a thread a miss.
//
// of_winner: Late[winners], the ids that the cold path made of each. late: Late[misses].
KERNEL LAUNCHED_AS(BATCH_THREADS) settle_misses(const u32* winner, const u32* number, const u64* report,
                                                 const Late* of_winner, Late* late) {
    if (is_spoiled(report)) return;
    const i64 last = (i64)report[MISSES_SEEN];
    for (i64 miss = grid_thread(); miss < last; miss += grid_threads()) {
        late[miss] = of_winner[number[winner[miss]]];
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

// Keeps the winners and their ids for later batches. Any grid of BATCH_THREADS; a thread a winner.
//
// late_ids, of_winner: i32[], Late[winners], the winners' ids. rows: Row[row_count], of which at most row_limit get
// used; keys, pool: u8[key_room], i32[id_room]. used: u64[3], how much of each was asked for: more than there is when
// it is full. What finds no room is left out, and is new again in the next batch.
KERNEL LAUNCHED_AS(BATCH_THREADS, BATCH_BLOCKS)
    publish_winners(const u8* bytes, i64 count, const Miss* misses, const u32* winners, const u64* report,
                    const i32* late_ids, const Late* of_winner, Row* rows, i64 row_count, i64 row_limit, u8* keys,
                    i64 key_room, i32* pool, i64 id_room, u64* used) {
    if (is_spoiled(report)) return;
    const i64 winner_count = (i64)report[WINNERS_SEEN];
    const Pools pools = {keys, pool, key_room, id_room};
    for (i64 own = grid_thread(); own < winner_count; own += grid_threads()) {
        const Miss miss = misses[winners[own]];
        if (miss.length > LONGEST_KEPT || miss.flags > MOST_FLAGS) continue;
        const Key key = key_of(bytes, miss.start, miss.length, count);
        const u64 mixed = mix(key), high = key.high | (u64)miss.flags << FLAGS_SHIFT;
        const u32 probe = first_free(key, high, mixed, rows, row_count);
        if (probe == PROBES || take_room(&used[ROWS_USED], 1, row_limit) < 0) continue;
        u32 words[4];
        const Late made = of_winner[own];
        if (!fill_words(bytes, miss, late_ids + made.at, made.count, pools, used, words)) continue;
        write_row(key, high, mixed, probe, words, rows, row_count);
    }
}
