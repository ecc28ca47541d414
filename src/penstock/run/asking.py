"""Decisions: what is asked, which answers count, and what follows from each.

An answer is checked before it counts; one that is not an answer leaves the question open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.ids import DecisionId, StepId
from penstock.policy import approval, arguments
from penstock.run import inputs, usage
from penstock.run.choosing import chosen_by_human
from penstock.run.commands import Decide
from penstock.run.effects import PrepareCall
from penstock.run.emit import emit
from penstock.run.events import (
    BudgetWarned,
    DecisionMade,
    DecisionRequired,
    Event,
    StateUpdated,
    TaskCompleted,
    TaskFailed,
    TaskSkipped,
)
from penstock.run.facts import CallPrepared, CommandReceived, DecisionExpired, TaskReturned
from penstock.run.state import BACKOFF, RUNNING, WAITING, Run, place
from penstock.run.summary import summarise

Make = Callable[[int, float], Event]

APPROVAL = ("approve", "reject", "edit", "skip", "abort")
BUDGET = ("raise", "finish", "abort")
AIL = ("approve", "reject", "respond", "abort")

_ARGS = {"type": "object"}
_ABOUT_TASKS = ("orphan", "gate", "approval")
_BARE = frozenset({"approve", "reject", "retry", "skip", "finish", "abort"})
"""Verbs that say everything: whoever adds arguments to one may have meant `edit`."""


# --- asking -----------------------------------------------------------------------------------


def approve(run: Run, fact: CallPrepared, now: float, batch: list[Event]) -> None:
    """Ask a person whether this exact call may be made."""
    i = fact.step
    at = place(i, fact.item)
    if run.iterations.get(i, 1) != fact.iteration:
        return  # a loop has turned meanwhile, and its call is being made ready
    wanted = at in run.preparing
    run.preparing.discard(at)
    if run.stopping or run.ended:
        return
    attempt = fact.attempt
    if _runs(run, fact):
        attempt += 1  # it was approved, and would now be another call: it is not made
    elif not wanted or not still_to_start(run, fact):
        return
    step = run.graph.workflow.steps[i]
    if fact.error:
        failed = (step.id, fact.error, fact.kind, "", fact.iteration, fact.item, attempt)
        emit(run, batch, TaskFailed(run.seq + 1, now, *failed))
        return
    about = f"{step.id}" if fact.item is None else f"{step.id}, item {fact.item}"
    headline = f"{about} would call {fact.call['uses']}."
    summary = summarise(run, headline, call=fact.call, step=i, effect=fact.effect)
    event = DecisionRequired(
        run.seq + 1, now, new_id(run), "approval", summary, step.id, fact.iteration, fact.item, APPROVAL,
        fact.call, fact.digest, _deadline(run, now), {"edit": fact.takes or _ARGS}, attempt,
    )  # fmt: skip
    emit(run, batch, event)


def _deadline(run: Run, now: float) -> float | None:
    """When a question about a call expires: what was right an hour ago may not be right any more."""
    wait = run.graph.workflow.config.approval_timeout
    return None if wait is None else now + wait


def _runs(run: Run, fact: CallPrepared) -> bool:
    i = fact.step
    if place(i, fact.item) in run.checking:
        return False
    if fact.item is None:
        return run.phase[i] == RUNNING and run.attempts.get(i, 1) == fact.attempt
    return i in run.maps and run.maps[i].running.get(fact.item) == fact.attempt


def needs_approval(run: Run, i: int, item: int | None) -> bool:
    """Whether a person has to be asked first; if so, the call is made ready to be shown."""
    if i not in run.graph.guarded or (item is None and i in run.graph.for_each):
        return False
    at = place(i, item)
    if at in run.approved:
        return False
    if at in run.unasked:
        run.unasked.discard(at)
        return False
    if at not in run.preparing:
        run.preparing.add(at)
        iteration = run.iterations.get(i, 1)
        if item is None:
            attempt = run.attempts[i] + 1 if i in run.attempts else 1
        else:
            state = run.maps[i]
            attempt = state.backoff.get(item, state.base) + 1
        run.wanted.append(PrepareCall(i, iteration, item, attempt))
    return True


def still_to_start(run: Run, fact: CallPrepared) -> bool:
    i = fact.step
    if run.iterations.get(i, 1) != fact.iteration:
        return False
    if fact.item is None:
        return run.phase[i] in (WAITING, BACKOFF)
    return i in run.maps and (fact.item == run.maps[i].next or fact.item in run.maps[i].backoff)


def over_budget(run: Run, i: int, now: float, batch: list[Event]) -> bool:
    """Warn at four fifths of a budget; at its end ask, and say that nothing may start."""
    if run.halted:
        return False  # what starts now, a person has asked for
    for key, used, limit in usage.budgets(run, i):
        name, step = _budget_name(key)
        if used >= limit:
            if not any(asked.kind == "budget" for asked in run.decisions.values()):
                emit(run, batch, BudgetWarned(run.seq + 1, now, name, used, limit, step))
                _ask_for_more(run, key, used, limit, now, batch)
            return True
        if used >= usage.NEARLY * limit and key not in run.warned:
            emit(run, batch, BudgetWarned(run.seq + 1, now, name, used, limit, step))
    return False


def _ask_for_more(run: Run, key: str, used: float, limit: float, now: float, batch: list[Event]) -> None:
    name, step = _budget_name(key)
    whose = f"of {step} " if step else ""
    unit, amount = (" seconds", "SECONDS") if name == "wall" else ("", "AMOUNT")
    spent = f"{usage.figure(used)} of {usage.figure(limit)}{unit}"
    summary = summarise(
        run,
        f"The budget {whose}for {name} is spent: {spent}.\n"
        f'raise gives more (args {{"{name}": {amount}}}, or twice as much), finish ends with what there is, '
        "abort stops the run.",
    )
    numbers = {"type": "object", "additionalProperties": {"type": "number", "exclusiveMinimum": used}}
    event = DecisionRequired(
        run.seq + 1, now, new_id(run), "budget", summary, None, 1, None, BUDGET,
        {"budget": key, "used": used, "limit": limit}, schema={"raise": numbers}, holds=True,
    )  # fmt: skip
    emit(run, batch, event)


def _budget_name(key: str) -> tuple[str, StepId | None]:
    step, _, name = key.rpartition("/")
    return name, StepId(step) if step else None


def requested(run: Run, summary: str, by: str) -> Make:
    """Someone wants the run to stop at this point and ask."""
    text = summarise(run, summary or f"A decision was requested{f' by {by}' if by else ''}.")
    return lambda seq, now: DecisionRequired(
        seq, now, DecisionId(f"{run.id}:{seq}"), "requested", text, None, 1, None, AIL,
        schema={"respond": _ARGS}, holds=True,
    )  # fmt: skip


def replanning(run: Run, requirement: str, feeds: str) -> Make:
    """The planner is asked; until it answers nothing new starts."""
    return lambda seq, now: DecisionRequired(
        seq, now, DecisionId(f"{run.id}:{seq}"), "replan", f"Steps are wanted that serve: {requirement}",
        None, 1, None, ("skip", "abort"), {"requirement": requirement, "feeds": feeds}, holds=True,
    )  # fmt: skip


def new_id(run: Run) -> DecisionId:
    return DecisionId(f"{run.id}:{run.seq + 1}")


# --- answers ----------------------------------------------------------------------------------


def refusal(run: Run, asked: Decide) -> str:
    """Why this is not an answer; empty when it is."""
    question = run.decisions.get(asked.decision)
    if question is None:
        return f"no open decision {asked.decision!r}"
    verb, args = asked.verb, asked.args
    if verb not in question.options:
        return f"{verb!r} is not an answer; choose one of {', '.join(question.options)}"
    if args and verb in _BARE:
        return f"{verb} takes no arguments"
    match question.kind, verb:
        case "orphan", "accept" if args is None or "output" not in args:
            return 'accept needs the output: args {"output": …}'
        case _, "edit" if not args:
            return "edit needs the arguments to change: args {NAME: VALUE}"
        case "approval" | "gate", "edit":
            known = {**question.call.get("args", {}), **question.schema["edit"].get("properties", {})}
            unknown = [name for name in args or {} if name not in known]
            if unknown:
                return f"the call has no argument {unknown[0]!r}; it has {', '.join(known)}"
            return arguments.complaint(question.schema["edit"], args or {})
        case "route", "respond":
            legal = question.schema["respond"]["properties"]["target"]["enum"]
            if (args or {}).get("target") not in legal:
                return f'choose a target: args {{"target": NAME}} with one of {", ".join(legal)}'
        case "budget", "raise":
            return _bad_raise(question, args)
        case "input", "respond":
            return inputs.refusal(question, args)
    return ""


def _bad_raise(question: DecisionRequired, args: Mapping[str, Any] | None) -> str:
    name, _ = _budget_name(question.call["budget"])
    if not args:
        enough = 2 * question.call["limit"] > question.call["used"]
        return "" if enough else f'raise needs an amount: args {{"{name}": AMOUNT}}'
    given = args.get(name)
    if not isinstance(given, int | float) or isinstance(given, bool) or list(args) != [name]:
        return f'raise takes one number: args {{"{name}": AMOUNT}}'
    used = question.call["used"]
    if given > used:
        return ""
    return f"{usage.figure(given)} would not help: {usage.figure(used)} is used already"


def answer(run: Run, fact: CommandReceived, now: float, batch: list[Event]) -> TaskReturned | None:
    """Carry out an answer that counts. An output that it gives to a task is returned, to be taken in."""
    asked: Any = fact.command
    question: Any = run.decisions[asked.decision]
    emit(run, batch, _made(run, question, asked)(run.seq + 1, now))
    said = asked.message or (asked.args or {}).get("message")
    if asked.verb == "respond" and said and question.kind != "input":  # that one is for whoever asked
        entry = {"role": "human", "text": str(said), "by": asked.by, "at": now}
        emit(run, batch, StateUpdated(run.seq + 1, now, {"messages": [entry]}))
    if question.kind == "route" and asked.verb == "respond":
        i = run.graph.index[question.step]
        chosen_by_human(run, i, asked.args["target"], asked.by, now, batch)
    if question.kind not in _ABOUT_TASKS:
        return None
    if asked.verb == "accept":
        return _given(run, question, asked, fact)
    for make in _endings(question, asked):
        emit(run, batch, make(run.seq + 1, now))
    return None


def _made(run: Run, question: DecisionRequired, asked: Decide) -> Make:
    args, digest = asked.args, question.digest
    if question.kind == "approval" and asked.verb == "edit":
        digest = approval.digest(
            run=run.id, step=question.step or "", iteration=question.iteration, item=question.item,
            uses=question.call["uses"], args={**question.call["args"], **(args or {})},
        )  # fmt: skip
    if question.kind == "budget" and asked.verb == "raise":
        key = question.call["budget"]
        more = (args or {}).get(_budget_name(key)[0], 2 * question.call["limit"])
        args = {"limits": {key: more}}
    return lambda seq, now: DecisionMade(
        seq, now, question.decision, asked.verb, question.step, question.iteration, question.item, asked.by,
        asked.message, args, question.kind, digest,
    )  # fmt: skip


def _endings(question: DecisionRequired, asked: Decide) -> list[Make]:
    """How an answer ends the task it is about."""
    step = question.step or StepId("")
    place_ = (question.iteration, question.item, question.attempt)
    who = f" by {asked.by}" if asked.by else ""
    match asked.verb:
        case "skip" if question.item is None:
            why = asked.message or f"skipped{who}"
            return [lambda seq, now: TaskSkipped(seq, now, step, "command", why, place_[0])]
        case "skip":
            return [lambda seq, now: TaskCompleted(seq, now, step, None, *place_)]
        case "reject":
            kind = "orphaned" if question.kind == "orphan" else "rejected"
            why = asked.message or f"{asked.verb}ed{who}"
            return [lambda seq, now: TaskFailed(seq, now, step, why, kind, "", *place_)]
        case _:
            return []


def _given(run: Run, question: DecisionRequired, asked: Decide, fact: CommandReceived) -> TaskReturned:
    """The output that a person gave for a task, or accepted, as if the task had just passed."""
    i = run.graph.index[question.step or StepId("")]
    output = (asked.args or {}).get("output", fact.outputs.get(i))
    return TaskReturned(i, output, question.iteration, question.item, question.attempt)


def _why_withdrawn(asked: DecisionRequired) -> str:
    return "nobody waits for it any more" if asked.kind == "input" else f"{asked.step} is opened again"


def withdraw(run: Run, now: float, batch: list[Event]) -> None:
    """Put on record that nobody needs an answer any more: what was asked about is over, or begins again."""
    for asked in run.withdrawn:
        event = DecisionMade(
            run.seq + 1, now, asked.decision, "withdrawn", asked.step, asked.iteration, asked.item, "",
            _why_withdrawn(asked), None, asked.kind,
        )  # fmt: skip
        emit(run, batch, event)
    run.withdrawn.clear()


def expired(run: Run, fact: DecisionExpired, now: float, batch: list[Event]) -> None:
    """Nobody answered in time: a call is not made then; a decision point goes on as the workflow said."""
    question = run.decisions.get(fact.decision)
    if question is None or run.ended:
        return
    asks = question.kind == "approval"
    verb = "reject" if asks or question.kind == "input" else question.call.get("on_timeout", "continue")
    event = DecisionMade(
        run.seq + 1, now, question.decision, verb, question.step, question.iteration, question.item,
        "timeout", "nobody answered in time", None, question.kind, question.digest,
    )  # fmt: skip
    emit(run, batch, event)
    if asks:
        late = Decide(decision=question.decision, verb=verb, message="nobody approved it in time")
        for make in _endings(question, late):
            emit(run, batch, make(run.seq + 1, now))
