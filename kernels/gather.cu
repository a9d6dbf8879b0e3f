// entries -> ids, each at its place. cpu_ref/gather.py is the same step.
//
//   gather_ids   the ids of all chunks; truncation leaves some out, padding and special tokens move them
//   fill_rows    special tokens and padding around them
//   pad_rows     rows of any lengths -> rectangles, with the masks that a model takes

#include "common.cuh"
#include "entry.cuh"
#include "report.cuh"

constexpr u32 GATHER_THREADS = 256;
constexpr u32 GATHER_BLOCKS = 4;  // that a multiprocessor holds: with more of them registers would be spilled
constexpr i64 LONG_LIST = 32;  // more ids than that are copied by the whole warp
constexpr i64 PART = 1024;     // columns of a rectangle that a warp writes

// Where the ids of one chunk go: those from `keep_from` up to `keep_end` to `ids[place]` and behind it.
struct Target {
    i64 place;
    i64 keep_from, keep_end;
};

// The rows as truncation, padding and special tokens make them. place: i64[rows + 1], where the ids of each row begin
// when nothing is left out or put in; null where that is the output. keep_begin, keep_count: i64[rows], which ids of a
// row are kept; start: i64[rows], where the first of them goes.
struct Layout {
    const i64 *place, *keep_begin, *keep_count, *start;
};

// The row of the lane's last chunk, which is nearly always that of the next: so it is read once.
struct RowSeen {
    i64 begin, end;  // the places of its ids
    i64 keep_begin, keep_count, start;
};

//   a row's ids   5 6 7 8 9    keep_begin 1, keep_count 3, start 20
//   a chunk's         7 8 9    place 2 of the row
//   target            21: 7 8  keep_from 0, keep_end 2
DEVICE Target target_of(i64 place, i64 count, const Layout& layout, i64 first_row, i64 row_end, RowSeen& seen) {
    if (layout.place == nullptr || count == 0) return {place, 0, count};
    if (place < seen.begin || place >= seen.end) {
        const i64 row = upper_bound(layout.place, first_row, row_end, place) - 1;
        seen = {layout.place[row], layout.place[row + 1], layout.keep_begin[row], layout.keep_count[row],
                layout.start[row]};
    }
    const i64 offset = place - seen.begin - seen.keep_begin;  // among the kept ids; may be negative
    const i64 keep_from = max(-offset, 0LL), keep_end = min(seen.keep_count - offset, count);
    return {seen.start + offset + keep_from, keep_from, keep_end};
}

DEVICE void copy_ids(const i32* source, i64 count, u32 first, u32 step, i32* ids) {
    for (i64 i = first; i < count; i += step) ids[i] = source[i];
}

// Writes the ids of all chunks. Any grid of GATHER_THREADS; a warp a tile, a lane a chunk: neighbours write side by side.
//
//   entries    ONE_ID | 7    row 4: 8 9    ONE_ID | 5
//   ids        7             8 9           5
//
// entries: u32[], those of tile t from tile_chunk[t] on; tile_id: i64[tiles + 1], ids before each tile. rows, pool, late,
// late_ids: what entries name. row_place, keep_begin, keep_count, row_start: the layout, null without one; tile_row:
// i64[tiles + 1], rows that begin at or before the first id of each tile. id_count: i64[1], ids that leave, with padding
// and special tokens; where they are more than id_room, the report says so and nothing is written. report: u64[8].
KERNEL LAUNCHED_AS(GATHER_THREADS, GATHER_BLOCKS)
    gather_ids(const u32* entries, const i64* tile_chunk, const i64* tile_id, i64 tiles, const Row* rows,
               const i32* pool, const Late* late, const i32* late_ids, const i64* tile_row, const i64* row_place,
               const i64* keep_begin, const i64* keep_count, const i64* row_start, const i64* id_count, i32* ids,
               i64 id_room, u64* report) {
    if (is_spoiled(report)) return;
    const bool has_room = id_count[0] <= id_room;
    if (grid_thread() == 0) {
        report[IDS_SEEN] = id_count[0];
        if (!has_room) store_relaxed(&report[OVERFLOW_SEEN], 1ull);
    }
    if (!has_room) return;
    const Layout layout = {row_place, keep_begin, keep_count, row_start};
    for (i64 tile = grid_thread() / WARP; tile < tiles; tile += grid_threads() / WARP) {
        const i64 first_row = row_place == nullptr ? 0 : max(tile_row[tile] - 1, 0LL);
        const i64 row_end = row_place == nullptr ? 0 : tile_row[tile + 1];
        i64 place = tile_id[tile];
        RowSeen seen = {0, 0, 0, 0, 0};
        const i64 end = tile_chunk[tile + 1];
        for (i64 first = tile_chunk[tile]; first < end; first += WARP) {
            const i64 chunk = first + lane();
            const bool exists = chunk < end;
            const u32 entry = exists ? entries[chunk] : ONE_ID;
            const bool is_one_id = (entry & KIND) == ONE_ID;
            const Ids found = is_one_id ? Ids{nullptr, exists} : ids_of(entry, rows, pool, late, late_ids);
            const WarpScan scan = scan_counts(found.count);
            const Target target = target_of(place + scan.before, found.count, layout, first_row, row_end, seen);
            const i64 kept = target.keep_end - target.keep_from;
            if (is_one_id) {
                if (kept > 0) ids[target.place] = (i32)number_of(entry);
            } else if (kept <= LONG_LIST) {
                copy_ids(found.at + target.keep_from, kept, 0, 1, ids + target.place);
            }
            for (u32 left = __ballot_sync(WHOLE_WARP, kept > LONG_LIST); left != 0; left &= left - 1) {
                const u32 owner = __ffs(left) - 1;
                const u64 source = __shfl_sync(WHOLE_WARP, (u64)(found.at + target.keep_from), owner);
                const i64 count = __shfl_sync(WHOLE_WARP, kept, owner);
                const i64 place = __shfl_sync(WHOLE_WARP, target.place, owner);
                copy_ids(reinterpret_cast<const i32*>(source), count, lane(), WARP, ids + place);
            }
            place += scan.total;
        }
    }
}

