"""The report of a batch: eight words that kernels fill and the host reads once, at the end."""

from __future__ import annotations

CHUNKS_SEEN, MISSES_SEEN, WINNERS_SEEN, IDS_SEEN = 0, 1, 2, 3
FIRST_BAD = 4  # the least place of a byte that is no UTF-8; ALL_GOOD if there is none
TOKENS_SEEN = 5  # places where an added token may begin
WORK_ASKED = 6  # words that the cold path's kernels asked of their arena
SPOILED = 7  # not 0: what was guessed of this batch is wrong, and kernels behind the one that noticed have done nothing
TOO_SMALL, NEEDS_HOST, HAS_TOKENS = 1, 2, 4  # its bits: a buffer; new chunks; texts that may hold added tokens
OVERFLOW = SPOILED
REPORT_WORDS = 8
ALL_GOOD = 2**64 - 1
