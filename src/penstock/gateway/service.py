"""What the meta-tools do, whoever calls them: over MCP, over HTTP or in a test.

Every call answers within the time it was given, with a handle: how the run stands, what there is
to see, and what can be done about it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from penstock.errors import PenstockError
from penstock.gateway.definitions import DEFINITIONS
from penstock.gateway.handles import Handles
from penstock.gateway.results import Results
from penstock.ids import DecisionId, RunId, StepId
from penstock.run.commands import Abort, Command, Decide, InjectTasks, ReplanDag
from penstock.run.state import Run
from penstock.store.base import Store
from penstock.workflow import read
from penstock.workflow.spec import Step, Workflow

MOST_WAIT = 25.0
"""Seconds after which a client would give up."""

DEFAULT_WAIT = 10.0
AD_HOC = "ad-hoc"
"""The name of workflows that come from a caller."""

NAMES = tuple(definition.name for definition in DEFINITIONS)
SETTLED = ("waiting", "paused", "succeeded", "failed", "partial", "aborted")
"""Statuses in which nothing more comes of waiting."""

Match = Mapping[str, Any]
"""A tool that was found: `id`, `description`, `score`, and its schema where there is room for it."""


class Live(Protocol):
    """A run that goes on in this process."""

    @property
    def id(self) -> RunId: ...

    @property
    def state(self) -> Run: ...

    def observe(self, observer: Callable[[Any], None]) -> None: ...

    async def send(self, command: Command) -> Any: ...


class Runs(Protocol):
    """What the gateway needs of Penstock."""

    @property
    def store(self) -> Store: ...

    async def start_with(self, flow: Workflow, inputs: Mapping[str, Any]) -> Live: ...

    async def resume(self, id: str) -> Live: ...

    async def at(self, id: str) -> Run: ...

    def get(self, id: str) -> Live: ...


class Finder(Protocol):
    """Finds tools for an intent, within a budget of tokens."""

    async def find(self, intent: str, *, limit: int, schemas: bool) -> Mapping[str, Any]: ...


class Session:
    """One caller: it sees the runs that it started, and those whose handles it knows."""

    def __init__(self, runs: Runs, finder: Finder, handles: Handles) -> None:
        self._runs = runs
        self._finder = finder
        self._handles = handles
        self._own: list[RunId] = []
        self._moved: dict[RunId, tuple[Run, asyncio.Event]] = {}
        self._shown: dict[RunId, int] = {}
        """Up to which event of a run its results were shown."""
        self._before: dict[RunId, int] = {}
        """The same before the last answer."""
        self.put_to_person: set[str] = set()
        """Decisions that the client was asked to put to its person; once is enough."""

    async def call(self, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """One meta-tool. What is wrong with a call is an answer, not an exception."""
        if name not in NAMES:
            return _failure(f"there is no tool {name!r}; there are {', '.join(NAMES)}")
        try:
            answer: dict[str, Any] = await getattr(self, f"_{name}")(**args)
        except PenstockError as error:
            return _failure(str(error))
        return answer

    async def decide(
        self,
        run_id: str,
        decision: str,
        verb: str,
        *,
        args: Mapping[str, Any] | None = None,
        message: str = "",
        by: str,
    ) -> None:
        """Answer a pending decision. Raises `PenstockError` when the answer does not count."""
        id = self._handles.run(run_id)
        asker = RunId(decision.rpartition(":")[0])
        if asker != id and not asker.startswith(f"{id}/"):
            raise PenstockError(f"the decision {decision!r} is not one of this run")
        live = await self._live(id)
        if live is None:
            raise PenstockError("the run has ended")
        target = live if asker == id else self._runs.get(asker)
        await target.send(Decide(decision=DecisionId(decision), verb=verb, args=args, message=message, by=by))

    async def stand(self, run_id: str, wait_s: float) -> dict[str, Any]:
        """How a run stands, as soon as nothing more comes of waiting."""
        id = self._handles.run(run_id)
        live = await self._live(id)
        if live is None:
            return await self._handle(id, await self._runs.at(id))
        return await self._waited(live, wait_s)

    def show_again(self, run_id: str) -> None:
        """The last answer did not reach the caller: what was new in it is new in the next one."""
        id = self._handles.run(run_id)
        self._shown[id] = self._before.get(id, 0)

    async def _discover(self, intent: str, limit: int = 8, detail: str = "schemas") -> dict[str, Any]:
        return dict(await self._finder.find(intent, limit=limit, schemas=detail == "schemas"))

    async def _execute(
        self,
        tool: str = "",
        args: Mapping[str, Any] | None = None,
        steps: Sequence[Mapping[str, Any]] = (),
        intent: str = "",
        per_layer: bool = False,
        wait_s: float = DEFAULT_WAIT,
    ) -> dict[str, Any]:
        given = [name for name, one in (("tool", tool), ("steps", steps), ("intent", intent)) if one]
        if len(given) != 1:
            return _failure("give one of `tool`, `steps` or `intent`")
        if intent:
            found = await self._finder.find(intent, limit=8, schemas=True)
            return {
                "status": "suggestion",
                "options": ["execute with `steps`", "execute with `tool`"],
                **found,
            }
        plain = list(steps) if steps else [{"id": "call", "uses": tool, "with": dict(args or {})}]
        flow = _workflow(plain, per_layer=per_layer)
        live = await self._runs.start_with(flow, {})
        self._own.append(live.id)
        return await self._waited(live, wait_s)

    async def _continue(
        self, run_id: str, fetch: str = "", offset: int = 0, wait_s: float = DEFAULT_WAIT
    ) -> dict[str, Any]:
        id = self._handles.run(run_id)
        if fetch:
            return await Results(self._runs.store, await self._runs.at(id)).fetched(fetch, offset)
        live = await self._live(id)
        if live is None:
            return await self._handle(id, await self._runs.at(id))
        for asked in list(live.state.decisions.values()):
            if asked.kind == "ail":
                await live.send(Decide(decision=asked.decision, verb="approve", by="agent"))
        return await self._waited(live, wait_s)

    async def _respond(
        self,
        run_id: str,
        decision: str,
        verb: str,
        args: Mapping[str, Any] | None = None,
        message: str = "",
        wait_s: float = DEFAULT_WAIT,
    ) -> dict[str, Any]:
        await self.decide(run_id, decision, verb, args=args, message=message, by="agent")
        return await self.stand(run_id, wait_s)

    async def _replan(
        self,
        run_id: str,
        steps: Sequence[Mapping[str, Any]] = (),
        requirement: str = "",
        wait_s: float = DEFAULT_WAIT,
    ) -> dict[str, Any]:
        live = await self._live(self._handles.run(run_id))
        if live is None:
            return _failure("the run has ended")
        if bool(steps) == bool(requirement):
            return _failure("give `steps` or a `requirement`")
        command: Command = ReplanDag(requirement=requirement, by="agent")
        if steps:
            command = InjectTasks(steps=_steps(list(steps)), by="agent")
        await live.send(command)
        return await self._waited(live, wait_s)

    async def _abort(self, run_id: str, reason: str = "") -> dict[str, Any]:
        live = await self._live(self._handles.run(run_id))
        if live is None:
            return _failure("the run has ended")
        await live.send(Abort(reason=reason or "aborted by the agent", by="agent"))
        return await self._waited(live, DEFAULT_WAIT)

    async def _status(self, run_id: str = "") -> dict[str, Any]:
        if run_id:
            id = self._handles.run(run_id)
            return await self._handle(id, await self._runs.at(id))
        own = [(id, await self._runs.at(id)) for id in self._own]
        return {
            "status": "complete",
            "runs": [{"run_id": self._handles.of(id), "status": state.status} for id, state in own],
        }

    # --- handles ---

    async def _live(self, id: RunId) -> Live | None:
        """A run that can still be moved: one that nobody drives, after a restart, is taken up."""
        try:
            return self._runs.get(id)
        except PenstockError:
            if (await self._runs.at(id)).ended:
                return None
            return await self._runs.resume(id)

    async def _waited(self, live: Live, seconds: float) -> dict[str, Any]:
        """The handle, as soon as there is nothing to wait for, and in any case in time."""
        moved = self._heard(live)
        try:
            async with asyncio.timeout(min(max(seconds, 0.0), MOST_WAIT)):
                while live.state.status not in SETTLED:
                    moved.clear()
                    await moved.wait()
        except TimeoutError:
            pass  # it goes on; the handle says how it stands
        return await self._handle(live.id, live.state)

    def _heard(self, live: Live) -> asyncio.Event:
        """Set whenever something happens in a run. One observer a run, however often it is waited for."""
        known = self._moved.get(live.id)
        if known is None or known[0] is not live.state:
            event = asyncio.Event()
            live.observe(lambda _event: event.set())
            known = self._moved[live.id] = (live.state, event)
        return known[1]

    async def _handle(self, id: RunId, run: Run) -> dict[str, Any]:
        pending = [
            {
                "decision": asked.decision,
                "kind": asked.kind,
                "step": asked.step,
                "summary": asked.summary,
                "options": list(asked.options),
                **({"call": asked.call} if asked.kind == "approval" else {}),
            }
            for asked in run.decisions.values()
        ]
        answer: dict[str, Any] = {
            "status": _status(run),
            "run_id": self._handles.of(id),
            "checkpoint_id": f"{id}@{run.seq}",
            "results": {},
            "next": _next(run),
            "options": _options(run),
            "pending": pending,
        }
        if run.ended and run.outputs:
            answer["outputs"] = run.outputs
        if run.reason:
            answer["reason"] = run.reason
        before = self._before[id] = self._shown.get(id, 0)
        # Last, for the run goes on meanwhile: there may be more results than the status says, never fewer.
        answer["results"], self._shown[id] = await Results(self._runs.store, run).since(before)
        return answer


def _failure(why: str) -> dict[str, Any]:
    return {"status": "failed", "error": why}


def _status(run: Run) -> str:
    if run.ended:
        return "complete" if run.status == "succeeded" else run.status
    kinds = {asked.kind for asked in run.decisions.values()}
    if run.status == "waiting" or run.holding:
        if kinds == {"ail"}:
            return "layer_complete"
        return "approval_required" if "approval" in kinds else "decision_required"
    return run.status


def _next(run: Run) -> list[StepId]:
    """The steps that come next."""
    if run.ended:
        return []
    ids = run.graph.ids
    ready = [ids[i] for i, queued in enumerate(run.queued) if queued]
    return ready or [ids[i] for i, phase in enumerate(run.phase) if phase == 0 and not run.pending[i]]


def _options(run: Run) -> list[str]:
    if run.ended:
        return []
    verbs = ["continue", "replan", "abort"]
    return ["respond", *verbs] if any(one.kind != "ail" for one in run.decisions.values()) else verbs


def _workflow(steps: list[Any], *, per_layer: bool) -> Workflow:
    """A workflow that came from outside: checked like a file, without what only files may do."""
    data: dict[str, Any] = {"name": AD_HOC, "steps": steps}
    if per_layer:
        ail = {"at": "per_layer", "decider": "external", "on_timeout": "wait"}
        data["config"] = {"ail": ail}
    workflow = read.from_plain(data, "execute").workflow
    _bar(workflow.steps)
    return workflow


def _steps(steps: list[Any]) -> tuple[Step, ...]:
    """Steps for a run that exists: whether they fit it is for the run to say."""
    found = read.steps_from(steps, "replan")
    _bar(found)
    return found


def _bar(steps: Sequence[Step]) -> None:
    for step in steps:
        if step.uses.startswith(("py:", "workflow:")):
            raise PenstockError(f"{step.id}: only tools may be called here, not {step.uses!r}")
        if step.gate is not None and any(check.run for check in step.gate.checks):
            raise PenstockError(f"{step.id}: `run` checks are allowed only in workflow files")