// Writes what stands around the ids of each row. Any grid of GATHER_THREADS; a warp a row.
//
//   prefix 101, suffix 102, pad_id 0, padding on the right
//   row     101 . . . 102 0 0            the dots are gather_ids'
//
// output_start: i64[rows + 1], the rows; row_start, keep_count: i64[rows], their kept ids. prefix, suffix: i32[].
// report: u64[8].
KERNEL LAUNCHED_AS(GATHER_THREADS)
    fill_rows(const i64* output_start, const i64* row_start, const i64* keep_count, i64 rows, const i32* prefix,
              i64 prefix_count, const i32* suffix, i64 suffix_count, i64 pad_id, const u64* report, i32* ids) {
    if (is_spoiled(report)) return;
    for (i64 row = grid_thread() / WARP; row < rows; row += grid_threads() / WARP) {
        const i64 begin = row_start[row] - prefix_count, end = row_start[row] + keep_count[row];
        for (i64 at = output_start[row] + lane(); at < begin; at += WARP) ids[at] = (i32)pad_id;
        for (i64 i = lane(); i < prefix_count; i += WARP) ids[begin + i] = prefix[i];
        for (i64 i = lane(); i < suffix_count; i += WARP) ids[end + i] = suffix[i];
        for (i64 at = end + suffix_count + lane(); at < output_start[row + 1]; at += WARP) ids[at] = (i32)pad_id;
    }
}

// The types of the ids of a row: of its special tokens before and behind, of the text between, and of padding.
struct RowTypes {
    const i32 *prefix, *suffix;
    i64 prefix_count, suffix_count;
    i32 text, padding;
};

// The type of the id at `place` of a row with `count` ids. A row too short for both ends has the suffix's.
DEVICE i32 type_of(i64 place, i64 count, const RowTypes& types) {
    if (place < 0 || place >= count) return types.padding;
    const i64 of_suffix = place - (count - types.suffix_count);
    if (of_suffix >= 0) return types.suffix[of_suffix];
    return place < types.prefix_count ? types.prefix[place] : types.text;
}

// Lays rows out as rectangles. Any grid of GATHER_THREADS; a warp PART columns of a row.
//
//   row             101 7 8 102 0       of which 4 are no padding; pad_id 0, width 6
//   input_ids       101 7 8 102 0 0
//   attention_mask    1 1 1   1 0 0
//
// ids: i32[]; start: i64[rows + 1]; count: i64[rows], how many ids of a row are no padding; is_left: padding stands, and
// goes, before them. each_type: i32[], the type of each id, or null: then prefix_types and those behind it say them.
// input_ids, attention_mask, token_type_ids: i32[rows * width].
KERNEL LAUNCHED_AS(GATHER_THREADS)
    pad_rows(const i32* ids, const i64* start, const i64* count, i64 rows, i64 width, i64 is_left, i64 pad_id,
             const i32* each_type, const i32* prefix_types, i64 prefix_count, i64 text_type, const i32* suffix_types,
             i64 suffix_count, i64 pad_type, i32* input_ids, i32* attention_mask, i32* token_type_ids) {
    const RowTypes types = {prefix_types, suffix_types, prefix_count, suffix_count, (i32)text_type, (i32)pad_type};
    const i64 parts = (width + PART - 1) / PART;
    for (i64 part = grid_thread() / WARP; part < rows * parts; part += grid_threads() / WARP) {
        const i64 row = part / parts, begin = part % parts * PART, end = min(begin + PART, width);
        const i64 length = start[row + 1] - start[row], real = count[row];
        const i64 stored_at = is_left ? width - length : 0, real_at = is_left ? width - real : 0;
        for (i64 column = begin + lane(); column < end; column += WARP) {
            const i64 offset = column - stored_at, place = column - real_at, at = row * width + column;
            const bool is_stored = offset >= 0 && offset < length;
            const i64 from = start[row] + offset;
            input_ids[at] = is_stored ? ids[from] : (i32)pad_id;
            attention_mask[at] = place >= 0 && place < real;
            if (each_type == nullptr) {
                token_type_ids[at] = type_of(place, real, types);
            } else {
                token_type_ids[at] = is_stored ? each_type[from] : types.padding;
            }
        }
    }
}
