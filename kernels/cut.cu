// bytes -> cuts: a bit for each byte at which a chunk begins. cpu_ref/cut.py is the same step.
//
//   cut_words      bytes -> cuts between code points whose classes say so, and how many each tile has; checks that the
//                  bytes are UTF-8, counts the places where an added token may begin, and marks their tiles
//   cut_sections   a cut where each section begins, none inside added tokens, none that looked over its border

#include "added_tokens.cuh"
#include "common.cuh"
#include "report.cuh"
#include "scan.cuh"
#include "tile.cuh"
#include "utf8.cuh"

constexpr u32 CUT_THREADS = 256;
constexpr u32 CUT_BLOCKS = 6;  // that a multiprocessor holds: left alone, the compiler gives too few registers on some
constexpr u32 MOST_CLASSES = 32;  // bits in a row of `taken`
constexpr u32 BEGINS_TOKEN = 32;  // a bit above the class: with this code point an added token may begin
constexpr u32 ASCII = 128;
constexpr u32 PAIR_MULTIPLIER = 0x9E3779B1;  // of gpu_tok.tables.pairs
constexpr i64 LONGEST_RUN = 3 * 256;         // of gpu_tok.tables.runs, in bytes
constexpr i64 NOWHERE = -1;

// Kinds of pairs of neighbours, which a third character may make a cut of (gpu_tok/tables/thirds.py). The middle one of
// the three is ASCII, so it is one byte before the last one.
//
//   behind   first | middle   last      a cut where a BEHIND_CUT pair meets, if a BEHIND_LAST pair does a byte behind
//   before   first   middle | last      a cut where a BEFORE_CUT pair meets, if a BEFORE_FIRST pair does a byte before
constexpr u32 BEHIND_CUT = 1, BEHIND_LAST = 2, BEFORE_FIRST = 4, BEFORE_CUT = 8;
constexpr u32 NO_KIND = 0;
constexpr u32 KINDS = 4, ALL_KINDS = 15;
constexpr u64 ONES = 0x0101010101010101, TO_TOP_BYTE = 0x0102040810204080;

// The tables as a block keeps them. Classes have their mark with them, so what is by class is there twice: nobody has
// to take it off. 128 bytes and 32 words lie in one row of the banks each, so lanes hardly wait for one another.
struct CutTables {
    u32 taken[2 * MOST_CLASSES];
    u32 asked[2 * MOST_CLASSES];
    u8 class_of[ASCII];
    u8 kinds[2 * MOST_CLASSES];  // KINDS bits of pairs that begin with the class, above them those of pairs it ends
    u8 kinds_of_ascii[ASCII];    // the same by character
};

// Rows of 32 classes. anywhere: what is asked of the two code points alone; the rest of `asked` in good runs only.
// begins: a good run begins there; inside, in all rows the same: the classes that go on with one.
struct RunTables {
    u32 anywhere[MOST_CLASSES];
    u32 begins[MOST_CLASSES];
    u32 inside;
};

// The good run that the code point at `at` is in: where it begins, or NOWHERE.
struct Run {
    i64 at, begin;
};

struct CutState {
    u32 last_class;  // of the last code point, with its mark
    i64 at;          // its end: where the next one begins
    u32 kinds;       // of the pair that it ends, if it is ASCII; else NO_KIND
};

DEVICE void report_bad(u64* first_bad, i64 at) { atomicMin(first_bad, (u64)at); }

// The state after the code point that begins last before `begin`; it may reach into what is behind. ascii_class_of: the
// same as class_of, as far as it goes. Of kinds nothing is said.
DEVICE CutState state_before(const u8* bytes, i64 begin, i64 count, const u8* class_of, const u8* ascii_class_of) {
    if (begin == 0) return {ascii_class_of[0], 0, NO_KIND};
    i64 at = begin - 1;
    if (bytes[at] < ASCII) return {ascii_class_of[bytes[at]], begin, NO_KIND};
    while (at > 0 && at > begin - 4 && is_continuation(bytes[at])) at--;
    const CodePoint last = code_point_at(bytes, at, count);
    const i64 end = at + last.length;
    return {class_of[last.value], end > begin ? end : begin, NO_KIND};
}

// Turns the row of bits by the class alone: the low five bits of `this_class`.
DEVICE u32 bit_of(u32 row, u32 this_class) { return __funnelshift_r(row, row, this_class) & 1; }

