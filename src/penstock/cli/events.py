"""`penstock events`: the events of a saved run."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from penstock.cli import exits


@exits.guarded
def events(
    source: Annotated[
        str,
        typer.Argument(help="What `run --save` or `run --json` wrote; - for stdin.", metavar="FILE.jsonl"),
    ],
    after: Annotated[int, typer.Option(help="Only events past this number.", metavar="N", min=0)] = 0,
    type: Annotated[
        list[str] | None,
        typer.Option(help="Only events of this type, e.g. task_error. Repeatable.", metavar="TYPE"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The JSON Lines as they are.")] = False,
) -> None:
    """List the events of a saved run."""
    from penstock.cli import lines, record

    wanted = _types(type or [])
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
