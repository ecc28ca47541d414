"""From a definition to something that can run: every tool and child found, every argument name checked.

All of it happens before the first task, so that nothing is executed when anything is wrong.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.errors import DefinitionError, Problem, ToolRefused, UnknownTool, Unsupported
from penstock.ids import StepId
from penstock.steps import call_tool, run_workflow
from penstock.steps.base import Prepared, Work
from penstock.tools.base import Catalog, Tool
from penstock.tools.functions import complaints
from penstock.workflow.builder import WorkflowBuilder
from penstock.workflow.findings import did_you_mean
from penstock.workflow.graph import CompiledCheck, Graph, ails, compile_graph, guards
from penstock.workflow.spec import Step, Workflow
from penstock.workflow.support import unsupported

if TYPE_CHECKING:
    from penstock.steps.call_agent import Models
    from penstock.workflow.read import Source

Flow: TypeAlias = "WorkflowBuilder | Workflow | Source | str | Path"
"""What can be run: something built, something loaded, or the path of a file."""

HANDED_ON = ("run_id", "status", "reason")
"""Inputs that a workflow which follows another is given, if it declares them."""

KEPT = 128
"""Workflows kept ready to run."""


class Preparer:
    """Prepares workflows, and keeps the most recent ones prepared."""

    def __init__(
        self,
        tools: Catalog,
        *,
        models: Models | None = None,
        gate_attempts: int = 3,
        ready: Callable[[Iterable[str]], Awaitable[object]] | None = None,
    ) -> None:
        """`ready` asks the servers of tools what they offer, where nobody knows it yet."""
        self._tools = tools
        self._ask = ready
        self._models = models
        self._gate_attempts = gate_attempts
        self._kept: OrderedDict[int, tuple[Workflow, Prepared, int]] = OrderedDict()
        """With the version of the tools that they were prepared with."""
        self._files: dict[str, tuple[tuple[int, int], Source]] = {}
        self._open: set[int] = set()
        """Being prepared right now: a workflow may call itself."""

    def prepare(self, flow: Flow) -> Prepared:
        """Everything found and checked, or one error that says all that is wrong."""
        found = self._find(flow)
        key = id(found.workflow)
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            if kept[2] == self._tools.version:
                return kept[1]
            found.graph = None  # what is asked about is marked in the old one
        self._open.add(key)
        try:
            prepared = self._prepare(found)
        finally:
            self._open.discard(key)
        # Holding the workflow keeps its id from being reused.
        self._kept[key] = (found.workflow, prepared, self._tools.version)
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return prepared

    def knows(self, flow: Flow) -> bool:
        """Whether it is prepared already."""
        kept = self._kept.get(id(self._find(flow).workflow))
        return kept is not None and kept[2] == self._tools.version

    def uses(self, flow: Flow) -> set[str]:
        """The ids of all that a workflow may call, its children included; nothing is looked for yet."""
        found = self._find(flow)
        every: set[str] = set()
        todo, seen = [found], {id(found.workflow)}
        while todo:
            parent = todo.pop()
            every |= _called(parent.workflow)
            for name in _children(parent.workflow):
                try:
                    child = self._find(parent.child(name))
                except UnknownTool:
                    continue  # said when it is prepared
                if id(child.workflow) not in seen:
                    seen.add(id(child.workflow))
                    todo.append(child)
        return every

    def uses_pinned(self, workflow: Workflow, children: Mapping[str, Workflow]) -> set[str]:
        """The same of a definition from a store."""
        return _called(workflow).union(*map(_called, children.values()))

    def prepare_pinned(self, workflow: Workflow, children: Mapping[str, Workflow], file: str) -> Prepared:
        """A definition from a store, with the functions and children of the file it once came from.

        If the same definition was built in this process, its functions are known already: a
        function given in Python need not be importable.
        """
        hash_ = workflow.hash
        for kept, prepared, _ in reversed(self._kept.values()):
            if kept == workflow or prepared.graph.hash == hash_:
                return prepared
        return self._prepare(_Found(workflow, workflow, children=children, file=file))

    def _prepare(self, found: _Found) -> Prepared:
        workflow = found.workflow
        missing = unsupported(workflow)
        if missing:
            raise Unsupported([found.placed(problem) for problem in missing])
        graph = found.graph or compile_graph(workflow)
        works: list[Work] = []
        durations: dict[StepId, float] = {}
        problems: list[Problem] = []
        same: dict[Any, Work] = {}
        for position, step in enumerate(workflow.steps):
            try:
                work = self._work(step, position, found)
                self._check_gate(step, position, found)
            except UnknownTool as error:
                problems.append(found.problem(("steps", position, "uses"), _said(error), error.hint))
            except DefinitionError as error:
                problems.extend(error.problems)
            except Unsupported as error:
                missing.extend(error.problems)
            else:
                works.append(same.setdefault(work, work))
                if work.duration is not None and step.estimate is None:
                    durations[step.id] = work.duration
        if problems:
            raise DefinitionError(problems)
        if missing:
            raise Unsupported(missing)
        prepared = Prepared(
            graph,
            works,
            found.source_path,
            self._reducers(found),
            durations=durations,
            children=self._family(found),
        )
        bare = _Found(found.flow, workflow, file=found.file)  # an injected step brings no functions along
        prepared.work_for = lambda step: self._injected(step, bare)
        prepared.ready = partial(self._ready, bare)
        prepared.find = lambda uses: self._tools.find(uses, folder=found.folder)
        graph.gate_attempts = self._gate_attempts
        self._check_forms(graph)
        graph.look()
        prepared.followers = self._followers(found)
        self._guard(prepared, found)
        return prepared

    def _followers(self, found: _Found) -> dict[str, Callable[[], Prepared]]:
        """The workflows that run after this one, found and checked."""
        followers: dict[str, Callable[[], Prepared]] = {}
        for key in ("on_complete", "on_failure"):
            name = getattr(found.workflow, key)
            if not name:
                continue
            try:
                flow = found.child(name.removeprefix("workflow:"))
            except UnknownTool as error:
                problem = found.problem((key, ""), f"unknown workflow {name!r}", error.hint)
                raise DefinitionError([problem]) from None
            follower = self._find(flow)
            wanting = [
                given
                for given, one in follower.workflow.inputs.items()
                if one.required and given not in found.workflow.outputs and given not in HANDED_ON
            ]
            if wanting:
                message = f"{name} needs the input {wanting[0]!r}, which this workflow does not put out"
                hint = f"add an output of this name; {', '.join(HANDED_ON)} are given anyway"
                raise DefinitionError([found.problem((key, ""), message, hint)])
            if id(follower.workflow) not in self._open:
                self.prepare(flow)
            followers[key] = partial(self.prepare, flow)
        return followers

    def _guard(self, prepared: Prepared, found: _Found) -> None:
        """Whatever calls something destructive needs approval, whether its step says so or not.

        Where the rules for tools want a person to be asked, no workflow can say otherwise.
        """
        graph = prepared.graph
        config = graph.workflow.config
        for i, work in enumerate(prepared.works):
            step = graph.workflow.steps[i]
            if work.ruled or guards(step.approval or config.approval, critical=work.effect == "destructive"):
                graph.guard((i,))
        for place, task in _policy_tasks(graph.workflow):
            try:
                work = prepared.work_for(task)  # type: ignore[misc]  # just set
            except UnknownTool as error:
                raise DefinitionError([found.problem(place, _said(error), error.hint)]) from None
            critical = task.critical or work.effect == "destructive"
            if work.ruled or guards(task.approval or config.approval, critical=critical):
                graph.guarded_tasks.add(task.id)

    def _family(self, found: _Found) -> dict[str, Workflow]:
        """Every workflow that may be called from here, however indirectly."""
        family: dict[str, Workflow] = {}
        todo = [found]
        while todo:
            parent = todo.pop()
            for step in parent.workflow.steps:
                if step.uses.startswith("workflow:"):
                    name = step.uses.removeprefix("workflow:")
                    child = self._find(parent.child(name))
                    if name not in family:
                        family[name] = child.workflow
                        todo.append(child)
        return family

    def _reducers(self, found: _Found) -> dict[str, Callable[[Any, Any], Any]]:
        functions: dict[str, Callable[[Any, Any], Any]] = {}
        for key, name in found.workflow.reducers.items():
            if name.startswith("py:"):
                try:
                    functions[key] = self._tools.find(name, folder=found.folder).call
                except UnknownTool as error:
                    message = f"unknown function {error.tool!r}"
                    raise DefinitionError([found.problem(("reducers", key), message, error.hint)]) from None
        return functions

    def _work(self, step: Step, position: int, found: _Found) -> Work:
        if step.uses.startswith("workflow:"):
            return self._child(step, found)
        if step.uses.startswith("agent:"):
            return self._agent(step, position, found)
        function = found.functions.get(step.id)
        if function is not None:
            tool = self._tools.of(function, step.uses)
        else:
            tool = self._tools.find(step.uses, folder=found.folder, changed=True)
        self._check(step, position, tool, found)
        return call_tool.work(step, tool)

    def _check(self, step: Step, position: int, tool: Tool, found: _Found) -> None:
        problems = [
            found.problem(("steps", position, "with", *([name] if name else [])), message, hint)
            for name, message, hint in complaints(tool, step.with_)
        ]
        if problems:
            raise DefinitionError(problems)

    def _agent(self, step: Step, position: int, found: _Found) -> Work:
        from penstock.steps import call_agent  # most workflows have none

        name = step.uses.removeprefix("agent:")
        agents = found.workflow.config.agents
        place = ("steps", position, "uses")
        if name not in agents:
            hint = did_you_mean(name, agents) or f"describe it in config.agents or in agents/{name}.yaml"
            raise DefinitionError([found.problem(place, f"no agent is called {name!r}", hint)])
        if self._models is None:
            raise Unsupported([found.problem(place, "there are no models to ask")])
        spec = agents[name]
        try:
            tools = call_agent.toolbox(spec, self._tools, found.folder)
        except UnknownTool as error:
            message = f"agent {name} may call {error.tool!r}: {_said(error)}"
            raise DefinitionError([found.problem(place, message, error.hint)]) from None
        return call_agent.work(step, spec, self._models, tools, gated=position >= 0 and bool(spec.output))

    def _check_forms(self, graph: Graph) -> None:
        """What an agent says in another form than it promised has not passed its gate."""
        agents = graph.workflow.config.agents
        for i, step in enumerate(graph.workflow.steps):
            spec = agents.get(step.uses.removeprefix("agent:")) if step.uses.startswith("agent:") else None
            checks = graph.gates.get(i, ())
            if spec is not None and spec.output and not any(check.schema for check in checks):
                graph.gates[i] = (CompiledCheck("output schema", schema=spec.output), *checks)

    def _check_gate(self, step: Step, position: int, found: _Found) -> None:
        """The tools that its gate asks are there."""
        for n, check in enumerate(step.gate.checks if step.gate else ()):
            if not check.tool:
                continue
            place = ("steps", position, "gate", "checks", n, "tool")
            try:
                tool = self._tools.find(check.tool, folder=found.folder)
            except UnknownTool as error:
                raise DefinitionError([found.problem(place, _said(error), error.hint)]) from None
            if tool.asks:
                message = f"{tool.asks}, so a person would have to approve each call of {tool.id}"
                hint = "a check cannot wait for one: allow the tool, or check with another"
                raise DefinitionError([found.problem(place, message, hint)])

    def _injected(self, step: Step, found: _Found) -> Work:
        """The work of a step that a definition does not have; its gate is looked over like any other."""
        work = self._work(step, -1, found)
        self._check_gate(step, -1, found)
        return work

    async def _ready(self, found: _Found, steps: Iterable[Step]) -> None:
        ask = self._ask
        if ask is not None:
            await ask(_called_by(tuple(steps), found.workflow))

    def _child(self, step: Step, found: _Found) -> Work:
        child = self._find(found.child(step.uses.removeprefix("workflow:")))
        if id(child.workflow) not in self._open:
            self.prepare(child.flow)
        return run_workflow.work(step, lambda: self.prepare(child.flow))

    def _find(self, flow: Flow) -> _Found:
        if isinstance(flow, Workflow):
            return _Found(flow, flow)
        if isinstance(flow, WorkflowBuilder):
            children: dict[str, Flow] = {**flow.children, **flow.builders}
            return _Found(flow, flow.build(), flow.graph, flow.functions, children)
        source = self._load(Path(flow)) if isinstance(flow, str | Path) else flow
        return _Found(source, source.workflow, source.graph, file=source.file, source=source)

    def _load(self, path: Path) -> Source:
        """Read a file once for as long as it does not change."""
        from penstock.workflow.read import load  # nobody who builds workflows in Python needs a YAML reader

        try:
            stat = path.stat()
        except OSError:
            return load(path)  # which says what is wrong
        version = (stat.st_mtime_ns, stat.st_size)
        known = self._files.get(str(path))
        if known is None or known[0] != version:
            known = self._files[str(path)] = (version, load(path))
        return known[1]


def _called(workflow: Workflow) -> set[str]:
    """The ids of all that a workflow may call itself."""
    tasks = [task for _, task in _policy_tasks(workflow)]
    agents = {tool for agent in workflow.config.agents.values() for tool in agent.tools}
    return agents | _called_by((*workflow.steps, *tasks), workflow)


def _policy_tasks(workflow: Workflow) -> Iterator[tuple[tuple[str | int, ...], Step]]:
    """The steps that rules of decision points may add, and where what they use stands."""
    for place, ail in ails(workflow):
        for n, rule in enumerate(ail.rules):
            for m, task in enumerate(rule.tasks):
                yield (*place, "rules", n, "tasks", m, "uses"), task


def _called_by(steps: Sequence[Step], workflow: Workflow) -> set[str]:
    """The same of a few steps: what they use, what their gates ask, and what their agents may call."""
    named = [step.uses.removeprefix("agent:") for step in steps if step.uses.startswith("agent:")]
    agents = [workflow.config.agents[name] for name in named if name in workflow.config.agents]
    return {
        *(step.uses for step in steps),
        *(check.tool for step in steps if step.gate for check in step.gate.checks if check.tool),
        *(tool for agent in agents for tool in agent.tools),
    }


def _said(error: UnknownTool) -> str:
    """What is wrong with a tool, without the hint."""
    if isinstance(error, ToolRefused):
        return f"{error.tool} may not be called"
    what = "workflow" if error.tool.startswith("workflow:") else "tool"
    return f"unknown {what} {error.tool!r}"


def _children(workflow: Workflow) -> list[str]:
    named = [step.uses for step in workflow.steps if step.uses.startswith("workflow:")]
    followers = [name for name in (workflow.on_complete, workflow.on_failure) if name]
    return [name.removeprefix("workflow:") for name in (*named, *followers)]


class _Found:
    """A definition and what came with it: functions, children, a file to point at."""

    def __init__(
        self,
        flow: Flow,
        workflow: Workflow,
        graph: Graph | None = None,
        functions: Mapping[StepId, Callable[..., Any]] | None = None,
        children: Mapping[str, Flow] | None = None,
        *,
        file: str = "",
        source: Source | None = None,
    ) -> None:
        self.flow = flow
        self.workflow = workflow
        self.graph = graph
        self.functions = functions or {}
        self.children = children or {}
        self.file = file
        self.source = source

    @property
    def source_path(self) -> str:
        """The file from wherever one stands: a run may be resumed from another folder."""
        return str(Path(self.file).absolute()) if self.file else ""

    @property
    def folder(self) -> str | None:
        return str(Path(self.file).resolve().parent) if self.file else None

    def child(self, name: str) -> Flow:
        """A child workflow: built beside the parent, or a file near the parent's."""
        if name in self.children:
            return self.children[name]
        if name == self.workflow.name:
            return self.flow
        base = Path(self.folder or ".")
        for candidate in (base / name, base / f"{name}.yaml", base / f"{name}.yml"):
            if candidate.is_file():
                return candidate
        file = name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"
        raise UnknownTool(f"workflow:{name}", f"there is no {file} beside the workflow")

    def problem(self, place: tuple[str | int, ...], message: str, hint: str = "") -> Problem:
        """A problem at a place in the definition; a position of -1 is a step that is not part of it."""
        if place[1] == -1:
            return Problem(message, hint)
        place = place[:1] if place[1] == "" else place
        where = ".".join(str(part) for part in self._named(place))
        line, column = self.source.locate(place) if self.source else (0, 0)
        return Problem(message, hint, where=where, file=self.file, line=line, column=column)

    def placed(self, problem: Problem) -> Problem:
        """The same problem with the file's name, so that it can be found."""
        return replace(problem, file=self.file)

    def _named(self, place: tuple[str | int, ...]) -> tuple[str | int, ...]:
        if place[0] == "steps" and len(place) > 1 and isinstance(place[1], int):
            return ("steps", self.workflow.steps[place[1]].id, *place[2:])
        return place
