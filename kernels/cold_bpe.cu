// new chunks -> ids: the cold path of BPE, a thread a chunk. cpu_ref/cold_bpe.py is the same.
//
//   normalize_bpe_chunks   bytes -> normalized code points, in an arena
//   split_chunks           code points -> characters of words
//   merge_chunks           characters -> symbols -> ids, which take their place
//   merge_long_chunks      the same for what has words of more than 32 symbols
//
//   arena       I ' m   中 . - - - - - - - - - - - -        a chunk's room: its characters, and scratch to merge them
//               40 1101 220 40338 13 - - - - - - - -        of_winner {at, 5}

#include "cold.cuh"
#include "merge.cuh"

// Writes the normalized code points of each chunk. Any grid of COLD_THREADS; a thread a chunk.
//
// bytes ... growth, arena ... report: as for normalize_chunks. The room that a chunk takes is enough for all that
// follows: a word for each of its symbols, and to merge them one more, or LONG_WORDS where they are more than
// short_most. There are (n + added) * factor symbols at most, where n is how many code points the first map makes, or,
// in_bytes, how many bytes these have.
KERNEL LAUNCHED_AS(COLD_THREADS, COLD_BLOCKS)
    normalize_bpe_chunks(const u8* bytes, const Miss* misses, const u32* winners, i64 host_flags, const i64* step,
                         i64 step_count, const u16* slot, const i64* image_start, const u32* image,
                         const u8* combining, const Pair* pair, const u8* ascii, const Operand* operand,
                         const u8* atom_of, const u32* search, i64 opening, i64 growth, i64 in_bytes, i64 added,
                         i64 factor, i64 short_most, u32* arena, i64 arena_room, Late* of_winner, u64* report) {
    if (is_spoiled(report)) return;
    const Normalizer tables = {step, step_count, slot,    image_start, image, combining,
                               pair, ascii,      operand, atom_of,     search};
    const auto room_of = [&](const Miss& miss, const Size& size, i64 least) {
        const bool counts_bytes = in_bytes && !size.is_ascii;
        const i64 count = counts_bytes ? byte_count(bytes, miss.start, miss.start + miss.length, tables) : size.count;
        const i64 symbols = (count + added) * factor;
        const i64 room = even(max(symbols, least)) + symbols * (symbols > short_most ? LONG_WORDS : 1);
        return even(room);  // so that the heap of the next one begins at a multiple of 8 bytes
    };
    normalize_winners(bytes, misses, winners, host_flags, tables, opening, growth, arena, arena_room, of_winner, report,
                      room_of);
}

// Splits the texts of chunks into words, by stages. Any grid of COLD_THREADS; a thread a chunk.
//
// stage ... byte_character: see WordStages of gpu_tok/tables/word_stages.py. arena, arena_room, of_winner: as
// normalize_bpe_chunks left them; of_winner then counts characters, which have the bit BEGINS where a word does.
// report: u64[8], says where the arena is too small.
KERNEL LAUNCHED_AS(COLD_THREADS, COLD_BLOCKS)
    split_chunks(const Miss* misses, const u32* winners, const i64* stage, i64 stage_count, const u8* atom_of,
                 const u32* step, const u32* byte_character, u32* arena, i64 arena_room, Late* of_winner, u64* report) {
    if (is_spoiled(report) || lacks_room(arena_room, report)) return;
    const Stages stages = {stage, stage_count, atom_of, step, byte_character};
    const i64 last = (i64)report[WINNERS_SEEN];
    for (i64 own = grid_thread(); own < last; own += grid_threads()) {
        const Late made = of_winner[own];
        of_winner[own].count = split_text(stages, misses[winners[own]].flags, arena + made.at, made.count);
    }
}

// Writes the ids of each chunk over its characters, if no word has more than short_most symbols. Any grid of
// COLD_THREADS; a thread a chunk.
//
// symbol ... word_row: see Symbols; bucket ... merged_id: see Merges. arena, of_winner: as split_chunks left them;
// of_winner then counts ids. Of a chunk with longer words it holds ~count of its symbols, which stand in the arena.
KERNEL LAUNCHED_AS(COLD_THREADS, COLD_BLOCKS)
    merge_chunks(const i32* symbol, i64 characters, const i64* row_at, const i32* byte_id, const u8* prefix,
                 i64 prefix_count, const u8* suffix, i64 suffix_count, i64 takes_bytes, i64 unknown_id,
                 i64 fuses_unknown, i64 takes_words, const TrieRow* word_row, const Bucket* bucket, i64 bucket_count,
                 i64 hash_shift, const i32* merged_id, i64 short_most, u32* arena, Late* of_winner,
                 const u64* report) {
    if (is_spoiled(report)) return;
    const Symbols model = {symbol,       characters,  row_at,     byte_id,       prefix,      prefix_count, suffix,
                           suffix_count, takes_bytes, unknown_id, fuses_unknown, takes_words, word_row};
    const Merges merges = {bucket, (u64)bucket_count, hash_shift, merged_id};
    const i64 last = (i64)report[WINNERS_SEEN];
    for (i64 own = grid_thread(); own < last; own += grid_threads()) {
        const Late made = of_winner[own];
        u32* text = arena + made.at;
        const i64 count = write_symbols(model, text, made.count);
        const bool is_long = count > short_most && longest_word(text, count) > short_most;
        const auto put_word = [&](i64 at, i64 end, u32* scratch, i64 id_count) {
            return put_short(merges, text, at, end, scratch, id_count);
        };
        of_winner[own].count = is_long ? ~count : merge_words(text, count, put_word);
    }
}

// Writes the ids of the chunks that merge_chunks has left. Any grid of COLD_THREADS; a thread a chunk.
KERNEL LAUNCHED_AS(COLD_THREADS, COLD_BLOCKS)
    merge_long_chunks(const Bucket* bucket, i64 bucket_count, i64 hash_shift, const i32* merged_id, i64 short_most,
                      u32* arena, Late* of_winner, const u64* report) {
    if (is_spoiled(report)) return;
    const Merges merges = {bucket, (u64)bucket_count, hash_shift, merged_id};
    const i64 last = (i64)report[WINNERS_SEEN];
    for (i64 own = grid_thread(); own < last; own += grid_threads()) {
        const Late made = of_winner[own];
        if (made.count >= 0) continue;
        u32* text = arena + made.at;
        const auto put_word = [&](i64 at, i64 end, u32* scratch, i64 id_count) {
            return end - at > short_most ? put_long(merges, text, at, end, scratch, id_count)
                                         : put_short(merges, text, at, end, scratch, id_count);
        };
        of_winner[own].count = merge_words(text, ~made.count, put_word);
    }
}
