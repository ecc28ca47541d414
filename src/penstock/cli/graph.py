"""`penstock graph`: a picture of a workflow."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import exits

if TYPE_CHECKING:
    from penstock.workflow.graph import Graph


class Format(enum.StrEnum):
    TREE = "tree"
    MERMAID = "mermaid"
    SVG = "svg"


_BY_SUFFIX = {".svg": Format.SVG, ".mmd": Format.MERMAID, ".mermaid": Format.MERMAID}


@exits.guarded
def graph(
    file: Annotated[Path, typer.Argument(help="The workflow file.", metavar="FILE")],
    format: Annotated[
        Format | None,
        typer.Option(help="What to draw; by default what OUT ends in, else a tree.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to a file instead of stdout.", metavar="OUT")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object: steps, needs and routes.")] = False,
) -> None:
    """Draw a workflow: a tree, Mermaid or SVG."""
    from penstock.workflow import draw
    from penstock.workflow.read import load

    if json and (format or output):
        raise typer.BadParameter("this is no picture: it goes without --format and -o", param_hint="--json")
    compiled = load(file).graph
    if json:
        from penstock.cli.outlets import json_line

        sys.stdout.buffer.write(json_line(plain(compiled)))
        return
    match format or (_BY_SUFFIX.get(output.suffix) if output else None):
        case Format.SVG:
            picture = draw.svg(compiled)
        case Format.MERMAID:
            picture = draw.mermaid(compiled)
        case _:
            picture = draw.tree(compiled)
    picture = picture.rstrip("\n") + "\n"
    if output is None:
        print(picture, end="")
        return
    try:
        output.write_text(picture, encoding="utf-8")
    except OSError as error:
        msg = f"cannot write {output}: {error.strerror}"
        raise typer.BadParameter(msg, param_hint="--output") from None


def plain(graph: Graph) -> dict[str, Any]:
    """The graph as programs read it: what each step waits for, and where its routes may lead."""
    from penstock.workflow.graph import END, HUMAN
    from penstock.workflow.picture import capped, routes_of

    names = {END: "end", HUMAN: "human", **dict(enumerate(graph.ids))}
    steps = []
    for i, step in enumerate(graph.workflow.steps):
        router = graph.routers.get(i)
        ways = [] if router is None else [(*way, capped(router, way[0], way[2])) for way in routes_of(router)]
        routes = [{"kind": kind, "target": names[to], "label": label} for kind, to, _, label in ways]
        needs = [graph.ids[need] for need in graph.needs[i]]
        steps.append(
            {"id": step.id, "uses": step.uses, "layer": graph.layers[i], "needs": needs, "routes": routes}
        )
    return {"name": graph.workflow.name, "hash": graph.hash, "steps": steps}
