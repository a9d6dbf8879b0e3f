"""Copies between host and device that go on while other things run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Copy:
    """A copy that has begun. array: where it goes; source: where it comes from, which must not change until it is done.

    done: an event of the stream that copies; None where there is nothing to wait for.
    """

    array: Any
    source: Any = None
    done: Any = None

    def wait(self) -> Any:
        """The array, once all of it is there."""
        if self.done is not None:
            self.done.synchronize()
        return self.array
