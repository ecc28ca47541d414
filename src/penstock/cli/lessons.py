"""`penstock lessons`: what did not get past its gate before, and is remembered."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import exits, stores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.app import Penstock


@exits.guarded
def lessons(
    workflow: Annotated[str, typer.Option(help="Only of this workflow.", metavar="NAME")] = "",
    step: Annotated[str, typer.Option(help="Only of this step.", metavar="STEP")] = "",
    tool: Annotated[str, typer.Option(help="Only of calls of this tool.", metavar="TOOL")] = "",
    json: Annotated[bool, typer.Option("--json", help="One JSON object for each.")] = False,
    store: stores.Url = "",
) -> None:
    """List failures that are remembered: which calls did not pass their gate, and why.

    The newest first. A lesson is forgotten when it expires.
    """
    try:
        found = stores.asked(store, lambda penstock: _found(penstock, workflow, step, tool))
    except stores.NoStore as error:
        exits.say(str(error))
        return
    if json:
        from penstock.cli.outlets import json_line

        sys.stdout.buffer.writelines(json_line(_plain(one)) for one in found)
        return
    for one in found:
        _print(one)
    if not found:
        exits.say("nothing has been learned yet" if not (workflow or step or tool) else "no such lesson")


async def _found(penstock: Penstock, workflow: str, step: str, tool: str) -> Sequence[dict[str, Any]]:
    now = penstock.engine.wall()
    return await penstock.store.examples.list(workflow=workflow, step=step, tool=tool, now=now)


def _plain(one: dict[str, Any]) -> dict[str, Any]:
    from penstock.engines.plain import moment

    return {**one, "at": moment(one["at"]), "expires": moment(one["expires"])}


def _print(one: dict[str, Any]) -> None:
    from penstock.cli.lines import brief
    from penstock.cli.text import count, one_line

    at, expires = (_day(one[key]) for key in ("at", "expires"))
    tries = count(len(one["digest"]), "attempt")
    print(f"{at}  {one['workflow']}  {one['step']}  {one['tool']}  {tries}, kept until {expires}")
    print(f"  called with {brief(one['shape'])}")
    for entry in one["digest"]:
        why = "; ".join(f"{check['check']}: {check['why']}" for check in entry["failed"])
        print(f"  {entry['attempt']}  {one_line(why)}")


def _day(at: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
