"""Which commands a run accepts, and what follows from each.

A rejected command leaves a reason on record and nothing else. An id that was seen before
is not a second command: it gets no answer at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import DefinitionError
from penstock.ids import StepId
from penstock.run import asking, points
from penstock.run.commands import (
    Abort,
    Checkpoint,
    Command,
    Decide,
    InjectTasks,
    Message,
    ModifyArgs,
    Pause,
    ReplanDag,
    RequestDecision,
    Resume,
    RetryStep,
    SkipLayer,
    SkipStep,
)
from penstock.run.control import control_values
from penstock.run.events import (
    Checkpointed,
    CommandAccepted,
    CommandRefused,
    DagChanged,
    DecisionMade,
    DecisionRequired,
    Event,
    StateUpdated,
    TaskSkipped,
    WorkflowPaused,
    WorkflowResumed,
)
from penstock.run.evolve import evolve
from penstock.run.facts import CommandReceived
from penstock.run.state import ASKING, BACKOFF, DORMANT, FAILED, WAITING, Run
from penstock.workflow.amend import amended
from penstock.workflow.findings import did_you_mean
from penstock.workflow.graph import extend

UNSTARTED = (WAITING, DORMANT, BACKOFF)


def command(run: Run, fact: CommandReceived, now: float, batch: list[Event]) -> None:
    """Accept or reject one command, with everything that follows from it directly."""
    asked = fact.command
    if asked.id in run.commands:
        return
    wrong = "; ".join(map(str, fact.problems)) or refusal(run, asked)
    event: Event
    if wrong:
        name = str(type(asked).__struct_config__.tag)
        event = CommandRefused(run.seq + 1, now, asked.id, name, wrong)
        evolve(run, event)
        batch.append(event)
        return
    moot = _moot(run, asked)
    event = CommandAccepted(run.seq + 1, now, asked)
    evolve(run, event)
    batch.append(event)
    for make in [*moot, *_consequences(run, fact)]:
        event = make(run.seq + 1, now)
        evolve(run, event)
        batch.append(event)


def refusal(run: Run, asked: Command) -> str:
    """Why the command cannot be accepted; empty when it can."""
    if run.ended:
        return f"the run has ended ({run.status_})"
    match asked:
        case Abort():
            return "the run is already being stopped" if run.stopping else ""
        case Message():
            return "" if asked.text else "an empty message"
        case _ if run.stopping:
            return "the run is being stopped"
        case Pause():
            return "the run is already paused" if "command" in run.pauses else ""
        case Resume():
            return "" if "command" in run.pauses else "the run is not paused"
        case SkipStep():
            return _known(run, asked.step) or _unstarted(run, asked.step)
        case SkipLayer():
            return "" if _layer(run, asked.layer) else f"no unstarted step in layer {asked.layer}"
        case ModifyArgs():
            return _known(run, asked.step) or _unstarted(run, asked.step) or _bad_args(run, asked)
        case RetryStep():
            return _known(run, asked.step) or _not_failed(run, asked.step)
        case InjectTasks():
            return _bad_injection(run, asked)
        case Decide():
            return asking.refusal(run, asked)
        case ReplanDag():
            return "" if asked.requirement else "an empty requirement"
        case Checkpoint() | RequestDecision():
            return ""


def _consequences(run: Run, fact: CommandReceived) -> list[Callable[[int, float], Event]]:
    asked = fact.command
    match asked:
        case Pause():
            return [lambda seq, now: WorkflowPaused(seq, now, asked.reason or "paused by command")]
        case Resume():
            return [WorkflowResumed]
        case SkipStep():
            return [_skipping(run, asked.step, asked.reason)]
        case SkipLayer():
            return [_skipping(run, run.graph.ids[i], asked.reason) for i in _layer(run, asked.layer)]
        case InjectTasks():
            control = _late_control(run, asked, fact)
            guarded = fact.guarded
            return [lambda seq, now: DagChanged(seq, now, asked.steps, asked.by, {}, guarded, control)]
        case Message():
            return [lambda seq, now: StateUpdated(seq, now, {"messages": [_said(asked, now)]})]
        case RequestDecision():
            return [asking.requested(run, asked.summary, asked.by)]
        case ReplanDag():
            return [asking.replanning(run, asked.requirement, "")]
        case ModifyArgs():
            return _asked_anew(run, asked)
        case Checkpoint():
            return [lambda seq, now: Checkpointed(seq, now, f"{run.id}@{seq}")]
        case _:
            return []


def _moot(run: Run, asked: Command) -> list[Callable[[int, float], Event]]:
    """Questions about a step that someone simply has tried again."""
    if not isinstance(asked, RetryStep):
        return []
    return [
        _superseded(question, asked, "the step is tried again")
        for question in run.decisions.values()
        if question.step == asked.step
    ]


def _asked_anew(run: Run, asked: ModifyArgs) -> list[Callable[[int, float], Event]]:
    """An approval is for the call as it was: with other arguments it is asked for again."""
    return [
        _superseded(question, asked, "its arguments were changed")
        for question in run.decisions.values()
        if question.kind == "approval" and question.step == asked.step
    ]


def _superseded(question: DecisionRequired, asked: Command, why: str) -> Callable[[int, float], Event]:
    return lambda seq, now: DecisionMade(
        seq, now, question.decision, "superseded", question.step, question.iteration, question.item,
        asked.by, why, None, question.kind,
    )  # fmt: skip


def _late_control(run: Run, asked: InjectTasks, fact: CommandReceived) -> dict[StepId, dict[str, Any]]:
    """What the new steps' control expressions read of steps that have ended already."""
    if not fact.outputs:
        return {}
    graph = extend(run.graph, asked.steps)
    return {graph.ids[i]: control_values(graph, i, output) for i, output in fact.outputs.items()}


