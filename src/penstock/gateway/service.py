"""What the meta-tools do, whoever calls them: over MCP, over HTTP or in a test.

Every call answers within the time it was given, with a handle: how the run stands, what there is
to see, and what can be done about it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.errors import PenstockError, UnknownRun
from penstock.gateway import adhoc, standing
from penstock.gateway.definitions import DEFINITIONS
from penstock.gateway.flows import Flows
from penstock.gateway.handles import Handles
from penstock.gateway.hearing import Hearing
from penstock.gateway.intents import Intents, Meant
from penstock.gateway.ports import Finder, Live, Runs
from penstock.gateway.results import Results
from penstock.gateway.standing import Progress, settled
from penstock.ids import DecisionId, RunId
from penstock.run.commands import Abort, Command, Decide, InjectTasks, ReplanDag
from penstock.run.state import Run
from penstock.store import listing
from penstock.tools.names import by_wire_name

MOST_WAIT = 25.0
"""Seconds after which a client would give up."""

DEFAULT_WAIT = 10.0
NAMES = tuple(definition.name for definition in DEFINITIONS)

Watch = Callable[[Live], object]
"""Is shown the run that a call waits for."""

Troubles = Callable[[], Sequence[str]]


class Standing(NamedTuple):
    """How a run stands."""

    answer: dict[str, Any]
    run: Run


class Session:
    """One caller: it sees the runs that it started, and those whose handles it knows."""

    def __init__(
        self,
        runs: Runs,
        finder: Finder,
        handles: Handles,
        *,
        flows: Flows | None = None,
        troubles: Troubles = lambda: (),
    ) -> None:
        """`flows` are the workflow files that may be run, `troubles` says what is wrong with servers."""
        self._runs = runs
        self._finder = finder
        self._handles = handles
        self._flows = flows or Flows(None)
        self._troubles = troubles
        self._calls = adhoc.Calls(runs.tools)
        self._own: list[RunId] = []
        self._heard: dict[RunId, Hearing] = {}
        self._shown: dict[RunId, int] = {}
        """Up to which event of a run its results were shown."""
        self._before: dict[RunId, int] = {}
        """The same before the last answer."""
        self.put_to_person: set[str] = set()
        """Decisions that the client was asked to put to its person; once is enough."""

    async def call(self, name: str, args: Mapping[str, Any], watch: Watch | None = None) -> dict[str, Any]:
        """One meta-tool. What is wrong with a call is an answer, not an exception."""
        if name not in NAMES:
            return _failure(f"there is no tool {name!r}; there are {', '.join(NAMES)}")
        given = {key: value for key, value in args.items() if key != "wait_s"}
        try:
            found: Live | dict[str, Any] = await getattr(self, f"_{name}")(**given)
            if isinstance(found, dict):
                return found
            if watch is not None:
                watch(found)
            return await self._waited(found, args.get("wait_s", DEFAULT_WAIT))
        except PenstockError as error:
            return _failure(str(error))

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

    async def standing(self, run_id: str, wait_s: float) -> Standing:
        """The same with all that there is to see, whatever was shown before."""
        id = self._handles.run(run_id)
        self._shown[id] = 0
        live = await self._live(id)
        if live is None:
            run = await self._runs.at(id)
            return Standing(await self._handle(id, run), run)
        return Standing(await self._waited(live, wait_s), live.state)

    async def changed(self, run_id: str) -> None:
        """Until something happens in a run that waits."""
        live = await self._live(self._handles.run(run_id))
        if live is not None and settled(live.state):
            await self.moved(live)

    async def moved(self, live: Live) -> None:
        await self._hearing(live).moved()

    def progress(self, live: Live) -> Progress:
        return standing.progress(live.state)

    @property
    def own(self) -> list[str]:
        """The handles of runs that this caller started."""
        return [self._handles.of(id) for id in self._own]

    def show_again(self, run_id: str) -> None:
        """The last answer did not reach the caller: what was new in it is new in the next one."""
        id = self._handles.run(run_id)
        self._shown[id] = self._before.get(id, 0)

    # --- the meta-tools; a run that they give back is waited for ---

    async def _discover(self, intent: str, limit: int = 8, detail: str = "schemas") -> dict[str, Any]:
        found = await self._finder.find(intent, limit=limit, schemas=detail == "schemas")
        return self._with_troubles({**found})

    async def _execute(
        self,
        tool: str = "",
        args: Mapping[str, Any] | None = None,
        steps: Sequence[Mapping[str, Any]] = (),
        workflow: str = "",
        intent: str = "",
        per_layer: bool = False,
    ) -> Live | dict[str, Any]:
        if len([one for one in (tool, steps, workflow, intent) if one]) != 1:
            return _failure("give one of `tool`, `steps`, `workflow` or `intent`")
        if tool:
            return await self._one(tool, args or {})
        if steps:
            return self._began(await self._runs.start_with(adhoc.workflow(steps, per_layer=per_layer), {}))
        if workflow:
            return self._began(await self._runs.start_with(self._flows.path(workflow), args or {}))
        meant = await Intents(self._runs, self._finder, self._flows).meant(intent, args or {})
        return await self._carried_out(meant, args or {})

    async def _one(self, tool: str, args: Mapping[str, Any], *, asked: bool = False) -> Live:
        id = tool if ":" in tool else by_wire_name(tool, self._runs.tools.ids())
        flow = self._calls.flow(id, tuple(args), asked=asked)
        return self._began(await self._runs.start_with(flow, {adhoc.ARGS: args}))

    async def _carried_out(self, meant: Meant, args: Mapping[str, Any]) -> Live | dict[str, Any]:
        if meant.workflow is not None:
            return self._began(await self._runs.start_with(meant.workflow, args))
        if meant.tool:
            return await self._one(meant.tool, args, asked=meant.ask)
        return self._with_troubles(meant.answer)

    async def _continue(self, run_id: str, fetch: str = "", offset: int = 0) -> Live | dict[str, Any]:
        id = self._handles.run(run_id)
        if fetch:
            return await Results(self._runs.store, await self._runs.at(id)).fetched(fetch, offset)
        live = await self._live(id)
        if live is None:
            return await self._handle(id, await self._runs.at(id))
        for asked in list(live.state.decisions.values()):
            if asked.kind == "ail":
                await live.send(Decide(decision=asked.decision, verb="approve", by="agent"))
        return live

    async def _respond(
        self,
        run_id: str,
        decision: str,
        verb: str,
        args: Mapping[str, Any] | None = None,
        message: str = "",
    ) -> Live | dict[str, Any]:
        await self.decide(run_id, decision, verb, args=args, message=message, by="agent")
        id = self._handles.run(run_id)
        return await self._live(id) or await self._handle(id, await self._runs.at(id))

    async def _replan(
        self, run_id: str, steps: Sequence[Mapping[str, Any]] = (), requirement: str = ""
    ) -> Live | dict[str, Any]:
        live = await self._live(self._handles.run(run_id))
        if live is None:
            return _failure("the run has ended")
        if bool(steps) == bool(requirement):
            return _failure("give `steps` or a `requirement`")
        command: Command = ReplanDag(requirement=requirement, by="agent")
        if steps:
            command = InjectTasks(steps=adhoc.added(steps), by="agent")
        await live.send(command)
        return live

    async def _abort(self, run_id: str, reason: str = "") -> Live | dict[str, Any]:
        live = await self._live(self._handles.run(run_id))
        if live is None:
            return _failure("the run has ended")
        await live.send(Abort(reason=reason or "aborted by the agent", by="agent"))
        return live

    async def _status(self, run_id: str = "") -> dict[str, Any]:
        if run_id:
            id = self._handles.run(run_id)
            return await self._handle(id, *await self._stands(id))
        own = [(id, standing.status(*await self._stands(id))) for id in self._own]
        return self._with_troubles(
            {
                "status": "complete",
                "runs": [{"run_id": self._handles.of(id), "status": status} for id, status in own],
            }
        )

    # --- handles ---

    async def _stands(self, id: RunId) -> tuple[Run, str]:
        """A run that is not to be moved, and what is said of it where `penstock runs` looks."""
        try:
            return self._runs.get(id).state, ""
        except UnknownRun:
            record = await listing.found(self._runs.store, id)
            return await self._runs.at(id), record.status

    async def _live(self, id: RunId) -> Live | None:
        """A run that can still be moved: one that nobody drives, after a restart, is taken up."""
        try:
            return self._runs.get(id)
        except PenstockError:
            if (await self._runs.at(id)).ended:
                return None
            return await self._runs.resume(id)

    def _began(self, live: Live) -> Live:
        """A run of ours. What it gives is heard from its beginning, and need not be read from the store."""
        self._own.append(live.id)
        heard = self._hearing(live)
        if heard.nothing_before:
            self._shown[live.id] = heard.since
        return live

    async def _waited(self, live: Live, seconds: float) -> dict[str, Any]:
        """The handle, as soon as there is nothing to wait for, and in any case in time."""
        heard = self._hearing(live)
        try:
            async with asyncio.timeout(min(max(seconds, 0.0), MOST_WAIT)):
                while not settled(live.state):
                    await heard.moved()
        except TimeoutError:
            pass  # it goes on; the handle says how it stands
        return await self._handle(live.id, live.state)

    def _hearing(self, live: Live) -> Hearing:
        """One for a run, however often it is waited for."""
        known = self._heard.get(live.id)
        if known is None or known.state is not live.state:
            known = self._heard[live.id] = Hearing(live)
        return known

    async def _handle(self, id: RunId, run: Run, stands: str = "") -> dict[str, Any]:
        answer = standing.handle(run, id, self._handles.of(id), stands)
        before = self._before[id] = self._shown.get(id, 0)
        # Last, for the run goes on meanwhile: there may be more results than the status says, never fewer.
        answer["results"], self._shown[id] = await self._results(id, run, before)
        if run.ended:
            self._heard.pop(id, None)
        return answer

    async def _results(self, id: RunId, run: Run, before: int) -> tuple[dict[str, Any], int]:
        results = Results(self._runs.store, run)
        heard = self._heard.get(id)
        if heard is None or heard.state is not run or heard.since > before or not await heard.caught_up():
            return await results.since(before)
        last = heard.last
        return await results.shown(heard.ends(before)), last

    def _with_troubles(self, answer: dict[str, Any]) -> dict[str, Any]:
        """An answer, and what is wrong with servers: their tools are missing from it."""
        troubles = list(self._troubles())
        return {**answer, "problems": troubles} if troubles else answer


def _failure(why: str) -> dict[str, Any]:
    return {"status": "failed", "error": why}
