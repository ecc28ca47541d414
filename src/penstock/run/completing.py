"""A step has its output: what is noted of it, and what it sets."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.run import reducers
from penstock.run.choosing import fingerprint
from penstock.run.control import control_values
from penstock.run.emit import emit
from penstock.run.events import Event, StateUpdated, TaskCompleted, TaskFailed
from penstock.run.evolve import evolve
from penstock.run.facts import TaskReturned
from penstock.run.scope import dig, look_up
from penstock.run.state import Run
from penstock.run.summary import preview
from penstock.workflow.expr import Failure, Path


def complete(run: Run, fact: TaskReturned, output: Any, now: float, batch: list[Event]) -> None:
    """The step has its output: note what control expressions read of it, and what it sets."""
    i, graph = fact.step, run.graph
    step = graph.ids[i]
    control = control_values(graph, i, output) if i in graph.control else None
    update: tuple[dict[str, Any], dict[str, Any]] | None = None
    if i in graph.sets:
        found = _update(run, i, output)
        if isinstance(found, Failure):
            _failed(run, i, fact, "state", found.message, now, batch)
            return
        update = found
    event = TaskCompleted(run.seq + 1, now, step, fact.output, fact.iteration, None, fact.attempt, control)
    if graph.careful or fact.usage:
        event = _annotated(run, i, event, output, fact)
    evolve(run, event)
    batch.append(event)
    if update:
        emit(run, batch, StateUpdated(run.seq + 1, now, update[0], update[1], step))


def _annotated(run: Run, i: int, event: TaskCompleted, output: Any, fact: TaskReturned) -> TaskCompleted:
    """With what loops, budgets and people want to know of an output."""
    graph = run.graph
    print_ = ""
    if i in graph.looped:
        state = run.maps.get(i)
        print_ = fingerprint(output if state is None else sorted(state.prints.items()))
    shown = preview(output) if graph.asks else ""
    return msgspec.structs.replace(event, print=print_, usage=fact.usage, preview=shown)


def _update(run: Run, i: int, output: Any) -> tuple[dict[str, Any], dict[str, Any]] | Failure:
    """What a step's `set` writes: undeclared keys go into `context`."""

    def found(path: Path) -> Any:
        if path[0] == "output":
            return dig(output, path[1:])
        return look_up(run, path, i)

    delta: dict[str, Any] = {}
    for key, template in run.graph.sets[i]:
        value = template.render(found)
        if isinstance(value, Failure):
            return value
        if key in run.graph.workflow.reducers:
            delta[key] = value
        else:
            delta.setdefault(reducers.CONTEXT, {})[key] = value
    try:
        return reducers.split(run, delta)
    except Exception as error:  # noqa: BLE001 - a declared reducer is a user's function
        return Failure(str(error), "set")


def _failed(
    run: Run, i: int, fact: TaskReturned, kind: str, error: str, now: float, batch: list[Event]
) -> None:
    """A task that came back, but whose result cannot be used."""
    step = run.graph.ids[i]
    emit(
        run, batch,
        TaskFailed(
            run.seq + 1, now, step, error, kind, "", fact.iteration, fact.item, fact.attempt, usage=fact.usage
        ),
    )  # fmt: skip
