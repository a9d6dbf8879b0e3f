"""`gpu-tok explain`: what each step makes of one text."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from gpu_tok.cli.common import ends_well, load_tokenizer, print_json
from gpu_tok.cli.options import DeviceName, Json, TokenizerFile, Verbose


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
    text = _utf8(sys.stdin.buffer.read() if text == "-" else os.fsencode(text))
    explained = load_tokenizer(tokenizer, device, None, verbose).explain(text)
    if json:
        print_json(explained.to_dict())
        return
    from rich.console import Console

    Console().print(explained.render())


def _utf8(raw: bytes) -> str:
    from gpu_tok.errors import GpuTokError

    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        finding = f"byte {raw[error.start]:#04x} at {error.start} of the text is no UTF-8: {error.reason}"
        raise GpuTokError(finding, "type it in a terminal that speaks UTF-8, or convert it: iconv -t UTF-8") from None
