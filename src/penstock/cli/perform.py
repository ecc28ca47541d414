"""A run on the stage that the caller chose: a terminal, a pipe, a file. Ends the process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import msgspec
import typer

from penstock.app import Penstock, RunHandle
from penstock.cli import exits, stores
from penstock.cli.ask import Asker, asker
from penstock.cli.follow import Begin, Begun, Ended, follow, leave
from penstock.cli.outlets import Consumer, JsonLines, Outlet, PlainLines, claim_stdout, write
from penstock.cli.question import Question, fields, risk, until
from penstock.cli.signals import Interrupts
from penstock.cli.text import for_people, headline, pretty
from penstock.cli.view import View
from penstock.engines.drive import Drive
from penstock.errors import CommandRejected
from penstock.ids import DecisionId, RunId, StepId, child_id
from penstock.run import asking
from penstock.run.events import DecisionRequired, Event, WorkflowPaused
from penstock.run.state import SUCCEEDED

SHOWN = 10
"""Open decisions that are named at the end."""

SHOW_CURSOR = b"\x1b[?25h\r\n"


class Wishes(NamedTuple):
    """How the caller wants to hear of the run."""

    json: bool = False
    quiet: bool = False
    save: Path | None = None
    store: str = ""
    """As it was given on the command line, to be repeated in hints."""
    no_input: bool = False
    """Whether to ask nothing, even on a terminal."""


def perform(penstock: Penstock, wishes: Wishes, begin: Callable[[Stage], Begin]) -> NoReturn:
    """Drive a run, show what was asked for, and leave with the code that says how it went."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    leave(played(loop, penstock, wishes, begin), loop)


def played(
    loop: asyncio.AbstractEventLoop, penstock: Penstock, wishes: Wishes, begin: Callable[[Stage], Begin]
) -> int:
    """Drive a run and show what was asked for. Returns the code that says how it went."""
    stage = Stage(penstock, wishes, Interrupts())
    try:
        with stage.interrupts:
            going = follow(penstock, begin(stage), stage, stage.interrupts)
            ended = loop.run_until_complete(going)
            stage.finish(ended)
        code = ended.code
    except SystemExit as error:
        exits.say(f"a step ended the process by SystemExit({error.code!r}); the run broke off")
        code = exits.FAILED
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 - the edge, as in `guarded`; but nothing may hold us up
        code = exits.report(error)
        if stage.run is not None and code == exits.USAGE:
            code = exits.FAILED  # it was not refused: it had begun
    finally:
        stage.give_back()
    return code


class Stage:
    """Where this run is shown, and where its questions are asked."""

    def __init__(self, penstock: Penstock, wishes: Wishes, interrupts: Interrupts) -> None:
        self.interrupts = interrupts
        self.run: RunHandle | None = None
        self._penstock = penstock
        self._wishes = wishes
        self._saved = _create(wishes.save) if wishes.save else None
        self._terminal = sys.stdout is not None and sys.stdout.isatty()
        self._data = claim_stdout()
        self._records: list[Outlet] = []
        self._screen: Outlet | None = None
        self._view: View | None = None
        self._ahead = False
        """Whether a pause is on the screen that no event has told of yet."""
        self._left: set[DecisionId] = set()
        """Questions that the person has seen, and left open."""

    @property
    def asker(self) -> Asker | None:
        """How to ask the person who is there; None when nobody is."""
        wishes = self._wishes
        return None if wishes.json or wishes.quiet or wishes.no_input else asker(self.interrupts)

    async def open(self, begun: Begun) -> None:
        self.run = run = begun.run
        wishes = self._wishes
        if self._saved is not None:
            self._records.append(Outlet(JsonLines(self._saved, run.id), name=str(wishes.save), vital=True))
        if wishes.json:
            self._records.append(Outlet(JsonLines(self._data, run.id), name="stdout", vital=True))
        elif not wishes.quiet and sys.stderr is not None:
            self._view = View.of(run.state.graph)
            if begun.after:
                for event in await self._penstock.store.load(run.id):
                    if event.seq <= begun.after:
                        self._view.take(event)
            self._screen = self._show(run, self._view, self._hint(run.id))

    def put(self, event: Event) -> None:
        for outlet in self._records:
            outlet.put(event)
        if self._ahead and isinstance(event, WorkflowPaused) and event.by == "storage":
            self._ahead = False
        elif self._screen is not None:
            self._screen.put(event)

    def stalled(self, pause: WorkflowPaused) -> None:
        if self._screen is not None:
            self._ahead = True
            self._screen.put(pause)
        else:
            exits.say(f"paused: {pause.reason}")

    def wants(self, asked: Sequence[DecisionRequired]) -> bool:
        """Whether there is a question that the person at the terminal has not seen yet."""
        if self._view is None or all(one.decision in self._left for one in asked):
            return False
        return self.asker is not None

    async def answer(self, run: RunHandle, asked: Sequence[DecisionRequired]) -> bool:
        """Put the questions to the person at the terminal. False when nobody is there, or wants to answer.

        The view stands still meanwhile; the run does not.
        """
        ask = self.asker
        if ask is None or self._view is None or not self.wants(asked):
            return False
        if self._screen is not None:
            self._screen.close(None)
        answered = False
        for one in asked:
            if one.decision not in self._left:
                answered = await self._put(ask, one) or answered
        self._screen = self._show(run, self._view)
        return answered

    async def _put(self, ask: Asker, asked: DecisionRequired) -> bool:
        self._left.add(asked.decision)
        drive = self._penstock.engine.live.get(RunId(asked.decision.rpartition(":")[0]))
        if drive is None or asked.decision not in drive.state.decisions:
            return False  # somebody else was quicker
        decided = await ask.decide(question_of(drive, asked))
        if decided is None:
            return False
        try:
            await self._penstock.send(drive.id, decided)
        except CommandRejected as error:
            exits.say(str(error))
            return False
        return True

    def give_back(self) -> None:
        """Stdout is for everybody again."""
        if sys.stdout is not None:
            os.dup2(self._data, 1)
        os.close(self._data)

    def say(self, text: str) -> None:
        if not self._wishes.json and not self._wishes.quiet:
            exits.say(text)

    def close(self, summary: dict[str, Any] | None) -> bool:
        whole = True
        for outlet in [*self._records, *([self._screen] if self._screen is not None else [])]:
            outlet.close(summary)
            if outlet.error is not None:
                exits.say(f"{outlet.name}: {outlet.error}")
                whole = whole and not outlet.vital
        return whole

    def finish(self, ended: Ended) -> None:
        """What is said and shown when the run is over, or was let go of."""
        wishes, result = self._wishes, ended.result
        if wishes.json:
            return
        if wishes.quiet and result.reason:
            exits.say(f"{result.state.graph.workflow.name} {result.status}: {result.reason}")
        for text in after_words(ended, self._penstock, wishes):
            exits.say(text)
        if result.outputs:
            print_outputs(self._data, result.outputs, terminal=self._terminal)

    def _hint(self, run: RunId) -> str:
        if not stores.lasting(self._penstock):
            return ""
        watch, resume = (stores.line(verb, run, self._wishes.store) for verb in ("watch", "resume"))
        return f"{watch}   (from another terminal)\n{resume}   (goes on after a crash)"

    def _show(self, run: RunHandle, view: View, hint: str = "") -> Outlet:
        if not drawable():
            return screen(run.id, view, hint=hint)
        self.interrupts.restore = lambda: write(2, SHOW_CURSOR)
        return screen(run.id, view, _Children(self._penstock, run, view).peek, hint=hint)


