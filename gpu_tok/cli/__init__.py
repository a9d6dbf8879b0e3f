"""The command line: one module a command.

Modules here import what a command works with only when it runs, so that help is there at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from gpu_tok.cli import decode, demo, encode, explain, info, parity

app = typer.Typer(
    name="gpu-tok",
    help="Batch tokenizer: exactly the ids of Hugging Face tokenizers, whole data sets at a time.",
    epilog="Start with: gpu-tok demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (encode.encode, decode.decode, info.info, explain.explain, parity.parity, demo.demo):
    app.command()(command)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"gpu-tok {version('gpu_tok')} (tokenizers {version('tokenizers')})")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
