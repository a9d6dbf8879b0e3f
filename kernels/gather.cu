// entries -> ids, each at its place. cpu_ref/gather.py is the same step.
//
//   gather_ids   the ids of all chunks; truncation leaves some out, padding and special tokens move them
//   gather_long  the ids of chunks that have thousands
//   fill_rows    special tokens and padding around them
//   pad_rows     rows of any lengths -> rectangles, with the masks that a model takes

#include "common.cuh"
#include "entry.cuh"
#include "report.cuh"
#include "tile.cuh"

constexpr u32 GATHER_THREADS = 256;
constexpr u32 GATHER_WARPS = GATHER_THREADS / WARP;
constexpr u32 GATHER_BLOCKS = 4;  // that a multiprocessor holds: with more of them registers would be spilled
constexpr i64 STAGE = 1024;       // ids of a span that are brought together before they are written
constexpr i64 LONG_LIST = 32;     // more ids than that are copied by the whole warp
constexpr i64 PIECE = 4096;       // and lists of more than that by several blocks, so many ids each
constexpr i64 PART = 1024;        // columns of a rectangle that a warp writes

// A row as truncation, padding and special tokens make it. A place counts ids when nothing is left out or put in.
struct alignas(16) RowPlace {
    i64 end;        // the place behind its ids
    i64 shift;      // from a place to where the id there goes
    i64 low, high;  // where the first id that is kept goes, and the end of the last
};

constexpr RowPlace ANYWHERE = {1LL << 62, 0, 0, 1LL << 62};  // of ids that stay where they are

// Where the id at `place` of a row goes. Ids that are left out go to the end that they are nearest to.
//
//   place    10 11 12 13 14       a row of five ids of which the last three are kept: shift 8, low 20, high 23
//   goes to  20 20 20 21 22
DEVICE i64 target_of(i64 place, const RowPlace& row) { return min(max(place + row.shift, row.low), row.high); }

// Part of a list of ids that is too long for one warp. from: in the pool, or the complement of a place in late_ids.
struct Piece {
    i64 from, place, count;
};

DEVICE void list_pieces(i64 from, i64 place, i64 count, Piece* pieces, u64* piece_count) {
    const i64 own_pieces = (count + PIECE - 1) / PIECE;
    u64 first = 0;
    if (lane() == 0) first = atomicAdd(piece_count, (u64)own_pieces);
    first = __shfl_sync(WHOLE_WARP, first, 0);
    for (i64 i = lane(); i < own_pieces; i += WARP) {
        const i64 done = i * PIECE, at = from < 0 ? from - done : from + done;
        pieces[first + i] = {at, place + done, min(PIECE, count - done)};
    }
}

DEVICE void copy_ids(const i32* source, i64 count, u32 first, u32 step, i32* ids) {
    for (i64 i = first; i < count; i += step) ids[i] = source[i];
}

