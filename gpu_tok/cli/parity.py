"""`gpu-tok parity`: the ids of every path beside the reference's, over any data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from gpu_tok.cli.common import FAILED, ends_well, get_ready, load_tokenizer, print_json
from gpu_tok.cli.options import (
    DeviceName,
    Format,
    Inputs,
    InvalidUtf8,
    Json,
    NoSpecialTokens,
    Separator,
    TextField,
    TokenizerFile,
    Verbose,
    Workers,
    unescaped,
)
from gpu_tok.cli.progress import Progress, progress

if TYPE_CHECKING:
    from gpu_tok.batch import TextBatch
    from gpu_tok.files.documents import Reading
    from gpu_tok.files.sources import Source

BATCH_BYTES = 2 << 20  # the reference makes Python objects of its ids; and the bar should move


@ends_well
def parity(
    inputs: Inputs,
    tokenizer: TokenizerFile,
    text_field: TextField = "text",
    separator: Separator = None,
    no_special_tokens: NoSpecialTokens = False,
    most_shown: Annotated[
        int, typer.Option("--most-shown", min=0, metavar="N", help="Differences that are looked into, of each path.")
    ] = 20,
    invalid_utf8: InvalidUtf8 = "error",
    format: Format = None,
    device: DeviceName = "auto",
    workers: Workers = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Compare the ids of every path with the reference's, document by document.

    Shows a hash of all ids for each path and, for each difference, where it
    is and the stage where it began. Truncation and padding are off. The CPU's
    path is always compared, that of --device beside it.
    Exit status 1 if anything differs.

    [dim]gpu-tok parity data/ -t tokenizer.json[/dim]
    """
    from gpu_tok.files.documents import Reading
    from gpu_tok.files.sources import find

    sources = find(inputs, kind=format)
    reading = Reading(text_field, (), unescaped(separator), invalid_utf8, BATCH_BYTES)
    loaded = load_tokenizer(tokenizer, device, workers, verbose, small_batch_bytes=0)
    from gpu_tok.parity import check

    get_ready(loaded)

    with progress("parity", sum(source.size for source in sources)) as done:
        texts = _texts(sources, reading, done)
        report = check(loaded, texts, add_special_tokens=not no_special_tokens, most_shown=most_shown)
    if json:
        print_json(report.to_dict())
    else:
        from rich.console import Console

        Console().print(report.render())
    if not report.same:
        raise typer.Exit(FAILED)


def _texts(sources: list[Source], reading: Reading, done: Progress) -> Iterator[TextBatch]:
    """The texts, batch by batch; a batch counts as done when the next is asked for."""
    from gpu_tok.files.readers import read

    with closing(read(sources, reading)) as batches:
        for documents in batches:
            yield documents.texts
            done.advance(documents.read, len(documents.texts), documents.texts.byte_count, 0)
