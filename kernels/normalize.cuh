// Normal forms of code points: *normalize* -> split -> match. cpu_ref/normalize.py is the same step; what a program is
// stands in gpu_tok/tables/normalizer.py.

#pragma once

#include "search.cuh"
#include "utf8.cuh"

constexpr i64 REORDER = -1, COMPOSE = -2, REPLACE = -3, STRIP = -4, PREPEND = -5;  // steps that are no map
constexpr u32 SECTION_FIRST = 1;           // an end flag: the chunk begins a section, so that PREPEND acts
constexpr u32 ITSELF = 0xFFFFFFFF;         // in an image: the code point that is mapped
constexpr u32 DELETED = 0xFF;              // in `ascii`: nothing is left
constexpr u32 CODE_POINTS = 0x110000;
constexpr u32 CLASS = 0x3F, SECOND = 0x80;  // in `combining`: the rank of the class; may be the second of a composition
constexpr i64 FEW_MARKS = 32;               // no language has longer runs
constexpr u32 PAIR_SLOTS = 4096, FIRST_FACTOR = 37, SECOND_FACTOR = 1031;  // of the hash of pairs

// Hangul syllables, as the Unicode Standard numbers them (section 3.12): lead, vowel, tail.
constexpr u32 SYLLABLE = 0xAC00, LEAD = 0x1100, VOWEL = 0x1161, TAIL = 0x11A7;
constexpr u32 LEADS = 19, VOWELS = 21, TAILS = 28;

struct Pair {
    u32 first, second, composed;  // first is 0 where the slot is free
};

// What a step needs that is no map: where the pattern of a REPLACE lies, and the image that it or a PREPEND writes. Of
// a STRIP, the row of atom_of in which white space is 1, and the end flag that a text must have for each side, or 0.
struct Operand {
    i64 atoms;
    union {
        i64 first, left;
    };
    union {
        i64 last, right;
    };
    i64 image;
};

// A program and its tables. slot: u16[maps * CODE_POINTS], the image of each code point, 0 where it stays; image t is
// image[image_start[t]] and those behind it, up to image_start[t + 1]. ascii: u8[128], what all steps make of a text of
// ASCII; null where that cannot be said of each character alone. atom_of, search: of all patterns.
struct Normalizer {
    const i64* step;
    i64 step_count;
    const u16* slot;
    const i64* image_start;
    const u32* image;
    const u8* combining;
    const Pair* pair;
    const u8* ascii;
    const Operand* operand;
    const u8* atom_of;
    const u32* search;
};

struct Image {
    const u32* at;
    u32 count;
};

DEVICE Image image_at(i64 number, const Normalizer& tables) {
    const i64 start = tables.image_start[number];
    return {tables.image + start, (u32)(tables.image_start[number + 1] - start)};
}

DEVICE Image image_of(u32 code_point, i64 map, const Normalizer& tables) {
    const u32 slot = tables.slot[map * CODE_POINTS + code_point];
    return slot == 0 ? Image{nullptr, 1} : image_at(slot, tables);
}

// Is the first step a map, and so map 0: then it is taken straight from the bytes.
DEVICE bool begins_with_map(const Normalizer& tables) { return tables.step_count > 0 && tables.step[0] >= 0; }

DEVICE Image first_image(u32 code_point, const Normalizer& tables) {
    return begins_with_map(tables) ? image_of(code_point, 0, tables) : Image{nullptr, 1};
}

// Writes the image of a code point; returns where the next one goes.
DEVICE i64 put_image(Image image, u32 code_point, u32* text, i64 at) {
    if (image.at == nullptr) {
        text[at] = code_point;
        return at + 1;
    }
    for (u32 i = 0; i < image.count; i++) {
        const u32 part = image.at[i];
        text[at++] = part == ITSELF ? code_point : part;
    }
    return at;
}

struct Size {
    i64 count;  // code points that the first map makes of a chunk
    bool is_ascii;
};

