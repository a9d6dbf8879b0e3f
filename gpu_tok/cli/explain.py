"""`gpu-tok explain`: what each step makes of one text."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gpu_tok.cli.common import DeviceName, Json, TokenizerFile, Verbose, ends_well, load_tokenizer, print_json


@ends_well
def explain(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text, or - for standard input.", show_default=False)],
    tokenizer: TokenizerFile,
    device: DeviceName = "auto",
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Follow one text through the steps: normalized, words, pieces, ids, cuts.

    [dim]gpu-tok explain "naïve tokenizers" -t tokenizer.json[/dim]
    """
    text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape") if text == "-" else text
    explained = load_tokenizer(tokenizer, device, None, verbose).explain(text)
    if json:
        print_json(explained.to_dict())
        return
    from rich.console import Console

    Console().print(explained.render())
