"""`penstock graph`: a picture of a workflow."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import exits


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
) -> None:
    """Draw a workflow: a tree, Mermaid or SVG."""
    from penstock.workflow import draw
    from penstock.workflow.read import load

    compiled = load(file).graph
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
