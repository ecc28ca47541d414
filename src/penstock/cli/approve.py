"""`penstock approve` and `penstock reject`: the two answers that are given most."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import exits, stores

DecisionName = Annotated[
    str, typer.Argument(help="The id of a decision, or a run that asks only one.", metavar="ID")
]
Json = Annotated[bool, typer.Option("--json", help="JSON Lines.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the outputs.")]


@exits.guarded
def approve(
    decision: DecisionName,
    args: Annotated[
        str,
        typer.Option(
            help='Arguments to change first, e.g. \'{"env": "staging"}\'; the others stay.', metavar="JSON"
        ),
    ] = "",
    message: Annotated[str, typer.Option(help="Why, for the record.", metavar="TEXT")] = "",
    json: Json = False,
    quiet: Quiet = False,
    no_input: stores.NoInput = False,
    store: stores.Url = "",
) -> None:
    """Let a call be made, as it is or with other arguments.

    What is approved is this call, once: it is asked about again when its arguments change later.
    """
    from penstock.cli.answers import Answer, give

    answer = Answer(decision, "edit" if args else "approve", args, message)
    give(answer, store, json=json, quiet=quiet, no_input=no_input)


@exits.guarded
def reject(
    decision: DecisionName,
    message: Annotated[str, typer.Option(help="Why, for the record and the step.", metavar="TEXT")] = "",
    json: Json = False,
    quiet: Quiet = False,
    no_input: stores.NoInput = False,
    store: stores.Url = "",
) -> None:
    """Refuse a call: its step fails, or the run is aborted where the workflow says so."""
    from penstock.cli.answers import Answer, give

    give(Answer(decision, "reject", "", message), store, json=json, quiet=quiet, no_input=no_input)