DEVICE u32 of_3_bytes(const u8* bytes) {
    return (u32)(bytes[0] & 0x0F) << 12 | (u32)(bytes[1] & 0x3F) << 6 | (bytes[2] & 0x3F);
}

// 1 if the filter does not hold the two code points that meet at `at`, both of 3 bytes; else 0.
DEVICE u32 are_apart(const u8* bytes, i64 at, const u32* pairs, i64 pair_words) {
    const u32 pair = of_3_bytes(bytes + at - 3) << 16 | of_3_bytes(bytes + at);
    const u64 place = (u64)(pair * PAIR_MULTIPLIER) * (u64)pair_words;
    return ~(pairs[place >> 32] >> (u32)(place >> 27 & 31)) & 1;
}

// Where the good run begins that the code point of 3 bytes at `at` is in; NOWHERE if in none. known: of one before it.
//
//   bytes    。 中 国 人 a 中 国      begins  。中      inside  中 国 人
//   run         3  3  3    -  -
DEVICE i64 run_begin(const u8* bytes, i64 at, i64 count, const u8* class_of, const CutTables& tables,
                     const RunTables& runs, const Run& known) {
    u32 this_class = class_of[of_3_bytes(bytes + at)];
    const i64 first = max(at - LONGEST_RUN + 1, (i64)0);
    for (i64 begin = at; begin >= first && bit_of(runs.inside, this_class) != 0; begin -= 3) {
        if (begin == known.at) return known.begin >= first ? known.begin : NOWHERE;
        const u32 last_class = state_before(bytes, begin, count, class_of, tables.class_of).last_class;
        if (bit_of(runs.begins[last_class % MOST_CLASSES], this_class) != 0) return begin;
        this_class = last_class;
    }
    return NOWHERE;
}

// 1 if the pair that meets at `at` is asked for there. known: the run of a code point before, and of the last one
// behind.
DEVICE u32 is_asked(const u8* bytes, i64 at, i64 count, const u8* class_of, const CutTables& tables,
                    const RunTables& runs, Run& known) {
    const u32 first = class_of[of_3_bytes(bytes + at - 3)], second = class_of[of_3_bytes(bytes + at)];
    if (bit_of(runs.anywhere[first % MOST_CLASSES], second) != 0) return 1;
    known = {at - 3, run_begin(bytes, at - 3, count, class_of, tables, runs, known)};
    return known.begin != NOWHERE;
}

// The kinds of a pair, by the table's bytes of both classes.
DEVICE u32 kinds_of(u32 first, u32 second) { return first & second >> KINDS; }

// Those of the pair that the code point before `begin` ends, as far as cuts behind it need them: BEFORE_FIRST.
DEVICE u32 kinds_before(const u8* bytes, i64 begin, i64 count, const u8* class_of, const CutTables& tables) {
    if (begin == 0 || bytes[begin - 1] >= ASCII) return NO_KIND;
    const u32 last = tables.kinds_of_ascii[bytes[begin - 1]];
    if ((last & BEFORE_CUT) == 0) return NO_KIND;  // it is the middle of none
    const u32 first = state_before(bytes, begin - 1, count, class_of, tables.class_of).last_class;
    return kinds_of(tables.kinds[first], last);
}

// A word of the mask, a bit for each of 32 bytes.
struct CutWord {
    u32 cuts;
    u32 asked;  // where a cut depends on the two code points
    u32 marks;  // where an added token may begin, as far as the first code point tells
};

// Cuts 8 bytes, all of them ASCII, from bit `shift` of the word on.
DEVICE void cut_ascii(u64 eight_bytes, u32 shift, const CutTables& tables, u32& last_class, CutWord& word) {
    u32 cuts = 0, seen = 0;
    UNROLL
    for (u32 i = 0; i < 8; i++) {
        const u32 this_class = tables.class_of[eight_bytes >> 8 * i & 0x7F];
        cuts |= bit_of(tables.taken[last_class], this_class) << i;
        seen |= this_class;
        last_class = this_class;
    }
    word.cuts |= cuts << shift;
    if ((seen & BEGINS_TOKEN) == 0) return;  // nearly always
    for (u32 i = 0; i < 8; i++) {
        word.marks |= (tables.class_of[eight_bytes >> 8 * i & 0x7F] / BEGINS_TOKEN) << (shift + i);
    }
}

