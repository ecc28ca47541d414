"""A definition and what came with it: where its functions, its children and its file are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.errors import Problem, UnknownTool
from penstock.ids import StepId
from penstock.steps import run_workflow
from penstock.workflow.builder import WorkflowBuilder
from penstock.workflow.graph import Graph
from penstock.workflow.spec import Workflow

if TYPE_CHECKING:
    from penstock.workflow.read import Source

Flow: TypeAlias = "WorkflowBuilder | Workflow | Source | str | Path"
"""What can be run: something built, something loaded, or the path of a file."""


class Found:
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
        pinned: bool = False,
    ) -> None:
        self.flow = flow
        self.workflow = workflow
        self.graph = graph
        self.functions = functions or {}
        self.children = children or {}
        self.file = file
        self.source = source
        self.pinned = pinned
        """From a store: the children are all there are, those of children as well."""
        self.read: dict[str, Source] = {}
        """Files of children as they were when the family was prepared, by key."""
        self.within = ""
        """The folder it is in, seen from the one that the family begins with."""

    @property
    def source_path(self) -> str:
        """The file from wherever one stands: a run may be resumed from another folder."""
        return str(Path(self.file).absolute()) if self.file else ""

    @property
    def folder(self) -> str | None:
        return str(Path(self.file).resolve().parent) if self.file else None

    def child(self, name: str) -> Flow:
        """A child workflow: built beside the parent, or a file near the parent's."""
        for known in (self.key(name), name):
            if known in self.children:
                return self.children[known]
        if name == self.workflow.name:
            return self.flow
        if (source := self.read.get(self.key(name))) is not None:
            return source
        for candidate in self._candidates(name):
            if candidate.is_file():
                return candidate
        file = name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"
        raise UnknownTool(f"workflow:{name}", f"there is no {file} beside the workflow")

    def key(self, name: str) -> str:
        """The name of a child in its whole family, which may be in several folders."""
        return run_workflow.key(self.within, name)

    def beside(self, name: str) -> str:
        """The file of a child, or where it was: the functions that the child calls are there."""
        candidates = self._candidates(name)
        return str(next((file for file in candidates if file.is_file()), candidates[0])) if self.file else ""

    def _candidates(self, name: str) -> list[Path]:
        base = Path(self.folder or ".")
        return [base / name, base / f"{name}.yaml", base / f"{name}.yml"]

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
