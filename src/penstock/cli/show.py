"""`penstock show`: how a saved run went."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exits

if TYPE_CHECKING:
    from penstock.cli.record import Record


@exits.guarded
def show(
    source: Annotated[
        str,
        typer.Argument(help="What `run --save` or `run --json` wrote; - for stdin.", metavar="FILE.jsonl"),
    ],
    json: Annotated[bool, typer.Option("--json", help="One line: the one that ends `run --json`.")] = False,
    all: Annotated[bool, typer.Option("--all", help="Every step, however many there are.")] = False,
) -> None:
    """Show how a saved run went: steps, timing, outputs."""
    from penstock.cli import record

    saved = record.load(source)
    if not saved.complete:
        exits.say(f"{source}: the record ends before the run did")
    if json:
        from penstock.cli.outlets import json_line

        sys.stdout.buffer.write(json_line(saved.summary))
        return
    _print(saved, limit=0 if all else ROWS)


ROWS = 200
"""Steps shown unless all are asked for."""


def _print(saved: Record, *, limit: int) -> None:
    from rich.console import Console

    from penstock.cli.text import legible, pretty
    from penstock.cli.timeline import Timeline

    console = Console(highlight=False)
    whole = not console.is_terminal  # nobody's screen: nothing is cut off
    for line in Timeline(saved, console).lines(limit):
        if whole:
            console.print(line, soft_wrap=True)
        else:
            console.print(line, no_wrap=True, overflow="ellipsis")
    if saved.view.outputs:
        console.print("\n[bold]outputs[/bold]")
        console.print(legible(pretty(saved.view.outputs)), markup=False, soft_wrap=True)
