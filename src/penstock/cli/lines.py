"""Events as lines of plain text: progress where there is no terminal, and lists of events.

One event, one line. Knows nothing of what came before it, except when the run started.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.cli.text import headline, one_line, span
from penstock.cli.view import checked, routed
from penstock.run.commands import Decide
from penstock.run.events import (
    BudgetWarned,
    CommandAccepted,
    CommandRefused,
    DagChanged,
    DecisionMade,
    DecisionRequired,
    Event,
    GateChecked,
    GateEscalated,
    GateStarted,
    LayerStarted,
    MapStarted,
    RouteDecided,
    StateUpdated,
    TaskCompleted,
    TaskFailed,
    TaskSkipped,
    TaskStarted,
    WorkflowAborted,
    WorkflowCompleted,
    WorkflowPaused,
    WorkflowResumed,
    WorkflowStarted,
    wire_name,
)
from penstock.run.usage import figure

SHOWN = 120
"""How much of a value a line repeats."""


def progress(event: Event, started: float) -> str:
    """A line for someone who follows the run; empty for events that only programs care about."""
    entry = _PROGRESS.get(type(event))
    if entry is None:
        return ""
    word, say = entry
    if isinstance(event, CommandAccepted) and isinstance(event.command, Decide):
        return ""  # the answer that it gives is an event of its own
    if isinstance(event, TaskFailed) and event.retry_in is not None:
        word = "retry"
    return f"{event.at - started:9.3f}  {word:<9}{say(event)}".rstrip()


def listed(event: Event, started: float) -> str:
    """A line of a list of events: all of them, by their wire names."""
    entry = _PROGRESS.get(type(event)) or _LISTED.get(type(event))
    detail = entry[1](event) if entry else _fields(event)
    return f"{event.seq:>6}  {event.at - started:9.3f}  {wire_name(event):<18} {detail}".rstrip()


def task(event: TaskStarted | TaskCompleted | TaskFailed | GateStarted | GateChecked | GateEscalated) -> str:
    """Which task: `fetch`, `fetch[3]`, with the iteration and attempt where they are not the first."""
    name = str(event.step) if event.item is None else f"{event.step}[{event.item}]"
    iteration = f" iteration {event.iteration}" if event.iteration > 1 else ""
    number = getattr(event, "attempt", 1)
    attempt = f" attempt {number}" if number > 1 else ""
    return f"{name}{iteration}{attempt}"


def brief(value: Any) -> str:
    """A value as JSON, and not all of a long one."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        text = repr(value)
    return one_line(text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…")


def _failed(event: TaskFailed) -> str:
    again = "" if event.retry_in is None else f" (again in {span(event.retry_in)})"
    return f"{task(event)}: {one_line(event.error)}{again}"


def _warned(event: BudgetWarned) -> str:
    name = f"{event.budget} of {event.step}" if event.step is not None else event.budget
    share = f" ({event.used / event.limit:.0%})" if event.limit else ""
    return f"{name}: {figure(event.used)} of {figure(event.limit)}{share}"


def _command(event: CommandAccepted) -> str:
    """Which command, what it takes, and whose it is."""
    fields = msgspec.to_builtins(event.command)
    name, by = fields.pop("command"), fields.pop("by", "")
    fields.pop("id", None)
    given = "".join(f" {key}={v if isinstance(v, str) else brief(v)}" for key, v in fields.items())
    text = one_line(f"{name}{given}")
    return (text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…") + (f" by {one_line(by)}" if by else "")


def _refused(event: CommandRefused) -> str:
    return f"{event.name}: {one_line(event.reason)}"


def _asked(event: DecisionRequired) -> str:
    by = f" (answers itself in {span(event.deadline - event.at)})" if event.deadline is not None else ""
    return f"{event.decision} {event.kind}: {headline(event.summary)}{by}"


def _answered(event: DecisionMade) -> str:
    by = f" by {event.by}" if event.by else ""
    given = f" {brief(event.args)}" if event.args else ""
    why = f": {one_line(event.message)}" if event.message else ""
    return f"{event.decision}: {event.verb}{given}{by}{why}"


def _routed(event: RouteDecided) -> str:
    iteration = f" iteration {event.iteration}" if event.iteration > 1 else ""
    return one_line(f"{event.step}{iteration} {routed(event)}")


def _checked(event: GateChecked) -> str:
    then = {"again": "; tried again", "recheck": "; checked again", "escalate": "; a person is called"}
    return f"{task(event)}: {one_line(checked(event))}{then.get(event.then, '')}"


def _escalated(event: GateEscalated) -> str:
    hopeless = ", more of the same will not help" if event.unrecoverable else ""
    child = f" (child {event.child})" if event.child else ""
    return f"{task(event)}{child}: {one_line(event.reason)}{hopeless}"


def _wave(event: LayerStarted) -> str:
    return f"{event.layer}" + (f": {', '.join(event.wave)}" if event.wave else "")


def _ended(event: WorkflowCompleted) -> str:
    return event.status + (f": {one_line(event.reason)}" if event.reason else "")


def _added(event: DagChanged) -> str:
    """The difference that it makes: new steps with what they wait for, and arguments that they feed."""
    parts = []
    for step in event.added:
        needs = f" after {', '.join(step.needs)}" if step.needs else ""
        approval = ", needs approval" if step.id in event.guarded else ""
        parts.append(f"+ {step.id} ({step.uses}{needs}{approval})")
    parts += [f"~ {step}.{name}" for step, given in event.feeds.items() for name in given]
    by = f" by {event.by}" if event.by else ""
    return one_line(", ".join(parts)) + by


def _fields(event: Event) -> str:
    fields = msgspec.to_builtins(event)
    return " ".join(f"{k}={brief(v)}" for k, v in fields.items() if k not in ("type", "seq", "at"))


_Sayer = Callable[[Any], str]

_PROGRESS: dict[type, tuple[str, _Sayer]] = {
    TaskStarted: ("start", task),
    MapStarted: ("items", lambda event: f"{event.step}: {event.count:,}"),
    TaskCompleted: ("done", task),
    TaskFailed: ("failed", _failed),
    TaskSkipped: ("skipped", lambda event: f"{event.step}: {one_line(event.reason)}"),
    DecisionRequired: ("asks", _asked),
    DecisionMade: ("answer", _answered),
    RouteDecided: ("route", _routed),
    GateChecked: ("gate", _checked),
    GateEscalated: ("person", _escalated),
    BudgetWarned: ("limit", _warned),
    CommandAccepted: ("command", _command),
    CommandRefused: ("refused", _refused),
    DagChanged: ("added", _added),
    WorkflowPaused: ("paused", lambda event: one_line(event.reason)),
    WorkflowResumed: ("resumed", lambda event: one_line(event.reason)),
}
_LISTED: dict[type, tuple[str, _Sayer]] = {
    WorkflowStarted: ("", lambda event: f"{event.workflow} {brief(event.inputs)}"),
    LayerStarted: ("", _wave),
    GateStarted: ("", task),
    StateUpdated: ("", lambda event: brief({**event.delta, **event.values})),
    WorkflowCompleted: ("", _ended),
    WorkflowAborted: ("", lambda event: one_line(event.reason)),
}
