"""`gpu-tok demo`: the main job with nothing given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gpu_tok.cli.common import FAILED, ends_well, print_json, say
from gpu_tok.cli.options import DeviceName, Json, Verbose, Workers

if TYPE_CHECKING:
    from gpu_tok.demo.run import Outcome


@ends_well
def demo(
    megabytes: Annotated[
        float, typer.Option("--megabytes", min=0.01, max=1000, metavar="N", help="How much text to run over.")
    ] = 4.0,
    device: DeviceName = "auto",
    workers: Workers = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Encode and decode sample texts, check every id against the reference, and show the speed of both.

    Exit status 1 if anything differs.
    """
    from gpu_tok.choice import choose
    from gpu_tok.demo.run import NAMES, run, sample

    if verbose:
        choice = choose(device)
        say(f"device: {choice.name} ({choice.reason})")
    rows = sample(megabytes)
    outcomes = [run(name, rows, device=device, workers=workers) for name in NAMES]
    same = all(outcome.same_ids and outcome.same_texts for outcome in outcomes)
    if json:
        print_json(
            {
                "texts": len(rows),
                "text_bytes": sum(len(row.encode()) for row in rows),
                "same": same,
                "tokenizers": [outcome.to_dict() for outcome in outcomes],
            }
        )
    else:
        _show(rows, outcomes)
    if not same:
        raise typer.Exit(FAILED)


def _show(rows: list[str], outcomes: list[Outcome]) -> None:
    import tokenizers
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from gpu_tok.demo import texts

    console = Console(highlight=False)
    kinds = {text["kind"] for text in texts()}
    megabytes = sum(len(row.encode()) for row in rows) / 1e6
    ids = ", ".join(f"{outcome.ids:,} ids as {outcome.name}" for outcome in outcomes)
    console.print(f"\n{len(rows):,} texts in {len(kinds)} languages and kinds, {megabytes:.1f} MB: {ids}\n")

    table = Table(box=None, pad_edge=False)
    table.add_column("MB of text a second", style="bold")
    for heading in ("cold", "warm", f"tokenizers {tokenizers.__version__}", "warm, ratio", "same"):
        table.add_column(heading, justify="right")
    for outcome in outcomes:
        for job, speed, same in (
            ("encode", outcome.encode, outcome.same_ids),
            ("decode", outcome.decode, outcome.same_texts),
        ):
            table.add_row(
                f"{outcome.name}, {job}",
                *(f"{value:,.0f}" if value >= 10 else f"{value:.1f}" for value in (speed.cold, speed.warm)),
                f"{speed.reference:,.1f}",
                f"[cyan]{speed.ratio:,.1f}x[/cyan]",
                "[green]yes[/green]" if same else "[bold red]NO[/bold red]",
            )
    console.print(table)
    console.print("[dim]cold: nothing seen before; warm: the same texts again; same: all ids and texts compared[/dim]")
    for outcome in outcomes:
        for text in outcome.differing:
            console.print(Text.assemble((f"{outcome.name} differs: ", "bold red"), repr(text[:100])))
    console.print("\n[dim]next:[/dim] gpu-tok encode INPUT... -t tokenizer.json -o tokens.parquet\n")
