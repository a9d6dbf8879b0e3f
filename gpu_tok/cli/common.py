"""What all commands share: how they begin, how they end, and how they speak."""

from __future__ import annotations

import functools
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import typer

if TYPE_CHECKING:
    from gpu_tok.tokenizer import Tokenizer

F = TypeVar("F", bound=Callable[..., Any])

FAILED, BAD_INPUT, FAULT, INTERRUPTED, TERMINATED = 1, 2, 3, 130, 143  # exit statuses


class _TerminatedError(BaseException):
    """SIGTERM came: unwind, so that unfinished files are removed."""


def ends_well(command: F) -> F:
    """Turns what a command raises into one clear message and an exit status; an interrupt removes unfinished files."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        from gpu_tok.errors import GpuTokError

        try:
            with _terminated_raises():
                return command(*arguments, **options)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except KeyboardInterrupt:
            say("interrupted: unfinished output was removed")
            raise typer.Exit(INTERRUPTED) from None
        except _TerminatedError:
            raise typer.Exit(TERMINATED) from None
        except Exception as error:
            if options.get("verbose"):
                traceback.print_exc()
            if isinstance(error, GpuTokError):
                fail(error.finding, error.hint)
                raise typer.Exit(BAD_INPUT) from None
            fail(f"{type(error).__name__}: {error}", "this is a fault of gpu-tok; -v shows where it came from")
            raise typer.Exit(FAULT) from None

    return run  # type: ignore[return-value]


@contextmanager
def _terminated_raises() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise _TerminatedError

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def say(message: str) -> None:
    """One line on standard error, where all that is not the result goes."""
    print(message, file=sys.stderr, flush=True)


def fail(finding: str, hint: str | None) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print(Text.assemble(("error: ", "bold red"), finding))
    if hint:
        console.print(Text.assemble(("hint: ", "bold cyan"), hint))


def print_json(result: dict[str, Any]) -> None:
    import orjson

    sys.stdout.buffer.write(orjson.dumps(result, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    sys.stdout.flush()


def load_tokenizer(path: str, device: str, workers: int | None, verbose: bool, **options: Any) -> Tokenizer:
    """options: further ones of `Tokenizer`."""
    from gpu_tok.info import small_batches
    from gpu_tok.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_file(path, device=device, workers=workers, **options)
    if verbose:
        say(f"device: {tokenizer.device.name} ({tokenizer.device.reason})")
        if tokenizer.small_batch_bytes:
            say(small_batches(tokenizer.small_batch_bytes))
    return tokenizer


def get_ready(tokenizer: Tokenizer) -> None:
    """Compiles, or loads, what reading and encoding run, so that it does not count as slow work."""
    from gpu_tok.files import json_lines

    json_lines.get_ready()
    tokenizer.encode_batch(["a"])
    if tokenizer.small_batch_bytes:  # that one went to the CPU
        tokenizer.encode_batch(["a " * tokenizer.small_batch_bytes])
