"""What a run has to find out besides doing its tasks: checks of gates, ties, plans, lessons."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.engines.base import Tie
from penstock.errors import PenstockError, UnknownTool
from penstock.ids import StepId
from penstock.run.commands import Decide
from penstock.run.effects import AskDecider, BreakTie, CheckGate, RememberFailure, Replan
from penstock.run.events import Event, GateEscalated
from penstock.run.facts import GateFinished, ModelsAsked, Replanned, TieBroken
from penstock.run.scope import dig
from penstock.steps.base import Billed, TaskFailure
from penstock.tools.base import Task, Tool
from penstock.workflow.expr import Failure, Path

if TYPE_CHECKING:
    from penstock.engines.drive import Drive


log = logging.getLogger("penstock")


class Errands:
    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        self._checking: set[asyncio.Task[None]] = set()

    # --- gates ---

    def check_gate(self, effect: CheckGate) -> None:
        task = self._drive.timers.chore(self._check(effect))
        self._checking.add(task)
        task.add_done_callback(self._checking.discard)

    def cancel(self) -> None:
        """The run stops: checks under way are given up, and say so."""
        for task in self._checking:
            task.cancel()

    async def _check(self, effect: CheckGate) -> None:
        from penstock.steps.check_gate import check_gate  # most workflows have no gates

        drive = self._drive
        i, place_ = effect.step, (effect.iteration, effect.item, effect.attempt)
        output: Any = None
        args: dict[str, Any] | Failure = {}
        try:
            if effect.delay:
                await asyncio.sleep(effect.delay)
            output = await self._result(effect)
            reads = [path for check in drive.run.graph.gates[i] for path in _reads(check)]
            absent = drive.outputs.absent([*reads, *drive.reading.reads(i)])
            fetched = await drive.outputs.fetch(absent)
            args = drive.reading.render(i, effect.item, fetched)
            checks = await check_gate(
                drive.run.graph.gates[i], self._around(effect, output, fetched), self._task(effect),
                drive.children, self._find, drive.engine.clean,
            )  # fmt: skip
        except asyncio.CancelledError:
            if not drive.run.stopping:
                raise
            checks = ({"name": "gate", "status": "unavailable", "detail": "the run was stopped", "ms": 0.0},)
        given = {} if isinstance(args, Failure) else args
        takes = drive.tasks.work(i).changes(given)
        drive.tell(GateFinished(i, checks, output, *place_, given, takes, drive.tasks.effect_of(effect)))

    def _around(self, effect: CheckGate, output: Any, fetched: Mapping[int, Any]) -> Any:
        reading = self._drive.reading

        def look_up(path: Path) -> Any:
            if path[0] == "output":
                return dig(output, path[1:])
            if path[0] == "status":
                return "succeeded"
            return reading.around(path, effect.step, effect.item, fetched)

        return look_up

    async def _result(self, effect: CheckGate) -> Any:
        """The result that the gate is about: at hand, unless another process had it made."""
        return await self._drive.outputs.checked(effect.step, effect.item, effect.seq)

    def _task(self, effect: CheckGate) -> Task:
        drive = self._drive
        step = drive.run.graph.ids[effect.step]
        return Task(drive.id, step, effect.iteration, effect.item, effect.attempt)

    def _find(self, uses: str) -> Tool:
        find = self._drive.flow.find
        if find is None:
            raise UnknownTool(uses)
        return find(uses)

    async def keep(self, effect: RememberFailure) -> None:
        """Keep an example. One that cannot be kept is no reason to stop."""
        with contextlib.suppress(PenstockError):
            await self._drive.engine.store.examples.add(effect.id, effect.example)

    async def remember(self, events: Sequence[Event]) -> None:
        """Failures that a process which died may not have had the time to keep."""
        for event in events:
            if isinstance(event, GateEscalated) and event.example:
                await self._drive.engine.store.examples.add(f"{self._drive.id}:{event.seq}", event.example)

    # --- ties and plans ---

    async def break_tie(self, effect: BreakTie) -> None:
        drive = self._drive
        step = drive.run.graph.workflow.steps[effect.step]
        tie = step.routing.tie_breaker if step.routing else None
        ask = drive.engine.tie_breaker
        if ask is None or tie is None:
            drive.tell(TieBroken(effect.step, error="there is no tie-breaker", iteration=effect.iteration))
            return
        try:
            output = (await drive.outputs.of(effect.step)) if effect.step >= 0 else None
            question = Tie(drive.id, step.id, effect.candidates, tie.prompt_hint, output)
            async with asyncio.timeout(tie.timeout):
                answer = await self._asked(ask(question), step.id)
            fact = TieBroken(
                effect.step, str(answer["target"]), float(answer.get("confidence", 0.0)),
                drive.engine.clean(str(answer.get("reasoning", "")))[:2000], "", effect.iteration,
            )  # fmt: skip
        except TimeoutError:
            error = f"the tie-breaker did not answer within {tie.timeout:g} s"
            fact = TieBroken(effect.step, error=error, iteration=effect.iteration)
        except Exception as error:  # noqa: BLE001 - someone else's code; the route has a way without it
            said = drive.engine.clean(f"the tie-breaker failed: {_said(error)}")
            fact = TieBroken(effect.step, error=said, iteration=effect.iteration)
        drive.tell(fact)

    async def ask_decider(self, effect: AskDecider) -> None:
        """A model's answer is a command like anyone's; without one the deadline decides."""
        drive = self._drive
        question = drive.run.decisions.get(effect.decision)
        ask = drive.engine.decider
        if question is None or ask is None:
            return
        try:
            answer = await self._asked(ask(question), question.step)
            said = drive.engine.clean(str(answer.get("message", "")))[:2000]
            command = Decide(decision=effect.decision, verb=str(answer["verb"]), message=said, by="model")
            await drive.send(command)
        except Exception as error:  # noqa: BLE001 - someone else's code; the question stays open
            log.warning("%s: the model did not decide: %s", effect.decision, drive.engine.clean(str(error)))

    async def _asked(self, answer: Awaitable[Any], step: StepId | None) -> Mapping[str, Any]:
        """What someone says, and what models cost in finding it, whatever came of it."""
        try:
            said = await answer
        except TaskFailure as error:
            self._bill(error.bill, step)
            raise
        if isinstance(said, Billed):
            self._bill(said, step)
            said = said.output
        return said  # type: ignore[no-any-return]  # someone else's code: whoever reads it checks it

    def _bill(self, bill: Billed, step: StepId | None) -> None:
        if bill.calls:
            self._drive.tell(ModelsAsked(bill.calls, step))

    async def replan(self, effect: Replan) -> None:
        drive = self._drive
        plan = drive.engine.planner
        if plan is None:
            drive.tell(Replanned(effect.decision, error="there is no planner", feeds=effect.feeds))
            return
        try:
            steps = tuple(await plan(drive.run, effect.requirement))
            problems, guarded = await drive.commands.look_over(steps)
            outputs = await drive.commands.late_outputs(steps)
        except Exception as error:  # noqa: BLE001 - someone else's code; the run has a way without it
            said = drive.engine.clean(f"the planner failed: {_said(error)}")
            drive.tell(Replanned(effect.decision, error=said, feeds=effect.feeds))
            return
        drive.tell(Replanned(effect.decision, steps, "", effect.feeds, problems, outputs, guarded))


def _said(error: Exception) -> str:
    ours = isinstance(error, PenstockError | TaskFailure)
    return str(error) if ours else f"{type(error).__name__}: {error}"


def _reads(check: Any) -> list[Path]:
    parts = (check.expr, check.args, check.run)
    return [path for part in parts if part is not None for path in part.reads]
