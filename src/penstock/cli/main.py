"""The command line as a whole: which verbs there are. Each is in the file of its name.

Nothing here or at the top of a verb's file imports more than it takes to print help.
"""

from __future__ import annotations

from typing import Annotated

import typer

from penstock import __version__
from penstock.cli import (
    abort,
    approve,
    decide,
    events,
    fork,
    gc,
    graph,
    lessons,
    mcp,
    models,
    resume,
    rotate_key,
    run,
    runs,
    schema,
    send,
    serve,
    show,
    tools,
    validate,
    watch,
    worker,
)

HELP = """Run workflows of tools, agents and functions.

\b
Examples:
  penstock run hello.yaml -i name=Ada          run a workflow, watch it
  penstock run hello.yaml --json | tail -n 1   the same for programs
  penstock runs                                what was run here
  penstock show last                           how it went
  penstock resume 1m7gk06d                     go on after a crash
  penstock decide                              what waits for you; answer it
  penstock serve                               the same over HTTP, for programs
  penstock fork 1m7gk06d --at 42               run on from any event
  penstock validate *.yaml                     find mistakes without running
  penstock graph hello.yaml -o hello.svg       draw it

\b
Data goes to stdout, messages to stderr. Exit codes: 0 succeeded, 1 failed,
2 usage or invalid file, 3 waiting for a person, 4 partial, 5 budget,
6 upstream unavailable, 124 timeout, 130 interrupted, 143 terminated.
"""

app = typer.Typer(
    name="penstock",
    help=HELP,
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for verb in (
    run.run,
    runs.runs,
    show.show,
    events.events,
    watch.watch,
    resume.resume,
    fork.fork,
    send.send,
    decide.decide,
    approve.approve,
    approve.reject,
    abort.abort,
    lessons.lessons,
    worker.worker,
    serve.serve,
    gc.gc,
    rotate_key.rotate_key,
    validate.validate,
    graph.graph,
    schema.schema,
):
    app.command()(verb)
app.add_typer(models.models, name="models")
app.add_typer(tools.tools, name="tools")
app.add_typer(mcp.mcp, name="mcp")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """The `penstock` command."""
    app(prog_name="penstock")
