"""Routers choose: what `decide` concludes when a routed step has ended.

The order of the rules is `policy.routing`'s; here are the run's own limits (caps, the fuse,
stalls, detours) and what is put on record.
"""

from __future__ import annotations

from hashlib import sha256
from math import isfinite
from typing import Any

import msgspec

from penstock.ids import DecisionId, StepId
from penstock.policy import routing
from penstock.policy.routing import Asking, Choice, Tie
from penstock.run.control import too_large
from penstock.run.effects import BreakTie
from penstock.run.events import DecisionRequired, Event, RouteDecided, TaskSkipped
from penstock.run.evolve import evolve
from penstock.run.facts import TieBroken
from penstock.run.scope import look_up
from penstock.run.state import DORMANT, FAILED, SKIPPED, SUCCEEDED, Run
from penstock.workflow import spec
from penstock.workflow.expr import Expression, Failure
from penstock.workflow.graph import END, HUMAN, Router
from penstock.workflow.loops import FUSE


def choose_routes(run: Run, now: float, batch: list[Event]) -> None:
    """Let every router that has ended choose."""
    while run.choosing:
        waiting, run.choosing = dict.fromkeys(run.choosing), []  # a rebuilt run names some more than once
        for i in waiting:
            if run.unsettled.get(i) == "" and not run.ending:
                _choose(run, i, now, batch)


def _choose(run: Run, i: int, now: float, batch: list[Event]) -> None:
    router = run.graph.routers[i]
    most = FUSE * len(run.graph.ids)
    if run.openings >= most:
        reason = f"the run has opened {run.openings:,} steps; {len(run.graph.ids):,} allow {most:,}"
        _decide(run, i, Choice(None, "fuse", reason=reason), now, batch)
        return
    if _detours_first(run, i, router):
        _decide(run, i, Choice(router.detour, "detour"), now, batch)
        return
    choice = routing.choose(router, _asking(run, i))
    if isinstance(choice, Tie):
        names = tuple(_name(run, target) for target in choice.candidates)
        run.wanted.append(BreakTie(i, run.iterations.get(i, 1), names))
        return
    _decide(run, i, choice, now, batch)


def _asking(run: Run, i: int) -> Asking:
    step = run.graph.workflow.steps[i]
    return Asking(
        evaluate=lambda expression: _evaluate(run, i, expression),
        closed=lambda target: _closed(run, i, target),
        failed=run.phase[i] == FAILED and step.on_error != "continue",
        on_error=step.on_expr_error or run.graph.workflow.config.on_expr_error or "fallthrough",
        clock=run.stopwatch,
    )


def _evaluate(run: Run, i: int, expression: Expression) -> Any:
    value = expression.evaluate(lambda path: look_up(run, path, i))
    if isinstance(value, Failure):
        own = ("steps", run.graph.ids[i])
        why = too_large(run, [(*own, *path) if path[0] == "output" else path for path in expression.reads])
        return Failure(why, value.source) if why else value
    return value


def tie_broken(run: Run, fact: TieBroken, now: float, batch: list[Event]) -> None:
    """A tie-breaker answered. An answer that is late, unsure or not legal is only put on record."""
    i = fact.step
    if run.unsettled.get(i) != "" or run.iterations.get(i, 1) != fact.iteration or run.ending:
        return
    router = run.graph.routers[i]
    tie = run.graph.workflow.steps[i].routing
    least = tie.tie_breaker.confidence if tie and tie.tie_breaker else 0.7
    legal = {_name(run, t): t for t in router.tie_targets if not _closed(run, i, t)}
    wrong = fact.error
    if not wrong and fact.target not in legal:
        wrong = f"the tie-breaker answered {fact.target!r}, which is not one of {', '.join(legal)}"
    if not wrong and not least <= fact.confidence <= 1:
        how = "<" if fact.confidence < least else "is not between 0 and 1, let alone above"
        wrong = f"the tie-breaker is not sure of {fact.target}: {fact.confidence:g} {how} {least:g}"
    known = routing.choose(router, _asking(run, i)).evaluated  # for the record, as it was before the tie
    if wrong:
        choice = routing.fallback(router, lambda target: _closed(run, i, target), known)
        choice = msgspec.structs.replace(choice, reason=wrong)
    else:
        choice = Choice(legal[StepId(fact.target)], "tie_breaker", known, reason=fact.reasoning)
    sure = fact.confidence if isfinite(fact.confidence) else None
    _decide(run, i, choice, now, batch, needs_human=bool(wrong), confidence=sure, tie=not wrong)


def chosen_by_human(run: Run, i: int, target: str, by: str, now: float, batch: list[Event]) -> None:
    """A person picked one of the declared targets."""
    number = END if target == spec.END else run.graph.index[StepId(target)]
    _decide(run, i, Choice(number, "human", reason=f"chosen by {by}" if by else ""), now, batch)


def open_targets(run: Run, i: int) -> list[StepId]:
    """Where a router may go, as it stands."""
    router = run.graph.routers[i]
    declared = sorted({*router.forward, *router.back})
    return [run.graph.ids[target] for target in declared if not _closed(run, i, target)]


