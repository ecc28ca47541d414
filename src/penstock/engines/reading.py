"""How expressions read whole outputs: arguments, lists of maps, the outputs of the run.

Values handed out are always fresh: nothing a step does to its arguments can be seen by another.
What is not at hand is fetched first, so every reading is either done at once or a coroutine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.engines.outputs import Outputs, step_of
from penstock.policy import gates
from penstock.run import scope
from penstock.run.facts import OutputsCollected
from penstock.run.scope import dig
from penstock.run.state import SUCCEEDED, Run, place
from penstock.workflow.amend import amended
from penstock.workflow.expr import MISSING, Failure, Path
from penstock.workflow.interpolate import Template

Fetched = Mapping[int, Any]
"""Outputs that were not at hand, by step; -1 - i: of the last iteration."""

NOTHING: Fetched = {}


class Reading:
    def __init__(self, run: Run, outputs: Outputs) -> None:
        self._run = run
        self._outputs = outputs

    def look_up(self, path: Path, step: int = -1, fetched: Fetched = NOTHING) -> Any:
        """What an expression of `step` finds at a path."""
        run = self._run
        i = step_of(run, path)
        if i == -1:
            return scope.look_up(run, path, step)
        if i < 0:
            return MISSING
        if path[0] == "previous":
            return self._previous(i, path, fetched)
        if run.phase[i] != SUCCEEDED:
            return None
        return dig(fetched[i] if i in fetched else self._outputs.value(i), path[3:])

    def _previous(self, i: int, path: Path, fetched: Fetched) -> Any:
        """What the last iteration gave: nothing the first time, or where it did not succeed."""
        before = self._run.previous.get(i)
        if before is None or before[0] != "succeeded":
            return None
        return dig(fetched[-1 - i] if -1 - i in fetched else self._outputs.before(i), path[3:])

    def around(self, path: Path, step: int, item: int | None, fetched: Fetched = NOTHING) -> Any:
        """What an expression about one task finds: its item and its earlier attempts, besides the rest."""
        if path[0] == "item":
            return dig(self._outputs.items.item(step, item), path[1:]) if item is not None else MISSING
        if path[0] == "attempts":
            return dig(gates.memory(self._run.tried.get(place(step, item), ())), path[1:])
        return self.look_up(path, step, fetched)

    # --- arguments ---

    async def arguments(self, step: int, item: int | None) -> dict[str, Any] | Failure:
        """The arguments of a task, evaluated now."""
        fetched: dict[int, Any] = {}
        while absent := [i for i in self._outputs.absent(self.reads(step)) if i not in fetched]:
            fetched |= await self._outputs.fetch(absent)  # meanwhile they may be changed to read others
        return self.render(step, item, fetched)

    def render(self, step: int, item: int | None, fetched: Fetched = NOTHING) -> dict[str, Any] | Failure:
        """The arguments of a task. Everything absent must have been fetched."""
        template = self._template(step)
        if template is None:
            return {}
        args: dict[str, Any] | Failure = template.render(lambda path: self.around(path, step, item, fetched))
        return args

    def reads(self, step: int) -> Iterable[Path]:
        """What the arguments of a step read."""
        template = self._template(step)
        return () if template is None else template.reads

    def _template(self, step: int) -> Template | None:
        """What a step's arguments are made of, as it stands after commands."""
        run = self._run
        if step in run.overrides:
            return amended(run.graph, step, run.overrides[step])
        return run.graph.args.get(step)

    # --- lists, and what the run gives ---

    def missing_items(self, step: int) -> list[int]:
        """Steps whose outputs a `for_each` needs and which have to be fetched."""
        return self._outputs.absent(self._run.graph.for_each[step].reads)

    def expand(self, step: int, fetched: Fetched = NOTHING) -> list[Any] | Failure:
        """Evaluate a `for_each`."""
        expression = self._run.graph.for_each[step]
        value = expression.evaluate(lambda path: self.look_up(path, step, fetched))
        if isinstance(value, Failure):
            return value
        if not isinstance(value, list):
            return Failure(f"expected a list, got {type(value).__name__}", expression.source)
        return value

    def missing_outputs(self) -> list[int]:
        """Steps whose outputs the run's own outputs need and which have to be fetched."""
        return self._outputs.absent(
            path for _, template in self._run.graph.outputs for path in template.reads
        )

    def collect(self, fetched: Fetched = NOTHING) -> OutputsCollected:
        """Evaluate what the run gives."""
        values: dict[str, Any] = {}
        errors: dict[str, str] = {}
        for name, template in self._run.graph.outputs:
            value = template.render(lambda path: self.look_up(path, -1, fetched))
            if isinstance(value, Failure):
                errors[name] = value.message
            else:
                values[name] = value
        return OutputsCollected(values, errors)
