"""`penstock run`: run a workflow here and now, and wait for its end."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import exits, stores

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.cli.follow import Begun
    from penstock.workflow.read import Source


@exits.guarded
def run(
    file: Annotated[Path, typer.Argument(help="The workflow file.", metavar="FILE")],
    input: Annotated[
        list[str] | None, typer.Option("--input", "-i", help="An input of the workflow.", metavar="KEY=VALUE")
    ] = None,
    inputs: Annotated[
        str, typer.Option(help="Inputs as a JSON object: a file, or - for stdin.", metavar="FILE")
    ] = "",
    json: Annotated[
        bool, typer.Option("--json", help="Events as JSON Lines, then one line with the result.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the outputs.")] = False,
    store: stores.Url = "",
    timeout: Annotated[
        str, typer.Option(help="Stop the run after this time, e.g. 90s, 5m.", metavar="DURATION")
    ] = "",
    save: Annotated[
        Path | None,
        typer.Option(help="Also write the JSON Lines to a file, for `show` and `events`.", metavar="FILE"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, run nothing.")] = False,
    no_input: stores.NoInput = False,
) -> None:
    """Run a workflow and wait for its end.

    Outputs go to stdout, progress to stderr. Questions are asked on a terminal; elsewhere the run
    is let go of when it can only wait. Exit codes: 0 succeeded, 1 failed, 2 the file or an input is
    wrong, 3 waiting for a decision, 4 partial, 5 a budget is spent, 124 timeout, 130 interrupted.
    """
    from penstock.workflow.inputs import check_inputs
    from penstock.workflow.read import load

    source = _limited(load(file), timeout)
    values = check_inputs(source.workflow, _inputs(source, input or [], inputs))
    if dry_run:
        _prepare(stores.opened("memory:", new=True), source)
        _plan(source, values, json=json)
        return
    penstock = stores.opened(store, new=True)
    for problem in penstock.tools.servers.problems:
        exits.say(str(problem))  # of .mcp.json; what the workflow does not use may be as it likes
    found = _prepare(penstock, source)
    from penstock.cli.perform import Wishes, perform

    async def begin() -> Begun:
        from penstock.cli.follow import Begun

        return Begun(await penstock.start_with(found, values))

    perform(penstock, Wishes(json, quiet, save, store, no_input), lambda _stage: begin)


def _limited(source: Source, timeout: str) -> Source:
    """The workflow with another limit of time: another version of it, to which the run is pinned."""
    if not timeout:
        return source
    from dataclasses import replace

    from msgspec import structs

    from penstock.workflow.durations import EXAMPLES, seconds
    from penstock.workflow.graph import compile_graph

    limit = float(timeout) if timeout.isascii() and timeout.isdigit() else seconds(timeout)
    if not limit:
        msg = f"{timeout!r} is not a length of time; write {EXAMPLES}"
        raise typer.BadParameter(msg, param_hint="--timeout")
    limited = structs.replace(source.workflow, config=structs.replace(source.workflow.config, timeout=limit))
    return replace(source, workflow=limited, graph=compile_graph(limited))


def _inputs(source: Source, pairs: Sequence[str], file: str) -> dict[str, Any]:
    """The inputs as they were given. What is on the command line wins over the file."""
    from penstock.workflow.inputs import coerce_inputs

    texts: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            msg = f"{pair!r} is not KEY=VALUE"
            raise typer.BadParameter(msg, param_hint="-i")
        if key in texts:
            msg = f"{key!r} is given twice"
            raise typer.BadParameter(msg, param_hint="-i")
        texts[key] = value
    given = _inputs_file(file) if file else {}
    return {**given, **coerce_inputs(source.workflow, texts)}


def _inputs_file(file: str) -> Mapping[str, Any]:
    import msgspec

    from penstock.errors import InputError, Problem

    name = "<stdin>" if file == "-" else file
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        values = msgspec.json.decode(data)
    except OSError as error:
        raise InputError([Problem(f"cannot read the inputs: {error.strerror}", file=name)]) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError([Problem(f"the inputs are not JSON: {error}", file=name)]) from None
    if not isinstance(values, dict):
        raise InputError([Problem("the inputs must be a JSON object", 'e.g. {"folder": "inbox"}', file=name)])
    return values


def _prepare(penstock: Penstock, source: Source) -> Source:
    """Find everything the workflow calls, so that nothing starts when something is missing.

    Returns it with a path to its file that is good from anywhere: the run may be taken up elsewhere.
    """
    from dataclasses import replace

    from penstock.cli.validate import located
    from penstock.errors import DefinitionError, Unsupported

    found = replace(source, file=str(Path(source.file).absolute()))
    try:
        penstock.prepare(found)
    except Unsupported as error:
        raise Unsupported([located(source, problem) for problem in error.problems]) from None
    except DefinitionError as error:
        problems = [
            replace(problem, file=source.file) if problem.file == found.file else problem
            for problem in error.problems
        ]
        raise type(error)(problems) from None
    return found


def _plan(source: Source, inputs: Mapping[str, Any], *, json: bool) -> None:
    from penstock.cli.text import pretty
    from penstock.workflow import draw

    graph = source.graph
    if json:
        from penstock.cli.outlets import json_line

        steps = [
            {"id": id, "uses": step.uses, "layer": layer, "needs": [graph.ids[need] for need in needs]}
            for id, step, layer, needs in zip(
                graph.ids, source.workflow.steps, graph.layers, graph.needs, strict=True
            )
        ]
        plan = {"workflow": source.workflow.name, "hash": graph.hash, "inputs": inputs, "steps": steps}
        sys.stdout.buffer.write(json_line(plan))
        return
    print(draw.tree(graph))
    if inputs:
        print(f"\ninputs {pretty(inputs)}")
    exits.say("Everything was found; nothing was run.")
