"""The only wiring: settings become a store, tools and an engine, and workflows become runs."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from msgspec import structs

from penstock import settings
from penstock.engines.base import LiveRun, Planner, Result, StepResult, TieBreaker, result_of, step_results
from penstock.engines.history import Difference, before, compare, cut, failed_steps, reopened
from penstock.engines.native import NativeEngine
from penstock.engines.stream import Gap
from penstock.errors import CommandRejected, DefinitionError, PenstockError, Problem, UnknownRun, Unsupported
from penstock.ids import CommandId, RunId, StepId
from penstock.policy.masking import mask
from penstock.run.commands import Command
from penstock.run.events import Event
from penstock.run.facts import RunReopened
from penstock.run.replay import replay
from penstock.run.state import ENDED, SUCCEEDED, Run
from penstock.steps.base import Prepared
from penstock.steps.found import Flow
from penstock.steps.prepare import Preparer
from penstock.store import batches
from penstock.store.base import NewRun, Store
from penstock.store.memory import MemoryStore
from penstock.store.sealed import NoSeal, Seal, keys_from, seal_of
from penstock.tools.base import Tool
from penstock.tools.builtin.http import Hosts
from penstock.tools.builtin.offer import Reach, builtin_tools
from penstock.tools.catalog import Servers, ToolCatalog
from penstock.tools.functions import Functions
from penstock.tools.keep import FileKeep
from penstock.tools.mcp.config import read_config
from penstock.tools.ourselves import starts_us
from penstock.tools.table import ToolsTable
from penstock.workflow.amend import amended
from penstock.workflow.graph import Graph, compile_graph
from penstock.workflow.inputs import check_inputs
from penstock.workflow.spec import Workflow

if TYPE_CHECKING:
    from penstock.models.assemble import Assembled
    from penstock.models.base import Answer, Request
    from penstock.steps.base import Billed
    from penstock.steps.model_calls import Models


def open(
    store: str | None = None,
    *,
    engine: str | None = None,
    tools: Iterable[Tool | Callable[..., Any]] = (),
    models: Models | None = None,
    tie_breaker: TieBreaker | None = None,
    planner: Planner | None = None,
    summarise: Callable[..., str] | None = None,
) -> Penstock:
    """Penstock, ready to run workflows. Use it as `async with ps.open() as penstock`.

    `models` answers agents, `tie_breaker` answers routes that the rules leave open, `planner`
    finds steps for a requirement, and `summarise` words questions; all are yours to give.
    """
    return Penstock(
        settings.read(store=store, engine=engine),
        tools=tools,
        models=models,
        tie_breaker=tie_breaker,
        planner=planner,
        summarise=summarise,
    )


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

    async def fork(self, seq: int, **changes: Any) -> RunHandle:
        """A new run with this one's history up to event `seq`; `Penstock.fork` says what may be changed."""
        return await self._penstock.fork(self.id, at=seq, **changes)


