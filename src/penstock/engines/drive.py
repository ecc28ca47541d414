"""One run being driven.

Facts come in from tasks, timers, commands and the journal; each goes through the core once,
and the batch that follows is journalled before anything comes of it that could not be taken
back: a task that writes starts, and a result is announced, only when the journal has it.
Everything happens on one event loop, so there is nothing to lock.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import time
import traceback
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from penstock.engines.base import Result, result_of
from penstock.engines.checkpoints import Keeper
from penstock.engines.deadlines import Deadlines
from penstock.engines.errands import Errands, Parked
from penstock.engines.growth import Growth
from penstock.engines.outputs import Outputs
from penstock.engines.stream import KEPT, KEPT_LASTING, Gap, Observer, Stream
from penstock.errors import (
    CommandRejected,
    DefinitionError,
    Owned,
    PenstockError,
    Problem,
    Unfinished,
    UnknownTool,
)
from penstock.ids import CommandId, RunId, StepId, child_id
from penstock.policy import gates
from penstock.run import usage
from penstock.run.commands import OVERTAKING, Abort, Command, Decide, InjectTasks, Message, ReplanDag
from penstock.run.decide import decide
from penstock.run.effects import (
    AskDecider,
    BreakTie,
    CancelTasks,
    CheckGate,
    CollectOutputs,
    Effect,
    EndRun,
    ExpandMap,
    Owed,
    PrepareCall,
    RememberFailure,
    Replan,
    StartDeadline,
    StartTask,
    StartTimer,
    asks,
    effects,
    owed,
)
from penstock.run.events import CommandAccepted, CommandRefused, Event
from penstock.run.facts import (
    BackoffElapsed,
    CallPrepared,
    CommandReceived,
    DecisionExpired,
    Fact,
    ItemsCounted,
    OutputsCollected,
    ProcessLeaving,
    RunReopened,
    StorageStalled,
    TaskOrphaned,
    TaskRaised,
    TaskReturned,
    TimeRanOut,
)
from penstock.run.state import SUCCEEDED, Run, place
from penstock.steps.base import Billed, Ended, Prepared, Scene, TaskFailure, Work
from penstock.store.base import Journal
from penstock.tools.base import Task
from penstock.workflow.expr import Failure
from penstock.workflow.graph import extend, guards
from penstock.workflow.spec import Step

if TYPE_CHECKING:
    from penstock.engines.native import NativeEngine

GRACE = 5.0
"""Seconds a cancelled task has to end before the run goes on without it."""

DEEPEST = 16
"""Runs within runs."""

_UNBILLED = Billed(None)

_LEAST, _MOST = -(2**63), 2**64 - 1
"""What an integer may be in JSON as everyone reads it."""

_HARMLESS = ("read", "idempotent")
"""Effects that may be had twice."""

_OURS = str(Path(__file__).parents[1])
"""Where this package is: frames of it are not the user's."""

_to_json = msgspec.json.Encoder().encode
_from_json = msgspec.json.Decoder().decode


class _Live:
    """A task in flight."""

    __slots__ = ("cancelled", "effect", "entered", "lane", "over", "task", "work")

    def __init__(self, effect: StartTask, work: Work) -> None:
        self.effect = effect
        self.work = work
        self.lane: dict[_Live, float]
        """Of the engine's deadlines: being in it is being in flight."""
        self.task: asyncio.Task[None] | None = None
        self.cancelled = ""
        """Why we cancelled it: a failure kind, `timeout` or `cancelled`."""
        self.entered = False
        """It has begun. A task cancelled before that never gets to report."""
        self.over = False
        """Reported. Whatever it still does is nobody's business."""


class _AnotherCall(Exception):
    """What was approved is not what would be called now."""

    def __init__(self, call: CallPrepared) -> None:
        super().__init__()
        self.call = call


