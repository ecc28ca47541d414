"""`penstock watch`: the live view of a run that another process drives."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import exits, stores

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.cli.outlets import Outlet
    from penstock.cli.view import View
    from penstock.store.base import RunRecord


@exits.guarded
def watch(
    run: stores.RunName,
    json: Annotated[
        bool, typer.Option("--json", help="Events as JSON Lines, then one line with the result.")
    ] = False,
    store: stores.Url = "",
) -> None:
    """Watch a run from another terminal until it ends.

    Watching changes nothing: Ctrl-C leaves, the run goes on. The exit code is the run's.
    """
    import signal

    def leave(*_: object) -> None:
        raise SystemExit(exits.TERMINATED)  # by the usual way: the terminal is put right

    signal.signal(signal.SIGTERM, leave)
    raise typer.Exit(stores.asked(store, lambda penstock: _watch(penstock, run, json=json, url=store)))


async def _watch(penstock: Penstock, name: str, *, json: bool, url: str) -> int:
    from penstock.cli.driven import Driven
    from penstock.cli.outlets import JsonLines, Outlet
    from penstock.cli.perform import drawable, print_outputs, screen
    from penstock.cli.view import View
    from penstock.engines.tail import tail, whole
    from penstock.workflow.graph import compile_graph

    found = await stores.find(penstock, name)
    graph = compile_graph((await penstock.store.definition(found.run)).workflow)
    view = View.of(graph)
    drawn = not json and drawable()
    driven = Driven(url, _noted(view) if drawn else None)
    outlet: Outlet = (
        Outlet(JsonLines(os.dup(1), found.run), name="stdout", vital=True)
        if json
        else screen(found.run, view)
    )
    summary: dict[str, Any] | None = None
    code = exits.OK
    try:
        async for batch in tail(penstock.store, found.run, looked=driven.look):
            if json:
                async for event in whole(penstock.store, found.run, batch):
                    outlet.put(event)
            else:
                for event in batch:
                    outlet.put(event)
        summary, code = await _end(penstock, found)
    finally:
        outlet.close(summary)
    if outlet.error is not None:
        exits.say(f"{outlet.name}: {outlet.error}")
        return exits.FAILED
    if summary is not None and summary["outputs"] and not json:
        print_outputs(1, summary["outputs"], terminal=sys.stdout.isatty())
    return code


async def _end(penstock: Penstock, found: RunRecord) -> tuple[dict[str, Any], int]:
    from penstock.engines.base import result_of
    from penstock.engines.plain import summary_of

    result = result_of(await penstock.at(found.run))
    timed_out = result.state.stopping == "timeout"
    code = exits.of_run(result.status, timed_out=timed_out, unavailable=result.unavailable)
    return summary_of(result), code


def _noted(view: View) -> Any:
    def note(text: str) -> None:
        view.note = text

    return note
