"""The one door to the core: facts in, effects out.

Each fact goes through the core once, and facts that come while one is being handled wait their
turn. Everything happens on one event loop, so there is nothing to lock.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, assert_never

from penstock.engines.growth import Growth
from penstock.run.commands import OVERTAKING
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
    HandInput,
    PrepareCall,
    RememberFailure,
    Replan,
    StartDeadline,
    StartTask,
    StartTimer,
    asks,
    effects,
)
from penstock.run.events import Event
from penstock.run.facts import (
    BackoffElapsed,
    CommandReceived,
    DecisionExpired,
    Fact,
    ItemsCounted,
    TaskRaised,
)
from penstock.workflow.expr import Failure

if TYPE_CHECKING:
    from penstock.engines.drive import Drive


class Door:
    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        self._run = drive.run
        self._journal = drive.journal
        self._lasting = drive.journal.lasting
        self._stream = drive.stream
        self._engine = drive.engine
        self._facts: deque[Fact] = deque()
        self.shut = False
        """While it is, facts wait outside."""
        self._growth = Growth(
            drive.run.id, drive.engine.wall(), lasting=self._lasting, size=drive.engine.size
        )

    def connect(self) -> None:
        """Everyone whom facts and effects concern is there now."""
        self._answers = self._drive.commands.answers
        self._take = self._drive.record.take
        self._start = self._drive.tasks.start

    def tell(self, fact: Fact) -> None:
        """Bring a fact, and see to everything that comes of it."""
        if not self.shut:
            self._let_in(fact)
        elif type(fact) is CommandReceived and isinstance(fact.command, OVERTAKING):
            self._facts.appendleft(fact)
        else:
            self._facts.append(fact)

    def follow_up(self, batch: list[Event]) -> None:
        """What comes of a batch that is durable already; then let the facts in that came meanwhile."""
        self._stream.publish(batch)
        self._drive.record.note_status()
        self.shut = True  # facts that come of it wait until all of it is carried out
        try:
            for effect in effects(self._run, batch):
                self.carry_out(effect)
        except BaseException:
            self.shut = False
            raise
        self.open()

    def open(self) -> None:
        """Let the facts in that came while it was shut."""
        try:
            self._ask()
        finally:
            self.shut = False
        if self._facts:
            self._let_in(self._facts.popleft())

    def _let_in(self, fact: Fact) -> None:
        run, facts, wall = self._run, self._facts, self._engine.wall
        self.shut = True
        try:
            while True:
                now = wall()
                batch = decide(run, fact, now)
                if now >= self._growth.due:
                    self._growth.look(now)
                if self._answers and type(fact) is CommandReceived:
                    self._drive.commands.answer(fact.command, batch)
                if batch:
                    if self._lasting:
                        self._take(batch)
                    else:
                        self._journal.append(batch)
                        if type(fact) is CommandReceived:
                            self._drive.outputs.saw(batch)  # someone may have given an output
                        self._stream.publish(batch)
                        for effect in effects(run, batch):
                            if type(effect) is StartTask:
                                self._start(effect)
                            else:
                                self.carry_out(effect)
                if run.wanted:
                    self._ask()
                if not facts:
                    break
                fact = facts.popleft()
        except Exception as error:  # noqa: BLE001 - our own bug: it must surface, not look like success
            self._drive.crash(error)
        finally:
            self.shut = False

    def _ask(self) -> None:
        """Find out what the core wants to know."""
        for effect in asks(self._run):
            self.carry_out(effect)

    def carry_out(self, effect: Effect) -> None:
        drive = self._drive
        match effect:
            case StartTask():
                self._start(effect)
            case ExpandMap():
                self._expand(effect)
            case StartTimer():
                fact = BackoffElapsed(effect.step, effect.iteration, effect.item, effect.attempt)
                left = effect.delay if effect.until is None else max(0.0, effect.until - drive.engine.wall())
                drive.timers.later(left, fact)
            case CancelTasks():
                drive.timers.clear()
                drive.errands.cancel()
                drive.children.abort(effect.reason)
                drive.tasks.cancel()
            case CollectOutputs():
                self._collect()
            case EndRun():
                drive.end()
            case PrepareCall():
                drive.timers.chore(drive.approvals.prepare(effect))
            case CheckGate():
                drive.errands.check_gate(effect)
            case BreakTie():
                drive.timers.chore(drive.errands.break_tie(effect))
            case StartDeadline():
                left = max(0.0, effect.at - drive.engine.wall())
                drive.timers.later(left, DecisionExpired(effect.decision))
            case AskDecider():
                drive.timers.chore(drive.errands.ask_decider(effect))
            case Replan():
                drive.timers.chore(drive.errands.replan(effect))
            case HandInput():
                drive.inputs.hand(effect)
            case RememberFailure():
                drive.engine.errand(drive.errands.keep(effect))  # the run may end before it is kept
            case _:
                assert_never(effect)

    # --- expressions that read whole outputs ---

    def _expand(self, effect: ExpandMap) -> None:
        drive = self._drive
        absent = drive.reading.missing_items(effect.step)
        if absent:
            drive.timers.chore(self._expand_from(effect, absent))
        else:
            self._expanded(effect, drive.reading.expand(effect.step))

    async def _expand_from(self, effect: ExpandMap, absent: list[int]) -> None:
        fetched = await self._drive.outputs.fetch(absent)
        self._expanded(effect, self._drive.reading.expand(effect.step, fetched))

    def _expanded(self, effect: ExpandMap, items: list[object] | Failure) -> None:
        if isinstance(items, Failure):
            error = self._drive.engine.clean(f"for_each: {items.message}")
            self.tell(TaskRaised(effect.step, error, "expression", iteration=effect.iteration))
            return
        self._drive.outputs.open_map(effect.step, items)
        self.tell(ItemsCounted(effect.step, items, effect.iteration))

    def _collect(self) -> None:
        absent = self._drive.reading.missing_outputs()
        if absent:
            self._drive.timers.chore(self._collect_from(absent))
        else:
            self.tell(self._drive.reading.collect())

    async def _collect_from(self, absent: list[int]) -> None:
        self.tell(self._drive.reading.collect(await self._drive.outputs.fetch(absent)))
