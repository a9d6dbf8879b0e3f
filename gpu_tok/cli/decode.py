"""`gpu-tok decode`: token files -> text files."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from gpu_tok.cli.common import ends_well, load_tokenizer, print_json, say
from gpu_tok.cli.options import DeviceName, Json, TokenizerFile, Verbose, Workers, unescaped
from gpu_tok.cli.progress import Progress, progress

if TYPE_CHECKING:
    from gpu_tok.files.sources import Source
    from gpu_tok.files.text_writers import TextWriter
    from gpu_tok.tokenizer import Tokenizer


@ends_well
def decode(
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUT", help="Files of ids (.parquet, .npy), globs or folders.", show_default=False),
    ],
    tokenizer: TokenizerFile,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="OUT.jsonl, OUT.txt (both also .gz or .zst) or OUT.parquet. It appears when it is complete, in the "
            "place of what stood there.",
        ),
    ],
    keep_special_tokens: Annotated[
        bool, typer.Option("--keep-special-tokens", help=r"Keep \[CLS], </s> and the like; else they are left out.")
    ] = False,
    ids_field: Annotated[
        str, typer.Option("--ids-field", metavar="NAME", help="The column of a Parquet file with the ids.")
    ] = "input_ids",
    text_field: Annotated[
        str, typer.Option("--text-field", metavar="NAME", help="The field or column that the texts are written to.")
    ] = "text",
    separator: Annotated[
        str | None,
        typer.Option(
            "--separator",
            metavar="STRING",
            help="What is written behind each text of a .txt file.",
            show_default="a line break",
        ),
    ] = None,
    device: DeviceName = "auto",
    workers: Workers = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Decode token files back to texts.

    [dim]gpu-tok decode tokens.parquet -t tokenizer.json -o texts.jsonl[/dim]
    """
    from gpu_tok.files.sources import TOKEN_KINDS, find
    from gpu_tok.files.text_writers import check_output, text_writer

    check_output(output)
    sources = find(inputs, TOKEN_KINDS, outputs=[output])
    loaded = load_tokenizer(tokenizer, device, workers, verbose)
    loaded.decode_bytes([[0]])  # compiles, or loads, what decoding runs, so that it does not count as slow work
    with (
        progress("decode", sum(source.size for source in sources)) as done,
        text_writer(output, text_field, unescaped(separator)) as writer,
    ):
        _decode_files(loaded, sources, ids_field, writer, done, not keep_special_tokens)
    if json:
        print_json({**done.to_dict(), "output": [output]})
    else:
        say(done.closing_line("decoded", output))


def _decode_files(
    tokenizer: Tokenizer,
    sources: list[Source],
    ids_field: str,
    writer: TextWriter,
    done: Progress,
    skip_special_tokens: bool,
) -> None:
    """read -> decode -> write, each on threads of its own, a few batches in flight."""
    from gpu_tok.files.threads import behind
    from gpu_tok.files.token_readers import read_tokens

    with behind(writer.write) as write, closing(read_tokens(sources, ids_field)) as batches:
        for batch in batches:
            texts = tokenizer.decode_bytes(batch.rows, skip_special_tokens=skip_special_tokens).to_host()
            write(texts)
            done.advance(batch.read, len(texts), texts.byte_count, len(batch.rows.flat))