class Drive:
    def __init__(self, engine: NativeEngine, flow: Prepared, run: Run, journal: Journal) -> None:
        self.engine = engine
        self.flow = flow
        self.run = run
        self.journal = journal
        self.loop = asyncio.get_running_loop()
        self.stream = Stream(after=run.seq, kept=KEPT_LASTING if journal.lasting else KEPT)
        self.finished: asyncio.Future[Result] = self.loop.create_future()
        self._lasting = journal.lasting
        self.outputs = Outputs(run, self._fetch if self._lasting else None)
        self._works = flow.works
        self._facts: deque[Fact] = deque()
        self._busy = False
        self._held: deque[tuple[int, list[Event], list[Effect]]] = deque()
        """Batches that are not durable yet, and what must wait until they are."""
        self._status = ""
        self._stalled = False
        self._timers: set[asyncio.TimerHandle] = set()
        self._graces: set[asyncio.TimerHandle] = set()
        self._chores: set[asyncio.Task[None]] = set()
        self._answers: dict[CommandId, asyncio.Future[Event]] = {}
        self._deadlines: Deadlines[_Live] = Deadlines(self.loop, self._expired)
        self._create_task = self.loop.create_task
        self._copy_context = contextvars.copy_context().copy
        self._began = run.seq
        self._commands = 0
        self._turn = asyncio.Lock()
        self._keeper = Keeper(engine.store.checkpoints, run) if self._lasting else None
        self.errands = Errands(self)
        self._growth = Growth(run.id, engine.wall(), lasting=journal.lasting)
        run.stopwatch = time.perf_counter_ns
        run.summariser, run.mask = engine.summarise, self.clean
        journal.watch(self)

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
        return self.stream.follow(after=after, past=lambda seq: self.engine.store.load(self.id, after=seq))

    def observe(self, observer: Observer) -> None:
        self.stream.observe(observer)

    async def send(self, command: Command) -> Event:
        """Hand a command to the run; returns the event that accepted it."""
        if not command.id:
            self._commands += 1
            id = CommandId(f"{self.id}!{self._began}.{self._commands}")
            command = msgspec.structs.replace(command, id=id)
        if isinstance(command, Message):
            command = msgspec.structs.replace(command, text=self.clean(command.text))
        elif isinstance(command, Decide):
            command = msgspec.structs.replace(command, message=self.clean(command.message))
        if self.run.ended:
            raise CommandRejected(f"the run has ended ({self.run.status})")
        answer = self._answers.get(command.id)
        if answer is None:
            answer = self._answers[command.id] = self.loop.create_future()
            if isinstance(command, OVERTAKING):
                self.tell(CommandReceived(command))
            else:
                async with self._turn:  # an injection may have to look things up; the next waits its turn
                    outputs = await self._outputs_for(command)
                    problems, guarded = self._problems(command)
                    self.tell(CommandReceived(command, problems, outputs, guarded))
        event = await asyncio.shield(answer)
        if isinstance(event, CommandRefused):
            raise CommandRejected(event.reason)
        if not isinstance(command, OVERTAKING) and self.journal.durable < event.seq:
            await self.journal.sync()  # whoever is told yes will not say it again
        return event

    def abort(self, reason: str) -> None:
        """Stop the run from within the engine, whatever ids its users gave to commands."""
        id = CommandId(f"{self.id}!stop")
        while id in self.run.commands:
            id = CommandId(f"{id}!")
        self.tell(CommandReceived(Abort(id=id, reason=reason)))

    def wind_down(self, reason: str) -> None:
        """Start nothing new in this process; whoever takes the run up next goes on."""
        self.tell(ProcessLeaving(reason))

    def let_go(self, reason: str) -> None:
        """Stop driving at once, without a word in the journal: anyone may take the run up."""
        self._crash(Unfinished(self.id, reason))

    async def leave(self, reason: str) -> None:
        """Let go of the run so that another process can go on with it: what runs may finish first."""
        self.wind_down(reason)
        tasks = [live.task for live in self._deadlines.running() if live.task is not None]
        if tasks and not self.finished.done():
            await asyncio.wait(tasks, timeout=GRACE)
        if not self.finished.done():
            await self.journal.sync()
        if not self.finished.done():
            self.let_go(reason)

    # --- facts in ---

    def begin(self, batch: list[Event]) -> None:
        """Go on from the first batch, which the store has already."""
        self._limit_time()
        self._follow_up(batch)

    async def take_up(self, events: Sequence[Event], fact: RunReopened) -> None:
        """Go on with a run that another process left: its unfinished tasks are owed again."""
        self._busy = True  # commands may come already; they wait until the run is really taken up
        self.outputs.recall(events)
        await self._reopen_maps()
        await self.errands.remember(events)
        due = self._due(fact)
        self._limit_time()
        self._busy = False
        self.tell(fact)
        # Only when this is durable is it certain that the run is ours.
        await self.journal.sync()
        if self.finished.done():
            self.finished.result()
        for effect in due:
            if isinstance(effect, StartTask) and not self._may_repeat(effect):
                self.tell(self._orphan(effect))
            else:
                self._carry_out(effect)

    async def branch_off(self, batch: list[Event], due: Sequence[Effect], fact: RunReopened) -> None:
        """Go on from the first batch of a fork. What was under way there was never begun here."""
        self._busy = True
        await self._reopen_maps()
        again = {self.run.graph.index[step] for step in fact.reopened}
        self._limit_time()
        self._follow_up(batch)
        for effect in due:
            if getattr(effect, "step", -1) not in again:
                self._carry_out(effect)

    def _due(self, fact: RunReopened) -> list[Owed]:
        again = {self.run.graph.index[step] for step in fact.reopened}
        return [effect for effect in owed(self.run) if getattr(effect, "step", -1) not in again]

    async def _reopen_maps(self) -> None:
        for i, state in self.run.maps.items():
            if state.count >= 0:
                self.outputs.reopen_map(i, await self.engine.store.output(self.id, state.seq))

    def _follow_up(self, batch: list[Event]) -> None:
        """What comes of a batch that is durable."""
        self.stream.publish(batch)
        self._note_status()
        self._busy = True  # facts that come of it wait until all of it is carried out
        try:
            for effect in effects(self.run, batch):
                self._carry_out(effect)
            self._ask()
        finally:
            self._busy = False
        self._drain()

    def _may_repeat(self, effect: StartTask) -> bool:
        step = self.run.graph.workflow.steps[effect.step]
        work = self._work(effect.step)
        kind = work.effect
        if work.effect_for is not None and effect.item is not None:
            kind = work.effect_for(self.outputs.item(effect.step, effect.item))
        return kind in _HARMLESS or step.on_orphan == "rerun"

    def _orphan(self, effect: StartTask) -> Fact:
        stopping = bool(self.run.stopping)
        step = self.run.graph.workflow.steps[effect.step]
        place = (effect.iteration, effect.item, effect.attempt)
        if step.on_orphan == "fail" or stopping:
            error = "its process died while it ran; it may have taken effect"
            return TaskRaised(effect.step, error, "cancelled" if stopping else "orphaned", "", *place)
        return TaskOrphaned(effect.step, *place, tool=step.uses)

    def _limit_time(self) -> None:
        limit = self.run.graph.workflow.config.timeout
        if limit is not None:
            self._later(limit, TimeRanOut(limit))

    def tell(self, fact: Fact) -> None:
        """The only door to the core. Facts that come while one is being handled wait their turn."""
        if not self._busy:
            self._drain(fact)
        elif type(fact) is CommandReceived and isinstance(fact.command, OVERTAKING):
            self._facts.appendleft(fact)
        else:
            self._facts.append(fact)

    def _drain(self, first: Fact | None = None) -> None:
        run, facts, wall = self.run, self._facts, self.engine.wall
        self._busy = True
        try:
            while first is not None or facts:
                fact = first or facts.popleft()
                first = None
                now = wall()
                batch = decide(run, fact, now)
                if now >= self._growth.due:
                    self._growth.look(now)
                if self._answers and type(fact) is CommandReceived:
                    self._answer(fact.command, batch)
                if batch:
                    if self._lasting:
                        self._note_status()
                        self.journal.append(batch)
                        self._hold(batch)
                    else:
                        self.journal.append(batch)
                        if type(fact) is CommandReceived:
                            self.outputs.saw(batch)  # someone may have given an output
                        self.stream.publish(batch)
                        for effect in effects(run, batch):
                            if type(effect) is StartTask:
                                self.start(effect)
                            else:
                                self._carry_out(effect)
                if run.wanted:
                    self._ask()
        except Exception as error:  # noqa: BLE001 - our own bug: it must surface, not look like success
            self._crash(error)
        finally:
            self._busy = False

    def _ask(self) -> None:
        """Find out what the core wants to know."""
        for effect in asks(self.run):
            self._carry_out(effect)

    # --- what waits for the journal ---

    def _hold(self, batch: list[Event]) -> None:
        """Do what may be done at once; the rest, and telling anyone, waits until the batch is durable."""
        run = self.run
        self.outputs.saw(batch)
        waits: list[Effect] = []
        now: list[Effect] = []
        for effect in effects(run, batch):
            (waits if self._must_wait(effect) else now).append(effect)
        self._held.append((run.seq, batch, waits))
        for effect in now:
            self._carry_out(effect)

    def _note_status(self) -> None:
        status = self.run.status
        if self._lasting and status != self._status:
            self._status = status
            self.journal.note(status, self.run.reason)

    async def _fetch(self, seq: int) -> Any:
        """An output from the store, which may still be on its way there."""
        if self.journal.durable < seq:
            await self.journal.sync()
        return await self.engine.store.output(self.id, seq)

    def _must_wait(self, effect: Effect) -> bool:
        if isinstance(effect, StartTask):
            return self._stalled or self._work(effect.step).effect not in _HARMLESS
        return isinstance(effect, EndRun)

    def arrived(self, seq: int) -> None:
        """The journal has everything up to `seq`."""
        held = self._held
        while held and held[0][0] <= seq:
            _, batch, waits = held.popleft()
            self.stream.publish(batch)
            if self._keeper is not None and not held:
                self._keeper.consider(batch, self.outputs)
            for effect in waits:
                self._carry_out(effect)

    def stalled(self, reason: str) -> None:
        """The journal cannot be written, or can be again."""
        self._stalled = bool(reason)
        self.tell(StorageStalled(reason))

    def lost(self) -> None:
        """Someone else drives this run now. Whatever we know of it is out of date."""
        self._crash(Owned(self.id, "another process"))

    # --- effects out ---

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case StartTask():
                self.start(effect)
            case ExpandMap():
                self._expand(effect)
            case StartTimer():
                fact = BackoffElapsed(effect.step, effect.iteration, effect.item, effect.attempt)
                self._later(effect.delay, fact)
            case CancelTasks():
                self._clear_timers()
                self.errands.cancel(effect.reason)
                for live in self._deadlines.running():
                    self._cancel(live, "cancelled")
            case CollectOutputs():
                self._collect()
            case EndRun():
                self._end()
            case PrepareCall():
                self.chore(self._prepare(effect))
            case CheckGate():
                self.errands.check_gate(effect)
            case BreakTie():
                self.chore(self.errands.break_tie(effect))
            case StartDeadline():
                self._later(max(0.0, effect.at - self.engine.wall()), DecisionExpired(effect.decision))
            case AskDecider():
                self.chore(self.errands.ask_decider(effect))
            case Replan():
                self.chore(self.errands.replan(effect))
            case RememberFailure():
                self.engine.errand(self.errands.keep(effect))  # the run may end before it is kept
            case _:
                assert_never(effect)

    async def _prepare(self, effect: PrepareCall) -> None:
        """Make a call ready to be shown to whoever approves it."""
        i, place_ = effect.step, (effect.iteration, effect.item, effect.attempt)
        try:
            args, _ = _plain(await self._arguments(effect))
        except TaskFailure as error:
            self.tell(CallPrepared(i, {}, "", *place_, self.clean(str(error)), error.kind))
            return
        work = self._work(i)
        harmless = work.asks is not None and not work.asks(args)
        call = self._call(work, i, args)
        self.tell(CallPrepared(i, call, self.errands.digest(effect, call), *place_, harmless=harmless))

    def _call(self, work: Work, i: int, args: dict[str, Any]) -> dict[str, Any]:
        """A call as a person is shown it."""
        if work.shown is not None:
            return work.shown(args)
        return {"uses": self.run.graph.workflow.steps[i].uses, "args": args}

    def start(self, effect: StartTask) -> None:
        i = effect.step
        works = self._works
        live = _Live(effect, works[i] if i < len(works) else self._work(i))
        if self.run.stopping:  # it had to wait for the journal, and now it is too late
            live.over, live.cancelled = True, "cancelled"
            self.tell(self._raised(live, "cancelled", self._why(live)))
            return
        # A fresh copy of the context the run began in: steps never see each other's variables.
        live.lane = self._deadlines.begin(live, live.work.timeout or math.inf)
        live.task = self._create_task(
            self._perform(live), name=self.run.graph.ids[i], context=self._copy_context()
        )

    async def _perform(self, live: _Live) -> None:
        """Do one task and report how it went, whatever happens."""
        live.entered = True
        run, effect, work = self.run, live.effect, live.work
        i, item = effect.step, effect.item
        fact: Fact
        try:
            args = (
                await self._arguments(effect)
                if i in run.graph.args or i in run.overrides or run.edits
                else {}
            )
            if i in run.graph.guarded:
                self._check_approval(work, effect, args)
            if work.direct is not None:
                output = await work.direct(**args)
            else:
                output = await work.perform(Scene(self._task(effect), args, self, self._lessons(effect)))
            size, bill = 8, _UNBILLED
            if type(output) is Billed:
                bill, output = output, output.output
            if type(output) is not int or not _LEAST <= output <= _MOST:
                output, size = _plain(output)
            fact = TaskReturned(i, output, effect.iteration, item, effect.attempt, bill.usage, bill.calls)
            if not live.over:
                self.outputs.keep(i, item, output, size)
        except asyncio.CancelledError:
            if live.cancelled:
                fact = self._raised(live, live.cancelled, self._why(live))
            elif _cancelled_from_outside():
                live.over = True  # the event loop is being torn down: nobody can go on, nothing has failed
                raise
            else:
                fact = self._raised(live, "error", "CancelledError: it cancelled itself", "CancelledError")
        except _AnotherCall as other:
            fact = other.call
        except Parked as parked:  # nothing has to wait here while a person thinks
            live.over = True
            live.lane.pop(live, None)
            self.errands.park(effect, parked.child)
            return
        except Unfinished:  # a child was let go of, as this run will be: it goes on elsewhere
            live.over = True
            live.lane.pop(live, None)
            return
        except TaskFailure as error:
            fact = self._raised(live, error.kind, str(error))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the one boundary between users' code and ours
            fact = self._raised(live, "error", _message(error), type(error).__name__, _trace(error))
        if not live.over:
            live.over = True
            live.lane.pop(live, None)
            self.tell(fact)

    def _lessons(self, effect: StartTask) -> str:
        """What a gate said of earlier attempts at this task."""
        tried = self.run.tried.get(place(effect.step, effect.item)) if self.run.tried else None
        return gates.fenced(tried) if tried else ""

    def _check_approval(self, work: Work, effect: StartTask, args: dict[str, Any]) -> None:
        """What was approved is this call and no other. The last word before it is made."""
        if effect.item is None and effect.step in self.run.graph.for_each:
            return
        if work.asks is not None and not work.asks(args):
            return
        call = self._call(work, effect.step, _plain(args)[0])
        digest = self.errands.digest(effect, call)
        if self.run.approved.get(place(effect.step, effect.item)) != digest:
            at = (effect.iteration, effect.item, effect.attempt)
            raise _AnotherCall(CallPrepared(effect.step, call, digest, *at))

    async def _arguments(self, effect: StartTask | PrepareCall) -> dict[str, Any]:
        outputs, i = self.outputs, effect.step
        fetched: dict[int, Any] = {}
        while absent := self._unread(i, fetched):  # arguments may be changed while some of them are fetched
            fetched |= await outputs.fetch(absent)
        args = outputs.arguments(i, effect.item, fetched)
        if isinstance(args, Failure):
            raise TaskFailure("expression", args.message)
        edits = self.run.edits.get(place(i, effect.item)) if self.run.edits else None
        if edits:
            amended = self._work(i).amended
            args = amended(args, edits) if amended is not None else {**args, **edits}
        return args

    def _unread(self, i: int, fetched: Mapping[int, Any]) -> list[int]:
        """Steps whose outputs the arguments read, and which are neither at hand nor fetched."""
        if i not in self.run.graph.args and i not in self.run.overrides:
            return []
        return [j for j in self.outputs.absent(self.outputs.template(i).reads) if j not in fetched]

    def _raised(self, live: _Live, kind: str, error: str, name: str = "", trace: str = "") -> TaskRaised:
        effect = live.effect
        if live.cancelled and kind == "error":  # what it raised on its way out is not why it ended
            kind, error = live.cancelled, f"{self._why(live)}; then {error}"
        mask = self.clean
        return TaskRaised(
            effect.step, mask(error), kind, name, effect.iteration, effect.item, effect.attempt,
            live.work.effect, mask(trace)[-4000:],
        )  # fmt: skip

    def clean(self, text: str) -> str:
        """A text without secrets, and such as can be written down: a file name may hold anything."""
        return self.engine.mask(text).encode("utf-8", "backslashreplace").decode()

    def _why(self, live: _Live) -> str:
        if live.cancelled == "timeout":
            return f"timed out after {live.work.timeout:g} s"
        return f"cancelled: {self.run.stop_reason}" if self.run.stop_reason else "cancelled"

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
        self._graces.add(self.loop.call_later(GRACE, self._abandon, live))

    def _abandon(self, live: _Live) -> None:
        """A task that would not end: report it without waiting any longer."""
        if not live.over:
            self.engine.abandoned += 1
            self._give_up(live, f"{self._why(live)}; it did not stop when cancelled")

    def _give_up(self, live: _Live, error: str) -> None:
        live.over = True
        live.lane.pop(live, None)
        self.tell(self._raised(live, live.cancelled, error))

    # --- expressions that read whole outputs ---

    def _expand(self, effect: ExpandMap) -> None:
        absent = self.outputs.absent(self.run.graph.for_each[effect.step].reads)
        if absent:
            self.chore(self._expand_from(effect, absent))
        else:
            self._expanded(effect, self.outputs.expand(effect.step))

    async def _expand_from(self, effect: ExpandMap, absent: list[int]) -> None:
        self._expanded(effect, self.outputs.expand(effect.step, await self.outputs.fetch(absent)))

    def _expanded(self, effect: ExpandMap, items: list[Any] | Failure) -> None:
        if isinstance(items, Failure):
            error = self.clean(f"for_each: {items.message}")
            self.tell(TaskRaised(effect.step, error, "expression", iteration=effect.iteration))
            return
        self.outputs.open_map(effect.step, items)
        self.tell(ItemsCounted(effect.step, items, effect.iteration))

    def _collect(self) -> None:
        reads = [path for _, template in self.run.graph.outputs for path in template.reads]
        absent = self.outputs.absent(reads)
        if absent:
            self.chore(self._collect_from(absent))
        else:
            self.tell(self._collected(None))

    async def _collect_from(self, absent: list[int]) -> None:
        self.tell(self._collected(await self.outputs.fetch(absent)))

    def _collected(self, fetched: dict[int, Any] | None) -> OutputsCollected:
        values: dict[str, Any] = {}
        errors: dict[str, str] = {}
        for name, template in self.run.graph.outputs:
            value = template.render(lambda path: self.outputs.look_up(path, -1, fetched))
            if isinstance(value, Failure):
                errors[name] = value.message
            else:
                values[name] = value
        return OutputsCollected(values, errors)

    def chore(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Something of our own that has to wait for someone."""

        def done(task: asyncio.Task[None]) -> None:
            self._chores.discard(task)
            error = None if task.cancelled() else task.exception()
            if isinstance(error, Exception):
                self._crash(error)

        chore = self.loop.create_task(work)
        self._chores.add(chore)
        chore.add_done_callback(done)
        return chore

    # --- timers, and the end ---

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

    def _close(self) -> None:
        self._clear_timers()
        for handle in self._graces:
            handle.cancel()
        for chore in self._chores:
            chore.cancel()
        self._deadlines.close()
        self.engine.live.pop(self.id, None)
        self.stream.close()
        self.journal.release()

    def _end(self) -> None:
        if self.flow.followers:
            self.engine.errand(self._hand_on())
            return
        self._close()
        if not self.finished.done():
            self.finished.set_result(result_of(self.run))

    async def _hand_on(self) -> None:
        """Begin what comes after this run, then be done with it."""
        try:
            followed_by = await self.engine.follow_up(self.flow, self.run)
        except PenstockError as error:
            self._crash(error)  # the run itself has ended and says how; this is what its owner must hear
            return
        self._close()
        if not self.finished.done():
            result = msgspec.structs.replace(result_of(self.run), followed_by=followed_by)
            self.finished.set_result(result)

    def _crash(self, error: Exception) -> None:
        """We cannot go on. Say so; never pretend the run did."""
        for live in self._deadlines.running():
            live.over = True
            if live.task is not None:
                live.task.cancel()
        self._held.clear()
        self._close()
        if not self.finished.done():
            self.finished.set_exception(error)
            self.finished.exception()  # heard here: nobody may be waiting

    # --- commands ---

    def _problems(self, command: Command) -> tuple[tuple[Problem, ...], tuple[StepId, ...]]:
        """What only someone who knows the tools can see: what is wrong, and what needs approval."""
        if isinstance(command, ReplanDag) and self.engine.planner is None:
            return (Problem("there is no planner to ask", "add the steps with inject_tasks"),), ()
        return self.look_over(command.steps) if isinstance(command, InjectTasks) else ((), ())

    def look_over(self, steps: Sequence[Step]) -> tuple[tuple[Problem, ...], tuple[StepId, ...]]:
        if self.flow.work_for is None:
            return (), ()
        problems: list[Problem] = []
        guarded: list[StepId] = []
        config = self.run.graph.workflow.config
        for step in steps:
            try:
                work = self.flow.work_for(step)
                if guards(step.approval or config.approval, critical=work.effect == "destructive"):
                    guarded.append(step.id)
            except UnknownTool as error:
                problems.append(Problem(str(error), where=str(step.id)))
            except DefinitionError as error:
                problems.extend(error.problems)
        return tuple(problems), tuple(guarded)

    async def _outputs_for(self, command: Command) -> dict[int, Any]:
        """Outputs that the core needs to carry out a command."""
        if isinstance(command, Decide) and command.verb == "accept":
            return await self.errands.result_of(command)
        return await self.late_outputs(command.steps) if isinstance(command, InjectTasks) else {}

    async def late_outputs(self, steps: Sequence[Step]) -> dict[int, Any]:
        """Outputs of ended steps that the control expressions of new ones would read."""
        try:
            graph = extend(self.run.graph, steps)
        except DefinitionError:
            return {}  # it will be refused
        before, phase = self.run.graph.control, self.run.phase
        read = [
            i
            for i, paths in graph.control.items()
            if i < len(phase) and before.get(i) != paths and phase[i] == SUCCEEDED
        ]
        absent = self.outputs.absent(("steps", graph.ids[i], "output") for i in read)
        fetched = await self.outputs.fetch(absent)
        return {i: fetched[i] if i in fetched else self.outputs.value(i) for i in read}

    def _work(self, i: int) -> Work:
        """How to do a step. One that was not in the definition was found when it was accepted."""
        if i < len(self._works):
            return self._works[i]
        if self._works is self.flow.works:
            self._works = list(self._works)
        while len(self._works) <= i:
            assert self.flow.work_for is not None  # noqa: S101 - injections are refused without it
            self._works.append(self.flow.work_for(self.run.graph.workflow.steps[len(self._works)]))
        return self._works[i]

    def _answer(self, command: Command, batch: list[Event]) -> None:
        answer = self._answers.get(command.id)
        if answer is None or answer.done():
            return
        run = self.run
        event: Event
        if batch and isinstance(batch[0], CommandAccepted | CommandRefused):
            event = batch[0]
        elif run.ended:
            event = CommandRefused(run.seq, run.at, command.id, "", f"the run has ended ({run.status})")
        elif run.commands.get(command.id):  # seen before: the same answer again
            event = CommandRefused(run.seq, run.at, command.id, "", run.commands[command.id])
        else:
            event = CommandAccepted(run.seq, run.at, command)
        answer.set_result(event)

    # --- what work may ask of its engine ---

    def _task(self, effect: StartTask) -> Task:
        step = self.run.graph.ids[effect.step]
        return Task(self.id, step, effect.iteration, effect.item, effect.attempt)

    async def in_thread(self, call: Callable[[], Any]) -> Any:
        context = contextvars.copy_context()
        return await self.loop.run_in_executor(self.engine.threads, context.run, call)

    async def child(self, task: Task, flow: Prepared, inputs: dict[str, Any]) -> Ended:
        if self.id.count("/") >= DEEPEST:
            raise TaskFailure("child", f"runs are nested {DEEPEST} deep; does a workflow call itself?")
        id = child_id(self.id, task.step, iteration=task.iteration, item=task.item, attempt=task.attempt)
        allowance = usage.left(self.run, self.run.graph.index[task.step])
        child = await self.engine.child(flow, inputs, run=id, parent=self.id, allowance=allowance)
        if isinstance(child, Result):
            return child
        self.errands.mind(child, task)
        try:
            return await self.errands.end_of(child)
        except asyncio.CancelledError:
            child.abort("the parent run stopped")
            await asyncio.wait([child.finished])
            raise


def _plain(output: Any) -> tuple[Any, int]:
    """The output as JSON carries it (fresh, shared with nobody, the same after a restart), and its size."""
    try:
        text = _to_json(output)
        return _from_json(text), len(text)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise TaskFailure("output", f"the result is not JSON: {error}") from None


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
