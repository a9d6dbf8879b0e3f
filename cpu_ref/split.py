"""Words of normalized code points: normalize -> *split* -> match. The rules are `gpu_tok.tables.words`."""

from __future__ import annotations

from cpu_ref.compiled import kernel


@kernel
def split(code_point, starts, words, word, word_starts):
    """Writes the words of texts, int64[n, 2] rows (start, end), and which words each text has, word_starts.

    code_point: uint32; text i is `code_point[starts[i]:starts[i + 1]]`. word: room for one a code point. No word goes
    over the border of two texts.

        code_point   t h e   c a t !
        word         0:3     4:7     7:8
    """
    class_of, parted, removed = words.class_of, words.parted, words.removed
    count = 0
    for text in range(len(starts) - 1):
        word_starts[text] = count
        at, end = starts[text], starts[text + 1]
        while at < end:
            word_start = at
            first = left = class_of[code_point[at]]
            at += 1
            while at < end:
                right = class_of[code_point[at]]
                if parted[left, right]:
                    break
                left = right
                at += 1
            if not removed[first]:
                word[count, 0] = word_start
                word[count, 1] = at
                count += 1
    word_starts[len(starts) - 1] = count