def _decide(
    run: Run,
    i: int,
    choice: Choice,
    now: float,
    batch: list[Event],
    *,
    needs_human: bool = False,
    confidence: float | None = None,
    tie: bool = False,
) -> None:
    router = run.graph.routers[i]
    round_ = ""
    if choice.target is not None and choice.target in router.bodies:
        round_ = _round_print(run, i, router.bodies[choice.target])
        earlier = run.rounds.get(i, [])
        stalled = len(earlier) >= routing.STALLED - 1 and set(earlier) == {round_}
        if stalled and choice.rule != "human":  # a person knows, and may want another round all the same
            choice, needs_human, round_ = _leave_stalled(run, i, router), True, ""
    target = None if choice.target is None else _name(run, choice.target)
    event = RouteDecided(
        run.seq + 1, now, run.graph.ids[i], target, choice.rule, run.iterations.get(i, 1),
        tuple(open_targets(run, i)), tuple(_named(run, entry) for entry in choice.evaluated), confidence,
        needs_human or choice.target == HUMAN, tie, choice.reason, round_,
    )  # fmt: skip
    evolve(run, event)
    batch.append(event)
    if choice.target == HUMAN:
        _ask_person(run, i, now, batch)


def _leave_stalled(run: Run, i: int, router: Router) -> Choice:
    reason = f"the last {routing.STALLED} rounds came to the same: more of them will not help"
    onward = router.next
    if onward is not None and (onward in router.bodies or _closed(run, i, onward)):
        onward = None
    return Choice(onward, "stall", reason=reason)


def _ask_person(run: Run, i: int, now: float, batch: list[Event]) -> None:
    step = run.graph.ids[i]
    targets = [*open_targets(run, i), spec.END]
    summary = f"{step} has ended, and a person is to choose where to go: {', '.join(targets)}."
    one_of = {"type": "object", "properties": {"target": {"enum": targets}}, "required": ["target"]}
    event = DecisionRequired(
        run.seq + 1, now, DecisionId(f"{run.id}:{run.seq + 1}"), "route", summary, step,
        run.iterations.get(i, 1), None, ("respond", "abort"), schema={"respond": one_of},
    )  # fmt: skip
    evolve(run, event)
    batch.append(event)


def _closed(run: Run, i: int, target: int) -> str:
    """Why a router cannot take a target now; empty when it can."""
    router = run.graph.routers[i]
    if target in router.bodies and run.iteration(i) >= router.max_iterations:
        return f"max_iterations: {router.max_iterations} is reached"
    if target >= 0 and target == router.detour:
        if i in run.detoured:
            return "the detour has been taken"
        if _depth(run, i) >= routing.DEEPEST:
            return f"detours are nested {routing.DEEPEST} deep"
    return ""


def _depth(run: Run, i: int) -> int:
    """How many detours a step is part of."""
    callers = {step: waiting for waiting, step in run.frames}
    depth = 0
    while i in callers and depth <= routing.DEEPEST:
        i = callers[i]
        depth += 1
    return depth


def _detours_first(run: Run, i: int, router: Router) -> bool:
    """A detour that no rule names is taken before the first choice."""
    if router.detour is None or run.phase[i] != SUCCEEDED:
        return False
    named = {target for _, target in router.conditions} | set(router.branches.values())
    named |= {*router.tie_targets, router.next, router.loop_target}  # type: ignore[arg-type]  # None is no target
    return router.detour not in named and not _closed(run, i, router.detour)


def _round_print(run: Run, i: int, body: tuple[int, ...]) -> str:
    """What a round of a loop came to."""
    if run.phase[i] == FAILED:
        return fingerprint(("failed", *run.reasons[i]))
    return fingerprint([run.prints.get(j, run.step_status(j)) for j in body])


def fingerprint(value: Any) -> str:
    return sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:16]


def _named(run: Run, entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, "target": _name(run, entry["target"])} if "target" in entry else entry


def _name(run: Run, target: int) -> StepId:
    if target == END:
        return spec.END
    return spec.HUMAN if target == HUMAN else run.graph.ids[target]


def skip_unchosen(run: Run, now: float, batch: list[Event]) -> None:
    """Targets that no router can choose any more are skipped."""
    while run.left:
        i = run.left.pop()
        if i not in run.settled:
            continue
        for target in run.graph.routers[i].forward:
            if run.phase[target] == DORMANT and all(r in run.settled for r in run.graph.routed[target]):
                kind, reason = _why_not(run, target)
                iteration = run.iterations.get(target, 1)
                event = TaskSkipped(run.seq + 1, now, run.graph.ids[target], kind, reason, iteration)  # type: ignore[arg-type]  # a SkipKind
                evolve(run, event)
                batch.append(event)


def _why_not(run: Run, target: int) -> tuple[str, str]:
    routers = run.graph.routed[target]
    names = ", ".join(run.graph.ids[r] for r in routers)
    if any(run.phase[r] == SUCCEEDED or r in run.forgiven for r in routers):
        return "not_routed", f"{names} went elsewhere"
    for r in routers:
        if run.phase[r] == FAILED:
            passes = run.graph.workflow.steps[r].on_error == "continue"
            if not passes:
                return "upstream_failed", f"needs a route of {run.graph.ids[r]}, which failed"
        elif run.phase[r] == SKIPPED and run.reasons[r][0] == "upstream_failed":
            return "upstream_failed", f"needs a route of {run.graph.ids[r]}, which did not run"
    return "not_routed", f"{names} did not route here"
