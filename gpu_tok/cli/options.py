"""The options that several commands have."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

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
