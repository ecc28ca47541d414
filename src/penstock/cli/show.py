"""`penstock show`: how a run went, how it stands, or how it stood."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exits, stores

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.cli.record import Record
    from penstock.run.state import Run
    from penstock.store.base import CheckpointRecord, RunRecord


@exits.guarded
def show(
    source: Annotated[
        str,
        typer.Argument(
            help="A run: its id, the first characters of it, or `last`. Or a file that `run --save` wrote; "
            "- for stdin.",
            metavar="RUN|FILE",
        ),
    ],
    at: Annotated[
        int | None, typer.Option(help="As it stood after this event.", metavar="N", min=0, show_default=False)
    ] = None,
    checkpoints: Annotated[bool, typer.Option("--checkpoints", help="Its checkpoints, one a line.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One line: the one that ends `run --json`.")] = False,
    all: Annotated[bool, typer.Option("--all", help="Every step, however many there are.")] = False,
    store: stores.Url = "",
) -> None:
    """Show a run, as it stands or as it stood.

    Steps, timing, outputs, who drives it, where it was forked, open decisions.
    """
    from penstock.cli import record

    if record.is_file(source):
        if at is not None or checkpoints:
            raise exits.Refused("--at and --checkpoints need a run of a store, not a file")
        saved = record.load(source)
        if not saved.complete:
            exits.say(f"{source}: the record ends before the run did")
    elif checkpoints:
        _print_checkpoints(stores.asked(store, lambda penstock: _checkpoints(penstock, source)), json=json)
        return
    else:
        saved = stores.asked(store, lambda penstock: stored(penstock, source, at, store))
    if json:
        from penstock.cli.outlets import json_line

        sys.stdout.buffer.write(json_line(saved.summary))
        return
    _print(saved, limit=0 if all else ROWS)


ROWS = 200
"""Steps shown unless all are asked for."""


async def stored(penstock: Penstock, name: str, at: int | None, url: str) -> Record:
    """A run of the store, folded."""
    from penstock.cli.record import Record
    from penstock.cli.view import View
    from penstock.engines.plain import summary_of
    from penstock.engines.questions import standing

    found = await stores.find(penstock, name)
    result, asked = await standing(penstock, found, at)
    run = result.state
    view = View.of(run.graph)
    events = await penstock.store.load(found.run)
    for event in events[: run.seq]:
        view.take(event)
    view.said = result.status
    notes = await _notes(penstock, found, run, len(events), url)
    if at is not None and (run.context or run.keys):
        from penstock.cli.lines import brief

        notes.append(f"context {brief({**run.context, **run.keys})}")
    return Record(found.run, view, summary_of(result, asked), run.seq, run.ended, tuple(notes))


async def _notes(penstock: Penstock, found: RunRecord, run: Run, events: int, url: str) -> list[str]:
    from penstock.cli.text import count
    from penstock.store.listing import FINAL

    notes = []
    if run.seq < events:
        notes.append(f"as it stood after event {run.seq:,} of {events:,}")
    if found.owner:
        notes.append(f"driven by {found.owner}")
    elif found.status not in FINAL:
        notes.append(f"nobody drives it; {stores.line('resume', found.run, url)} goes on with it")
    if found.parent:
        notes.append(f"started by run {found.parent}")
    before: RunRecord | None = found
    while before is not None and before.fork_of:
        notes.append(f"forked from run {before.fork_of} at event {before.fork_at:,}")
        before = next(iter(await penstock.store.runs(run=before.fork_of)), None)
    if found.source:
        notes.append(f"defined in {found.source}, {found.hash[:19]}")
    kept = [one for one in await penstock.store.checkpoints.list(found.run) if one.seq <= run.seq]
    if kept:
        latest = f"{kept[-1].checkpoint} after event {kept[-1].seq:,}"
        notes.append(f"{count(len(kept), 'checkpoint')}, the latest {latest}")
    return notes


async def _checkpoints(penstock: Penstock, name: str) -> list[CheckpointRecord]:
    found = await stores.find(penstock, name)
    return list(await penstock.store.checkpoints.list(found.run))


def _print_checkpoints(kept: list[CheckpointRecord], *, json: bool) -> None:
    from penstock.cli.text import size
    from penstock.engines.plain import moment

    if not kept and not json:
        exits.say("it has no checkpoints")
    wide = max((len(one.checkpoint) for one in kept), default=0)
    for one in kept:
        if json:
            from penstock.cli.outlets import json_line

            data = {
                "checkpoint": one.checkpoint, "run_id": one.run, "seq": one.seq, "at": moment(one.at),
                "layer": one.layer, "size": one.size,
            }  # fmt: skip
            sys.stdout.buffer.write(json_line(data))
        else:
            print(
                f"{one.checkpoint:<{wide}}  event {one.seq:>6,}  layer {one.layer:>3,}  {size(one.size):>9}"
            )


def _print(saved: Record, *, limit: int) -> None:
    from penstock.cli.paper import Paper
    from penstock.cli.text import for_people, legible, pretty
    from penstock.cli.timeline import Timeline

    paper = Paper()
    for line in Timeline(saved, paper).lines(limit):
        paper.row(line)
    if saved.view.outputs:
        paper.print("\n[bold]outputs[/bold]")
        outputs = saved.view.outputs
        text = for_people(outputs) if paper.is_terminal else legible(pretty(outputs))
        paper.print(text, markup=False, soft_wrap=True)
