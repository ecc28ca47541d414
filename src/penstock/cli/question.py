"""An open decision as a person reads it, and the keys that answer it. Knows nothing of terminals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from penstock.cli.text import count, legible, one_line, span
from penstock.run.commands import Decide
from penstock.run.events import DecisionRequired
from penstock.run.state import Run

LONG: Final = 160
"""Characters of one value of a call."""

MANY: Final = 24
"""Arguments of one call."""

DIGEST: Final = 12

CALL: Final = "Exact call:"
RISK: Final = "Risk:"
"""Lines of a summary that are said better below it: the call word for word, not masked."""

EFFECT: Final = ("what it calls is", "marked critical", "effect:")
"""What a risk begins with that says what the effect class says, too."""

LATER: Final = ""
"""The verb of a key that leaves the question open."""


class Question(NamedTuple):
    """An open decision, and what only the run knows about it."""

    asked: DecisionRequired
    refusal: Callable[[Decide], str]
    """Why an answer would not count; empty when it would."""
    open: Callable[[], bool]
    """Whether it still waits: time may be up, and others answer, too."""
    risk: str = ""


def risk(run: Run, asked: DecisionRequired, effect: str = "") -> str:
    """What is at stake: the effect class where it is known, and whether the step is marked."""
    i = run.graph.index.get(asked.step) if asked.step is not None else None
    if i is None or "uses" not in asked.call:
        return ""
    step = run.graph.workflow.steps[i]
    policy = step.approval or run.graph.workflow.config.approval
    effect = effect or step.effect or ""
    rule = str(asked.call.get("rule", ""))
    if not (effect or rule) and asked.kind == "approval" and policy == "critical_only" and not step.critical:
        effect = "destructive"  # nothing else would have been asked about
    words = [effect, "critical" if step.critical or effect == "destructive" else "", rule]
    if asked.digest:
        words.append(f"digest {asked.digest[:DIGEST]}")
    return ", ".join(word for word in words if word)


def described(question: Question, now: float, *, whole: bool = False) -> str:
    """What is asked, the exact call, what is at stake, and until when; long values cut unless `whole`."""
    asked = question.asked
    item = f"[{asked.item}]" if asked.item is not None else ""
    about = f"{asked.step}{item}" if asked.step is not None else "the run"
    turn = f", iteration {asked.iteration}" if asked.iteration > 1 else ""
    turn += f", attempt {asked.attempt}" if asked.attempt > 1 else ""
    lines = [f"{asked.decision}  {asked.kind}: {about}{turn}"]
    told = [line for line in legible(asked.summary).splitlines() if line.strip()]
    called = "uses" in asked.call
    lines += [f"  {line}" for line in told if not (called and line.startswith((CALL, RISK)))]
    if called:
        lines.append(f"  call   {one_line(asked.call['uses'])}")
        lines += _arguments(asked.call.get("args") or {}, whole=whole)
        stakes = "; ".join(line.removeprefix(RISK).strip() for line in told if line.startswith(RISK))
        more = [one for one in stakes.split("; ") if not (question.risk and one.startswith(EFFECT))]
        lines.append(f"  risk   {'; '.join(filter(None, [question.risk, *more]))}")
    if asked.deadline is not None:
        lines.append(f"  until  {until(asked, now)}")
    return "\n".join(lines)


def until(asked: DecisionRequired, now: float) -> str:
    """When a question answers itself, and how."""
    if asked.deadline is None:
        return ""
    at = datetime.fromtimestamp(asked.deadline, UTC).astimezone().strftime("%H:%M:%S")
    then = {"continue": "the run goes on", "abort": "the run is aborted"}
    after = then.get(asked.call.get("on_timeout", "continue"), "it answers itself")
    left = asked.deadline - now
    return f"{at} ({span(left)} left), then {after}" if left > 0 else f"{at}, which is past: {after}"


def _arguments(args: Mapping[str, Any], *, whole: bool) -> list[str]:
    wide = min(24, max((len(name) for name in args), default=0))
    shown = list(args.items()) if whole else list(args.items())[:MANY]
    lines = [
        f"         {one_line(name):<{wide}}  {_json(value) if whole else _shortened(value)}"
        for name, value in shown
    ]
    if len(args) > len(shown):
        lines.append(f"         … and {count(len(args) - len(shown), 'argument')} more")
    return lines


def _shortened(value: Any) -> str:
    """A value as JSON; of a long one its beginning, and how long it is."""
    text = _json(value)
    return text if len(text) <= LONG else f"{text[:LONG]}… ({len(text):,} characters)"


def _json(value: Any) -> str:
    return legible(msgspec.json.encode(value).decode())


# --- keys ---


class Key(NamedTuple):
    key: str
    verb: str
    says: str
    args: Mapping[str, Any] | None = None


_KEYS: Final[Mapping[str, tuple[Key, ...]]] = {
    "approval": (
        Key("y", "approve", "make this call"),
        Key("e", "edit", "make it with other arguments"),
        Key("n", "reject", "do not make it"),
        Key("s", LATER, "not now"),
    ),
    "gate": (
        Key("r", "retry", "allow more attempts"),
        Key("a", "accept", "take the result as it is"),
        Key("e", "edit", "try with other arguments"),
        Key("s", "skip", "leave the step out"),
        Key("x", "abort", "stop the run"),
    ),
    "orphan": (
        Key("r", "retry", "call it again"),
        Key("a", "accept", "it took effect; give its output"),
        Key("s", "skip", "leave the step out"),
        Key("n", "reject", "fail the step"),
    ),
    "budget": (
        Key("r", "raise", "allow more"),
        Key("f", "finish", "end with what there is"),
        Key("x", "abort", "stop the run"),
    ),
    "ail": (
        Key("y", "approve", "go on"),
        Key("m", "respond", "go on, with a message"),
        Key("n", "abort", "stop the run"),
    ),
    "input": (
        Key("a", "respond", "answer"),
        Key("y", "approve", "done as it asks"),
        Key("n", "reject", "decline to answer"),
        Key("s", LATER, "not now"),
        Key("x", "abort", "stop the run"),
    ),
    "replan": (
        Key("s", "skip", "go on without new steps"),
        Key("x", "abort", "stop the run"),
    ),
}


def fields(asked: DecisionRequired, verb: str) -> Mapping[str, Mapping[str, Any]]:
    """What an answer is made of, by name, where the question says so."""
    found = asked.schema.get(verb, {}).get("properties", {})
    return {name: one if isinstance(one, Mapping) else {} for name, one in found.items()}


def keys(asked: DecisionRequired) -> tuple[Key, ...]:
    """The keys that answer a decision. Its verbs answer it, too, by their names."""
    if asked.kind == "route":
        targets = asked.schema["respond"]["properties"]["target"]["enum"]
        ways = [Key(str(n), "respond", f"⇢ {to}", {"target": to}) for n, to in enumerate(targets, start=1)]
        return (*ways, Key("x", "abort", "stop the run"))
    found = _KEYS.get("ail" if asked.kind == "requested" else asked.kind, ())
    return tuple(key for key in found if key.verb == LATER or key.verb in asked.options)


def prompt(asked: DecisionRequired) -> str:
    """The keys on one line."""
    named = asked.kind != "route"
    words = [f"{key.key} {(named and key.verb) or key.says}" for key in keys(asked)]
    return f"[{' · '.join([*words, '? more'])}]"


def explained(asked: DecisionRequired) -> str:
    """Every key and every verb, a line each."""
    named = {key.verb for key in keys(asked)}
    lines = [f"  {key.key:<9} {key.says}" + (f" ({key.verb})" if key.verb else "") for key in keys(asked)]
    lines += [f"  {verb:<9} {_MEANS.get(verb, '')}".rstrip() for verb in asked.options if verb not in named]
    lines.append("  (Enter)   leave it open")
    return "\n".join(lines)


_MEANS: Final = {
    "approve": "go on",
    "reject": "say no",
    "edit": "change the arguments",
    "respond": "answer with a message",
    "retry": "try again",
    "accept": "take it as it is",
    "skip": "leave the step out",
    "abort": "stop the run",
}
