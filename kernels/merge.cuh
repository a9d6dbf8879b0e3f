// Ids of words by merging neighbours: normalize -> split -> *merge*. cpu_ref/merge.py is the same step; its tables are
// gpu_tok/tables/bpe.py's. Of all neighbours in a word that have a merge, those of the lowest rank are merged first,
// and of these the leftmost.

#pragma once

#include "split_stages.cuh"
#include "trie.cuh"

constexpr u32 ID_BITS = 21, RANK_BITS = 22;  // an entry is left id, right id, rank
constexpr u32 NO_RANK = (1u << RANK_BITS) - 1;
constexpr u64 NO_ENTRY = ~0ull;
constexpr u64 MULTIPLIER = 0x9E3779B97F4A7C15;
constexpr u32 FIRST_OF_WORD = 1, LAST_OF_WORD = 2;  // a place in a word is a sum of these
constexpr u32 HEAP_SHIFT = 40;  // what waits in the heap is rank << HEAP_SHIFT | place
constexpr u32 LONG_WORDS = 7;  // of memory that a symbol of a long word needs: two of the heap's entries, and a Link

// symbol: i32[rows * characters]; row_at: i64[4]. takes_bytes: an unknown character becomes the ids of its bytes,
// byte_id i32[256], if all have one; prefix stands before it and suffix behind, where the word goes on or ends.
// unknown_id: NO_PIECE if unknown characters vanish. takes_words: words are looked up as a whole first.
struct Symbols {
    const i32* symbol;
    i64 characters;
    const i64* row_at;
    const i32* byte_id;
    const u8* prefix;
    i64 prefix_count;
    const u8* suffix;
    i64 suffix_count, takes_bytes, unknown_id, fuses_unknown, takes_words;
    const TrieRow* word_row;
};

struct alignas(16) Bucket {
    u64 entry[4];
};

struct Merges {
    const Bucket* bucket;
    u64 bucket_count;
    i64 hash_shift;
    const i32* merged_id;
};

// Where in its word a character stands: it may be the first, the last, or both.
DEVICE u32 place_of(const u32* text, i64 at, i64 end) {
    const bool is_last = at + 1 == end || begins_at(text, at + 1);
    return (begins_at(text, at) ? FIRST_OF_WORD : 0) | (is_last ? LAST_OF_WORD : 0);
}

// The id of a character, or NO_PIECE.
DEVICE i32 symbol_of(const Symbols& model, u32 letter, u32 place) {
    return model.symbol[model.row_at[place] * model.characters + min((i64)letter, model.characters - 1)];
}

// The bytes of a character with what stands around it.
struct Bytes {
    u32 letter, begin, length, count;  // before `begin` the prefix, and from `begin` + length on the suffix
};

DEVICE Bytes bytes_of(const Symbols& model, u32 letter, u32 place) {
    const u32 begin = place & FIRST_OF_WORD ? 0 : (u32)model.prefix_count, length = utf8_length(letter);
    return {letter, begin, length, begin + length + (place & LAST_OF_WORD ? (u32)model.suffix_count : 0)};
}

DEVICE i32 byte_id_of(const Symbols& model, const Bytes& bytes, u32 index) {
    if (index < bytes.begin) return model.byte_id[model.prefix[index]];
    index -= bytes.begin;
    if (index < bytes.length) return model.byte_id[utf8_byte(bytes.letter, bytes.length, index)];
    return model.byte_id[model.suffix[index - bytes.length]];
}

DEVICE bool all_have_ids(const Symbols& model, const Bytes& bytes) {
    for (u32 i = 0; i < bytes.count; i++) {
        if (byte_id_of(model, bytes, i) == NO_PIECE) return false;
    }
    return true;
}

// The id of the piece that is the whole word from `at` on, or NO_PIECE; `at` is put behind the word if there is one.
DEVICE i32 whole_word(const u32* text, i64& at, i64 end, const TrieRow* row) {
    Node node = {WORD_ROOT, row[WORD_ROOT].link, NO_PIECE};
    i64 behind = at;
    do {
        if (!step_code_point(row, text[behind] & LETTER, node)) return NO_PIECE;
        behind++;
    } while (behind < end && !begins_at(text, behind));
    if (node.id != NO_PIECE) at = behind;
    return node.id;
}

// Symbols as they are written: behind each other, the first of a word with the bit BEGINS.
struct Written {
    u32* text;
    i64 count;
    u32 begins;
};