DEVICE Size size_of(const u8* bytes, i64 start, i64 end, const Normalizer& tables) {
    i64 at = start, count = 0;
    if (tables.ascii != nullptr) {
        for (; at < end && bytes[at] < 0x80; at++) count += tables.ascii[bytes[at]] != DELETED;
    }
    if (at == end) return {count, true};
    count = 0;
    for (at = start; at < end;) {
        const CodePoint next = checked_code_point_at(bytes, at);
        count += first_image(next.value, tables).count;
        at += next.length;
    }
    return {count, false};
}

// The bytes of UTF-8 that the first map makes of a chunk.
DEVICE i64 byte_count(const u8* bytes, i64 start, i64 end, const Normalizer& tables) {
    if (!begins_with_map(tables)) return end - start;
    i64 count = 0;
    for (i64 at = start; at < end;) {
        const CodePoint next = checked_code_point_at(bytes, at);
        const Image image = first_image(next.value, tables);
        for (u32 i = 0; i < image.count; i++) {
            const bool is_itself = image.at == nullptr || image.at[i] == ITSELF;
            count += utf8_length(is_itself ? next.value : image.at[i]);
        }
        at += next.length;
    }
    return count;
}

DEVICE i64 map_ascii(const u8* bytes, i64 at, i64 end, const u8* ascii, u32* text) {
    i64 count = 0;
    for (; at < end; at++) {
        const u32 made = ascii[bytes[at]];
        if (made != DELETED) text[count++] = made;
    }
    return count;
}

// The code points of the bytes, or what the first step makes of them, if that is a map.
DEVICE i64 map_bytes(const u8* bytes, i64 at, i64 end, const Normalizer& tables, u32* text) {
    i64 count = 0;
    while (at < end) {
        const CodePoint next = checked_code_point_at(bytes, at);
        count = put_image(first_image(next.value, tables), next.value, text, count);
        at += next.length;
    }
    return count;
}

// A later map, in place; returns the new count.
DEVICE i64 map_in_place(i64 map, const Normalizer& tables, u32* text, i64 count, i64 room) {
    i64 made = 0;
    for (i64 at = 0, end = count; at < end;) {
        const u32 code_point = text[at++];
        const Image image = image_of(code_point, map, tables);
        if (made + image.count > at) move_rest(text, at, end, room);
        made = put_image(image, code_point, text, made);
    }
    return made;
}

// Writes an image for each match, in place; returns the new count.
DEVICE i64 replace(const Search& search, Image image, u32* text, i64 count, i64 room) {
    i64 made = 0;
    for (i64 at = 0, end = count; at < end;) {
        const i64 behind = match_end(search, text, at, end);
        if (behind == at) {
            text[made++] = text[at++];
            continue;
        }
        at = behind;
        if (made + image.count > at) move_rest(text, at, end, room);
        made = put_image(image, 0, text, made);
    }
    return made;
}

// Writes an image before a text that is not empty; returns the new count.
DEVICE i64 prepend(Image image, u32* text, i64 count) {
    if (count == 0) return 0;
    move_up(text, count, image.count);
    put_image(image, 0, text, 0);
    return count + image.count;
}

// Takes white space from the ends that a text has; returns the new count.
DEVICE i64 strip(const Operand& operand, const u8* is_white, u32 flags, u32* text, i64 count) {
    i64 start = 0;
    if (flags & operand.left) {
        while (start < count && is_white[text[start]]) start++;
    }
    if (flags & operand.right) {
        while (count > start && is_white[text[count - 1]]) count--;
    }
    for (i64 at = start; start > 0 && at < count; at++) text[at - start] = text[at];
    return count - start;
}

// Sorts marks by class, stably: few by insertion, many by a pass for each class, which is linear. scratch: as many.
DEVICE void sort_marks(u32* mark, i64 count, u32* scratch, const u8* combining) {
    if (count <= FEW_MARKS) {
        for (i64 at = 1; at < count; at++) {
            const u32 own = mark[at];
            i64 place = at;
            for (; place > 0 && (combining[mark[place - 1]] & CLASS) > (combining[own] & CLASS); place--) {
                mark[place] = mark[place - 1];
            }
            mark[place] = own;
        }
        return;
    }
    for (i64 at = 0; at < count; at++) scratch[at] = mark[at];
    i64 place = 0;
    for (u32 rank = 1; rank <= CLASS; rank++) {
        for (i64 at = 0; at < count; at++) {
            if ((combining[scratch[at]] & CLASS) == rank) mark[place++] = scratch[at];
        }
    }
}

