// new chunks -> ids: the cold path of WordPiece, a thread a chunk. cpu_ref/cold.py is the same.
//
//   normalize_chunks   bytes -> normalized code points, in an arena
//   match_chunks       code points -> words -> ids, which take the code points' place
//
//   arena       . t h e c a t s a t . . .          a u32 a code point; chunks take room as they come
//   of_winner   {1, 3} {7, 3} {4, 3}               where they lie and how many they are: first code points, then ids

#include "cold.cuh"
#include "match.cuh"
#include "split.cuh"

// Writes the normalized code points of each chunk. Any grid of COLD_THREADS; a thread a chunk.
//
// bytes: UTF-8 that has been checked. winners: u32[], the chunks' numbers among the misses; report[WINNERS_SEEN] hold
// one. A chunk with one of the host_flags is left to the host, with the whole batch. step ... search: see Normalizer.
// opening: code points that are prepended. growth: so many times these and what the first map makes is the most that a
// later step needs. arena: u32[arena_room]; of_winner: Late[winners]. report: u64[8]; counts all words asked for, also
// those that there was no room for.
KERNEL LAUNCHED_AS(COLD_THREADS, COLD_BLOCKS)
    normalize_chunks(const u8* bytes, const Miss* misses, const u32* winners, i64 host_flags, const i64* step,
                     i64 step_count, const u16* slot, const i64* image_start, const u32* image, const u8* combining,
                     const Pair* pair, const u8* ascii, const Operand* operand, const u8* atom_of, const u32* search,
                     i64 opening, i64 growth, u32* arena, i64 arena_room, Late* of_winner, u64* report) {
    if (is_spoiled(report)) return;
    const Normalizer tables = {step, step_count, slot,    image_start, image, combining,
                               pair, ascii,      operand, atom_of,     search};
    normalize_winners(bytes, misses, winners, host_flags, tables, opening, growth, arena, arena_room, of_winner, report,
                      [](const Miss&, const Size&, i64 least) { return least; });
}

// Writes the ids of each chunk over its code points. Any grid of COLD_THREADS; a thread a chunk.
//
//   text        u n a f f a b l e _ c a t         arena[at], of_winner {at, 13}
//   ids         un ##aff ##able cat               arena[at], of_winner {at, 4}
//
// class_of, class_count, parted, removed: see Words. row, continuation_root, unknown_id, max_characters: see Pieces.
// arena, arena_room, of_winner: as normalize_chunks left them. report: u64[8], says where the arena is too small.
KERNEL LAUNCHED_AS(COLD_THREADS, COLD_BLOCKS)
    match_chunks(const u8* class_of, i64 class_count, const u8* parted, const u8* removed, const TrieRow* row,
                 i64 continuation_root, i64 unknown_id, i64 max_characters, u32* arena, i64 arena_room, Late* of_winner,
                 u64* report) {
    if (is_spoiled(report) || lacks_room(arena_room, report)) return;
    const Words words = {class_of, class_count, parted, removed};
    const Pieces pieces = {row, continuation_root, unknown_id, max_characters};
    const i64 last = (i64)report[WINNERS_SEEN];
    for (i64 own = grid_thread(); own < last; own += grid_threads()) {
        const Late made = of_winner[own];
        u32* text = arena + made.at;
        i32* ids = reinterpret_cast<i32*>(text);
        i64 count = 0;
        for (i64 at = 0; at < made.count;) {
            const Word word = word_at(text, at, made.count, words);
            if (!word.is_removed) count = match_word(text, at, word.end, pieces, ids, count);
            at = word.end;
        }
        of_winner[own].count = count;
    }
}