// Writes the ids of all chunks. Any grid of GATHER_THREADS; a warp a span, a lane a chunk. The ids of a span are
// brought together first, and written by neighbours side by side; what lies between two rows is written with them, and
// fill_rows puts there what belongs there.
//
//   entries    ONE_ID | 7    row 4: 8 9    ONE_ID | 5
//   ids        7             8 9           5
//
// entries: u32[], those of a span from entry_at on; tile_chunk: i64[tiles + 1], chunks before each tile; span_id:
// i64[spans + 1], ids before each span. rows, pool, late, late_ids: what entries name. layout: RowPlace[row_count], or
// null when ids stay where they are; span_row: i64[spans + 1], rows that begin at or before the first id of each span.
// id_count: i64[1], ids that leave, with padding and special tokens; where they are more than id_room, the report says
// so and nothing is written. ids: i32[id_room]. pieces: Piece[2 * id_room / PIECE], of long lists, for gather_long;
// piece_count: u64[1], 0 before. report: u64[8].
KERNEL LAUNCHED_AS(GATHER_THREADS, GATHER_BLOCKS)
    gather_ids(const u32* entries, const i64* tile_chunk, i64 tiles, const i64* span_id, const Row* rows,
               const i32* pool, const Late* late, const i32* late_ids, const RowPlace* layout, i64 row_count,
               const i64* span_row, const i64* id_count, i32* ids, i64 id_room, Piece* pieces, u64* piece_count,
               u64* report) {
    SHARED(i32[GATHER_WARPS][STAGE], stages);
    i32* stage = stages[threadIdx.x / WARP];
    if (is_spoiled(report)) return;
    const bool has_room = id_count[0] <= id_room;
    if (grid_thread() == 0) {
        report[IDS_SEEN] = id_count[0];
        if (!has_room) spoil(report, TOO_SMALL);
    }
    if (!has_room) return;
    for (i64 span = grid_thread() / WARP; SPAN_TILES * span < tiles; span += grid_threads() / WARP) {
        i64 place = span_id[span];
        const i64 place_end = span_id[span + 1];
        if (place == place_end) continue;
        RowPlace row = ANYWHERE;
        i64 end = place_end;
        if (layout != nullptr) {
            end = target_of(place_end, layout[min(span_row[span + 1], row_count) - 1]);
            row = layout[span_row[span] - 1];
        }
        const i64 begin = target_of(place, row);
        if (begin == end) continue;
        const i32 staged = end - begin <= STAGE ? (i32)(end - begin) : 0;
        i32* sink = staged > 0 ? stage : ids + begin;
        const i64 chunks_seen = chunks_before(span, tile_chunk, tiles);
        const u32* own_entries = entries + entry_at(span, chunks_seen);
        const u32 chunks = (u32)(chunks_before(span + 1, tile_chunk, tiles) - chunks_seen);
        for (u32 first = 0; first < chunks; first += WARP) {
            const bool exists = first + lane() < chunks;
            const u32 entry = exists ? own_entries[first + lane()] : ONE_ID;
            const bool is_one_id = (entry & KIND) == ONE_ID;
            const Ids found = is_one_id ? Ids{nullptr, exists} : ids_of(entry, rows, pool, late, late_ids);
            const WarpScan scan = scan_counts(found.count);
            const i64 own_place = place + scan.before;
            if (found.count > 0 && own_place >= row.end) {
                const auto is_behind = [&](i64 i) { return layout[i].end <= own_place; };
                row = layout[first_not(span_row[span], min(span_row[span + 1], row_count) - 1, is_behind)];
            }
            const i64 target = target_of(own_place, row);
            const i64 kept = target_of(own_place + found.count, row) - target;
            const i64 left_out = target - (own_place + row.shift);  // of its ids, before those that are kept
            if (is_one_id) {
                if (kept > 0) sink[target - begin] = (i32)number_of(entry);
            } else if (kept <= LONG_LIST) {
                copy_ids(found.at + left_out, kept, 0, 1, sink + (target - begin));
            }
            for (u32 left = scan.has_large ? __ballot_sync(WHOLE_WARP, kept > LONG_LIST) : 0; left != 0;
                 left &= left - 1) {
                const u32 owner = __ffs(left) - 1;
                const i64 count = __shfl_sync(WHOLE_WARP, kept, owner), to = __shfl_sync(WHOLE_WARP, target, owner);
                const i64 from = __shfl_sync(WHOLE_WARP, left_out, owner);
                const u32 its_entry = __shfl_sync(WHOLE_WARP, entry, owner);
                const i32* source = ids_of(its_entry, rows, pool, late, late_ids).at + from;
                if (count > PIECE) {
                    const i64 at = is_miss(its_entry) ? ~(i64)(source - late_ids) : source - pool;
                    list_pieces(at, to, count, pieces, piece_count);
                } else {
                    copy_ids(source, count, lane(), WARP, sink + (to - begin));
                }
            }
            place += scan.total;
        }
        if (staged == 0) continue;
        __syncwarp();  // the ids are all there
        for (i32 i = (i32)lane() - (i32)(begin % WARP); i < staged; i += WARP) {
            if (i >= 0) ids[begin + i] = stage[i];
        }
        __syncwarp();  // nobody reads the stage any more
    }
}

// Copies the ids of long lists. Any grid of GATHER_THREADS; a block a piece.
//
// pieces: Piece[piece_count[0]]. pool, late_ids: where their ids lie.
KERNEL LAUNCHED_AS(GATHER_THREADS)
    gather_long(const Piece* pieces, const u64* piece_count, const i32* pool, const i32* late_ids, i32* ids) {
    for (u64 number = blockIdx.x; number < piece_count[0]; number += gridDim.x) {
        const Piece piece = pieces[number];
        const i32* source = piece.from < 0 ? late_ids + ~piece.from : pool + piece.from;
        copy_ids(source, piece.count, threadIdx.x, blockDim.x, ids + piece.place);
    }
}

// Writes what stands around the ids of each row. Any grid of GATHER_THREADS; a warp a row.
//
//   prefix 101, suffix 102, pad_id 0, padding on the right
//   row     101 . . . 102 0 0            the dots are gather_ids'
//
// output_start: i64[rows + 1], the rows; layout: RowPlace[rows]. prefix, suffix: i32[]. report: u64[8].
KERNEL LAUNCHED_AS(GATHER_THREADS)
    fill_rows(const i64* output_start, const RowPlace* layout, i64 rows, const i32* prefix, i64 prefix_count,
              const i32* suffix, i64 suffix_count, i64 pad_id, const u64* report, i32* ids) {
    if (is_spoiled(report)) return;
    for (i64 row = grid_thread() / WARP; row < rows; row += grid_threads() / WARP) {
        const i64 low = layout[row].low, high = layout[row].high, before = low - output_start[row];
        const i64 around = before + output_start[row + 1] - high;
        for (i64 i = lane(); i < around; i += WARP) {
            const i64 of_prefix = i - (before - prefix_count), of_suffix = i - before;
            i32 id = (i32)pad_id;
            if (of_suffix >= 0) {
                if (of_suffix < suffix_count) id = suffix[of_suffix];
            } else if (of_prefix >= 0) {
                id = prefix[of_prefix];
            }
            ids[i < before ? low - before + i : high + of_suffix] = id;
        }
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
// ids: i32[]; start: i64[rows + 1]; count: i64[rows], how many ids of a row are no padding; is_left: padding stands,
// and goes, before them. each_type: i32[], the type of each id, or null: then prefix_types and those behind it say
// them. input_ids, attention_mask, token_type_ids: i32[rows * width].
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
