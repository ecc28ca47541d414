"""`penstock fork`: a new run with the history of another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import exits, stores

if TYPE_CHECKING:
    from penstock.cli.follow import Begun


@exits.guarded
def fork(
    run: stores.RunName,
    at: Annotated[
        int | None,
        typer.Option(help="The last event to share; by default the latest.", metavar="N", show_default=False),
    ] = None,
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Another argument for a step that has not ended by then.", metavar="STEP.ARG=VALUE"
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Fork a run that is running, too.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="New events as JSON Lines, then one line with the result.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the outputs.")] = False,
    no_input: stores.NoInput = False,
    store: stores.Url = "",
) -> None:
    """Run on from any event of a run, as a new run.

    The new run shares the history up to that event; the other run stays as it is.
    """
    from penstock.cli.perform import Wishes, perform

    args = _changes(set or [])
    penstock = stores.opened(store)

    async def begin() -> Begun:
        from penstock.cli import again

        found = await stores.find(penstock, run)
        if not force:
            again.refuse_if_running(found, store)
        return await again.branched(penstock, await penstock.fork(found.run, at=at, args=args))

    perform(penstock, Wishes(json, quiet, store=store, no_input=no_input), lambda _stage: begin)


def _changes(pairs: Sequence[str]) -> dict[str, dict[str, Any]]:
    from penstock.cli.text import value

    changes: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        place, equals, text = pair.partition("=")
        step, dot, name = place.partition(".")
        if not (equals and dot and step and name):
            msg = f"{pair!r} is not STEP.ARG=VALUE"
            raise typer.BadParameter(msg, param_hint="--set")
        changes.setdefault(step, {})[name] = value(text)
    return changes
