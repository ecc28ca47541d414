"""Decision points: where an agent is asked whether and how to go on.

After named steps, after failures, or between waves. A policy decider answers at once, by its
rules; anyone else is asked, and nothing new starts until there is an answer or time is up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.errors import DefinitionError
from penstock.ids import DecisionId, StepId
from penstock.run import asking
from penstock.run.control import control_values
from penstock.run.emit import emit
from penstock.run.events import DagChanged, DecisionMade, DecisionRequired, Event, LayerStarted
from penstock.run.facts import Replanned
from penstock.run.scope import look_up
from penstock.run.state import FAILED, SUCCEEDED, Run
from penstock.run.summary import summarise
from penstock.workflow.expr import Expression, Failure
from penstock.workflow.foreign import only_in_files
from penstock.workflow.graph import extend
from penstock.workflow.inputs import shown
from penstock.workflow.spec import Ail, Rule, Step


def reach_points(run: Run, now: float, batch: list[Event]) -> None:
    """Steps have ended: ask where the workflow says so."""
    ended, run.points = run.points, []
    config = run.graph.workflow.config.ail
    for i in ended:
        point = run.graph.points.get(i)
        if run.phase[i] == FAILED:
            if config is not None and config.at == "on_error" and point is None:
                point = (config, run.graph.rules)
            elif point is None or point[0].at == "per_layer":
                continue
        elif point is not None and point[0].at == "on_error" and not _named(run, i, point[0]):
            continue
        if point is not None and run.phase[i] >= SUCCEEDED:
            _ask(run, i, point[0], point[1], now, batch)


def _named(run: Run, i: int, ail: Ail) -> bool:
    """Whether the workflow asks about this very step, however it ends."""
    step = run.graph.workflow.steps[i]
    return step.id in ail.after or step.ail is True


def begin_wave(run: Run, now: float, batch: list[Event]) -> None:
    """When a wave is over, ask; when nobody objects, what is ready by then is the next one."""
    if run.holding or any(run.phase[i] < SUCCEEDED or i in run.unsettled for i in members(run)):
        return
    ail = run.graph.workflow.config.ail
    assert ail is not None  # noqa: S101 - there are no waves without it
    if run.wave and (ail.decider == "policy" or any(run.queued)):  # who else has a say in what is over?
        _ask(run, -1, ail, run.graph.rules, now, batch)
        if run.holding or run.stopping or run.due:
            return  # steps that a rule added are part of the wave
    ready = [i for i, queued in enumerate(run.queued) if queued]
    if ready:
        layer = max(run.layer, *(run.graph.layers[i] for i in ready))
        names = tuple(run.graph.ids[i] for i in ready)
        emit(run, batch, LayerStarted(run.seq + 1, now, layer, names))


def members(run: Run) -> set[int]:
    """The steps of the wave, without those that a loop has opened again since."""
    return {i for i, iteration in run.wave.items() if run.iterations.get(i, 1) == iteration}


def _ask(run: Run, i: int, ail: Ail, rules: Sequence[Expression], now: float, batch: list[Event]) -> None:
    if ail.decider == "policy":
        _follow_rules(run, i, ail, rules, now, batch)
        return
    step = run.graph.ids[i] if i >= 0 else None
    headline = f"{step} {run.step_stands(i)}." if i >= 0 else "A layer is complete."
    critical = any(queued and j in run.graph.guarded for j, queued in enumerate(run.queued)) or any(
        j in run.graph.guarded for j in run.due
    )
    waits = critical and ail.on_timeout == "continue"
    deadline = None if waits or ail.on_timeout == "wait" else now + ail.timeout
    event = DecisionRequired(
        run.seq + 1, now, asking.new_id(run), "ail", summarise(run, headline), step,
        run.iterations.get(i, 1) if i >= 0 else 1, None, asking.AIL,
        {"decider": ail.decider, "on_timeout": ail.on_timeout}, "", deadline,
        {"respond": {"type": "object"}}, holds=True,
    )  # fmt: skip
    emit(run, batch, event)


# --- the policy decider -----------------------------------------------------------------------


def _follow_rules(
    run: Run, i: int, ail: Ail, rules: Sequence[Expression], now: float, batch: list[Event]
) -> None:
    origin = run.graph.ids[i] if i >= 0 and ail is not run.graph.workflow.config.ail else ""
    applied = False
    doubts: list[str] = []
    for n, (rule, expression) in enumerate(zip(ail.rules, rules, strict=True)):
        key = f"{origin}#{n}"
        if key in run.fired and not rule.repeat:
            continue
        value = expression.evaluate(lambda path: look_up(run, path, -1))
        if not isinstance(value, bool):
            doubts.append(run.mask(_doubt(n + 1, rule, value)))
        if value is not True:
            continue
        applied = True
        if not _apply(run, i, rule, key, doubts, now, batch):
            return
    if not applied or doubts:
        said = "no rule applies" if not applied else "no other rule applies"
        emit(run, batch, _made(run, i, "continue", "; ".join([said, *doubts]), None, now))


def _doubt(number: int, rule: Rule, value: Any) -> str:
    """Why nobody knows whether a rule applies: one that was meant to abort may not pass in silence."""
    if isinstance(value, Failure):
        return f"rule {number} could not be evaluated: {value.message} ({rule.if_})"
    return f"rule {number} gave {shown(value)}, which is not true or false ({rule.if_})"


def _apply(run: Run, i: int, rule: Rule, key: str, doubts: list[str], now: float, batch: list[Event]) -> bool:
    """Carry a rule out. Whether the rules after it still have a say."""
    wrong = problem_with(run, rule.tasks, rule.feeds) if rule.do == "inject" else ""
    said = [f"the rule applies: {rule.if_}", *([f"refused: {wrong}"] if wrong else []), *doubts]
    doubts.clear()
    message = "; ".join(said)
    verb = "continue" if wrong else rule.do
    emit(run, batch, _made(run, i, verb, message, {"rule": key}, now))
    if wrong:
        return True
    if rule.do == "inject":
        _grow_by_rule(run, rule, now, batch)
    elif rule.do == "replan":
        emit(run, batch, asking.replanning(run, rule.requirement, rule.feeds)(run.seq + 1, now))
    return rule.do in ("inject", "replan")


def _made(run: Run, i: int, verb: str, message: str, args: dict[str, Any] | None, now: float) -> DecisionMade:
    step = run.graph.ids[i] if i >= 0 else None
    iteration = run.iterations.get(i, 1) if i >= 0 else 1
    return DecisionMade(
        run.seq + 1, now, DecisionId(f"{run.id}:{run.seq + 1}"), verb, step, iteration, None, "policy",
        message, args, "ail",
    )  # fmt: skip


# --- new steps --------------------------------------------------------------------------------


def problem_with(run: Run, steps: Sequence[Step], feeds: str) -> str:
    """Why these steps cannot be added; empty when they can."""
    try:
        extend(run.graph, steps, feeds=fed(run, steps, feeds))
    except DefinitionError as error:
        return str(error)
    if feeds:
        i = run.graph.index[StepId(feeds.partition(".")[0])]
        if run.phase[i] > 1:
            return f"too late: {run.graph.ids[i]} {run.step_stands(i)}"
    return ""


def fed(run: Run, steps: Sequence[Step], feeds: str) -> dict[StepId, dict[str, Any]]:
    """`STEP.ARGUMENT` becomes a list: what it was, and what each of the new steps gives."""
    name, _, argument = feeds.partition(".")
    if not argument:
        return {}
    step = StepId(name)
    i = run.graph.index.get(step, -1)
    given = {**run.graph.workflow.steps[i].with_, **run.overrides.get(i, {})} if i >= 0 else {}
    new = [f"${{ steps.{one.id}.output }}" for one in steps]
    before = [given[argument]] if argument in given else []
    if any(argument in one.feeds.get(step, {}) for one in run.injected) and isinstance(before[0], list):
        before = before[0]  # it is such a list already
    return {step: {argument: [*before, *new]}}


def barred(steps: Sequence[Step]) -> str:
    """What steps may do only in a file that someone has read, and not when they come while the run goes."""
    for step in steps:
        what = only_in_files(step)
        if not what and isinstance(step.ail, Ail) and any(rule.tasks for rule in step.ail.rules):
            what = "rules that add steps are"
        if what:
            return f"{step.id}: {what} allowed only in workflow files, not in injections"
    return ""


def _grow_by_rule(run: Run, rule: Rule, now: float, batch: list[Event]) -> None:
    guarded = tuple(step.id for step in rule.tasks if step.id in run.graph.guarded_tasks)
    given = fed(run, rule.tasks, rule.feeds)
    emit(run, batch, DagChanged(run.seq + 1, now, tuple(rule.tasks), "policy", given, guarded))


def _grow_by_plan(run: Run, plan: Replanned, now: float, batch: list[Event]) -> None:
    given = fed(run, plan.steps, plan.feeds)
    graph = extend(run.graph, plan.steps, feeds=given)
    control = {graph.ids[i]: control_values(graph, i, output) for i, output in plan.outputs.items()}
    event = DagChanged(run.seq + 1, now, tuple(plan.steps), "planner", given, plan.guarded, control)
    emit(run, batch, event)


def replanned(run: Run, fact: Replanned, now: float, batch: list[Event]) -> None:
    """The planner has answered: its steps are checked like anyone's."""
    asked = run.decisions.get(fact.decision)
    if asked is None or run.ended or run.stopping:
        return
    wrong = fact.error or "; ".join(map(str, fact.problems)) or ("" if fact.steps else "nothing fits")
    wrong = wrong or barred(fact.steps) or problem_with(run, fact.steps, fact.feeds)
    verb, message = ("skip", wrong) if wrong else ("inject", f"steps added: {len(fact.steps)}")
    made = DecisionMade(
        run.seq + 1, now, asked.decision, verb, None, 1, None, "planner", message, None, "replan"
    )
    emit(run, batch, made)
    if not wrong:
        _grow_by_plan(run, fact, now, batch)
