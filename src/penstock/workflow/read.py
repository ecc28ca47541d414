"""A workflow file as a `Workflow`: checked, compiled, and able to say where each part of it stands.

Text comes in, or data that has the shape of a file. Keys and values are read by the tables in
`keys`; whether it all makes sense together is asked of `validate`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import DefinitionError, Problem
from penstock.workflow import yaml
from penstock.workflow.findings import Place
from penstock.workflow.graph import Graph
from penstock.workflow.keys import TOP
from penstock.workflow.nodes import Node, Spot
from penstock.workflow.problems import Problems
from penstock.workflow.spec import Step, Workflow
from penstock.workflow.templates import expand
from penstock.workflow.validate import check


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A definition and the text it came from."""

    workflow: Workflow
    graph: Graph
    file: str
    root: Node
    """The document as it was read, templates unrolled."""

    def locate(self, path: Place) -> Spot:
        """Line and column of a part of the definition, e.g. `("steps", 3, "retry")`."""
        return locate(self.root, path)


def load(path: str | Path) -> Source:
    """Read, check and compile a workflow file."""
    file = str(path)
    try:
        with Path(path).open("rb") as handle:
            data = handle.read(yaml.MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DefinitionError([Problem(f"cannot read the file: {reason}", file=file)]) from None
    return _with_agents(loads(yaml.decode(data, file), file), Path(path).parent)


def _with_agents(source: Source, folder: Path) -> Source:
    """The same with the agents that are described beside it."""
    from penstock.workflow.agents import with_agents

    workflow = with_agents(source.workflow, folder)
    if workflow is source.workflow:
        return source
    graph = check(workflow, lambda path: (source.file, *locate(source.root, path)))
    return Source(workflow, graph, source.file, source.root)


def loads(text: str, file: str = "<text>") -> Source:
    """Read, check and compile the text of a workflow file."""
    return workflow_from(yaml.parse(text, file), file)


def from_plain(data: Any, file: str = "") -> Source:
    """The same for Python or JSON data in the shape of a workflow file."""
    return workflow_from(Node.from_plain(data), file)


def steps_from(data: Any, file: str = "") -> tuple[Step, ...]:
    """Steps in the shape of a workflow file, on their own: whether they fit a run is for the run to say."""
    workflow, _ = read(Node.from_plain({"name": "steps", "steps": data}), file)
    return workflow.steps


def workflow_from(node: Node, file: str = "") -> Source:
    """Read, check and compile a document. Raises DefinitionError with everything that is wrong."""
    workflow, root = read(node, file)

    def place(path: Place) -> tuple[str, int, int]:
        return file, *locate(root, path)

    return Source(workflow, check(workflow, place), file, root)


def read(node: Node, file: str = "") -> tuple[Workflow, Node]:
    """The definition as it is written, before anyone asks whether it makes sense; and the document read."""
    problems = Problems()
    root = expand(node, problems)
    workflow = TOP.read(root, problems)
    if problems or not isinstance(workflow, Workflow):
        raise problems.error(root, node, file=file)
    return workflow, root


def locate(root: Node, path: Place) -> Spot:
    """Line and column of the last part of the path that is written down."""
    node, spot = root, root.spot
    for part in path:
        if node.kind == "map" and part in node.value:
            spot = node.key_spot(str(part))
            node = node.value[part]
        elif node.kind == "list" and isinstance(part, int) and -1 < part < len(node.value):
            node = node.value[part]
            spot = node.spot
        elif node.kind != "list" or isinstance(part, int):
            break
        # Otherwise a short form, e.g. a gate that is just its list of checks: the word is left out.
    return node.spot if node.kind == "scalar" and node.line else spot