class Penstock:
    """A store, a catalog of tools and an engine, wired together."""

    def __init__(
        self,
        configuration: settings.Settings,
        *,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        models: Models | None = None,
        tie_breaker: TieBreaker | None = None,
        planner: Planner | None = None,
        summarise: Callable[..., str] | None = None,
    ) -> None:
        batches.learn()
        self.settings = configuration
        self.store: Store = _store(configuration)
        self.tools = _tools(configuration, tools)
        self.models: Models = models or ConfiguredModels(configuration)
        self.engine = NativeEngine(
            self.store,
            mask=partial(mask, secrets=configuration.secrets),
            tie_breaker=tie_breaker or _model_asked("tie_breaker", self.models),
            planner=planner,
            decider=_model_asked("decider", self.models),
            summarise=summarise,
        )
        if configuration.engine not in ("native", "auto"):
            raise Unsupported(
                [Problem(f"engine {configuration.engine!r} is not carried out by this version")]
            )
        self._preparer = Preparer(
            self.tools,
            models=self.models,
            gate_attempts=_attempts(configuration.gate_attempts),
            ready=self.tools.ready,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self.engine.close()
        if isinstance(self.models, ConfiguredModels):
            await self.models.close()
        await self.tools.close()
        await self.store.close()

    async def start(self, flow: Flow, /, **inputs: Any) -> RunHandle:
        """Start a run and return at once. Nothing is executed when anything is wrong with it."""
        return await self.start_with(flow, inputs)

    async def start_with(
        self, flow: Flow, inputs: Mapping[str, Any], *, durations: Mapping[StepId, float] | None = None
    ) -> RunHandle:
        """`start` with the inputs as a mapping, and expected durations where they are known."""
        await self.ready(flow)
        prepared = self._preparer.prepare(flow)
        checked = check_inputs(prepared.graph.workflow, inputs)
        if durations:
            prepared = replace(prepared, durations={**prepared.durations, **durations})
        return RunHandle(await self.engine.start(prepared, checked, run=new_run_id()), self)

    def prepare(self, flow: Flow) -> Prepared:
        """Everything a workflow calls found and checked, or an error that says all that is wrong."""
        if self.tools.servers.known:
            self.tools.ask(self._preparer.uses(flow))
        return self._preparer.prepare(flow)

    async def ready(self, flow: Flow) -> None:
        """Ask the servers whose tools a workflow calls what they offer, where nobody knows it yet.

        `start` does it by itself; `prepare`, inside of an event loop, cannot.
        """
        if self.tools.servers.known and not self._preparer.knows(flow):
            await self.tools.ready(self._preparer.uses(flow))

    # --- runs that exist already ---

    async def resume(self, id: str, *, failed: bool = False) -> RunHandle:
        """Go on with a run that stopped before its end; nothing that finished is done again.

        A run that has ended goes on only with `failed=True`: its failed steps, and those that
        were skipped because of them, run again in place.
        """
        run = RunId(id)
        flow = await self._pinned(run)
        state = await self._fold(run, flow)
        if not state.ended or (not failed and await self._owes(state)):
            return RunHandle(await self.engine.resume(flow, run), self)
        again = failed_steps(state)
        if not (failed and (again or state.stopping)):
            hint = "resume it from its failed steps, or fork it" if again or state.stopping else "fork it"
            raise PenstockError(f"run {id} has ended ({state.status}); {hint}")
        return RunHandle(await self.engine.resume(flow, run, reopened=again), self)

    async def _owes(self, state: Run) -> bool:
        """Whether a run has ended, and the one that follows it has not begun."""
        return bool(state.then) and (await self.store.runs(run=state.id))[0].status not in ENDED

    async def fork(
        self,
        id: str,
        *,
        at: int | None = None,
        step: str | None = None,
        flow: Flow | None = None,
        args: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> RunHandle:
        """A new run with another's history up to event `at`, or up to where `step` began.

        `flow` gives the new run a changed definition: what is unchanged and finished is taken
        over, the rest runs again (`compare` says which). `args` changes arguments of steps that
        have not finished at that point.
        """
        run = RunId(id)
        events = await self.store.load(run)
        pinned = await self._pinned(run)
        place = _place(events, pinned.graph, at, step)
        if flow is not None:
            await self.ready(flow)
        target = pinned if flow is None else self.prepare(flow)
        old = replay(run, pinned.graph, events, until=place)
        family = pinned.children, target.children
        difference = None if flow is None else compare(old, target.graph, *family)
        again = () if difference is None else reopened(old, difference)
        overrides = {StepId(name): values for name, values in (args or {}).items()}
        self._check_overrides(old, target, overrides, again)
        if old.ended and not again and not (difference and difference.added):
            raise PenstockError(f"nothing is left to run after event {place}; fork at an earlier event")
        graph = target.graph
        new = NewRun(
            run=new_run_id(), workflow=graph.workflow, hash=graph.hash, children=target.children,
            source=target.source, fork_of=run, fork_at=place,
        )  # fmt: skip
        state = replay(new.run, graph, events, until=place, reducers=target.reducers)
        inputs = None if flow is None else _inputs_for(graph.workflow, old.inputs)
        fact = RunReopened(f"forked from {run} at event {place}", "fork", again, overrides, inputs)
        return RunHandle(await self.engine.fork(target, new, state, fact), self)

    def _check_overrides(
        self,
        run: Run,
        target: Prepared,
        overrides: Mapping[StepId, Mapping[str, Any]],
        again: Sequence[StepId],
    ) -> None:
        for step, values in overrides.items():
            i = target.graph.index.get(step)
            if i is None:
                raise PenstockError(f"no step {step!r} in this run")
            place = run.graph.index.get(step, -1)
            if place >= 0 and run.phase[place] >= SUCCEEDED and step not in again:
                raise PenstockError(
                    f"{step} has ended by then; fork at an earlier event to change its arguments"
                )
            amended(target.graph, i, values)
            if said := target.works[i].misgiven(values):
                raise PenstockError(f"{step}: {said}")

    async def compare(
        self, id: str, flow: Flow, *, at: int | None = None, step: str | None = None
    ) -> Difference:
        """What a changed definition would keep of a run, or of a fork of it, and what would run again."""
        run = RunId(id)
        pinned, events = await self._pinned(run), await self.store.load(run)
        old = replay(run, pinned.graph, events, until=_place(events, pinned.graph, at, step))
        new = self.prepare(flow)
        return compare(old, new.graph, pinned.children, new.children)

    async def at(self, id: str, seq: int | None = None) -> Run:
        """A run as it stood after event `seq`, or as it stands."""
        run = RunId(id)
        graph = compile_graph((await self.store.definition(run)).workflow)
        events = await self.store.load(run)
        if seq is not None and not 0 <= seq <= len(events):
            raise PenstockError(f"run {id} has events 1 to {len(events)}; there is no event {seq}")
        return replay(run, graph, events, until=seq)

    async def send(self, id: str, command: Command, *, patience: float = 10.0) -> None:
        """Steer a run, in this process or another. Raises `CommandRejected` when it is refused."""
        run = RunId(id)
        live = self.engine.live.get(run)
        if live is not None:
            await live.send(command)
            return
        found = await self.store.runs(run=run)
        if not found:
            raise UnknownRun(id)
        if not found[0].owner:
            raise CommandRejected(f"nobody drives run {id} ({found[0].status}); resume it first")
        if not command.id:
            command = structs.replace(command, id=CommandId(f"{run}!{secrets.token_hex(8)}"))
        await self.store.mail.post(run, command)
        await self._hear(run, command.id, patience)

    async def _hear(self, run: RunId, command: CommandId, patience: float) -> None:
        try:
            async with asyncio.timeout(patience):
                while (answer := await self.store.mail.answer(run, command)) is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise PenstockError(f"run {run} did not answer within {patience:g} s") from None
        if answer:
            raise CommandRejected(answer)

    def get(self, id: str) -> RunHandle:
        """A run that is going on in this process."""
        try:
            return RunHandle(self.engine.live[RunId(id)], self)
        except KeyError:
            raise UnknownRun(id) from None

    async def result(self, id: str) -> Result:
        """How a run ended, or how it stands. One that goes on in this process is waited for."""
        live = self.engine.live.get(RunId(id))
        return await live.result() if live is not None else result_of(await self.at(id))

    async def _pinned(self, run: RunId) -> Prepared:
        """The definition that a run is pinned to, with the tools of its file."""
        pinned = await self.store.definition(run)
        if self.tools.servers.known:
            await self.tools.ready(self._preparer.uses_pinned(pinned.workflow, pinned.children))
        return self._preparer.prepare_pinned(pinned.workflow, pinned.children, pinned.source)

    async def _fold(self, run: RunId, flow: Prepared) -> Run:
        return replay(run, flow.graph, await self.store.load(run), reducers=flow.reducers)


def _place(events: Sequence[Event], graph: Graph, at: int | None, step: str | None) -> int:
    """The event after which a fork goes on: the last, or the end of the batch that one is in."""
    if step is not None:
        return before(events, StepId(step), graph)
    return cut(events, len(events) if at is None else at)


def _tools(configuration: settings.Settings, functions: Iterable[Tool | Callable[..., Any]]) -> ToolCatalog:
    """Functions, built-ins, and the servers of the configured file."""
    table = configuration.tools or ToolsTable()
    variables = configuration.variables
    here = {"workspaceFolder": str(Path.cwd()), "userHome": variables.get("HOME", "")}  # as editors call them
    config = read_config(Path(configuration.mcp), {**here, **variables}, defaults=table.servers)
    own = Path(".penstock").absolute()
    servers = Servers(
        {name: one for name, one in config.servers.items() if not starts_us(one, Path.cwd(), variables)},
        variables=variables,
        listings=FileKeep(own / "tools.json"),
        pins=FileKeep(own / "pins.json"),
        problems=config.problems,
        pinning=table.pinning,
    )
    reach = Reach(
        roots=tuple(_folder(root, configuration.variables) for root in table.roots),
        hosts=Hosts(allow=table.hosts, deny=table.no_hosts, private=table.private),
        commands=table.commands,
        variables=configuration.variables,
    )
    return ToolCatalog(
        Functions(functions), builtins=builtin_tools(reach), servers=servers, rules=table.rules
    )


def _folder(path: str, variables: Mapping[str, str]) -> Path:
    """A folder that a setting names; `~` is where the user is at home."""
    home, _, rest = path.partition("/")
    return Path(variables.get("HOME", "."), rest) if home == "~" else Path(path)


class ConfiguredModels:
    """The models that settings and environment name, behind a router that is made when first needed."""

    def __init__(self, configuration: settings.Settings) -> None:
        self._configuration = configuration
        self._router: Assembled | None = None

    @property
    def router(self) -> Assembled:
        if self._router is None:
            from penstock.models.assemble import assemble

            configuration = self._configuration
            catalog = settings.catalog(configuration.variables)
            path = settings.models_file(configuration)
            self._router = assemble(configuration.models, catalog, path=path)
        return self._router

    def unknown(self, *, tier: str = "", model: str = "") -> str:
        return self.router.unknown(tier=tier, model=model)

    async def chat(self, request: Request, *, tier: str = "", model: str = "") -> Answer:
        return await self.router.chat(request, tier=tier, model=model)

    async def close(self) -> None:
        if self._router is not None:
            await self._router.close()


def _model_asked(what: str, models: Models) -> Any:
    """A decision that a model makes; what it takes is loaded when the first one is due."""

    async def ask(question: Any) -> Billed:
        from penstock.steps import ask_model

        answer: Billed = await getattr(ask_model, what)(models)(question)
        return answer

    return ask


def _attempts(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise DefinitionError([Problem(f"gate_attempts must be a number from 1 on, not {text!r}")])
    return int(text)


def _inputs_for(workflow: Workflow, old: Mapping[str, Any]) -> dict[str, Any]:
    """What a changed definition makes of the inputs that a run was given."""
    return check_inputs(workflow, {name: value for name, value in old.items() if name in workflow.inputs})


def _store(configuration: settings.Settings) -> Store:
    """The store that a URL names."""
    url = configuration.store
    kind, _, rest = url.partition(":")
    if kind == "memory":
        return MemoryStore()
    seal = seal_of(keys_from(configuration.key))
    if kind == "sqlite" and rest.startswith("///"):
        from penstock.store.sqlite.store import SqliteStore

        return SqliteStore(rest.removeprefix("///"), synchronous=configuration.synchronous, seal=seal)
    if kind in ("postgresql", "postgres"):
        return _postgres(url, seal)
    raise Unsupported([Problem(f"{url!r} is not a store", "memory:, sqlite:///path or postgresql://…")])


def _postgres(url: str, seal: Seal | NoSeal) -> Store:
    try:
        from penstock.store.postgres.store import PostgresStore
    except ModuleNotFoundError:
        raise Unsupported(
            [Problem("the Postgres store needs psycopg", 'pip install "penstock[postgres]"')]
        ) from None
    return PostgresStore(url, seal=seal)