// The same for the cuts that a third character decides, as far as it is not behind the 8 bytes. A byte of kinds for
// each byte of text: all pairs are looked at together.
//
//   bytes    _ _ x        first, middle, last        kinds    .  CUT  LAST       cuts    .  ^  .
DEVICE void cut_ascii_by_thirds(u64 eight_bytes, u32 shift, const CutTables& tables, CutState& state, CutWord& word) {
    u64 single = 0;
    UNROLL
    for (u32 i = 0; i < 8; i++) single |= (u64)tables.kinds_of_ascii[eight_bytes >> 8 * i & 0x7F] << 8 * i;
    const u64 pairs = (single << 8 | tables.kinds[state.last_class]) & single >> KINDS & ALL_KINDS * ONES;
    const u64 before_them = pairs << 8 | state.kinds;
    const u64 behind = before_them & pairs >> 1 & ONES;       // BEHIND_CUT, then BEHIND_LAST: a cut between them
    const u64 before = before_them >> 2 & pairs >> 3 & ONES;  // BEFORE_FIRST, then BEFORE_CUT: a cut at the latter
    state.kinds = (u32)(pairs >> 56);
    if ((behind | before) == 0) return;  // nearly always
    word.cuts |= (u32)(before * TO_TOP_BYTE >> 56) << shift | (u32)(behind * TO_TOP_BYTE >> 56) << shift >> 1;
}

// Cuts the code points that begin before `end`, in the word at `begin`; the last one may reach further.
DEVICE void cut_code_points(const u8* bytes, i64 begin, i64 end, i64 count, const u8* class_of, const CutTables& tables,
                            bool by_thirds, CutState& state, CutWord& word, u64* first_bad) {
    while (state.at < end) {
        const CodePoint found = code_point_at(bytes, state.at, count);
        if (found.length == 0) report_bad(first_bad, state.at);
        const u32 this_class = found.value < ASCII ? tables.class_of[found.value] : class_of[found.value];
        const u32 bit = (u32)(state.at - begin);
        word.cuts |= bit_of(tables.taken[state.last_class], this_class) << bit;
        word.asked |= bit_of(tables.asked[state.last_class], this_class) << bit;
        word.marks |= (this_class / BEGINS_TOKEN) << bit;
        u32 kinds = NO_KIND;
        if (by_thirds) {
            kinds = kinds_of(tables.kinds[state.last_class], tables.kinds[this_class]);
            word.cuts |= (state.kinds >> 2 & kinds >> 3 & 1) << bit;  // as in cut_ascii_by_thirds
            word.cuts |= (state.kinds & kinds >> 1 & 1) << bit >> 1;
            if (found.length != 1) kinds = NO_KIND;
        }
        state = {this_class, state.at + (found.length == 0 ? 1 : found.length), kinds};
    }
}

// 1 if a third character behind the word makes a cut at its last byte. state: at the word's end.
DEVICE u32 cut_by_next(const u8* bytes, i64 count, const u8* class_of, const CutTables& tables, const CutState& state) {
    if ((state.kinds & BEHIND_CUT) == 0 || state.at >= count) return 0;
    const u32 next_class = class_of[code_point_at(bytes, state.at, count).value];
    return (kinds_of(tables.kinds[state.last_class], tables.kinds[next_class]) & BEHIND_LAST) != 0;
}

DEVICE CutWord cut_word(const u8* bytes, i64 begin, i64 count, const u8* class_of, const CutTables& tables,
                        bool by_thirds, u64* first_bad) {
    const Bytes16 first = load_16(bytes, begin, count), second = load_16(bytes, begin + 16, count);
    const u64 eights[4] = {first.low, first.high, second.low, second.high};
    CutState state = state_before(bytes, begin, count, class_of, tables.class_of);
    if (by_thirds) state.kinds = kinds_before(bytes, begin, count, class_of, tables);
    CutWord word = {0, 0, 0};
    UNROLL
    for (u32 part = 0; part < 4; part++) {
        const i64 at = begin + 8 * part;
        if (at == state.at && at + 8 <= count && is_ascii(eights[part])) {
            if (by_thirds) cut_ascii_by_thirds(eights[part], 8 * part, tables, state, word);
            cut_ascii(eights[part], 8 * part, tables, state.last_class, word);
            state.at = at + 8;
        } else {
            cut_code_points(bytes, begin, min(at + 8, count), count, class_of, tables, by_thirds, state, word,
                            first_bad);
        }
    }
    if (by_thirds) word.cuts |= cut_by_next(bytes, count, class_of, tables, state) << (WORD - 1);
    return word;
}

