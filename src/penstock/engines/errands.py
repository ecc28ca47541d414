"""What a run has to find out besides doing its tasks: checks of gates, ties, plans, lessons."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.engines.base import Result, Tie
from penstock.engines.stream import Gap
from penstock.errors import PenstockError, Unfinished, UnknownTool
from penstock.policy import approval
from penstock.run.commands import Decide
from penstock.run.effects import (
    AskDecider,
    BreakTie,
    CheckGate,
    PrepareCall,
    RememberFailure,
    Replan,
    StartTask,
)
from penstock.run.events import Event, GateEscalated
from penstock.run.facts import ChildEscalated, GateFinished, Replanned, TaskRaised, TieBroken
from penstock.run.state import Place, dig, place
from penstock.tools.base import Task, Tool
from penstock.workflow.expr import Failure, Path

if TYPE_CHECKING:
    from penstock.engines.drive import Drive


log = logging.getLogger("penstock")


class Parked(Exception):
    """A child run only waits for a person: its parent's task need not wait with it."""

    def __init__(self, child: Drive) -> None:
        super().__init__(child.id)
        self.child = child


class Errands:
    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        self._checking: set[asyncio.Task[None]] = set()
        self._parked: dict[Place, Drive] = {}
        """Children that wait for a person, by the task that they are."""
        self.resting: list[Callable[[], None]] = []
        """Called when the run may have come to rest, or goes on."""

    def digest(self, effect: StartTask | PrepareCall, call: Mapping[str, Any]) -> str:
        """What an approval of this call is bound to."""
        run = self._drive.run
        return approval.digest(
            run=run.id, step=run.graph.ids[effect.step], iteration=effect.iteration, item=effect.item,
            uses=call["uses"], args=call["args"],
        )  # fmt: skip

    # --- gates ---

    def check_gate(self, effect: CheckGate) -> None:
        task = self._drive.chore(self._check(effect))
        self._checking.add(task)
        task.add_done_callback(self._checking.discard)

    def cancel(self, reason: str) -> None:
        """The run stops: checks under way are given up, and say so; children that wait are stopped."""
        for task in self._checking:
            task.cancel()
        for child in list(self._parked.values()):
            child.abort(f"the parent run stopped: {reason}" if reason else "the parent run stopped")

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
            template = [*drive.outputs.template(i).reads] if i in drive.run.graph.args else []
            fetched = await drive.outputs.fetch(drive.outputs.absent([*reads, *template]))
            args = drive.outputs.arguments(i, effect.item, fetched)
            checks = await check_gate(
                drive.run.graph.gates[i], self._around(effect, output, fetched), self._task(effect), drive,
                self._find, drive.clean,
            )  # fmt: skip
        except asyncio.CancelledError:
            if not drive.run.stopping:
                raise
            checks = ({"name": "gate", "status": "unavailable", "detail": "the run was stopped", "ms": 0.0},)
        given = {} if isinstance(args, Failure) else args
        drive.tell(GateFinished(i, checks, output, *place_, given))

    def _around(self, effect: CheckGate, output: Any, fetched: dict[int, Any]) -> Any:
        outputs = self._drive.outputs

        def look_up(path: Path) -> Any:
            if path[0] == "output":
                return dig(output, path[1:])
            if path[0] == "status":
                return "succeeded"
            return outputs.around(path, effect.step, effect.item, fetched)

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

    async def result_of(self, command: Decide) -> dict[int, Any]:
        """The result that someone accepts although its gate did not."""
        run = self._drive.run
        asked = run.decisions.get(command.decision)
        if asked is None or asked.kind != "gate" or asked.step is None:
            return {}
        i = run.graph.index[asked.step]
        found = run.checking.get(place(i, asked.item))
        if found is None:
            return {}
        return {i: await self._drive.outputs.checked(i, asked.item, found[0])}

    async def keep(self, effect: RememberFailure) -> None:
        """Keep an example. One that cannot be kept is no reason to stop."""
        with contextlib.suppress(PenstockError):
            await self._drive.engine.store.examples.add(effect.id, effect.example)

    async def remember(self, events: Sequence[Event]) -> None:
        """Failures that a process which died may not have had the time to keep."""
        for event in events:
            if isinstance(event, GateEscalated) and event.example:
                await self._drive.engine.store.examples.add(f"{self._drive.id}:{event.seq}", event.example)

    # --- children ---

    def mind(self, child: Drive, task: Task) -> None:
        """Tell the parent of a child's gates that call for a person."""
        parent = self._drive
        i = parent.run.graph.index[task.step]

        def tell(key: str, reason: str, *, unrecoverable: bool = False) -> None:
            parent.tell(ChildEscalated(i, key, reason, task.iteration, task.item, unrecoverable))

        def heard(event: Event | Gap) -> None:
            if isinstance(event, GateEscalated):
                key = event.child or f"{child.id}:{event.seq}"
                tell(key, event.reason, unrecoverable=event.unrecoverable)

        child.observe(heard)
        for asked in child.run.decisions.values():
            if asked.kind == "gate":  # the question comes right after the event that it follows from
                tell(f"{child.id}:{asked.seq - 1}", asked.summary)
        for key in sorted(child.run.copied):  # of its own children; what the root has heard it knows
            tell(key, "a gate below called for a person")

    async def end_of(self, child: Drive) -> Result:
        """How a child ends; `Parked` as soon as it only waits for a person."""
        waits: asyncio.Future[None] = self._drive.loop.create_future()

        def look() -> None:
            if child.run.status == "waiting" and not waits.done():
                waits.set_result(None)

        child.observe(lambda _event: look())
        child.errands.resting.append(look)
        look()
        both: tuple[asyncio.Future[Any], ...] = (child.finished, waits)
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if child.finished.done():
            return child.finished.result()
        raise Parked(child)

    def park(self, effect: StartTask, child: Drive) -> None:
        """Let a task rest until its child has ended; then it is done again, and finds how."""
        run, at = self._drive.run, place(effect.step, effect.item)
        self._parked[at] = child

        def look() -> None:
            if self._parked.get(at) is child:
                (run.resting.add if child.run.status == "waiting" else run.resting.discard)(at)
                for heard in self.resting:
                    heard()

        def ended(finished: asyncio.Future[Result]) -> None:
            if self._parked.pop(at, None) is None or self._drive.finished.done():
                return
            run.resting.discard(at)
            error = None if finished.cancelled() else finished.exception()
            if error is None:
                self._drive.start(effect)
            elif not isinstance(error, Unfinished):
                said = self._drive.clean(f"{type(error).__name__}: {error}")
                spot = (effect.iteration, effect.item, effect.attempt)
                self._drive.tell(TaskRaised(effect.step, said, "child", "", *spot))

        child.observe(lambda _event: look())
        child.errands.resting.append(look)
        child.finished.add_done_callback(ended)
        look()

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
                answer = await ask(question)
            fact = TieBroken(
                effect.step, str(answer["target"]), float(answer.get("confidence", 0.0)),
                drive.clean(str(answer.get("reasoning", "")))[:2000], "", effect.iteration,
            )  # fmt: skip
        except TimeoutError:
            error = f"the tie-breaker did not answer within {tie.timeout:g} s"
            fact = TieBroken(effect.step, error=error, iteration=effect.iteration)
        except Exception as error:  # noqa: BLE001 - someone else's code; the route has a way without it
            said = drive.clean(f"the tie-breaker failed: {_said(error)}")
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
            answer = await ask(question)
            said = drive.clean(str(answer.get("message", "")))[:2000]
            command = Decide(decision=effect.decision, verb=str(answer["verb"]), message=said, by="model")
            await drive.send(command)
        except Exception as error:  # noqa: BLE001 - someone else's code; the question stays open
            log.warning("%s: the model did not decide: %s", effect.decision, drive.clean(str(error)))

    async def replan(self, effect: Replan) -> None:
        drive = self._drive
        plan = drive.engine.planner
        if plan is None:
            drive.tell(Replanned(effect.decision, error="there is no planner", feeds=effect.feeds))
            return
        try:
            steps = tuple(await plan(drive.run, effect.requirement))
            problems, guarded = drive.look_over(steps)
            outputs = await drive.late_outputs(steps)
        except Exception as error:  # noqa: BLE001 - someone else's code; the run has a way without it
            said = drive.clean(f"the planner failed: {_said(error)}")
            drive.tell(Replanned(effect.decision, error=said, feeds=effect.feeds))
            return
        drive.tell(Replanned(effect.decision, steps, "", effect.feeds, problems, outputs, guarded))


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"


def _reads(check: Any) -> list[Path]:
    parts = (check.expr, check.args, check.run)
    return [path for part in parts if part is not None for path in part.reads]
