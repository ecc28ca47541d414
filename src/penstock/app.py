"""The only wiring: settings become a store, tools and an engine, and workflows become runs."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from penstock import settings
from penstock.engines.base import LiveRun, Result, StepResult, step_results
from penstock.engines.native import NativeEngine
from penstock.engines.stream import Gap
from penstock.errors import PenstockError, Problem, UnknownRun, Unsupported
from penstock.ids import RunId, StepId
from penstock.run.commands import Command
from penstock.run.events import Event
from penstock.run.replay import replay
from penstock.run.state import Run
from penstock.steps.base import Prepared
from penstock.steps.prepare import Flow, Preparer
from penstock.store.base import Store
from penstock.store.memory import MemoryStore
from penstock.tools.base import Tool
from penstock.tools.functions import Functions
from penstock.workflow.graph import compile_graph
from penstock.workflow.inputs import check_inputs


def open(
    store: str | None = None,
    *,
    engine: str | None = None,
    tools: Iterable[Tool | Callable[..., Any]] = (),
) -> Penstock:
    """Penstock, ready to run workflows. Use it as `async with ps.open() as penstock`."""
    return Penstock(settings.read(store=store, engine=engine), tools=tools)


def run(flow: Flow, /, *, tools: Iterable[Tool | Callable[..., Any]] = (), **inputs: Any) -> Result:
    """Run a workflow to its end: `open`, `start` and `result` for scripts and notebooks."""

    async def go() -> Result:
        async with open(tools=tools) as penstock:
            return await (await penstock.start(flow, **inputs)).result()

    return asyncio.run(go())


def new_run_id() -> RunId:
    """Sortable by time, unique without asking anyone: 9 characters of time, 7 of chance."""
    alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
    number = (time.time_ns() // 1_000_000) << 35 | secrets.randbits(35)
    return RunId("".join(alphabet[(number >> shift) & 31] for shift in range(75, -1, -5)))


class RunHandle:
    """A run you started: watch it, steer it, wait for it."""

    def __init__(self, live: LiveRun, penstock: Penstock) -> None:
        self._live = live
        self._penstock = penstock

    @property
    def id(self) -> RunId:
        return self._live.id

    @property
    def state(self) -> Run:
        """As it stands now: `status`, `messages`, `context` … Changes under your eyes; never write to it."""
        return self._live.state

    @property
    def status(self) -> str:
        return self._live.state.status

    @property
    def steps(self) -> dict[StepId, StepResult]:
        return step_results(self._live.state)

    def events(self, *, after: int = 0) -> AsyncIterator[Event | Gap]:
        """Every event past `after`, then the new ones as they come, until the run ends."""
        return self._live.follow(after=after)

    def observe(self, observer: Callable[[Event], None]) -> None:
        """Call `observer` with each event from now on. It must not block; what it raises is dropped."""
        self._live.observe(observer)

    async def send(self, command: Command) -> Event:
        """Steer the run. Returns the event that accepted the command, or raises `CommandRejected`."""
        return await self._live.send(command)

    async def result(self) -> Result:
        """Wait for the end. A failed run is a result, not an exception; `.check()` makes it one."""
        return await self._live.result()

    async def at(self, seq: int) -> Run:
        """The run as it stood after event `seq`."""
        return await self._penstock.at(self.id, seq)


class Penstock:
    """A store, a catalog of tools and an engine, wired together."""

    def __init__(
        self, configuration: settings.Settings, *, tools: Iterable[Tool | Callable[..., Any]] = ()
    ) -> None:
        self.settings = configuration
        self.store: Store = _store(configuration.store)
        self.tools = Functions(tools)
        self.engine = NativeEngine(self.store)
        if configuration.engine not in ("native", "auto"):
            raise Unsupported(
                [Problem(f"engine {configuration.engine!r} is not carried out by this version")]
            )
        self._preparer = Preparer(self.tools)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self.engine.close()
        await self.store.close()

    async def resume(self, id: str) -> RunHandle:
        """Go on with a run that stopped before its end. What has finished is not done again."""
        run = RunId(id)
        workflow = await self.store.definition(run)
        return RunHandle(await self.engine.resume(self.prepare(workflow), run), self)

    async def start(self, flow: Flow, /, **inputs: Any) -> RunHandle:
        """Start a run and return at once. Nothing is executed when anything is wrong with it."""
        return await self.start_with(flow, inputs)

    async def start_with(
        self, flow: Flow, inputs: Mapping[str, Any], *, durations: Mapping[StepId, float] | None = None
    ) -> RunHandle:
        """`start` with the inputs as a mapping, and expected durations where they are known."""
        prepared = self.prepare(flow)
        checked = check_inputs(prepared.graph.workflow, inputs)
        if durations:
            prepared = replace(prepared, durations={**prepared.durations, **durations})
        return RunHandle(await self.engine.start(prepared, checked, run=new_run_id()), self)

    def prepare(self, flow: Flow) -> Prepared:
        """Everything a workflow calls found and checked, or an error that says all that is wrong."""
        return self._preparer.prepare(flow)

    async def at(self, id: RunId, seq: int) -> Run:
        """A run as it stood after event `seq`."""
        graph = compile_graph(await self.store.definition(id))
        events = await self.store.load(id)
        if not 0 <= seq <= len(events):
            msg = f"run {id} has events 1 to {len(events)}; there is no event {seq}"
            raise PenstockError(msg)
        return replay(id, graph, events, until=seq)

    def get(self, id: str) -> RunHandle:
        """A run that is going on in this process."""
        try:
            return RunHandle(self.engine.live[RunId(id)], self)
        except KeyError:
            raise UnknownRun(id) from None


def _store(url: str) -> Store:
    """The store that a URL names."""
    kind, _, rest = url.partition(":")
    if kind == "memory":
        return MemoryStore()
    if kind == "sqlite":
        from penstock.store.sqlite.store import SqliteStore

        return SqliteStore(rest.removeprefix("///"))
    hint = "memory:, sqlite:///path or postgresql://…"
    raise Unsupported([Problem(f"{url!r} is not a store", hint)])
