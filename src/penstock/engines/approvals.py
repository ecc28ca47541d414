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
        try:
            args, _ = as_json(await drive.tasks.arguments(effect))
        except TaskFailure as error:
            said = drive.engine.clean(str(error))
            drive.tell(CallPrepared(i, {}, "", *at, said, error.kind))
            return
        work = drive.tasks.work(i)
        harmless = work.asks is not None and not work.asks(args)
        call = self._call(work, i, args)
        digest, takes = self._digest(effect, call), work.changes(args)
        drive.tell(CallPrepared(i, call, digest, *at, harmless=harmless, takes=takes))

    def check(self, work: Work, effect: StartTask, args: dict[str, Any]) -> None:
        """What was approved is this call and no other. The last word before it is made."""
        if effect.item is None and effect.step in self._run.graph.for_each:
            return
        if work.asks is not None and not work.asks(args):
            return
        args = as_json(args)[0]
        call = self._call(work, effect.step, args)
        digest = self._digest(effect, call)
        if self._run.approved.get(place(effect.step, effect.item)) != digest:
            at = (effect.iteration, effect.item, effect.attempt)
            raise AnotherCall(CallPrepared(effect.step, call, digest, *at, takes=work.changes(args)))
        if work.approved is not None:
            work.approved()

    def _call(self, work: Work, i: int, args: dict[str, Any]) -> dict[str, Any]:
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
