"""The report of a batch: eight words that kernels fill and the host reads once, at the end."""

from __future__ import annotations

from typing import Any

import numpy as np

CHUNKS_SEEN, MISSES_SEEN, WINNERS_SEEN, IDS_SEEN = 0, 1, 2, 3
FIRST_BAD = 4  # the least place of a byte that is no UTF-8; ALL_GOOD if there is none
TOKENS_SEEN = 5  # places where an added token may begin
WORK_ASKED = 6  # words that the cold path's kernels asked of their arena
SPOILED = 7  # not 0: what was guessed of this batch is wrong, and kernels behind the one that noticed have done nothing
TOO_SMALL, NEEDS_HOST, HAS_TOKENS = 1, 2, 4  # its bits: a buffer; new chunks; texts that may hold added tokens
REPORT_WORDS = 8
ALL_GOOD = 2**64 - 1


def new_report(device: Any) -> Any:
    """The report of a batch that nothing is known of yet: uint64[8]."""
    report = device.xp.zeros(REPORT_WORDS, np.uint64)
    report[FIRST_BAD] = np.uint64(ALL_GOOD)
    return report


def spoil_if(report: Any, word: int, bit: int) -> None:
    """Spoils the batch, for the reason that `bit` names, if a word of its report is not 0. Enqueued, as kernels are."""
    seen = (report[word : word + 1] > 0).astype(np.uint64)
    report[SPOILED:] |= seen * np.uint64(bit)
