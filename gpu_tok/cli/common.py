"""What all commands share: their options, how they end, and how they speak."""

from __future__ import annotations

import functools
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

if TYPE_CHECKING:
    from gpu_tok.tokenizer import Tokenizer

F = TypeVar("F", bound=Callable[..., Any])

FAILED, BAD_INPUT, FAULT, INTERRUPTED, TERMINATED = 1, 2, 3, 130, 143  # exit statuses
READING, ROWS, RUNNING = "How input is read", "What rows hold", "How it runs"  # panels of the help

TokenizerFile = Annotated[
    str,
    typer.Option(
        "--tokenizer", "-t", metavar="TOKENIZER.JSON", help="The tokenizer, as Hugging Face tokenizers has it."
    ),
]
Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT",
        help="Files (.jsonl and .txt, both also with .gz or .zst behind; .parquet), globs, folders; - for standard "
        "input (JSON lines, or --format txt).",
        show_default=False,
    ),
]
NoSpecialTokens = Annotated[
    bool,
    typer.Option("--no-special-tokens", help=r"Do not add \[CLS], <s> and the like.", rich_help_panel=ROWS),
]


def _device_name(name: str) -> str:
    from gpu_tok.choice import DEVICES, is_name

    if not is_name(name):
        raise typer.BadParameter(f"{name!r} is none of {DEVICES}")
    return name


DeviceName = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="NAME",
        callback=_device_name,
        help="Where to run: cpu, cuda (or cuda:1 for another GPU), emulated (CUDA's kernels on the CPU: slow, to test "
        "them), or auto, which takes a GPU if there is one (-v says what it took, and why).",
        rich_help_panel=RUNNING,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", min=1, metavar="N", help="Threads that work; one a core if not given.", rich_help_panel=RUNNING
    ),
]
TextField = Annotated[
    str,
    typer.Option(
        "--text-field",
        metavar="NAME",
        help="The field or column of .jsonl and .parquet with the text.",
        rich_help_panel=READING,
    ),
]
Separator = Annotated[
    str | None,
    typer.Option(
        "--separator",
        metavar="STRING",
        help=r"What parts the documents of a .txt file (\n, \t, \0 are understood; '' makes the file one document).",
        show_default="every line is a document",
        rich_help_panel=READING,
    ),
]
Format = Annotated[
    Literal["jsonl", "txt", "parquet"] | None,
    typer.Option("--format", help="What the input files are, whatever their names say.", rich_help_panel=READING),
]
InvalidUtf8 = Annotated[
    Literal["error", "replace"],
    typer.Option(
        "--invalid-utf8",
        help="What to do with bytes that are no UTF-8: stop, or put U+FFFD in their place.",
        rich_help_panel=READING,
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print the result as one JSON object on standard output.", rich_help_panel=RUNNING),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Say which device is taken and why; show where an error came from.",
        rich_help_panel=RUNNING,
    ),
]


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


def unescaped(separator: str | None) -> str | None:
    r"""A separator as typed in a shell: `\n` is a newline.

    >>> unescaped(r"\n\n")
    '\n\n'
    """
    if separator is None:
        return None
    meant = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
    out, letters = [], iter(separator)
    for letter in letters:
        following = next(letters, "") if letter == "\\" else ""
        out.append(meant.get(following, letter + following) if letter == "\\" else letter)
    return "".join(out)
