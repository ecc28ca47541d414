"""A run on the stage that the caller chose: a terminal, a pipe, a file. Ends the process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import typer

from penstock.app import Penstock, RunHandle
from penstock.cli import exits
from penstock.cli.follow import Ended, follow, leave
from penstock.cli.outlets import JsonLines, Outlet, PlainLines, claim_stdout, write
from penstock.cli.signals import Interrupts
from penstock.cli.text import legible, pretty
from penstock.cli.view import View
from penstock.ids import StepId, child_id
from penstock.run.state import SUCCEEDED
from penstock.workflow.read import Source

SHOW_CURSOR = b"\x1b[?25h\r\n"


class Wishes(NamedTuple):
    """How the caller wants to hear of the run."""

    json: bool
    quiet: bool
    save: Path | None


def perform(penstock: Penstock, source: Source, inputs: Mapping[str, Any], wishes: Wishes) -> NoReturn:
    """Run the workflow, show what was asked for, and leave with the code that says how it went."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    stage = Stage(penstock, source, wishes, Interrupts(loop))
    try:
        with stage.interrupts:
            going = follow(penstock, source, inputs, open=stage.open, interrupts=stage.interrupts)
            ended = loop.run_until_complete(going)
            stage.finish(ended)
        code = ended.code
    except SystemExit as error:
        exits.say(f"a step ended the process by SystemExit({error.code!r}); the run broke off")
        code = exits.FAILED
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 - the edge, as in `guarded`; but nothing may hold us up
        code = exits.report(error)
    leave(code, loop)


class Stage:
    """Where this run is shown."""

    def __init__(self, penstock: Penstock, source: Source, wishes: Wishes, interrupts: Interrupts) -> None:
        self.interrupts = interrupts
        self._penstock = penstock
        self._source = source
        self._wishes = wishes
        self._saved = _create(wishes.save) if wishes.save else None
        self._terminal = sys.stdout is not None and sys.stdout.isatty()
        self._data = claim_stdout()

    def open(self, run: RunHandle) -> list[Outlet]:
        """The outlets of the run."""
        wishes, outlets = self._wishes, []
        if self._saved is not None:
            outlets.append(Outlet(JsonLines(self._saved, run.id), name=str(wishes.save), vital=True))
        if wishes.json:
            outlets.append(Outlet(JsonLines(self._data, run.id), name="stdout", vital=True))
        elif not wishes.quiet and sys.stderr is not None:
            graph = self._source.graph
            view = View(zip(graph.ids, graph.layers, strict=True))
            outlets.append(self._live(run, view) if drawable() else _plain(run, view))
        return outlets

    def finish(self, ended: Ended) -> None:
        """What is said and shown when the run is over."""
        wishes, result = self._wishes, ended.result
        if wishes.json:
            return
        if wishes.quiet and result.reason:
            exits.say(f"{self._source.workflow.name} {result.status}: {result.reason}")
        if result.outputs:
            text = _for_people(result.outputs) if self._terminal else pretty(result.outputs)
            with contextlib.suppress(BrokenPipeError):
                write(self._data, f"{text}\n".encode(errors="backslashreplace"))

    def _live(self, run: RunHandle, view: View) -> Outlet:
        from rich.console import Console

        from penstock.cli.live import LiveView, Screen

        console = Console(stderr=True, highlight=False)
        screen = Screen(view, run.id, console, _Children(self._penstock, self._source, run, view).peek)
        self.interrupts.restore = lambda: write(2, SHOW_CURSOR)
        return Outlet(LiveView(view, screen, console), name="view")


class _Children:
    """How far child runs have come: a glance from the view's thread, never more than that."""

    def __init__(self, penstock: Penstock, source: Source, run: RunHandle, view: View) -> None:
        self._live = penstock.engine.live
        self._run = run
        self._view = view
        self._steps = {step.id for step in source.workflow.steps if step.uses.startswith("workflow:")}

    def peek(self, step: StepId) -> tuple[int, int] | None:
        if step not in self._steps:
            return None
        row = self._view.rows[step]
        id = child_id(self._run.id, step, iteration=row.iteration, item=None, attempt=row.attempt)
        child = self._live.get(id)
        if child is None:
            return None
        phases = bytes(child.state.phase)
        return sum(phase >= SUCCEEDED for phase in phases), len(phases)


def drawable() -> bool:
    """Whether stderr is a terminal that can be drawn on."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def _plain(run: RunHandle, view: View) -> Outlet:
    return Outlet(PlainLines(view, run.id), name="progress")


def _create(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        msg = f"cannot write {path}: {reason}"
        raise typer.BadParameter(msg, param_hint="--save") from None


def _for_people(outputs: Mapping[str, Any]) -> str:
    """Outputs on a terminal: text as text, the rest as JSON."""
    parts = []
    for name, value in outputs.items():
        text = legible(value).rstrip() if isinstance(value, str) else legible(pretty(value))
        parts.append(f"{name}:\n{text}" if isinstance(value, str) and "\n" in text else f"{name}: {text}")
    return "\n" + "\n".join(parts)
