"""`gpu-tok info`: what a tokenizer is made of, and how each part runs."""

from __future__ import annotations

from gpu_tok.cli.common import ends_well, load_tokenizer, print_json
from gpu_tok.cli.options import DeviceName, Json, TokenizerFile, Verbose


@ends_well
def info(tokenizer: TokenizerFile, device: DeviceName = "auto", json: Json = False, verbose: Verbose = False) -> None:
    """Show model, sizes, cuts, and the grade of each part and why.

    [dim]gpu-tok info -t tokenizer.json[/dim]
    """
    found = load_tokenizer(tokenizer, device, None, verbose).info()
    if json:
        print_json(found.to_dict())
        return
    from rich.console import Console

    Console().print(found)
