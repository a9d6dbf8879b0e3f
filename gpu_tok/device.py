"""The threads of the CPU path, and what a fork does to them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from gpu_tok.errors import DeviceError

T = TypeVar("T")


class Workers:
    """A pool of threads for work units; one thread runs them in the caller's own.

    The pool is made when it is first needed, and made again in a process that was forked: threads do not come along.
    """

    def __init__(self, count: int | None = None) -> None:
        """count: threads; None takes one for each core that this process may use."""
        if count is not None and count < 1:
            raise DeviceError(f"workers={count} is not a number of threads", "pass 1 or more, or None for all cores")
        self.count = count or usable_cores()
        self._pool: ThreadPoolExecutor | None = None
        self._pool_process = 0

    def map(self, function: Callable[..., T], items: Iterable[Any]) -> list[T]:
        """function(item) for all items, in their order; the first error of any is raised."""
        items = list(items)
        if self.count == 1 or len(items) < 2:
            return [function(item) for item in items]
        if self._pool is None or self._pool_process != os.getpid():
            self._pool = ThreadPoolExecutor(self.count, thread_name_prefix="gpu_tok")
            self._pool_process = os.getpid()
        futures = [self._pool.submit(function, item) for item in items]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()


# The threads of the reference do not exist in a forked child, and a call that hands work to them never returns. Its own
# guard is off when TOKENIZERS_PARALLELISM is set, so a child takes calls that use no threads.
_forked = False


def _note_fork() -> None:
    global _forked
    _forked = True


def in_forked_child() -> bool:
    """Was this process forked from one that had loaded gpu_tok: then the reference's own threads must not be asked."""
    return _forked


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def reference_without_threads() -> Iterator[None]:
    """In a forked child the reference is told to use no threads while this lasts: handing work to them would hang."""
    name = "TOKENIZERS_PARALLELISM"
    given = os.environ.get(name)
    if in_forked_child():
        os.environ[name] = "false"
    try:
        yield
    finally:
        if given is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = given