DEVICE void put(Written& symbols, i64 id) {
    symbols.text[symbols.count++] = (u32)id | symbols.begins;
    symbols.begins = 0;
}

// Makes of the characters of words what they are before any merge, in place; returns how many symbols. An unknown
// character waits for the next known one or the end of the word, so bytes overtake it.
//
//   vocab <unk> a <0xC3> <0xA9>        text 中 é a  ->  <0xC3> <0xA9> <unk> a
DEVICE i64 write_symbols(const Symbols& model, u32* text, i64 count) {
    i64 shift = 0;
    for (i64 at = 0; model.takes_bytes && at < count; at++) {
        const u32 letter = text[at] & LETTER, place = place_of(text, at, count);
        if (symbol_of(model, letter, place) == NO_PIECE) shift += bytes_of(model, letter, place).count - 1;
    }
    move_up(text, count, shift);
    Written symbols = {text, 0, 0};
    bool waits = false;  // an unknown character
    for (i64 at = shift, end = count + shift; at < end;) {
        const u32 letter = text[at] & LETTER, place = place_of(text, at, end);
        if (place & FIRST_OF_WORD) {
            symbols.begins = BEGINS;
            const i32 whole = model.takes_words ? whole_word(text, at, end, model.word_row) : NO_PIECE;
            if (whole != NO_PIECE) {
                put(symbols, whole);
                continue;
            }
        }
        at++;
        const i32 found = symbol_of(model, letter, place);
        const Bytes bytes = bytes_of(model, letter, place);
        const bool falls_back = found == NO_PIECE && model.takes_bytes && all_have_ids(model, bytes);
        const bool is_unknown = found == NO_PIECE && !falls_back && model.unknown_id != NO_PIECE;
        if (waits && (found != NO_PIECE || (is_unknown && !model.fuses_unknown))) {
            put(symbols, model.unknown_id);
            waits = false;
        }
        if (found != NO_PIECE) put(symbols, found);
        for (u32 i = 0; falls_back && i < bytes.count; i++) put(symbols, byte_id_of(model, bytes, i));
        waits = waits || is_unknown;
        if (waits && (place & LAST_OF_WORD)) {
            put(symbols, model.unknown_id);
            waits = false;
        }
    }
    return symbols.count;
}

// The rank of a pair, or NO_RANK.
DEVICE u32 rank_of(const Merges& merges, u32 left, u32 right) {
    const u64 pair = (u64)left << ID_BITS | right, key = pair << RANK_BITS;
    for (u64 at = pair * MULTIPLIER >> merges.hash_shift;; at = (at + 1) & (merges.bucket_count - 1)) {
        const Bucket found = merges.bucket[at];
        // What is left of an entry without its pair is a rank; of another one it is more than any.
        const u64 least = min(min(found.entry[0] ^ key, found.entry[1] ^ key),
                              min(found.entry[2] ^ key, found.entry[3] ^ key));
        if (least <= NO_RANK) return (u32)least;
        if (found.entry[3] == NO_ENTRY) return NO_RANK;
    }
}

// Merges a word of at most WARP symbols; returns a bit for each that is left. rank: u32[count], of each symbol with the
// one behind, where `waiting` has a bit.
//
//   symbol   h  u  g  g  i  n  g         merges  i n, u g, in g, h ug
//            hug .  .  g ing  .  .       returns 0011001
DEVICE u32 merge_short(const Merges& merges, u32* symbol, u32 count, u32* rank) {
    u32 left = count == WARP ? ~0u : (1u << count) - 1, waiting = 0;
    const auto renew = [&](u32 at, u32 behind) {
        rank[at] = rank_of(merges, symbol[at], symbol[behind]);
        waiting = rank[at] == NO_RANK ? waiting & ~(1u << at) : waiting | 1u << at;
    };
    for (u32 at = 0; at + 1 < count; at++) renew(at, at + 1);
    while (waiting != 0) {
        u32 at = 0, least = NO_RANK;
        for (u32 others = waiting; others != 0; others &= others - 1) {
            const u32 other = __ffs(others) - 1;
            if (rank[other] < least) {
                least = rank[other];
                at = other;
            }
        }
        symbol[at] = (u32)merges.merged_id[least];
        const u32 before = left & ((1u << at) - 1), behind = left & ~1u << at;
        const u32 gone = behind & (0 - behind), next = behind & ~gone;
        left &= ~gone;
        waiting &= ~(gone | 1u << at);
        if (next != 0) renew(at, __ffs(next) - 1);
        if (before != 0) renew(WARP - 1 - __clz(before), at);
    }
    return left;
}

