"""The native engine: effects carried out on asyncio, in this process.

A `Drive` owns one run. Facts come in from tasks, timers and commands; each goes through the
core once, and the batch that follows is journalled, published and carried out before the
next fact is looked at. Everything happens on one event loop, so there is nothing to lock.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
import traceback
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, assert_never

import msgspec

from penstock.engines.base import Result
from penstock.engines.deadlines import Deadlines
from penstock.engines.outputs import Outputs
from penstock.engines.stream import Gap, Stream
from penstock.errors import CommandRejected, DefinitionError, Problem, UnknownTool
from penstock.ids import CommandId, RunId, child_id
from penstock.run.commands import Abort, Command, InjectTasks, OVERTAKING
from penstock.run.decide import decide
from penstock.run.effects import (
    CancelTasks,
    CollectOutputs,
    Effect,
    EndRun,
    ExpandMap,
    StartTask,
    StartTimer,
    effects,
)
from penstock.run.events import CommandAccepted, CommandRefused, Event
from penstock.run.facts import (
    BackoffElapsed,
    CommandReceived,
    Fact,
    ItemsCounted,
    OutputsCollected,
    RunRequested,
    TaskRaised,
    TaskReturned,
    TimeRanOut,
)
from penstock.run.state import Run
from penstock.steps.base import Ended, Prepared, Scene, TaskFailure, Work
from penstock.store.base import Journal, Store
from penstock.tools.base import Task
from penstock.workflow.expr import Failure

GRACE = 5.0
"""Seconds a cancelled task has to end before the run goes on without it."""

DEEPEST = 16
"""Runs within runs."""

THREADS = 128

_SIMPLE = (int, str, bool, type(None))
_to_json = msgspec.json.Encoder().encode
_from_json = msgspec.json.Decoder().decode


class NativeEngine:
    """Runs workflows on the running event loop."""

    name = "native"

    def __init__(self, store: Store, *, wall: Callable[[], float] = time.time) -> None:
        self.store = store
        self.wall = wall
        self.live: dict[RunId, Drive] = {}
        self._threads: ThreadPoolExecutor | None = None
        self.abandoned = 0
        """Tasks that did not end when cancelled. A thread among them cannot be stopped at all."""

    async def start(
        self, flow: Prepared, inputs: Mapping[str, Any], *, run: RunId, parent: RunId | None = None
    ) -> Drive:
        graph = flow.graph
        journal = await self.store.create(run, graph.workflow, hash=graph.hash, parent=parent)
        drive = Drive(self, flow, Run(run, graph, reducers=flow.reducers), journal)
        self.live[run] = drive
        drive.begin(RunRequested(inputs, self.name, parent, flow.durations))
        return drive

    @property
    def threads(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="penstock")
        return self._threads

    async def close(self) -> None:
        """Stop every run that is still going, and wait until it has."""
        drives = list(self.live.values())
        for drive in drives:
            if not drive.finished.done():
                drive.tell(CommandReceived(Abort(id=CommandId("close"), reason="penstock was closed")))
        await asyncio.gather(*(drive.finished for drive in drives), return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None


class _Live:
    """A task in flight."""

    __slots__ = ("cancelled", "effect", "over", "task", "work")

    def __init__(self, effect: StartTask, work: Work) -> None:
        self.effect = effect
        self.work = work
        self.task: asyncio.Task[None] | None = None
        self.cancelled = ""
        """Why we cancelled it: a failure kind, `timeout` or `cancelled`."""
        self.over = False
        """Reported. Whatever it still does is nobody's business."""


