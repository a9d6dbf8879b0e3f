"""When something must have ended."""

from __future__ import annotations

import time
from collections.abc import Callable


class Deadline:
    """A moment so many seconds ahead.

    >>> Deadline(10).left
    9.99
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds

    @property
    def left(self) -> float:
        """Seconds until then; negative behind it."""
        return self._end - self._clock()

    @property
    def has_passed(self) -> bool:
        return self.left <= 0
