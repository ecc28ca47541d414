"""`penstock events`: the events of a run, one a line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exits, stores

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.ids import RunId
    from penstock.run.events import Event


@exits.guarded
def events(
    source: Annotated[
        str,
        typer.Argument(
            help="A run: its id, the first characters of it, or `last`. Or a file that `run --save` wrote; "
            "- for stdin.",
            metavar="RUN|FILE",
        ),
    ],
    after: Annotated[int, typer.Option(help="Only events past this number.", metavar="N", min=0)] = 0,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new events until the run ends.")
    ] = False,
    type: Annotated[
        list[str] | None,
        typer.Option(help="Only events of this type, e.g. task_error. Repeatable.", metavar="TYPE"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The JSON Lines as they are.")] = False,
    store: stores.Url = "",
) -> None:
    """List the events of a run, or follow them.

    Whichever process drives the run, --follow tells each event as soon as it is durable.
    """
    from penstock.cli import record

    wanted = _types(type or [])
    if not record.is_file(source):
        stores.asked(
            store,
            lambda penstock: _stored(penstock, source, after, wanted, follow=follow, json=json, url=store),
        )
        return
    if follow:
        raise exits.Refused("--follow needs a run of a store, not a file")
    _saved(source, after, wanted, json=json)


def _saved(source: str, after: int, wanted: frozenset[str], *, json: bool) -> None:
    from penstock.cli import lines, record

    started: float | None = None
    for line in record.read(source):
        if "type" not in line.data:
            continue  # the summary
        if started is None and line.event is not None:
            started = line.event.at
        if line.data.get("seq", 0) <= after or (wanted and line.data["type"] not in wanted):
            continue
        if json:
            sys.stdout.buffer.write(line.raw.rstrip(b"\r\n") + b"\n")
        elif line.event is not None:
            print(lines.listed(line.event, started or 0.0))
        else:
            print(f"{line.data.get('seq', '?'):>6}  {line.data['type']} (unknown to this version)")


async def _stored(
    penstock: Penstock,
    name: str,
    after: int,
    wanted: frozenset[str],
    *,
    follow: bool,
    json: bool,
    url: str,
) -> None:
    from penstock.cli.driven import Driven
    from penstock.engines.tail import tail

    found = await stores.find(penstock, name)
    if after > found.events:
        raise exits.Refused(f"run {found.run} has events 1 to {found.events}; there is no event {after}")
    out, driven = _Out(penstock, found.run, wanted, json=json), Driven(url)
    if not follow:
        await out.put(await penstock.store.load(found.run, after=after))
        return
    async for batch in tail(penstock.store, found.run, after=after, looked=driven.look):
        await out.put(batch)


class _Out:
    def __init__(self, penstock: Penstock, run: RunId, wanted: frozenset[str], *, json: bool) -> None:
        self._penstock = penstock
        self._run = run
        self._wanted = wanted
        self._json = json
        self._started: float | None = None

    async def put(self, batch: Sequence[Event]) -> None:
        from penstock.cli import lines
        from penstock.cli.outlets import json_line
        from penstock.engines.tail import whole
        from penstock.run.events import to_wire, wire_name

        chosen = [event for event in batch if not self._wanted or wire_name(event) in self._wanted]
        if self._json:
            async for event in whole(self._penstock.store, self._run, chosen):
                sys.stdout.buffer.write(json_line(to_wire(self._run, event)))
        elif chosen:
            if self._started is None:
                first = batch if batch[0].seq == 1 else await self._penstock.store.load(self._run)
                self._started = first[0].at
            for event in chosen:
                print(lines.listed(event, self._started))
        sys.stdout.flush()


def _types(given: list[str]) -> frozenset[str]:
    """The event types asked for. A name that no event has would hide everything without a word."""
    from typing import get_args

    from penstock.run.events import Event
    from penstock.workflow.findings import did_you_mean

    known = {str(kind.__struct_config__.tag) for kind in get_args(Event)}
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known)
            msg = f"there is no event type {name!r}" + (f" ({hint})" if hint else "")
            raise typer.BadParameter(msg, param_hint="--type")
    return frozenset(given)
