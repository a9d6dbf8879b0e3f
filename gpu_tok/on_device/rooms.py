"""How much room a batch gets for what nobody has counted yet, guessed from the batches before it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpu_tok.on_device.report import CHUNKS_SEEN, IDS_SEEN, MISSES_SEEN, TOKENS_SEEN, WORK_ASKED

LEAST = 4096  # room for anything, however small the batch
MOST_MISSES = 1 << 30  # their numbers share a word with two bits that say what an entry is


class Rooms(NamedTuple):
    """Elements that buffers have room for: chunks, misses, ids that leave, and words of the cold path's arena."""

    chunks: int
    misses: int
    ids: int
    work: int

    def hold(self, report: npt.NDArray[np.uint64]) -> bool:
        """Was there room for all that comes before the ids, which are gathered last."""
        chunks, misses, _ids, work = _seen(report)
        return chunks <= self.chunks and misses <= self.misses and work <= self.work


class Shares:
    """What batches needed for each byte of text; guesses follow it up at once, and down slowly.

    expects_tokens: the last batch had places where added tokens may begin.

    >>> shares = Shares()
    >>> shares.rooms(1 << 20).chunks
    318668
    """

    def __init__(self) -> None:
        self._shares = [0.3, 0.1, 0.35, 0.5]
        self.expects_tokens = False

    def rooms(self, byte_count: int, extra_ids: int = 0) -> Rooms:
        """For a batch of so many bytes; extra_ids: special tokens and padding, as far as they are known."""
        chunks, misses, ids, work = (int(share * byte_count) + LEAST for share in self._shares)
        return Rooms(min(chunks, byte_count + LEAST), min(misses, byte_count + LEAST), ids + extra_ids, work)

    def learn(self, report: npt.NDArray[np.uint64], byte_count: int) -> None:
        """Takes in what a batch has asked for: a little more than that will be there the next time."""
        self.expects_tokens = bool(report[TOKENS_SEEN])
        for place, seen in enumerate(_seen(report)):
            self._shares[place] = max(1.2 * seen / max(byte_count, LEAST), 0.8 * self._shares[place])


def enlarged(rooms: Rooms, report: npt.NDArray[np.uint64]) -> Rooms:
    """More room for a batch that was given too little. What comes behind an overflow has not been counted."""
    return Rooms(*(max(room, seen + seen // 8 + 64) for room, seen in zip(rooms, _seen(report), strict=True)))


def _seen(report: npt.NDArray[np.uint64]) -> tuple[int, int, int, int]:
    chunks, misses, ids, work = (int(report[word]) for word in (CHUNKS_SEEN, MISSES_SEEN, IDS_SEEN, WORK_ASKED))
    return chunks, misses, ids, work
