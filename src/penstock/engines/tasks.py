"""The tasks of a run: started, timed, cancelled; each reports how it went, whatever happens."""

from __future__ import annotations

import asyncio
import contextvars
import math
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.engines.approvals import AnotherCall
from penstock.engines.children import Parked, Stopped
from penstock.engines.deadlines import Deadlines
from penstock.engines.outputs import as_json
from penstock.errors import PenstockError, Unfinished, UpstreamUnavailable
from penstock.policy import gates
from penstock.run.effects import CheckGate, PrepareCall, StartTask
from penstock.run.facts import Fact, TaskRaised, TaskReturned
from penstock.run.state import place
from penstock.steps.base import UNBILLED, Billed, Scene, TaskFailure, Work, refused
from penstock.tools.base import Answer, Inquiry, Task
from penstock.workflow.expr import Failure
from penstock.workflow.spec import Effect

if TYPE_CHECKING:
    from penstock.engines.drive import Drive

GRACE = 5.0
"""Seconds a cancelled task has to end before the run goes on without it."""

_LEAST, _MOST = -(2**63), 2**64 - 1
"""What an integer may be in JSON as everyone reads it."""

_OURS = str(Path(__file__).parents[1])
"""Where this package is: frames of it are not the user's."""


class _Live:
    """A task in flight."""

    __slots__ = ("bill", "cancelled", "effect", "entered", "lane", "left", "over", "task", "waits", "work")

    def __init__(self, effect: StartTask, work: Work) -> None:
        self.effect = effect
        self.work = work
        self.lane: dict[_Live, float]
        """Of the deadlines: being in it is being in flight."""
        self.task: asyncio.Task[None] | None = None
        self.bill = UNBILLED
        """What it has cost, as far as that is known: it is counted however it ends."""
        self.waits = 0
        """How many times a person is waited for at once."""
        self.left = 0.0
        """Seconds of its time when the first of these waits began."""
        self.cancelled = ""
        """Why we cancelled it: a failure kind, `timeout` or `cancelled`."""
        self.entered = False
        """It has begun. A task cancelled before that never gets to report."""
        self.over = False
        """Reported. Whatever it still does is nobody's business."""