def question_of(drive: Drive, asked: DecisionRequired) -> Question:
    """An open decision of a run that is driven here."""
    run = drive.state
    i = run.graph.index.get(asked.step, -1) if asked.step is not None else -1
    works = drive.flow.works
    effect = works[i].effect if 0 <= i < len(works) else ""
    return Question(
        asked,
        lambda decided: asking.refusal(run, decided),
        lambda: asked.decision in run.decisions and not run.ended,
        risk(run, asked, effect),
    )


def screen(
    run: RunId, view: View, peek: Callable[[StepId], tuple[int, int] | None] | None = None, *, hint: str = ""
) -> Outlet:
    """The view of a run on stderr: drawn where that is possible, line by line where it is not."""
    if not drawable():
        return Outlet(PlainLines(view, run, hint), name="progress")
    from rich.console import Console

    from penstock.cli.live import LiveView, Screen

    if hint:
        exits.say(hint)
    console = Console(stderr=True, highlight=False)
    consumer: Consumer = LiveView(view, Screen(view, run, console, peek), console)
    return Outlet(consumer, name="view")


def after_words(ended: Ended, penstock: Penstock, wishes: Wishes) -> list[str]:
    """What to do next, where there is something."""
    run, status = ended.result.run_id, ended.result.status
    if not stores.lasting(penstock):
        return []
    words = []
    if status == "waiting":
        words += what_waits(ended.asked, wishes.store)
    elif status in ("failed", "partial", "aborted") and not wishes.quiet:
        again = stores.line("resume", run, wishes.store, "--from", "failed")
        words.append(f"{again}   (tries again what did not succeed)")
    elif status == "paused":
        words.append(f"{stores.line('resume', run, wishes.store)}   (goes on after the pause)")
    return words


def what_waits(asked: Sequence[DecisionRequired], store: str) -> list[str]:
    """The questions that are open, and how each is answered from the command line."""
    words = []
    for one in asked[:SHOWN]:
        deadline = f" Until {until(one, time.time())}." if one.deadline is not None else ""
        words.append(f"waiting for a decision: {headline(one.summary)}{deadline}")
        words.append(how_to_answer(one, store))
    if len(asked) > SHOWN:
        every = stores.line("decide", "--list", store)
        words.append(f"and {len(asked) - SHOWN:,} more decisions: {every}")
    return words


def how_to_answer(asked: DecisionRequired, store: str) -> str:
    """A command line that answers a question, and which other verbs there are."""
    first, *others = asked.options or ("VERB",)
    more = f"   (or {', '.join(others)})" if others else ""
    given = ["--args", '{"target": "STEP"}'] if asked.kind == "route" else []
    if asked.kind == "input" and (names := fields(asked, first)):
        given = ["--args", msgspec.json.encode(dict.fromkeys(names, "…")).decode()]
    return f"{stores.line('decide', asked.decision, store, first, *given)}{more}"


class _Children:
    """How far child runs have come: a glance from the view's thread, never more than that."""

    def __init__(self, penstock: Penstock, run: RunHandle, view: View) -> None:
        self._live = penstock.engine.live
        self._run = run
        self._view = view
        steps = run.state.graph.workflow.steps
        self._steps = {step.id for step in steps if step.uses.startswith("workflow:")}

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
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def _create(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        msg = f"cannot write {path}: {reason}"
        raise typer.BadParameter(msg, param_hint="--save") from None


def print_outputs(file: int, outputs: Mapping[str, Any], *, terminal: bool) -> None:
    """The outputs of a run, the last thing it says."""
    text = f"\n{for_people(outputs)}" if terminal else pretty(outputs)
    with contextlib.suppress(BrokenPipeError):
        write(file, f"{text}\n".encode(errors="backslashreplace"))
