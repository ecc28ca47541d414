"""`penstock decide`: the questions that runs ask, and the answers to them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exits, stores

if TYPE_CHECKING:
    from penstock.run.events import DecisionRequired
    from penstock.store.base import RunRecord


@exits.guarded
def decide(
    decision: Annotated[
        str,
        typer.Argument(
            help="The id of a decision, or a run that asks only one.", metavar="ID", show_default=False
        ),
    ] = "",
    verb: Annotated[
        str, typer.Argument(help="One of the answers that it offers.", metavar="VERB", show_default=False)
    ] = "",
    args: Annotated[
        str, typer.Option(help="What the answer takes, e.g. '{\"output\": 3}'.", metavar="JSON")
    ] = "",
    message: Annotated[str, typer.Option(help="Why, for the record.", metavar="TEXT")] = "",
    list: Annotated[bool, typer.Option("--list", help="List the open decisions.")] = False,
    json: Annotated[bool, typer.Option("--json", help="JSON Lines.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the outputs.")] = False,
    no_input: stores.NoInput = False,
    store: stores.Url = "",
) -> None:
    """Answer an open decision, or list them; on a terminal, answer them one by one.

    If a process drives the run, it is given the answer. If nobody does, the run goes on here, until
    it ends or asks again.
    """
    if decision and not list:
        from penstock.cli.answers import Answer, give

        give(Answer(decision, verb, args, message), store, json=json, quiet=quiet, no_input=no_input)
        return
    found = _list(store, json=json)
    if found and not (list or json or no_input) and _someone_there():
        from penstock.cli.answers import ask_all

        ask_all([record for record, _ in found], store)


def _someone_there() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def _list(store: str, *, json: bool) -> list[tuple[RunRecord, DecisionRequired]]:
    from penstock.engines.questions import every

    try:
        found = stores.asked(store, every)
    except stores.NoStore as error:
        exits.say(str(error))
        return []
    for record, asked in found:
        if json:
            from penstock.cli.outlets import json_line
            from penstock.engines.plain import question

            sys.stdout.buffer.write(json_line(question(record, asked)))
        else:
            from penstock.cli.text import headline

            print(f"{asked.decision}  {record.workflow}  {asked.kind}  {headline(asked.summary)}{_by(asked)}")
    if not found and not json:
        exits.say("no run waits for a decision")
    sys.stdout.flush()
    return found


def _by(asked: DecisionRequired) -> str:
    if asked.deadline is None:
        return ""
    import time

    from penstock.cli.question import until

    return f"  (until {until(asked, time.time())})"