// Cuts between the code points whose classes say so, or say to ask and the filter does not hold the two, or say so with
// that of a third one. Any grid of CUT_THREADS; a warp a tile, a lane a word of the mask.
//
//   bytes      t h e _ c a t ,       classes: letter 0, space 1, other 2
//   taken      letter: 110  space: 000  other: 001      bit b of row a: cut between a and b
//   cuts             ^       ^       bits 3 and 7
//
// bytes: u8[count], at a multiple of 16. class_of: u8[0x110000], with BEGINS_TOKEN where an added token may begin;
// taken, asked: u32[64], the rows of 32 classes twice. pairs: u32[pair_words], null where nothing is asked. runs: null
// where all that is asked is asked anywhere. kinds: u8[64], as in CutTables; null where no third one decides. trie,
// normalized_root, begins, code_point: TokenTables; null where nothing has that mark. mask: u32[(count + 31) / 32],
// bits behind the end are 0; tile_chunks: i64[tiles], the bits of each tile. tile_tokens: u8[tiles], zeros, gets 1 for
// tiles in which a token may begin; null without tokens. report: FIRST_BAD takes the least place of a byte that is no
// UTF-8; TOKENS_SEEN grows by the places where a token may begin: too many where a token would reach from one text into
// the next, never too few.
KERNEL LAUNCHED_AS(CUT_THREADS, CUT_BLOCKS)
    cut_words(const u8* bytes, i64 count, const u8* class_of, const u32* taken, const u32* asked, const u32* pairs,
              i64 pair_words, const RunTables* runs, const u8* kinds, const TrieRow* trie, i64 normalized_root,
              const u8* begins, const u8* code_point, u32* mask, i64* tile_chunks, u8* tile_tokens, u64* report) {
    SHARED(CutTables, tables);
    if (threadIdx.x < ASCII) tables.class_of[threadIdx.x] = class_of[threadIdx.x];
    if (threadIdx.x < 2 * MOST_CLASSES) tables.taken[threadIdx.x] = taken[threadIdx.x];
    if (threadIdx.x < 2 * MOST_CLASSES) tables.asked[threadIdx.x] = asked[threadIdx.x];
    if (kinds != nullptr) {
        if (threadIdx.x < 2 * MOST_CLASSES) tables.kinds[threadIdx.x] = kinds[threadIdx.x];
        if (threadIdx.x < ASCII) tables.kinds_of_ascii[threadIdx.x] = kinds[class_of[threadIdx.x]];
    }
    __syncthreads();  // the tables are whole
    const TokenTables added = {trie, normalized_root, begins, code_point};

    // a warp stays together: its lanes share the sum below
    for (i64 first = grid_thread() - lane(); first * WORD < count; first += grid_threads()) {
        const i64 begin = (first + lane()) * WORD;
        CutWord word = {0, 0, 0};
        if (begin < count) {
            word = cut_word(bytes, begin, count, class_of, tables, kinds != nullptr, &report[FIRST_BAD]);
            Run known = {NOWHERE, NOWHERE};
            for (u32 left = word.asked; left != 0; left &= left - 1) {
                const u32 bit = __ffs(left) - 1;
                if (are_apart(bytes, begin + bit, pairs, pair_words) == 0) continue;
                if (runs != nullptr && !is_asked(bytes, begin + bit, count, class_of, tables, *runs, known)) continue;
                word.cuts |= 1u << bit;
            }
            mask[begin / WORD] = word.cuts;
        }
        u32 tokens = 0;
        for (u32 left = word.marks; left != 0; left &= left - 1) {
            tokens += may_begin_token(bytes, begin + __ffs(left) - 1, count, added);
        }
        const u32 sums = warp_sum((u32)__popc(word.cuts) | tokens << 16);  // neither passes TILE
        if (lane() == 0) {
            tile_chunks[first / TILE_WORDS] = sums & 0xFFFF;
            if (sums >> 16 != 0) {
                tile_tokens[first / TILE_WORDS] = 1;
                atomicAdd(&report[TOKENS_SEEN], (u64)(sums >> 16));
            }
        }
    }
}