// Sorts each run of marks (combining class not 0) by class. text has room for twice `count`.
//
//   text      a \u0307 \u0323 b        class 0 230 220 0
//   becomes   a \u0323 \u0307 b
DEVICE void reorder(const u8* combining, u32* text, i64 count) {
    i64 marks = 0;  // directly before `at`
    for (i64 at = 0; at <= count; at++) {
        if (at < count && (combining[text[at]] & CLASS) != 0) {
            marks++;
            continue;
        }
        if (marks > 1) sort_marks(text + at - marks, marks, text + count, combining);
        marks = 0;
    }
}

// The code point that a pair composes to, or 0.
DEVICE u32 composition(u32 left, u32 right, const Pair* pair) {
    if (right - VOWEL < VOWELS) {  // unsigned: false for what is less, too
        return left - LEAD < LEADS ? SYLLABLE + ((left - LEAD) * VOWELS + right - VOWEL) * TAILS : 0;
    }
    if (right - TAIL - 1 < TAILS - 1) {
        const u32 syllable = left - SYLLABLE;
        return syllable < LEADS * VOWELS * TAILS && syllable % TAILS == 0 ? left + right - TAIL : 0;
    }
    u32 at = (left * FIRST_FACTOR + right * SECOND_FACTOR) % PAIR_SLOTS;
    while (pair[at].first != 0) {
        if (pair[at].first == left && pair[at].second == right) return pair[at].composed;
        at = (at + 1) % PAIR_SLOTS;
    }
    return 0;
}

// Joins each base with the marks behind it where a composed code point exists; returns the new count. A mark is blocked
// from its base by one of the same or a higher class between them, and by any other base.
DEVICE i64 compose(const u8* combining, const Pair* pair, u32* text, i64 count) {
    i64 end = 0, base = -1;   // where in the output the last base stands
    i32 left_class = -1;      // of what stands left of the next code point; -1 if that is the base itself
    for (i64 at = 0; at < count; at++) {
        const u32 right = text[at], known = combining[right];
        const i32 right_class = (i32)(known & CLASS);
        if (base >= 0 && left_class < right_class && (known & SECOND)) {
            const u32 composed = composition(text[base], right, pair);
            if (composed != 0) {
                text[base] = composed;
                continue;
            }
        }
        if (right_class == 0) base = end;
        left_class = right_class == 0 ? -1 : right_class;
        text[end++] = right;
    }
    return end;
}

// One step that is no map and looks at more than marks; returns the new count.
DEVICE i64 rewrite_text(i64 step, const Operand& operand, const Normalizer& tables, u32 flags, u32* text, i64 count,
                        i64 room) {
    const u8* atom_of = tables.atom_of + operand.atoms * ATOM_ROW;
    if (step == STRIP) return strip(operand, atom_of, flags, text, count);
    const Image image = image_at(operand.image, tables);
    if (step == PREPEND) return flags & SECTION_FIRST ? prepend(image, text, count) : count;
    return replace({atom_of, tables.search, operand.first, operand.last}, image, text, count, room);
}

// Writes the normalized code points of a chunk; returns how many. flags: the chunk's. room: that of `text`, what the
// first map makes and is prepended, times gpu_tok/on_device/cold.py's `growth`.
//
//   bytes   T É \t 中      BERT uncased
//   text    t e ' ' ' ' 中 ' '            returns 6
DEVICE i64 normalize(const u8* bytes, i64 start, i64 end, u32 flags, const Normalizer& tables, u32* text, i64 room) {
    i64 count = map_bytes(bytes, start, end, tables, text);
    for (i64 i = begins_with_map(tables); i < tables.step_count; i++) {
        const i64 step = tables.step[i];
        if (step >= 0) {
            count = map_in_place(step, tables, text, count, room);
        } else if (step == REORDER) {
            reorder(tables.combining, text, count);
        } else if (step == COMPOSE) {
            count = compose(tables.combining, tables.pair, text, count);
        } else {
            count = rewrite_text(step, tables.operand[i], tables, flags, text, count, room);
        }
    }
    return count;
}