class Drive:
    """One run being driven."""

    def __init__(self, engine: NativeEngine, flow: Prepared, run: Run, journal: Journal) -> None:
        self.engine = engine
        self.flow = flow
        self.run = run
        self.journal = journal
        self.loop = asyncio.get_running_loop()
        self.stream = Stream()
        self.outputs = Outputs(run)
        self.finished: asyncio.Future[Result] = self.loop.create_future()
        self._works = flow.works
        self._facts: deque[Fact] = deque()
        self._busy = False
        self._live: set[_Live] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._answers: dict[CommandId, asyncio.Future[Event]] = {}
        self._deadlines = Deadlines(self.loop, self._expired)  # type: ignore[arg-type]  # keys are always _Live
        self._context = contextvars.copy_context()
        self._commands = 0
        self._children: list[Drive] = []

    # --- the public face ---

    @property
    def id(self) -> RunId:
        return self.run.id

    @property
    def state(self) -> Run:
        return self.run

    async def result(self) -> Result:
        return await asyncio.shield(self.finished)

    def follow(self, *, after: int = 0) -> AsyncIterator[Event | Gap]:
        return self.stream.follow(after=after)

    async def send(self, command: Command) -> Event:
        """Hand a command to the run; returns the event that accepted it."""
        self._commands += 1
        if not command.id:
            command = msgspec.structs.replace(command, id=CommandId(f"{self.id}!{self._commands}"))
        answer = self._answers.get(command.id)
        if answer is None:
            answer = self._answers[command.id] = self.loop.create_future()
            self.tell(CommandReceived(command, self._problems(command)))
        event = await asyncio.shield(answer)
        if isinstance(event, CommandRefused):
            raise CommandRejected(event.reason)
        return event

    # --- facts in ---

    def begin(self, fact: RunRequested) -> None:
        limit = self.run.graph.workflow.config.timeout
        if limit is not None:
            self._later(limit, TimeRanOut(limit))
        self.tell(fact)

    def tell(self, fact: Fact) -> None:
        """The only door to the core. Facts that come while one is being handled wait their turn."""
        facts = self._facts
        if type(fact) is CommandReceived and isinstance(fact.command, OVERTAKING):
            facts.appendleft(fact)
        else:
            facts.append(fact)
        if self._busy:
            return
        self._busy = True
        try:
            while facts:
                self._handle(facts.popleft())
        except Exception as error:  # noqa: BLE001 - our own bug: it must surface, not look like success
            self._crash(error)
        finally:
            self._busy = False

    def _handle(self, fact: Fact) -> None:
        run = self.run
        batch = decide(run, fact, self.engine.wall())
        if type(fact) is CommandReceived:
            self._answer(fact.command, batch)
        if not batch:
            return
        self.journal.append(batch)
        self.stream.publish(batch)
        for effect in effects(run, batch):
            if type(effect) is StartTask:
                self._start(effect)
            else:
                self._carry_out(effect)

    # --- effects out ---

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case StartTask():
                self._start(effect)
            case ExpandMap():
                self._expand(effect)
            case StartTimer():
                fact = BackoffElapsed(effect.step, effect.iteration, effect.item, effect.attempt)
                self._later(effect.delay, fact)
            case CancelTasks():
                self._clear_timers()
                for live in list(self._live):
                    self._cancel(live, "cancelled")
            case CollectOutputs():
                self.tell(self._collect())
            case EndRun():
                self._end()
            case _:
                assert_never(effect)

    def _start(self, effect: StartTask) -> None:
        i = effect.step
        works = self._works
        live = _Live(effect, works[i] if i < len(works) else self._injected(i))
        self._live.add(live)
        # A fresh copy of the context the run began in: steps never see each other's variables.
        live.task = self.loop.create_task(self._perform(live), context=self._context.copy())
        timeout = live.work.timeout
        if timeout is not None:
            self._deadlines.begin(live, timeout)

    async def _perform(self, live: _Live) -> None:
        """Do one task and report how it went, whatever happens."""
        run, effect, work = self.run, live.effect, live.work
        i, item = effect.step, effect.item
        fact: Fact
        try:
            args = self._arguments(effect) if i in run.graph.args or i in run.overrides else {}
            if work.direct is not None:
                output = await work.direct(**args)
            else:
                output = await work.perform(Scene(self._task(effect), args, self))
            if type(output) not in _SIMPLE:
                output = _plain(output)
            fact = TaskReturned(i, output, effect.iteration, item, effect.attempt)
        except asyncio.CancelledError:
            fact = self._raised(live, live.cancelled or "cancelled", self._why(live))
        except TaskFailure as error:
            fact = self._raised(live, error.kind, str(error))
        except Exception as error:  # noqa: BLE001 - the one boundary between users' code and the engine
            fact = self._raised(
                live, "error", _message(error), type(error).__name__, _trace(error)
            )
        if live.over:
            return
        self._let_go(live)
        if type(fact) is TaskReturned:
            self.outputs.keep(i, item, fact.output)
        self.tell(fact)

    def _arguments(self, effect: StartTask) -> dict[str, Any]:
        args = self.outputs.arguments(effect.step, effect.item)
        if isinstance(args, Failure):
            raise TaskFailure("expression", args.message)
        return args

    def _raised(self, live: _Live, kind: str, error: str, name: str = "", trace: str = "") -> TaskRaised:
        effect = live.effect
        return TaskRaised(
            effect.step, error, kind, name, effect.iteration, effect.item, effect.attempt, live.work.effect, trace
        )

    def _why(self, live: _Live) -> str:
        if live.cancelled == "timeout":
            return f"timed out after {live.work.timeout:g} s"
        return f"cancelled: {self.run.stop_reason}" if self.run.stop_reason else "cancelled"

    def _let_go(self, live: _Live) -> None:
        live.over = True
        self._live.discard(live)
        if live.work.timeout is not None:
            self._deadlines.end(live, live.work.timeout)

    def _expired(self, live: _Live) -> None:
        self._cancel(live, "timeout")

    def _cancel(self, live: _Live, kind: str) -> None:
        if live.over or live.cancelled or live.task is None:
            return
        live.cancelled = kind
        live.task.cancel()
        handle = self.loop.call_later(GRACE, self._abandon, live)
        self._timers.add(handle)

    def _abandon(self, live: _Live) -> None:
        """A task that would not end: report it without waiting any longer."""
        if live.over:
            return
        self.engine.abandoned += 1
        self._let_go(live)
        self.tell(self._raised(live, live.cancelled, self._why(live) + "; it did not stop when cancelled"))

    def _expand(self, effect: ExpandMap) -> None:
        count = self.outputs.expand(effect.step)
        if isinstance(count, Failure):
            fact: Fact = TaskRaised(effect.step, f"for_each: {count.message}", "expression", iteration=effect.iteration)
        else:
            fact = ItemsCounted(effect.step, count, effect.iteration)
        self.tell(fact)

    def _collect(self) -> OutputsCollected:
        values: dict[str, Any] = {}
        errors: dict[str, str] = {}
        for name, template in self.run.graph.outputs:
            value = template.render(self.outputs.look_up)
            if isinstance(value, Failure):
                errors[name] = value.message
            else:
                values[name] = value
        return OutputsCollected(values, errors)

    def _later(self, delay: float, fact: Fact) -> None:
        def ring() -> None:
            self._timers.discard(handle)
            self.tell(fact)

        handle = self.loop.call_later(delay, ring)
        self._timers.add(handle)

    def _clear_timers(self) -> None:
        for handle in self._timers:
            handle.cancel()
        self._timers.clear()

    def _end(self) -> None:
        self._clear_timers()
        self._deadlines.close()
        run = self.run
        result = Result(run.id, run.status, run.outputs, run.reason, run.at - run.started_at, run)
        self.engine.live.pop(run.id, None)
        self.stream.close()
        for answer in self._answers.values():
            if not answer.done():
                answer.cancel()
        if not self.finished.done():
            self.finished.set_result(result)

    def _crash(self, error: Exception) -> None:
        """The core or this engine is broken. Say so; never pretend the run went on."""
        for live in list(self._live):
            live.over = True
            if live.task is not None:
                live.task.cancel()
        self._live.clear()
        self._clear_timers()
        self._deadlines.close()
        self.engine.live.pop(self.id, None)
        self.stream.close()
        if not self.finished.done():
            self.finished.set_exception(error)

    # --- commands ---

    def _problems(self, command: Command) -> tuple[Problem, ...]:
        """What is wrong with a command that only someone who knows the tools can see."""
        if not isinstance(command, InjectTasks) or self.flow.work_for is None:
            return ()
        problems: list[Problem] = []
        for step in command.steps:
            try:
                self.flow.work_for(step)
            except UnknownTool as error:
                problems.append(Problem(str(error), where=str(step.id)))
            except DefinitionError as error:
                problems.extend(error.problems)
        return tuple(problems)

    def _injected(self, i: int) -> Work:
        """The work of a step that was not in the definition. Accepting it proved it can be found."""
        if self._works is self.flow.works:
            self._works = list(self._works)
        while len(self._works) <= i:
            assert self.flow.work_for is not None  # noqa: S101 - injections are refused without it
            self._works.append(self.flow.work_for(self.run.graph.workflow.steps[len(self._works)]))
        return self._works[i]

    def _answer(self, command: Command, batch: list[Event]) -> None:
        answer = self._answers.pop(command.id, None)
        if answer is None or answer.done():
            return
        for event in batch:
            if isinstance(event, CommandAccepted | CommandRefused):
                answer.set_result(event)
                return
        answer.set_result(CommandRefused(self.run.seq, self.run.at, command.id, "", "seen before"))

    # --- what work may ask of its engine ---

    def _task(self, effect: StartTask) -> Task:
        step = self.run.graph.ids[effect.step]
        return Task(self.id, step, effect.iteration, effect.item, effect.attempt)

    async def in_thread(self, call: Callable[[], Any]) -> Any:
        context = contextvars.copy_context()
        return await self.loop.run_in_executor(self.engine.threads, context.run, call)

    async def child(self, task: Task, flow: Prepared, inputs: dict[str, Any]) -> Ended:
        if self.id.count("/") >= DEEPEST:
            raise TaskFailure("child", f"runs are nested {DEEPEST} deep; does the workflow call itself without end?")
        id = child_id(self.id, task.step, iteration=task.iteration, item=task.item, attempt=task.attempt)
        child = await self.engine.start(flow, inputs, run=id, parent=self.id)
        try:
            return await child.result()
        except asyncio.CancelledError:
            child.tell(CommandReceived(Abort(id=CommandId("parent"), reason="the parent run stopped")))
            await asyncio.wait([child.finished])
            raise


def _plain(output: Any) -> Any:
    """The output as JSON would carry it: fresh, shared with nobody, the same after a restart."""
    try:
        return _from_json(_to_json(output))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise TaskFailure("output", f"the result is not JSON: {error}") from None


def _message(error: Exception) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _trace(error: Exception) -> str:
    """The frames of the user's code; ours say nothing to anyone."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    return "".join(traceback.format_list(frames))[-4000:]