DEVICE void add_chunks(i64 change, i64 word, i64* tile_chunks) {
    atomicAdd(reinterpret_cast<u64*>(&tile_chunks[word / TILE_WORDS]), (u64)change);
}

// Clears the bits [begin, end) of the mask, the lanes of a warp side by side.
DEVICE void clear_cuts(i64 begin, i64 end, u32* mask, i64* tile_chunks) {
    for (i64 word = begin / WORD + lane(); word * WORD < end; word += WARP) {
        const u32 from = word * WORD < begin ? WHOLE_WARP << (u32)(begin % WORD) : WHOLE_WARP;
        const u32 to = end - word * WORD < WORD ? ~(WHOLE_WARP << (u32)(end % WORD)) : WHOLE_WARP;
        const u32 gone = atomicAnd(&mask[word], ~(from & to)) & from & to;
        if (gone != 0) add_chunks(-__popc(gone), word, tile_chunks);
    }
}

// Takes the cut at `at`, inside its section, back if only a third character made it, in a pair of this kind. No pair
// is both BEHIND_CUT and BEFORE_CUT, and asked ones are not of ASCII. Nobody else changes this bit.
DEVICE void take_back(u32 kind, const u8* bytes, i64 at, i64 count, const u8* class_of, const u32* taken,
                      const u8* kinds, u32* mask, i64* tile_chunks) {
    const u32 bit = 1u << (u32)(at % WORD);
    if ((load_relaxed(&mask[at / WORD]) & bit) == 0) return;
    const u32 last_class = state_before(bytes, at, count, class_of, class_of).last_class;
    const u32 this_class = class_of[code_point_at(bytes, at, count).value];
    if (bit_of(taken[last_class], this_class) != 0) return;
    if ((kinds_of(kinds[last_class], kinds[this_class]) & kind) == 0) return;
    atomicAnd(&mask[at / WORD], ~bit);
    add_chunks(-1, at / WORD, tile_chunks);
}

// Cuts where sections begin, and nowhere inside closed ones; takes back cuts for which cut_words looked over a border.
// Any grid of CUT_THREADS; a lane a section, then the warp together for each closed one.
//
//   bytes      t h e [ S E P ] . _ _ a      sections: 0-3, closed 3-8, 8-11, 11-12
//   mask       1 0 0 1 1 0 0 1 1 1 1 0      between two spaces there is a cut since an a stands behind them
//   after      1 0 0 1 0 0 0 0 1 1 0 1
//
// Such a cut is at the second byte of the section that the third character stands before, at the last byte of the one
// that it stands behind.
//
// section_start: i64[sections + 1]. closed: u8[sections], 1 for added tokens and whole sections; null when there are
// none. class_of, taken, kinds, mask, tile_chunks: as for cut_words, and as it left them. A section
// that begins inside a code point is reported.
KERNEL LAUNCHED_AS(CUT_THREADS)
    cut_sections(const u8* bytes, i64 count, const i64* section_start, i64 sections, const u8* closed,
                 const u8* class_of, const u32* taken, const u8* kinds, u32* mask, i64* tile_chunks, u64* report) {
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
            if (is_continuation(bytes[start])) report_bad(&report[FIRST_BAD], start);
            const u32 bit = 1u << (u32)(start % WORD);
            if ((atomicOr(&mask[start / WORD], bit) & bit) == 0) add_chunks(1, start / WORD, tile_chunks);
        }
        if (kinds != nullptr && !is_closed && end - start > 1) {
            take_back(BEFORE_CUT, bytes, start + 1, count, class_of, taken, kinds, mask, tile_chunks);
            take_back(BEHIND_CUT, bytes, end - 1, count, class_of, taken, kinds, mask, tile_chunks);
        }
        for (u32 left = __ballot_sync(WHOLE_WARP, is_closed); left != 0; left &= left - 1) {
            const u32 owner = __ffs(left) - 1;
            const i64 from = __shfl_sync(WHOLE_WARP, start, owner) + 1, to = __shfl_sync(WHOLE_WARP, end, owner);
            clear_cuts(from, to, mask, tile_chunks);
        }
    }
}
