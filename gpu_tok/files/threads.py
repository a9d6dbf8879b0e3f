"""Reading before and writing behind the work, each on one thread of its own, bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


def ahead(items: Iterator[T], depth: int = 2) -> Generator[T, None, None]:
    """The same items, made by one other thread, at most `depth` of them before they are asked for."""
    pending: deque[Future[Any]] = deque()
    with ThreadPoolExecutor(1, "gpu-tok-reader") as thread:
        try:
            pending.extend(thread.submit(next, items, None) for _ in range(depth))
            while (item := pending.popleft().result()) is not None:
                pending.append(thread.submit(next, items, None))
                yield item
        finally:
            _cancel(pending)


@contextmanager
def behind(do: Callable[..., None], depth: int = 2) -> Iterator[Callable[..., None]]:
    """A function that has `do` called by one other thread, in order; it waits when `depth` calls are not done yet.

    An error of `do` comes up at a later call or at the end of the block.
    """
    pending: deque[Future[None]] = deque()

    def put(*arguments: Any) -> None:
        if len(pending) >= depth:
            pending.popleft().result()
        pending.append(thread.submit(do, *arguments))

    with ThreadPoolExecutor(1, "gpu-tok-writer") as thread:
        try:
            yield put
            while pending:
                pending.popleft().result()
        finally:
            _cancel(pending)


def _cancel(pending: deque[Future[Any]]) -> None:
    for future in pending:
        future.cancel()
