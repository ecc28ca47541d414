"""Where a run's outputs are while it runs, and how expressions read them.

The fold keeps only what decisions read; whole outputs live here, at the engine, and are
looked up where a task runs. Values handed out are always fresh: nothing a step does to its
arguments can be seen by another.
"""

from __future__ import annotations

from typing import Any

from penstock.ids import StepId
from penstock.run.state import SUCCEEDED, Run, dig
from penstock.workflow.amend import amended
from penstock.workflow.expr import MISSING, Failure, Path


class Outputs:
    def __init__(self, run: Run) -> None:
        self.run = run
        self._values: dict[int, Any] = {}
        """A map's value is a list that fills up, in input order."""
        self._items: dict[int, list[Any]] = {}

    def keep(self, step: int, item: int | None, output: Any) -> None:
        if item is None:
            self._values[step] = output
        else:
            self._values[step][item] = output

    def has(self, step: int) -> bool:
        return self.run.phase[step] == SUCCEEDED and step in self._values

    def value(self, step: int) -> Any:
        return self._values[step]

    def expand(self, step: int) -> int | Failure:
        """Evaluate a `for_each`; the number of items."""
        expression = self.run.graph.for_each[step]
        value = expression.evaluate(self.look_up)
        if isinstance(value, Failure):
            return value
        if not isinstance(value, list):
            return Failure(f"expected a list, got {type(value).__name__}", expression.source)
        self._items[step] = value
        self._values[step] = [None] * len(value)
        return len(value)

    def arguments(self, step: int, item: int | None) -> dict[str, Any] | Failure:
        """The arguments of a task, evaluated now."""
        run = self.run
        template = run.graph.args.get(step)
        if step in run.overrides:
            template = amended(run.graph, step, run.overrides[step])
        if template is None:
            return {}

        def look_up(path: Path) -> Any:
            if path[0] == "item":
                return dig(self._items[step][item], path[1:]) if item is not None else MISSING
            return self.look_up(path, step)

        args: dict[str, Any] | Failure = template.render(look_up)
        return args

    def look_up(self, path: Path, step: int = -1) -> Any:
        if path[0] == "steps" and len(path) > 2 and path[2] == "output":
            i = self.run.graph.index.get(StepId(path[1]), -1)
            if i < 0:
                return MISSING
            if self.run.phase[i] != SUCCEEDED:
                return None
            return dig(self._values.get(i), path[3:])
        return self.run.look_up(path, step)