class Tasks:
    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        self._run = drive.run
        self._tell = drive.tell
        self._keep = drive.outputs.keep
        self._flow = drive.flow
        self._works = drive.flow.works
        self._deadlines: Deadlines[_Live] = Deadlines(drive.loop, self._expired)
        self._graces: set[asyncio.TimerHandle] = set()
        self._create_task = drive.loop.create_task
        self._copy_context = contextvars.copy_context().copy
        self._not_before = -math.inf
        """When to ask again what was unavailable, by the clock of the loop."""

    def start(self, effect: StartTask, spent: Mapping[str, float] | None = None) -> None:
        """Start a task. `spent`: what it has cost so far, if it comes to nothing."""
        i = effect.step
        works = self._works
        live = _Live(effect, works[i] if i < len(works) else self.work(i))
        if self._run.stopping:  # it had to wait for the journal, and now it is too late
            live.over, live.cancelled = True, "cancelled"
            live.bill = Billed(None, spent)
            self._tell(self._raised(live, "cancelled", self._why(live)))
            return
        # A fresh copy of the context the run began in: steps never see each other's variables.
        live.lane = self._deadlines.begin(live, live.work.timeout or math.inf)
        live.task = self._create_task(
            self._perform(live), name=self._run.graph.ids[i], context=self._copy_context()
        )

    def work(self, i: int) -> Work:
        """How to do a step. One that was not in the definition was found when it was accepted."""
        if i < len(self._works):
            return self._works[i]
        if self._works is self._flow.works:
            self._works = list(self._works)
        while len(self._works) <= i:
            assert self._flow.work_for is not None  # noqa: S101 - injections are refused without it
            step = self._run.graph.workflow.steps[len(self._works)]
            try:
                self._works.append(self._flow.work_for(step))
            except PenstockError as error:  # what was there when it was accepted is not any more
                self._works.append(refused(str(error)))
        return self._works[i]

    def effect_of(self, effect: StartTask | PrepareCall | CheckGate) -> Effect:
        """The effect class of a task: of one item, where it depends on the item."""
        work = self.work(effect.step)
        if work.effect_for is None or effect.item is None:
            return work.effect
        return work.effect_for(self._drive.outputs.items.item(effect.step, effect.item))

    async def arguments(self, effect: StartTask | PrepareCall) -> dict[str, Any]:
        """What a task is called with, as a person may have changed it."""
        i = effect.step
        args = await self._drive.reading.arguments(i, effect.item)
        if isinstance(args, Failure):
            raise TaskFailure("expression", args.message)
        edits = self._run.edits.get(place(i, effect.item)) if self._run.edits else None
        if edits:
            amended = self.work(i).amended
            args = amended(args, edits) if amended is not None else {**args, **edits}
        return args

    def cancel(self) -> None:
        """Cancel everything that runs; each task still reports how it ended."""
        for live in self._deadlines.running():
            self._cancel(live, "cancelled")

    async def rest(self) -> None:
        """Return when everything that runs has ended, or had the time to."""
        waits = self._drive.inputs.waits  # for a person, who may take for ever
        running = [live.task for live in self._deadlines.running()]
        tasks = [task for task in running if task is not None and not waits(task)]
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE)

    def abandon(self) -> None:
        """Cancel everything that runs, and hear nothing more of it."""
        for live in self._deadlines.running():
            live.over = True
            if live.task is not None:
                live.task.cancel()

    def retry_after(self) -> float:
        """Seconds until what was unavailable may be asked again; 0 when nobody said."""
        return max(0.0, self._not_before - self._drive.loop.time())

    def close(self) -> None:
        for handle in self._graces:
            handle.cancel()
        self._deadlines.close()

    # --- one task ---

    async def _perform(self, live: _Live) -> None:
        """Do one task and report how it went, whatever happens."""
        live.entered = True
        run, effect, work = self._run, live.effect, live.work
        graph, i, item = run.graph, effect.step, effect.item
        fact: Fact
        try:
            args = await self.arguments(effect) if i in graph.args or i in run.overrides or run.edits else {}
            if i in graph.guarded:
                self._drive.approvals.check(work, effect, args)
            if work.direct is not None:
                output = await work.direct(**args)
            else:
                output = await work.perform(self._scene(live, args))
            size, bill = 8, UNBILLED
            if type(output) is Billed:
                live.bill, bill, output = output, output, output.output
            if type(output) is not int or not _LEAST <= output <= _MOST:
                output, size = as_json(output)
            fact = TaskReturned(i, output, effect.iteration, item, effect.attempt, bill.usage, bill.calls)
            if not live.over:
                self._keep(i, item, output, size)
        except asyncio.CancelledError as error:
            if live.cancelled:
                live.bill = error.bill if isinstance(error, Stopped) else live.bill
                fact = self._raised(live, live.cancelled, self._why(live))
            elif _cancelled_from_outside():
                live.over = True  # the event loop is being torn down: nobody can go on, nothing has failed
                raise
            else:
                fact = self._raised(live, "error", "CancelledError: it cancelled itself", "CancelledError")
        except AnotherCall as other:
            fact = other.call
        except (Parked, Unfinished) as error:
            live.over = True
            live.lane.pop(live, None)
            if isinstance(error, Parked):  # nothing has to wait here while a person thinks
                self._drive.children.park(effect, error.child)
            return  # else a child was let go of, as this run will be: it goes on elsewhere
        except TaskFailure as error:
            live.bill = error.bill if live.bill is UNBILLED else live.bill
            fact = self._raised(live, error.kind, str(error), error.name, retry_after=error.retry_after)
        except UpstreamUnavailable as error:
            known = (str(error), type(error).__name__)
            fact = self._raised(live, "unavailable", *known, retry_after=error.retry_after)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the one boundary between users' code and ours
            fact = self._raised(live, "error", _message(error), type(error).__name__, _trace(error))
        if not live.over:
            live.over = True
            live.lane.pop(live, None)
            self._tell(fact)

    def _scene(self, live: _Live, args: dict[str, Any]) -> Scene:
        run, effect = self._run, live.effect
        place_ = (effect.iteration, effect.item, effect.attempt)
        ports = (partial(self._waiting, live), partial(self._ask, live))
        task = Task(run.id, run.graph.ids[effect.step], *place_, *ports)
        tried = run.tried.get(place(effect.step, effect.item)) if run.tried else None
        return Scene(task, args, self._drive.children, gates.fenced(tried) if tried else "")

    async def _ask(self, live: _Live, inquiry: Inquiry) -> Answer:
        """Put a question of a task before a person."""
        assert live.task is not None  # noqa: S101 - it is the one that asks
        with self._waiting(live):
            return await self._drive.inputs.ask(live.effect, live.task, inquiry)

    @contextmanager
    def _waiting(self, live: _Live) -> Iterator[None]:
        """While a person is waited for, a task has all the time in the world; then what was left to it."""
        if not live.waits:
            due = live.lane.pop(live, None)
            if due is None:  # it is over
                yield
                return
            live.left = due - self._drive.loop.time()
            live.lane = self._deadlines.begin(live, math.inf)
        live.waits += 1
        try:
            yield
        finally:
            live.waits -= 1
            if not live.waits and live.lane.pop(live, None) is not None:
                live.lane = self._deadlines.begin(live, max(live.left, 0.0))

    def _raised(
        self, live: _Live, kind: str, error: str, name: str = "", trace: str = "", *, retry_after: float = 0.0
    ) -> TaskRaised:
        effect = live.effect
        if 0.0 < retry_after < math.inf:
            self._not_before = max(self._not_before, self._drive.loop.time() + retry_after)
        if live.cancelled and kind in ("error", "unavailable"):  # raised on its way out: not why it ended
            kind, error = live.cancelled, f"{self._why(live)}; then {error}"
        clean = self._drive.engine.clean
        return TaskRaised(
            effect.step, clean(error), kind, name, effect.iteration, effect.item, effect.attempt,
            live.work.effect, clean(trace)[-4000:], retry_after, live.bill.usage, live.bill.calls,
        )  # fmt: skip

    def _why(self, live: _Live) -> str:
        if live.cancelled == "timeout":
            return f"timed out after {live.work.timeout:g} s"
        return f"cancelled: {self._run.stop_reason}" if self._run.stop_reason else "cancelled"

    # --- ends that a task does not choose ---

    def _expired(self, live: _Live) -> None:
        self._cancel(live, "timeout")

    def _cancel(self, live: _Live, kind: str) -> None:
        if live.over or live.cancelled or live.task is None:
            return
        live.cancelled = kind
        live.task.cancel()
        if not live.entered:
            self._give_up(live, self._why(live))
            return
        self._graces.add(self._drive.loop.call_later(GRACE, self._abandon, live))

    def _abandon(self, live: _Live) -> None:
        """A task that would not end: report it without waiting any longer."""
        if not live.over:
            self._drive.engine.abandoned += 1
            self._give_up(live, f"{self._why(live)}; it did not stop when cancelled")

    def _give_up(self, live: _Live, error: str) -> None:
        live.over = True
        live.lane.pop(live, None)
        self._tell(self._raised(live, live.cancelled, error))


def _cancelled_from_outside() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _message(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _trace(error: BaseException) -> str:
    """The frames of the user's code; ours say nothing to anyone."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_OURS)
    ]
    return "".join(traceback.format_list(frames[-50:]))
