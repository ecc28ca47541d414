"""What a caller means by an intent: a workflow file, one tool, or something to ask back about.

Only what is plainly meant is run: every word of the thing's name is in the intent, nothing else
fits as well, and all that it needs was given. Nothing that changes the world is run on a guess;
a call that would is put before a person first. Everything else is an answer with the candidates,
what each of them lacks, and the call to send.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.errors import PenstockError
from penstock.gateway.flows import Flow, Flows
from penstock.gateway.ports import Finder, Runs
from penstock.knowledge.requests import stem, terms
from penstock.tools.base import Tool

HARMLESS: Final = ("read", "idempotent")
PLAIN: Final = 0.6
"""The share of an intent's words that must be about a thing for it to be meant."""

CLEAR: Final = 0.1
"""By how much it must be ahead of the next."""

LOOKED_AT: Final = 8


@dataclass(frozen=True, slots=True)
class Meant:
    """What to do: run one of the two, or answer."""

    workflow: Path | None = None
    tool: str = ""
    ask: bool = False
    """Whether a person has to approve the call."""
    answer: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Candidate:
    kind: str
    """`tool` or `workflow`: how `execute` calls it."""
    name: str
    match: float
    """0 to 1: how much of the intent is about it."""
    named: bool
    """Whether the intent has every word of its name."""
    effect: str
    description: str
    missing: tuple[str, ...]
    unknown: tuple[str, ...]
    """Arguments that were given, and that it does not take."""
    path: Path | None = None
    schema: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        return not self.missing and not self.unknown

    def shown(self, args: Mapping[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in args.items() if name not in self.unknown}
        row: dict[str, Any] = {
            self.kind: self.name,
            "description": self.description,
            "effect": self.effect,
            "match": round(self.match, 2),
            "missing": {name: self.schema.get(name, {}) for name in self.missing},
            "call": {self.kind: self.name, "args": given},
        }
        return {**row, "unknown": list(self.unknown)} if self.unknown else row


class Intents:
    def __init__(self, runs: Runs, finder: Finder, flows: Flows) -> None:
        self._runs = runs
        self._finder = finder
        self._flows = flows

    async def meant(self, intent: str, args: Mapping[str, Any]) -> Meant:
        found = await self._finder.find(intent, limit=LOOKED_AT, schemas=False)
        told = {stem(word) for word in terms(intent)}
        near = [row["id"] for row in found["tools"] if row["score"] > 0]  # the rest only fills up the number
        tools = [one for id in near if (one := self._tool(id, intent, told, args)) is not None]
        flows = [self._flow(flow, told, args) for flow in self._flows.all()]
        ranked = sorted([*flows, *tools], key=lambda one: -one.match)  # of two alike the workflow is first
        best = plainly(ranked)
        if best is not None and best.ready and best.kind == "workflow" and best.effect in HARMLESS:
            return Meant(workflow=best.path)
        if best is not None and best.ready and best.kind == "tool":
            return Meant(tool=best.name, ask=best.effect not in HARMLESS)
        shown = [one for one in ranked[:LOOKED_AT] if one.match > 0 or one.kind == "tool"]
        return Meant(answer=_back(intent, shown, best, args))

    def _tool(self, id: str, intent: str, told: set[str], args: Mapping[str, Any]) -> Candidate | None:
        try:
            tool = self._runs.tools.find(id)
        except PenstockError:
            return None
        properties: Mapping[str, Any] = tool.input_schema.get("properties", {})
        name = id.partition(":")[2]
        match, named = 1.0, True
        if id not in intent:
            match, named = fitting(told, name, (id, tool.description, *properties))
        return Candidate(
            "tool", id, match, named, tool.effect, _first(tool.description),
            tuple(one for one in tool.input_schema.get("required", ()) if one not in args),
            tuple(one for one in args if one not in properties) if _closed(tool) else (),
            schema=properties,
        )  # fmt: skip

    def _flow(self, flow: Flow, told: set[str], args: Mapping[str, Any]) -> Candidate:
        workflow = flow.workflow
        inputs = workflow.inputs
        match, named = fitting(told, workflow.name, (workflow.name, workflow.description, *inputs))
        # To know what a function does its module is imported: not for one that nobody means.
        effect = self._effect(flow) if named and match >= PLAIN else "unknown"
        return Candidate(
            "workflow", workflow.name, match, named, effect, _first(workflow.description),
            tuple(one for one in flow.missing if one not in args),
            tuple(one for one in args if one not in inputs),
            flow.path,
            {name: {"type": one.type, "description": one.description} for name, one in inputs.items()},
        )  # fmt: skip

    def _effect(self, flow: Flow) -> str:
        """What the worst of its steps does; what nobody knows may do anything."""
        effects = {step.effect or self._of_step(step.uses, flow) for step in flow.workflow.steps}
        return next((one for one in ("destructive", "write", "idempotent") if one in effects), "read")

    def _of_step(self, uses: str, flow: Flow) -> str:
        if uses.startswith(("agent:", "workflow:")):
            return "write"
        try:
            return self._runs.tools.find(uses, folder=str(flow.path.parent.resolve())).effect
        except PenstockError:
            return "write"


def plainly(ranked: Sequence[Candidate]) -> Candidate | None:
    """The one that is meant, if one is."""
    named = [one for one in ranked if one.named and one.match >= PLAIN]
    if not named or (len(named) > 1 and named[0].match - named[1].match < CLEAR):
        return None
    return named[0]


def fitting(told: set[str], name: str, about: Iterable[str]) -> tuple[float, bool]:
    """How much of what was said is about a thing, and whether its whole name was said."""
    names = {stem(word) for word in terms(name)}
    every = names | {stem(word) for text in about for word in terms(text)}
    return len(told & every) / max(len(told), 1), bool(names) and names <= told


def _closed(tool: Tool) -> bool:
    """Whether a tool takes no arguments but those it names."""
    return tool.input_schema.get("additionalProperties") is False or not tool.input_schema.get("properties")


def _back(
    intent: str, candidates: Sequence[Candidate], best: Candidate | None, args: Mapping[str, Any]
) -> dict[str, Any]:
    if not candidates:
        why = "nothing here fits; say it in other words, or see what `discover` finds"
    elif not any(one.match for one in candidates):
        why = "nothing here is called so; these come nearest, if one of them is meant: send its `call`"
    elif best is None:
        why = "it is not plain which is meant: send the `call` of one, with what it is missing"
    elif best.ready:
        why = f"{best.name} changes things and is not run on a guess: send its `call` to run it"
    elif best.missing:
        why = f"{best.name} needs {', '.join(best.missing)}: add them to its `call`, and send that"
    else:
        why = f"{best.name} takes no {', '.join(best.unknown)}: send its `call`"
    return {
        "status": "needs_input",
        "intent": intent,
        "reason": why,
        "candidates": [one.shown(args) for one in candidates],
        "options": ["execute", "discover"],
    }


def _first(text: str) -> str:
    return text.strip().partition("\n")[0][:160]