def _skipping(run: Run, step: StepId, reason: str) -> Callable[[int, float], Event]:
    iteration = run.iterations.get(run.graph.index[step], 1)
    text = reason or "skipped by command"
    return lambda seq, now: TaskSkipped(seq, now, step, "command", text, iteration)


def _said(message: Message, now: float) -> dict[str, Any]:
    return {"role": message.role, "text": message.text, "by": message.by, "at": now}


def _known(run: Run, step: StepId) -> str:
    if step in run.graph.index:
        return ""
    hint = did_you_mean(step, run.graph.ids)
    return f"no step {step!r} in this run" + (f"; {hint}" if hint else "")


def _unstarted(run: Run, step: StepId) -> str:
    i = run.graph.index[step]
    return "" if _may_start_yet(run, i) else f"too late: {step} {run.step_stands(i)}"


def _may_start_yet(run: Run, i: int) -> bool:
    """A step that a person is asked to approve has not been started either."""
    if run.phase[i] != ASKING:
        return run.phase[i] in UNSTARTED
    step = run.graph.ids[i]
    return any(asked.kind == "approval" and asked.step == step for asked in run.decisions.values())


def _not_failed(run: Run, step: StepId) -> str:
    i = run.graph.index[step]
    return "" if run.phase[i] == FAILED else f"{step} has not failed; it {run.step_stands(i)}"


def _layer(run: Run, layer: int) -> list[int]:
    return [i for i, at in enumerate(run.graph.layers) if at == layer and _may_start_yet(run, i)]


def _bad_args(run: Run, asked: ModifyArgs) -> str:
    try:
        amended(run.graph, run.graph.index[asked.step], asked.args)
    except DefinitionError as error:
        return str(error)
    return ""


def _bad_injection(run: Run, asked: InjectTasks) -> str:
    if not asked.steps:
        return "no steps to inject"
    if wrong := points.barred(asked.steps):
        return wrong
    try:
        extend(run.graph, asked.steps)
    except DefinitionError as error:
        return str(error)
    return ""
