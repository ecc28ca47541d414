"""`penstock validate`: everything that is wrong with workflow files, without running them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import exits

if TYPE_CHECKING:
    from penstock.errors import Problem
    from penstock.workflow.read import Source


@exits.guarded
def validate(
    files: Annotated[list[Path], typer.Argument(help="Workflow files.", metavar="FILE...")],
    json: Annotated[bool, typer.Option("--json", help="One JSON object for each file.")] = False,
) -> None:
    """Check workflow files. Nothing is run or imported.

    Each problem is one line on stderr, FILE:LINE:COLUMN: WHERE: MESSAGE (HINT), and the exit code is 2.
    """
    from penstock.errors import DefinitionError
    from penstock.workflow.read import load

    wrong = False
    for file in files:
        try:
            source = load(file)
        except DefinitionError as error:
            wrong = True
            _refuse(file, error.problems, json=json)
        else:
            _accept(file, source, json=json)
    if wrong:
        raise typer.Exit(exits.USAGE)


def _refuse(file: Path, problems: tuple[Problem, ...], *, json: bool) -> None:
    if json:
        _print_json(
            {"file": str(file), "valid": False, "problems": [_plain(problem) for problem in problems]}
        )
        return
    for problem in problems:
        exits.say(str(problem))


def _accept(file: Path, source: Source, *, json: bool) -> None:
    from penstock.cli.text import count, one_line
    from penstock.workflow.support import unsupported

    graph, workflow = source.graph, source.workflow
    layers, needs = len(set(graph.layers)), sum(map(len, graph.needs))
    notes = [located(source, note) for note in unsupported(workflow)]
    if json:
        facts = {
            "name": workflow.name,
            "steps": len(graph.ids),
            "layers": layers,
            "needs": needs,
            "hash": graph.hash,
        }
        shown = [_plain(note) for note in notes]
        _print_json({"file": str(file), "valid": True, "problems": [], **facts, "notes": shown})
        return
    parts = (count(len(graph.ids), "step"), count(layers, "layer"), count(needs, "need"))
    print(f"{file}: {one_line(workflow.name)} is valid: {', '.join(parts)}, {graph.hash}", flush=True)
    for note in notes:
        exits.say(f"note: {note}")


def located(source: Source, problem: Problem) -> Problem:
    """The problem with its place in the file, found by its place in words: `steps.fetch.gate`."""
    from dataclasses import replace

    from penstock.ids import StepId

    parts = problem.where.split(".")
    path: tuple[str | int, ...] = tuple(parts)
    if parts[0] == "steps" and len(parts) > 1:
        path = ("steps", source.graph.index[StepId(parts[1])], *parts[2:])
    line, column = source.locate(path)
    return replace(problem, file=source.file, line=line, column=column)


def _plain(problem: Problem) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(problem)


def _print_json(data: dict[str, Any]) -> None:
    from penstock.cli.outlets import json_line

    sys.stdout.buffer.write(json_line(data))
    sys.stdout.flush()
