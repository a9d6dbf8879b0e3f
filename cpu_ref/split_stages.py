"""Words of pre-tokenizers that are more than one look at two neighbours: normalize -> *split by stages* -> merge.

The stages are `gpu_tok.tables.word_stages`; for those that one table of classes can say, `cpu_ref.split` is the step.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cpu_ref.compiled import inlined, kernel
from cpu_ref.search import match_end
from gpu_tok.tables.word_stages import (
    AT_START,
    ATOMS,
    FIRST,
    GAP,
    KIND,
    LAST,
    MATCH,
    NEEDS,
    NOTHING,
    PARTED,
    PREFIX,
    REMOVED,
    REPLACED,
    REPLACEMENT,
    SPLIT,
    TO_BYTES,
    WordStages,
)

Starts = npt.NDArray[np.int64]


@kernel
def split_stages(code_point, text_starts, flags, stages, word, word_starts):
    """Writes the words of texts, int64[n, 2] rows (start, end), and which words each text has, word_starts.

    code_point: uint32, room for `stages.expansion` characters each; text i is `code_point[text_starts[i]:
    text_starts[i + 1]]`. What stages make of the texts is written over them, and the words lie in that. flags: uint8,
    the end flags of each text. word: room for one a character. stages: WordStages.

        code_point   I ' m   中 .         one text, GPT-2's stages
        split        I | ' m |   中 | .
        as bytes     I ' m Ġ ä ¸ Ń .      code_point
        word         0:1  1:3  3:7  7:8
    """
    text_count = len(text_starts) - 1
    begin, end = text_starts[0], text_starts[text_count]
    word_count = np.int64(0)
    for text in range(text_count):
        word_starts[text] = word_count
        if text_starts[text] < text_starts[text + 1]:
            word[word_count, 0], word[word_count, 1] = text_starts[text], text_starts[text + 1]
            word_count += 1
    word_starts[text_count] = word_count
    for number in range(len(stages.stage)):
        stage = stages.stage[number]
        if stage[KIND] == SPLIT:
            room = end - begin
            split_at_matches(code_point, stages.step, stages.atom_of[stage[ATOMS]], stage, room, word, word_starts)
        elif stage[KIND] == TO_BYTES:
            end = write_bytes(code_point, begin, end, stages.byte_character, word, word_starts[text_count])
        else:
            end = write_prefixes(code_point, text_starts, end, flags, stage, word, word_starts)


def words_of(
    code_point: npt.NDArray[np.uint32], text_starts: Starts, flags: npt.NDArray[np.uint8], stages: WordStages
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64], Starts]:
    """What `split_stages` writes, in arrays of its own: code_point, word and word_starts. `text_starts` begin with 0.

    >>> made, word, _word_starts = words_of(code_point, np.array([0, 3]), np.zeros(1, np.uint8), stages)
    >>> [made[start:end].tolist() for start, end in word]  # of "a b" and gpt2
    [[97], [288, 98]]
    """
    count = len(code_point)
    made = np.empty(count * stages.expansion, np.uint32)
    made[:count] = code_point
    word, word_starts = np.empty((len(made), 2), np.int64), np.empty(len(text_starts), np.int64)
    split_stages(made, text_starts, flags, stages, word, word_starts)
    return made, word[: word_starts[-1]], word_starts


@inlined
def split_at_matches(code_point, step, atom_of, stage, room, word, word_starts):
    """Splits each word at the matches in it.

    The words that are still to be split wait at the end of `word`. They are never overtaken by those that are made: a
    waiting word has at least one character, and `room` is the count of all characters.
    """
    first, last, parted, removed = np.uint32(stage[FIRST]), np.uint16(stage[LAST]), stage[PARTED], stage[REMOVED]
    text_count = len(word_starts) - 1
    shift = room - word_starts[text_count]
    for index in range(word_starts[text_count] - 1, -1, -1):
        word[index + shift, 0], word[index + shift, 1] = word[index, 0], word[index, 1]
    count, index = np.int64(0), shift
    for text in range(text_count):
        word_starts[text] = count
        while index < word_starts[text + 1] + shift:
            start, end = word[index, 0], word[index, 1]
            index += 1
            at, kind = start, GAP
            while at < end:
                begin = at
                at = match_end(code_point, begin, end, atom_of, step, first, last)
                right = MATCH if at > begin else GAP
                at = max(at, begin + 1)
                if parted >> (2 * kind + right) & 1 and begin > start:
                    if not removed >> kind & 1:
                        word[count, 0], word[count, 1] = start, begin
                        count += 1
                    start = begin
                kind = right
            if not removed >> kind & 1:
                word[count, 0], word[count, 1] = start, end
                count += 1
    word_starts[text_count] = count


@inlined
def write_bytes(code_point, begin, end, byte_character, word, word_count):
    """Writes the byte characters of each word's characters; returns the end of what is written.

    What is not read yet lies as far behind as all can grow, so that it is never overtaken.
    """
    shift = np.int64(0)
    for at in range(begin, end):
        letter = code_point[at]
        shift += (letter >= 0x80) + (letter >= 0x800) + (letter >= 0x10000)
    if shift == 0:
        for at in range(begin, end):
            code_point[at] = byte_character[code_point[at]]
        return end
    for at in range(end - 1, begin - 1, -1):
        code_point[at + shift] = code_point[at]
    count = begin
    for index in range(word_count):
        word_start = count
        for at in range(word[index, 0] + shift, word[index, 1] + shift):
            letter = np.int64(code_point[at])
            if letter < 0x80:
                code_point[count] = byte_character[letter]
                count += 1
                continue
            if letter < 0x800:
                code_point[count] = byte_character[0xC0 | letter >> 6]
            else:
                if letter < 0x10000:
                    code_point[count] = byte_character[0xE0 | letter >> 12]
                else:
                    code_point[count] = byte_character[0xF0 | letter >> 18]
                    count += 1
                    code_point[count] = byte_character[0x80 | letter >> 12 & 0x3F]
                count += 1
                code_point[count] = byte_character[0x80 | letter >> 6 & 0x3F]
            code_point[count + 1] = byte_character[0x80 | letter & 0x3F]
            count += 2
        word[index, 0], word[index, 1] = word_start, count
    return count


@inlined
def write_prefixes(code_point, text_starts, end, flags, stage, word, word_starts):
    """Replaces characters and puts prefixes before words; returns the end of what is written."""
    prefix, replaced, replacement = stage[PREFIX], stage[REPLACED], stage[REPLACEMENT]
    text_count = len(text_starts) - 1
    shift = word_starts[text_count] if prefix != NOTHING else np.int64(0)
    if shift > 0:
        for at in range(end - 1, text_starts[0] - 1, -1):
            code_point[at + shift] = code_point[at]
    count = text_starts[0]
    for text in range(text_count):
        puts = prefix != NOTHING and flags[text] & stage[NEEDS] == stage[NEEDS]
        for index in range(word_starts[text], word_starts[text + 1]):
            start, word_start = word[index, 0], count
            opening = np.int64(code_point[start + shift])
            if opening == replaced:
                opening = replacement
            if puts and opening != prefix and (not stage[AT_START] or start == text_starts[text]):
                code_point[count] = prefix
                count += 1
            for at in range(start + shift, word[index, 1] + shift):
                letter = np.int64(code_point[at])
                code_point[count] = replacement if letter == replaced else letter
                count += 1
            word[index, 0], word[index, 1] = word_start, count
    return count
