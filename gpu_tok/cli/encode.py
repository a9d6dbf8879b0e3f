"""`gpu-tok encode`: text files -> token files."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpu_tok.cli.common import ends_well, get_ready, load_tokenizer, print_json, say
from gpu_tok.cli.options import (
    READING,
    ROWS,
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
    from gpu_tok.files.documents import Reading
    from gpu_tok.files.sources import Source
    from gpu_tok.files.token_writers import TokenWriter
    from gpu_tok.tokenizer import Tokenizer


@ends_well
def encode(
    inputs: Inputs,
    tokenizer: TokenizerFile,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="OUT.parquet (a list of ids a row) or OUT.npy (flat ids; the starts of the rows in OUT.starts.npy). "
            "It appears when it is complete, in the place of what stood there.",
        ),
    ],
    text_field: TextField = "text",
    separator: Separator = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep",
            metavar="NAME",
            help="A further field or column to keep in the Parquet file; repeatable.",
            rich_help_panel=READING,
        ),
    ] = None,
    no_special_tokens: NoSpecialTokens = False,
    truncation: Annotated[
        bool | None,
        typer.Option(
            "--truncation/--no-truncation",
            help="Cut rows at --max-length.",
            show_default="as the tokenizer says",
            rich_help_panel=ROWS,
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option("--max-length", min=0, metavar="N", help="Ids a row at most.", rich_help_panel=ROWS),
    ] = None,
    padding: Annotated[
        bool | None,
        typer.Option(
            "--padding/--no-padding",
            help="Fill rows up to --max-length; Parquet gets an attention_mask.",
            show_default="as the tokenizer says",
            rich_help_panel=ROWS,
        ),
    ] = None,
    invalid_utf8: InvalidUtf8 = "error",
    format: Format = None,
    device: DeviceName = "auto",
    workers: Workers = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Encode data sets: text files in, token files out.

    [dim]gpu-tok encode data/*.jsonl.zst -t tokenizer.json -o tokens.parquet[/dim]
    """
    from gpu_tok.files.documents import Reading
    from gpu_tok.files.sources import find
    from gpu_tok.files.token_writers import check_output, output_paths, token_writer

    reading = Reading(text_field, tuple(keep or ()), unescaped(separator), invalid_utf8)
    check_output(output, reading.keep)
    sources = find(inputs, kind=format, outputs=output_paths(output))
    loaded = load_tokenizer(tokenizer, device, workers, verbose)
    length = _length_options(loaded, truncation, max_length, padding)
    get_ready(loaded)
    with (
        progress("encode", sum(source.size for source in sources)) as done,
        token_writer(output, mask=length["padding"] is not False, keep=reading.keep) as writer,
    ):
        _encode_files(loaded, sources, reading, writer, done, {"add_special_tokens": not no_special_tokens, **length})
    if json:
        print_json({**done.to_dict(), "output": output_paths(output)})
    else:
        say(done.closing_line("encoded", output))


def _length_options(
    tokenizer: Tokenizer, truncation: bool | None, max_length: int | None, padding: bool | None
) -> dict[str, Any]:
    """How rows are cut and filled. What is not asked for is as the tokenizer's file says, and is said.

    A file is encoded in batches of no fixed size, so "to the longest of the batch" means nothing here and is left off.
    """
    from gpu_tok.errors import GpuTokError

    own = tokenizer.definition
    if padding and max_length is None:
        raise GpuTokError("--padding fills rows up to --max-length, which is not given", "add --max-length 512, say")
    if truncation and max_length is None and not own.truncation:
        raise GpuTokError("--truncation cuts rows at --max-length, which is not given", "add --max-length 512, say")
    if truncation is None and max_length is not None:
        truncation = True
    if truncation is None and own.truncation:
        say(f"rows are cut at {own.truncation['max_length']} ids, as the tokenizer says; see --no-truncation")
    if padding is None and own.padding:
        if own.padding["strategy"] == "BatchLongest":
            return {"truncation": truncation, "max_length": max_length, "padding": False}
        say("rows are padded, as the tokenizer says; see --no-padding")
        return {"truncation": truncation, "max_length": max_length, "padding": None}
    return {"truncation": truncation, "max_length": max_length, "padding": "max_length" if padding else False}


def _encode_files(
    tokenizer: Tokenizer,
    sources: list[Source],
    reading: Reading,
    writer: TokenWriter,
    done: Progress,
    options: dict[str, Any],
) -> None:
    """read -> encode -> write, each on threads of its own, a few batches in flight."""
    from gpu_tok.files.readers import read
    from gpu_tok.files.threads import behind

    with behind(writer.write) as write, closing(read(sources, reading)) as batches:
        for documents in batches:
            rows = tokenizer.encode_batch(documents.texts, to_host=True, **options)
            write(rows, documents.columns)
            done.advance(documents.read, len(rows), documents.texts.byte_count, len(rows.ids))
