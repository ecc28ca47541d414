"""Calls that a person approves: made ready to be shown, and held against what was approved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.engines.outputs import as_json
from penstock.policy import approval
from penstock.run.effects import PrepareCall, StartTask
from penstock.run.facts import CallPrepared
from penstock.run.state import place
from penstock.steps.base import TaskFailure, Work

if TYPE_CHECKING:
    from penstock.engines.drive import Drive


class AnotherCall(Exception):
    """What was approved is not what would be called now."""

    def __init__(self, call: CallPrepared) -> None:
        super().__init__()
        self.call = call


class Approvals:
    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        self._run = drive.run

    async def prepare(self, effect: PrepareCall) -> None:
        """Make a call ready to be shown to whoever approves it."""
        i, at = effect.step, (effect.iteration, effect.item, effect.attempt)
        drive = self._drive
        work = drive.tasks.work(i)
        try:
            args, _ = as_json(await drive.tasks.arguments(effect))
            _check(work, args)
        except TaskFailure as error:
            said = drive.engine.clean(str(error))
            drive.tell(CallPrepared(i, {}, "", *at, said, error.kind))
            return
        harmless = work.asks is not None and not work.asks(args)
        call = self.call(work, i, args)
        digest, takes, kind = self._digest(effect, call), work.changes(args), drive.tasks.effect_of(effect)
        drive.tell(CallPrepared(i, call, digest, *at, harmless=harmless, takes=takes, effect=kind))

    def check(self, work: Work, effect: StartTask, args: dict[str, Any]) -> None:
        """What was approved is this call and no other. The last word before it is made."""
        if effect.item is None and effect.step in self._run.graph.for_each:
            return
        if work.asks is not None and not work.asks(args):
            return
        args = as_json(args)[0]
        call = self.call(work, effect.step, args)
        digest = self._digest(effect, call)
        if self._run.approved.get(place(effect.step, effect.item)) != digest:
            _check(work, args)
            at = (effect.iteration, effect.item, effect.attempt)
            takes, kind = work.changes(args), self._drive.tasks.effect_of(effect)
            raise AnotherCall(CallPrepared(effect.step, call, digest, *at, takes=takes, effect=kind))
        if work.approved is not None:
            work.approved()

    def call(self, work: Work, i: int, args: dict[str, Any]) -> dict[str, Any]:
        """A call as a person is shown it."""
        uses = self._run.graph.workflow.steps[i].uses
        call = work.shown(args) if work.shown is not None else {"uses": uses, "args": args}
        return {**call, "rule": work.ruled} if work.ruled else call

    def _digest(self, effect: StartTask | PrepareCall, call: Mapping[str, Any]) -> str:
        """What an approval of this call is bound to; what has become of its tool is part of it."""
        run = self._run
        return approval.digest(
            run=run.id, step=run.graph.ids[effect.step], iteration=effect.iteration, item=effect.item,
            uses=call["uses"] + call.get("changed", ""), args=call["args"],
        )  # fmt: skip


def _check(work: Work, args: dict[str, Any]) -> None:
    """Nobody is asked about a call that cannot be made: raises what its task would fail with."""
    if work.check is not None:
        work.check(dict(args))
