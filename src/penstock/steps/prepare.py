"""From a definition to something that can run: every tool and child found, every argument name checked.

All of it happens before the first task, so that nothing is executed when anything is wrong.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.errors import DefinitionError, Problem, UnknownTool, Unsupported
from penstock.ids import StepId
from penstock.steps import call_tool, run_workflow
from penstock.steps.base import Prepared, Work
from penstock.tools.base import Tool
from penstock.tools.functions import Functions, complaints
from penstock.workflow.builder import WorkflowBuilder
from penstock.workflow.graph import Graph, compile_graph
from penstock.workflow.spec import Step, Workflow
from penstock.workflow.support import unsupported

if TYPE_CHECKING:
    from penstock.workflow.read import Source

Flow: TypeAlias = "WorkflowBuilder | Workflow | Source | str | Path"
"""What can be run: something built, something loaded, or the path of a file."""

KEPT = 128
"""Workflows kept ready to run."""


class Preparer:
    """Prepares workflows, and keeps the most recent ones prepared."""

    def __init__(self, tools: Functions) -> None:
        self._tools = tools
        self._kept: OrderedDict[int, tuple[Workflow, Prepared]] = OrderedDict()
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
            return kept[1]
        self._open.add(key)
        try:
            prepared = self._prepare(found)
        finally:
            self._open.discard(key)
        self._kept[key] = (found.workflow, prepared)  # holding the workflow keeps its id from being reused
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return prepared

    def prepare_pinned(self, workflow: Workflow, children: Mapping[str, Workflow], file: str) -> Prepared:
        """A definition from a store, with the functions and children of the file it once came from.

        If the same definition was built in this process, its functions are known already: a
        function given in Python need not be importable.
        """
        hash_ = workflow.hash
        for kept, prepared in reversed(self._kept.values()):
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
            except UnknownTool as error:
                place = ("steps", position, "uses")
                what = "workflow" if error.tool.startswith("workflow:") else "tool"
                problems.append(found.problem(place, f"unknown {what} {error.tool!r}", error.hint))
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
        prepared.work_for = lambda step: self._work(step, -1, bare)
        return prepared

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
        function = found.functions.get(step.id)
        if function is not None:
            tool = self._tools.of(function, step.uses)
        else:
            tool = self._tools.find(step.uses, folder=found.folder)
        self._check(step, position, tool, found)
        return call_tool.work(step, tool)

    def _check(self, step: Step, position: int, tool: Tool, found: _Found) -> None:
        problems = [
            found.problem(("steps", position, "with", *([name] if name else [])), message, hint)
            for name, message, hint in complaints(tool, step.with_)
        ]
        if problems:
            raise DefinitionError(problems)
        approval = step.approval or found.workflow.config.approval
        if (step.effect or tool.effect) == "destructive" and approval != "never":
            message = f"{tool.id} is destructive and needs a person's approval, which is not carried out"
            hint = "this version cannot ask; `approval: never` runs it without asking"
            raise Unsupported([found.problem(("steps", position, "uses"), message, hint)])

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
        raise UnknownTool(f"workflow:{name}", f"there is no {name}.yaml beside the workflow")

    def problem(self, place: tuple[str | int, ...], message: str, hint: str = "") -> Problem:
        """A problem at a place in the definition; a position of -1 is a step that is not part of it."""
        if place[1] == -1:
            return Problem(message, hint)
        where = ".".join(str(part) for part in self._named(place))
        line, column = self.source.locate(place) if self.source else (0, 0)
        return Problem(message, hint, where=where, file=self.file, line=line, column=column)

    def placed(self, problem: Problem) -> Problem:
        """The same problem with the file's name, so that it can be found."""
        return replace(problem, file=self.file)

    def _named(self, place: tuple[str | int, ...]) -> tuple[str | int, ...]:
        if place[0] == "steps" and isinstance(place[1], int):
            return ("steps", self.workflow.steps[place[1]].id, *place[2:])
        return place
