"""The only wiring: settings become a store, tools and an engine, and workflows become runs."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from penstock import settings
from penstock.engines.base import LiveRun, Result, StepResult, step_results
from penstock.engines.native import NativeEngine
from penstock.engines.stream import Gap
from penstock.errors import DefinitionError, PenstockError, Problem, UnknownRun, UnknownTool, Unsupported
from penstock.ids import RunId, StepId
from penstock.run.commands import Command
from penstock.run.events import Event
from penstock.run.replay import replay
from penstock.run.state import Run
from penstock.steps import call_tool, run_workflow
from penstock.steps.base import Prepared, Work
from penstock.store.base import Store
from penstock.store.memory import MemoryStore
from penstock.tools.base import Tool
from penstock.tools.functions import Functions, complaints, tool_of
from penstock.workflow.builder import WorkflowBuilder
from penstock.workflow.graph import Graph, compile_graph
from penstock.workflow.inputs import check_inputs
from penstock.workflow.read import Source, load
from penstock.workflow.spec import Step, Workflow
from penstock.workflow.support import unsupported

Flow = WorkflowBuilder | Workflow | Source | str | Path
"""What can be run: something built, something loaded, or the path of a file."""

_PREPARED = 128
"""Workflows kept ready to run."""


def open(  # noqa: A001 - `ps.open()` is the public name
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

    async def events(self, *, after: int = 0) -> AsyncIterator[Event | Gap]:
        """Every event past `after`, then the new ones as they come, until the run ends."""
        async for event in self._live.follow(after=after):
            yield event

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
            raise Unsupported([Problem(f"engine {configuration.engine!r} is not carried out by this version")])
        self._prepared: OrderedDict[int, tuple[Any, Prepared]] = OrderedDict()

    async def __aenter__(self) -> Penstock:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self.engine.close()
        await self.store.close()

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
            prepared = Prepared(
                prepared.graph, prepared.works, prepared.source, prepared.reducers, prepared.work_for, dict(durations)
            )
        return RunHandle(await self.engine.start(prepared, checked, run=new_run_id()), self)

    def prepare(self, flow: Flow) -> Prepared:
        """Everything found and checked, or an error that says all that is wrong."""
        found = _Found.of(flow)
        key = id(found.workflow)
        kept = self._prepared.get(key)
        if kept is not None:
            self._prepared.move_to_end(key)
            return kept[1]
        prepared = self._prepare(found)
        self._prepared[key] = (found.workflow, prepared)  # holding the workflow keeps its id from being reused
        if len(self._prepared) > _PREPARED:
            self._prepared.popitem(last=False)
        return prepared

    def _prepare(self, found: _Found) -> Prepared:
        workflow = found.workflow
        missing = unsupported(workflow)
        if missing:
            raise Unsupported(missing)
        graph = found.graph or compile_graph(workflow)
        works: list[Work] = []
        problems: list[Problem] = []
        for position, step in enumerate(workflow.steps):
            try:
                works.append(self._work(step, found))
            except UnknownTool as error:
                file, line, column = found.locate(("steps", position, "uses"))
                where = f"steps.{step.id}.uses"
                message = f"unknown tool {error.tool!r}"
                problems.append(Problem(message, error.hint, where=where, file=file, line=line, column=column))
            except DefinitionError as error:
                problems.extend(error.problems)
        if problems:
            raise DefinitionError(problems)
        reducers = {
            key: self.tools.find(name, folder=found.folder).call
            for key, name in workflow.reducers.items()
            if name.startswith("py:")
        }
        return Prepared(graph, works, found.file, reducers, lambda step: self._work(step, _Found(workflow)))

    def _work(self, step: Step, found: _Found) -> Work:
        if step.uses.startswith("workflow:"):
            name = step.uses.removeprefix("workflow:")
            child = found.child(name)
            return run_workflow.work(step, lambda: self.prepare(child))
        function = found.functions.get(step.id)
        tool = tool_of(function, id=step.uses) if function else self.tools.find(step.uses, folder=found.folder)
        wrong = complaints(tool, step.with_)
        if wrong:
            raise DefinitionError([found.problem(step, *each) for each in wrong])
        return call_tool.work(step, tool)

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


class _Found:
    """A definition and what came with it: functions, children, a file to point at."""

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self.graph: Graph | None = None
        self.functions: Mapping[StepId, Callable[..., Any]] = {}
        self.children: Mapping[str, Any] = {}
        self.file = ""
        self.source: Source | None = None

    @classmethod
    def of(cls, flow: Flow) -> _Found:
        if isinstance(flow, Workflow):
            return cls(flow)
        if isinstance(flow, WorkflowBuilder):
            found = cls(flow.build())
            found.functions, found.children = flow.functions, flow.children
            found.graph = flow.graph
            return found
        source = flow if isinstance(flow, Source) else load(Path(flow))
        found = cls(source.workflow)
        found.source, found.file, found.graph = source, source.file, source.graph
        return found

    @property
    def folder(self) -> str | None:
        return str(Path(self.file).resolve().parent) if self.file else None

    def locate(self, path: tuple[str | int, ...]) -> tuple[str, int, int]:
        if self.source is None:
            return "", 0, 0
        return (self.file, *self.source.locate(path))

    def problem(self, step: Step, argument: str, message: str, hint: str) -> Problem:
        position = self.workflow.steps.index(step)
        place = ("steps", position, "with", argument) if argument else ("steps", position)
        file, line, column = self.locate(place)
        where = f"steps.{step.id}.with" + (f".{argument}" if argument else "")
        return Problem(message, hint, where=where, file=file, line=line, column=column)

    def child(self, name: str) -> Flow:
        """A child workflow: built beside the parent, or a file near the parent's."""
        if name in self.children:
            flow: Flow = self.children[name]
            return flow
        if name == self.workflow.name:
            return self.source or self.workflow
        base = Path(self.folder or ".")
        for candidate in (base / name, base / f"{name}.yaml", base / f"{name}.yml"):
            if candidate.is_file():
                return candidate
        raise UnknownTool(f"workflow:{name}", f"no {name}.yaml beside the workflow")


def _store(url: str) -> Store:
    if url in ("memory:", "memory://"):
        return MemoryStore()
    raise Unsupported([Problem(f"store {url!r} is not carried out by this version", "use memory:")])