// Of a symbol of a long word: the rank with the one behind, and which are its neighbours.
struct Link {
    u32 rank, before, behind;
};

// Puts an entry where `at` is, or as far below as it belongs; the least of `count` stays on top.
DEVICE void sink(u64* heap, i64 count, i64 at, u64 waits) {
    for (i64 child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= waits) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = waits;
}

DEVICE void rise(u64* heap, i64 at, u64 waits) {
    for (; at > 0 && heap[(at - 1) / 2] > waits; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = waits;
}

// Merges a word of any length; its symbols are then the first one and those `behind` each other. link: Link[count];
// heap: u64[2 * count], every pair that has had a merge. What comes out of it counts if the pair that now stands there
// becomes the same piece.
DEVICE void merge_long(const Merges& merges, u32* symbol, u32 count, Link* link, u64* heap) {
    i64 waiting = 0;
    for (u32 at = 0; at < count; at++) {
        const u32 rank = at + 1 < count ? rank_of(merges, symbol[at], symbol[at + 1]) : NO_RANK;
        link[at] = {rank, at - 1, at + 1};
        if (rank != NO_RANK) heap[waiting++] = (u64)rank << HEAP_SHIFT | at;
    }
    for (i64 at = waiting / 2 - 1; at >= 0; at--) sink(heap, waiting, at, heap[at]);
    const auto renew = [&](u32 at, u32 behind) {
        const u32 rank = rank_of(merges, symbol[at], symbol[behind]);
        link[at].rank = rank;
        if (rank != NO_RANK) rise(heap, waiting++, (u64)rank << HEAP_SHIFT | at);
    };
    while (waiting > 0) {
        const u32 rank = (u32)(heap[0] >> HEAP_SHIFT), at = (u32)heap[0];
        waiting--;
        if (waiting > 0) sink(heap, waiting, 0, heap[waiting]);
        const u32 there = link[at].rank;
        const i32 merged = merges.merged_id[rank];
        if (there == NO_RANK || (there != rank && merges.merged_id[there] != merged)) continue;
        const u32 gone = link[at].behind, behind = link[gone].behind, before = link[at].before;
        symbol[at] = (u32)merged;
        link[at].behind = behind;
        link[at].rank = link[gone].rank = NO_RANK;
        if (behind < count) {
            link[behind].before = at;
            renew(at, behind);
        }
        if (at > 0) renew(before, at);
    }
}

// The end of the word that begins at `at`.
DEVICE i64 word_end(const u32* text, i64 at, i64 count) {
    for (at++; at < count && !begins_at(text, at);) at++;
    return at;
}

DEVICE i64 longest_word(const u32* text, i64 count) {
    i64 longest = 0;
    for (i64 at = 0; at < count;) {
        const i64 end = word_end(text, at, count);
        longest = max(longest, end - at);
        at = end;
    }
    return longest;
}

DEVICE i64 even(i64 count) { return count + (count & 1); }

// Writes the ids of a word of at most WARP symbols to text[made] and behind it; returns the new count. rank: a word of
// memory for each symbol.
DEVICE i64 put_short(const Merges& merges, u32* text, i64 at, i64 end, u32* rank, i64 made) {
    for (u32 left = merge_short(merges, text + at, (u32)(end - at), rank); left != 0; left &= left - 1) {
        text[made++] = text[at + __ffs(left) - 1];
    }
    return made;
}

// The same for a word of any length. scratch: LONG_WORDS for each symbol, at a multiple of 8 bytes.
DEVICE i64 put_long(const Merges& merges, u32* text, i64 at, i64 end, u32* scratch, i64 made) {
    const u32 count = (u32)(end - at);
    u64* heap = reinterpret_cast<u64*>(scratch);
    Link* link = reinterpret_cast<Link*>(heap + 2 * (i64)count);
    merge_long(merges, text + at, count, link, heap);
    for (u32 left = 0; left < count; left = link[left].behind) text[made++] = text[at + left];
    return made;
}

// Writes the ids of all words over their symbols; returns how many. put_word(at, end, scratch, made) writes those of
// one; scratch is what lies behind the symbols.
template <typename PutWord>
DEVICE i64 merge_words(u32* text, i64 count, PutWord put_word) {
    i64 made = 0;
    for (i64 at = 0; at < count;) {
        const i64 end = word_end(text, at, count);
        text[at] &= LETTER;
        made = put_word(at, end, text + even(count), made);
        at = end;
    }
    return made;
}
