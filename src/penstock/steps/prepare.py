"""From a definition to something that can run: every tool and child found, every argument name checked.

All of it happens before the first task, so that nothing is executed when anything is wrong.
"""

from __future__ import annotations

import posixpath
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import DefinitionError, Problem, UnknownTool, Unsupported
from penstock.ids import StepId
from penstock.steps import call_tool, run_workflow
from penstock.steps.base import Prepared, Work
from penstock.steps.called import called, called_by, children_of, policy_tasks, said
from penstock.steps.found import Flow, Found
from penstock.tools.base import Catalog, Tool
from penstock.tools.functions import complaints
from penstock.workflow.builder import WorkflowBuilder
from penstock.workflow.findings import did_you_mean
from penstock.workflow.graph import CompiledCheck, Graph, compile_graph, guards
from penstock.workflow.spec import Step, Workflow
from penstock.workflow.support import unsupported

if TYPE_CHECKING:
    from penstock.steps.model_calls import Models
    from penstock.workflow.read import Source

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
        return self._prepared(self._find(flow))

    def _prepared(self, found: Found) -> Prepared:
        key = id(found.workflow)
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            if self._fresh(kept, found):
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
        found = self._find(flow)
        kept = self._kept.get(id(found.workflow))
        return kept is not None and self._fresh(kept, found)

    def _fresh(self, kept: tuple[Workflow, Prepared, int], found: Found) -> bool:
        """Whether what was prepared is what would be now: the file of a child may have changed since."""
        _, prepared, version = kept
        if version != self._tools.version or not prepared.children:
            return version == self._tools.version
        try:
            return prepared.children == self._family(found)
        except (UnknownTool, DefinitionError):
            return False  # said when it is prepared

    def uses(self, flow: Flow) -> set[str]:
        """The ids of all that a workflow may call, its children included; nothing is looked for yet."""
        found = self._find(flow)
        every: set[str] = set()
        todo, seen = [found], {id(found.workflow)}
        while todo:
            parent = todo.pop()
            every |= called(parent.workflow)
            for name in children_of(parent.workflow):
                try:
                    child = self._kin(parent, name)
                except UnknownTool:
                    continue  # said when it is prepared
                if id(child.workflow) not in seen:
                    seen.add(id(child.workflow))
                    todo.append(child)
        return every

    def uses_pinned(self, workflow: Workflow, children: Mapping[str, Workflow]) -> set[str]:
        """The same of a definition from a store."""
        return called(workflow).union(*map(called, children.values()))

    def prepare_pinned(self, workflow: Workflow, children: Mapping[str, Workflow], file: str) -> Prepared:
        """A definition from a store, with the functions and children of the file it once came from.

        If the same definition was built in this process, its functions are known already: a
        function given in Python need not be importable.
        """
        hash_ = workflow.hash
        for kept, prepared, _ in reversed(self._kept.values()):
            if (kept == workflow or prepared.graph.hash == hash_) and _same(prepared.children, children):
                return prepared
        return self._prepare(Found(workflow, workflow, children=children, file=file, pinned=True))

    def _prepare(self, found: Found) -> Prepared:
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
                problems.append(found.problem(("steps", position, "uses"), said(error), error.hint))
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
        bare = Found(found.flow, workflow, file=found.file)  # an injected step brings no functions along
        prepared.work_for = lambda step: self._injected(step, bare)
        prepared.ready = partial(self._ready, bare)
        prepared.find = lambda uses: self._tools.find(uses, folder=found.folder)
        graph.gate_attempts = self._gate_attempts
        self._check_forms(graph)
        graph.look()
        prepared.followers = self._followers(found)
        self._guard(prepared, found)
        return prepared

    def _followers(self, found: Found) -> dict[str, Callable[[], Prepared]]:
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

    def _guard(self, prepared: Prepared, found: Found) -> None:
        """Whatever calls something destructive needs approval, whether its step says so or not.

        Where the rules for tools want a person to be asked, no workflow can say otherwise.
        """
        graph = prepared.graph
        config = graph.workflow.config
        for i, work in enumerate(prepared.works):
            step = graph.workflow.steps[i]
            if work.ruled or guards(step.approval or config.approval, critical=work.effect == "destructive"):
                graph.guard((i,))
        for place, task in policy_tasks(graph.workflow):
            try:
                work = prepared.work_for(task)  # type: ignore[misc]  # just set
            except UnknownTool as error:
                raise DefinitionError([found.problem(place, said(error), error.hint)]) from None
            critical = task.critical or work.effect == "destructive"
            if work.ruled or guards(task.approval or config.approval, critical=critical):
                graph.guarded_tasks.add(task.id)

    def _family(self, found: Found) -> dict[str, Workflow]:
        """Every workflow that may be called from here, however indirectly."""
        family: dict[str, Workflow] = {}
        todo = [found]
        while todo:
            parent = todo.pop()
            for step in parent.workflow.steps:
                if step.uses.startswith("workflow:"):
                    name = step.uses.removeprefix("workflow:")
                    child = self._kin(parent, name)
                    if (key := parent.key(name)) not in family:
                        family[key] = child.workflow
                        todo.append(child)
        return family

    def _kin(self, found: Found, name: str) -> Found:
        """A child of a definition: as it is pinned, or as its file was when the parent was read."""
        flow, key = found.child(name), found.key(name)
        if found.pinned and isinstance(flow, Workflow):
            child = Found(flow, flow, children=found.children, file=found.beside(name), pinned=True)
        else:
            child = self._find(flow)
            if child.source is not None:
                found.read[key] = child.source
        child.read, child.within = found.read, posixpath.dirname(key)
        return child

    def _reducers(self, found: Found) -> dict[str, Callable[[Any, Any], Any]]:
        functions: dict[str, Callable[[Any, Any], Any]] = {}
        for key, name in found.workflow.reducers.items():
            if name.startswith("py:"):
                try:
                    functions[key] = self._tools.find(name, folder=found.folder).call
                except UnknownTool as error:
                    message = f"unknown function {error.tool!r}"
                    raise DefinitionError([found.problem(("reducers", key), message, error.hint)]) from None
        return functions

    def _work(self, step: Step, position: int, found: Found) -> Work:
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

    def _check(self, step: Step, position: int, tool: Tool, found: Found) -> None:
        problems = [
            found.problem(("steps", position, "with", *([name] if name else [])), message, hint)
            for name, message, hint in complaints(tool, step.with_)
        ]
        if problems:
            raise DefinitionError(problems)

    def _agent(self, step: Step, position: int, found: Found) -> Work:
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
            message = f"agent {name} may call {error.tool!r}: {said(error)}"
            raise DefinitionError([found.problem(place, message, error.hint)]) from None
        if not found.pinned and (why := call_agent.unknown(self._models, step, spec)):
            raise DefinitionError([found.problem(place, f"agent {name}: {why}")])
        return call_agent.work(step, spec, self._models, tools, gated=position >= 0 and bool(spec.output))

    def _check_forms(self, graph: Graph) -> None:
        """What an agent says in another form than it promised has not passed its gate."""
        agents = graph.workflow.config.agents
        for i, step in enumerate(graph.workflow.steps):
            spec = agents.get(step.uses.removeprefix("agent:")) if step.uses.startswith("agent:") else None
            checks = graph.gates.get(i, ())
            if spec is not None and spec.output and not any(check.schema for check in checks):
                graph.gates[i] = (CompiledCheck("output schema", schema=spec.output), *checks)

    def _check_gate(self, step: Step, position: int, found: Found) -> None:
        """The tools that its gate asks are there."""
        for n, check in enumerate(step.gate.checks if step.gate else ()):
            if not check.tool:
                continue
            place = ("steps", position, "gate", "checks", n, "tool")
            try:
                tool = self._tools.find(check.tool, folder=found.folder)
            except UnknownTool as error:
                raise DefinitionError([found.problem(place, said(error), error.hint)]) from None
            if tool.asks:
                message = f"{tool.asks}, so a person would have to approve each call of {tool.id}"
                hint = "a check cannot wait for one: allow the tool, or check with another"
                raise DefinitionError([found.problem(place, message, hint)])

    def _injected(self, step: Step, found: Found) -> Work:
        """The work of a step that a definition does not have; its gate is looked over like any other."""
        work = self._work(step, -1, found)
        self._check_gate(step, -1, found)
        return work

    async def _ready(self, found: Found, steps: Iterable[Step]) -> None:
        ask = self._ask
        if ask is not None:
            await ask(called_by(tuple(steps), found.workflow))

    def _child(self, step: Step, found: Found) -> Work:
        child = self._kin(found, step.uses.removeprefix("workflow:"))
        if id(child.workflow) not in self._open:
            self._prepared(child)
        return run_workflow.work(step, lambda: self._prepared(child))

    def _find(self, flow: Flow) -> Found:
        if isinstance(flow, Workflow):
            return Found(flow, flow)
        if isinstance(flow, WorkflowBuilder):
            children: dict[str, Flow] = {**flow.children, **flow.builders}
            return Found(flow, flow.build(), flow.graph, flow.functions, children)
        source = self._load(Path(flow)) if isinstance(flow, str | Path) else flow
        return Found(source, source.workflow, source.graph, file=source.file, source=source)

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


def _same(some: Mapping[str, Workflow], others: Mapping[str, Workflow]) -> bool:
    return some.keys() == others.keys() and all(
        one == others[name] or one.hash == others[name].hash for name, one in some.items()
    )
