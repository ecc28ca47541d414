"""What must be true of a run that was killed again and again, told as a list of everything that is not.

Three witnesses are compared: the journal, the ledger that the deeds wrote, and what each
process said it had been told. Who wrote which part of a journal is in the journal: a process
that takes up a run says so.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import deeds
import msgspec

import penstock as ps
from penstock.ids import RunId
from penstock.run.commands import Abort
from penstock.run.events import (
    CommandAccepted,
    DecisionMade,
    DecisionRequired,
    Event,
    TaskCompleted,
    TaskFailed,
    TaskSkipped,
    TaskStarted,
    WorkflowAborted,
    WorkflowCompleted,
    WorkflowResumed,
)
from penstock.run.replay import replay
from penstock.run.state import PHASES, Run
from penstock.store import batches
from penstock.workflow.graph import Graph, compile_graph
from penstock.workflow.spec import Step

HARMLESS = ("read", "idempotent")
_EFFECTS = {"look": "read", "spread": "read", "read": "read", "put": "idempotent", "send": "write"}

Place = tuple[str, int, int | None]
"""A step, its iteration and the item."""


@dataclass
class History:
    """One run as the store tells it."""

    id: RunId
    graph: Graph
    events: Sequence[Event]
    listed: str
    """Its status in the list of runs."""
    owner: str
    """Who drives it, according to that list."""

    @cached_property
    def run(self) -> Run:
        return replay(self.id, self.graph, self.events)

    @property
    def digest(self) -> str:
        return deeds.digest(self.run.encoded())

    def step(self, name: str) -> Step:
        graph = self.run.graph  # which may have grown
        return graph.workflow.steps[graph.index[name]]  # type: ignore[index]  # a step id

    def effect(self, name: str) -> str:
        """Of the deed that a step does; running a child may be repeated."""
        function = self.step(name).uses.rpartition(":")[2]
        return _EFFECTS.get(function.partition("_")[0], "idempotent")

    @cached_property
    def outputs(self) -> dict[Place, Any]:
        return {
            place(event): event.ref or (None if event.output is msgspec.UNSET else event.output)
            for event in self.events
            if isinstance(event, TaskCompleted)
        }

    def authors(self, first: int) -> Iterator[tuple[int, Event]]:
        """Each event and the process that wrote it."""
        pid = first
        for event in self.events:
            if isinstance(event, WorkflowResumed) and event.by == "process":
                pid = int(event.reason.split("process ")[1].split()[0])
            yield pid, event


async def histories(store: str, root: str) -> dict[str, History]:
    """A run and its children, by what their ids add to the root's."""
    found: dict[str, History] = {}
    async with ps.open(store) as penstock:
        waiting = [RunId(root)]
        while waiting:
            id = waiting.pop()
            graph = compile_graph((await penstock.store.definition(id)).workflow)
            record = (await penstock.store.runs(run=id))[0]
            events = await penstock.store.load(id)
            found[id.removeprefix(root)] = History(id, graph, events, record.status, record.owner)
            waiting += [record.run for record in await penstock.store.runs(parent=id)]
    return found


@dataclass
class Case:
    """Everything known about one run and the processes that drove it."""

    root: str
    found: dict[str, History]
    expected: dict[str, History] = field(default_factory=dict)
    """The same workflow, never interrupted; empty when it could not be the same."""
    ledger: Sequence[Mapping[str, Any]] = ()
    said: Sequence[Sequence[Mapping[str, Any]]] = ()
    """Of each process, in order."""
    wrong: list[str] = field(default_factory=list)

    def complain(self, run: str, what: str) -> None:
        self.wrong.append(f"{self.root}{run}: {what}")


def violations(case: Case) -> list[str]:
    for line in (line for lines in case.said for line in lines):
        if "error" in line:
            case.complain("", f"a process was told {line['error']}: {line['message']}")
    for name, history in case.found.items():
        if _check_numbers(case, name, history):
            _check_journal(case, name, history)
            _check_orphans(case, name, history)
    if not case.wrong:
        _check_said(case)
        if case.ledger:
            _check_ledger(case)
        if case.expected:
            _check_outcomes(case)
    return case.wrong


def place(event: Any) -> Place:
    return event.step, event.iteration, event.item


# --- the journal ------------------------------------------------------------------------------


def _check_numbers(case: Case, name: str, history: History) -> bool:
    """1, 2, 3 … without a gap."""
    numbers = [event.seq for event in history.events]
    gapless = numbers == list(range(1, len(numbers) + 1))
    if not gapless:
        case.complain(name, f"event numbers are not 1 to {len(numbers)}: {numbers}")
    return gapless


def _check_journal(case: Case, name: str, history: History) -> None:
    """Ended, listed as it ended, owned by nobody, and every task ended once."""
    if not history.run.ended:
        case.complain(name, f"has not ended: {history.run.status}")
    if history.listed != history.run.status:
        case.complain(name, f"is listed as {history.listed}, and has {history.run.status}")
    if history.owner:
        case.complain(name, f"is still owned by {history.owner}")
    ends = [event.seq for event in history.events if isinstance(event, WorkflowCompleted | WorkflowAborted)]
    if ends != [len(history.events)]:
        case.complain(name, f"its last event is {len(history.events)}, and it ended at {ends}")
    ended: set[Place] = set()
    for event in history.events:
        if isinstance(event, TaskStarted | TaskCompleted | TaskFailed) and place(event) in ended:
            case.complain(name, f"event {event.seq}: {place(event)} had completed")
        if isinstance(event, TaskCompleted):
            ended.add(place(event))
        if b"database is locked" in msgspec.json.encode(event):
            case.complain(name, f"event {event.seq} says that the database is locked")


def _check_orphans(case: Case, name: str, history: History) -> None:
    """What had been started when a process died is asked about, failed or done again, as its step says."""
    open_: dict[Place, int] = {}
    orphans: set[Place] = set()
    stopping = False
    for event in history.events:
        stopping = stopping or (isinstance(event, CommandAccepted) and isinstance(event.command, Abort))
        if isinstance(event, WorkflowResumed) and event.by == "process":
            orphans = {at for at in open_ if at[2] is not None or not history.step(at[0]).for_each}
        elif isinstance(event, TaskStarted):
            if place(event) in orphans:
                case.complain(name, f"event {event.seq}: {place(event)} was started again, unasked")
            open_[place(event)] = event.attempt
        elif isinstance(event, TaskCompleted | TaskFailed | DecisionRequired | TaskSkipped):
            at = (event.step, event.iteration, None) if isinstance(event, TaskSkipped) else place(event)
            if at in orphans:
                orphans.discard(at)
                wrong = "" if stopping else _unlike_orphan(history, at, open_[at], event)
                if wrong:
                    case.complain(name, f"event {event.seq}: {at} {wrong}")
            open_.pop(at, None)


def _unlike_orphan(history: History, at: Place, attempt: int, event: Event) -> str:
    """What is wrong with the first thing that happened to an orphan."""
    rule = "rerun" if history.effect(at[0]) in HARMLESS else history.step(at[0]).on_orphan
    if rule == "ask":
        asked = isinstance(event, DecisionRequired) and event.kind == "orphan"
        return "" if asked else "was not asked about"
    if rule == "fail":
        failed = isinstance(event, TaskFailed) and event.kind == "orphaned"
        return "" if failed and event.retry_in is None else "did not fail"  # type: ignore[union-attr]  # it is one
    again = isinstance(event, TaskCompleted | TaskFailed) and event.attempt == attempt
    return "" if again else "was not done again"


# --- what the processes were told -------------------------------------------------------------


def _check_said(case: Case) -> None:
    """Nothing that was announced is missing, and the fold of the journal is what the last process saw."""
    kept = {
        (history.id, event.seq): batches.encode([event])[0]
        for history in case.found.values()
        for event in history.events
    }
    for lines in case.said:
        for line in lines:
            if "event" in line:
                event = msgspec.convert(line["event"], Event)
                if kept.get((line["run"], event.seq)) != batches.encode([event])[0]:
                    case.complain("", f"event {event.seq} of {line['run']} was announced and is not kept")
            elif "ended" in line and line["state"] != case.found[""].digest:
                case.complain("", "the journal does not fold to the state that the process ended with")


# --- the ledger -------------------------------------------------------------------------------


def _check_ledger(case: Case) -> None:
    order = {line["pid"]: i for i, line in enumerate(case.ledger) if line["what"] == "process"}
    begun: dict[tuple[str, Place], list[Mapping[str, Any]]] = defaultdict(list)
    keys: dict[str, tuple[str, Place]] = {}
    ends = {line["key"] for line in case.ledger if line["what"] == "end"}
    for line in case.ledger:
        if line["what"] == "begin":
            task = (line["run"].removeprefix(case.root), (line["step"], line["iteration"], line["item"]))
            begun[task].append(line)
            if keys.setdefault(line["key"], task) != task:
                case.complain(task[0], f"the key {line['key']} stands for two tasks")
    # Whoever could not reach the store has begun nothing; the last one who tried did.
    first = [line["pid"] for line in case.ledger if line["what"] == "process" and not line["run"]][-1]
    for name, history in case.found.items():
        pid = first if not name else _first_driver(case, history.id, first)
        _check_ends(case, name, history, pid, order, begun, ends)
    for (name, at), lines in begun.items():
        if len({line["key"] for line in lines}) != 1:
            case.complain(name, f"{at} ran under different keys")
        _check_repeats(case, name, at, lines)


def _first_driver(case: Case, run: str, default: int) -> int:
    """The process that began a child: the first in the ledger to do any of its tasks."""
    return next((line["pid"] for line in case.ledger if line.get("run") == run and "step" in line), default)


def _check_ends(
    case: Case,
    name: str,
    history: History,
    pid: int,
    order: Mapping[int, int],
    begun: Mapping[tuple[str, Place], list[Mapping[str, Any]]],
    ends: set[str],
) -> None:
    """What has finished is never done again; what writes was on record before it was done."""
    started: dict[tuple[Place, int], int] = {}
    accepted = _accepted(history)
    for author, event in history.authors(pid):
        if isinstance(event, TaskStarted):
            started.setdefault((place(event), event.attempt), order[author])
        if isinstance(event, TaskCompleted) and (event.item is not None or not _whole_map(history, event)):
            lines = begun.get((name, place(event)), [])
            late = [line for line in lines if order[line["pid"]] > order[author]]
            if late:
                case.complain(name, f"{place(event)} had finished and was done again by {late[0]['pid']}")
            done = place(event) in accepted or not history.step(event.step).uses.startswith("py:")
            if not done and (not lines or lines[0]["key"] not in ends):
                case.complain(name, f"{place(event)} is said to have finished and never did")
    for (owner, at), lines in begun.items():
        for line in lines if owner == name else ():
            known = started.get((at, line["attempt"]))
            if line["effect"] not in HARMLESS and (known is None or known > order[line["pid"]]):
                case.complain(name, f"{at} wrote before its start was on record")


def _whole_map(history: History, event: TaskCompleted) -> bool:
    return bool(history.step(event.step).for_each)


def _accepted(history: History) -> set[Place]:
    """Tasks whose output a person gave."""
    asked = {event.decision: place(event) for event in history.events if isinstance(event, DecisionRequired)}
    made = [event for event in history.events if isinstance(event, DecisionMade)]
    return {asked[event.decision] for event in made if event.verb == "accept"}


def _check_repeats(case: Case, name: str, at: Place, lines: list[Mapping[str, Any]]) -> None:
    """An attempt happens once in each process, and one that writes once in all, unless rerun was chosen."""
    history = case.found.get(name)
    if history is None:
        case.complain(name, f"{at} ran and the store knows no such run")
        return
    for (pid, attempt), count in Counter((line["pid"], line["attempt"]) for line in lines).items():
        if count > 1:
            case.complain(name, f"{at}, attempt {attempt} ran {count} times in process {pid}")
    if lines[0]["effect"] in HARMLESS or history.step(at[0]).on_orphan == "rerun":
        return
    for attempt, count in Counter(line["attempt"] for line in lines).items():
        if count > 1:
            case.complain(name, f"{at}, attempt {attempt} wrote {count} times")
    effective = [line for line in lines if not line["fails"]]
    if len(effective) > 1:
        case.complain(name, f"{at} took effect {len(effective)} times")


# --- outcomes ---------------------------------------------------------------------------------


def _check_outcomes(case: Case) -> None:
    """Everything came out as it does without interruption, except where a step chose to fail as an orphan."""
    tainted: dict[str, set[str]] = {}
    for name in sorted(case.found, key=lambda name: -name.count("/")):
        history = case.found[name]
        tainted[name] = _tainted(history, {n: t for n, t in tainted.items() if t and _is_child(n, name)})
        expected = case.expected.get(name)
        if expected is None:
            case.complain(name, "there is no such run without interruption")
        else:
            _compare(case, name, history, expected, tainted[name])
    for name in case.expected:
        if name not in case.found and not any(tainted.values()):
            case.complain(name, "never ran")


def _is_child(name: str, parent: str) -> bool:
    return name.startswith(parent + "/") and "/" not in name[len(parent) + 1 :]


def _tainted(history: History, children: Mapping[str, set[str]]) -> set[str]:
    """Steps that failed as orphans, that run such a child, or that depend on such a step."""
    graph = history.graph
    orphaned = [e.step for e in history.events if isinstance(e, TaskFailed) and e.kind == "orphaned"]
    through = [child.rpartition("/")[2].partition(".")[0] for child in children]
    stack = [graph.index[step] for step in (*orphaned, *through)]  # type: ignore[index]  # step ids
    found: set[int] = set()
    while stack:
        i = stack.pop()
        if i not in found:
            found.add(i)
            stack += graph.dependents[i]
    return {graph.ids[i] for i in found}


def _compare(case: Case, name: str, history: History, expected: History, tainted: set[str]) -> None:
    ran, should = history.run, expected.run
    for i, step in enumerate(history.graph.ids):
        if step in tainted:
            continue
        if ran.phase[i] != should.phase[i]:
            case.complain(name, f"{step} is {PHASES[ran.phase[i]]}, not {PHASES[should.phase[i]]}")
        kinds = [run.reasons[i][0] if i in run.reasons else "" for run in (ran, should)]
        if kinds[0] != kinds[1]:
            case.complain(name, f"{step} ended for the reason {kinds[0]!r}, not {kinds[1]!r}")
    for at in {*history.outputs, *expected.outputs}:
        if at[0] not in tainted and history.outputs.get(at, "—") != expected.outputs.get(at, "—"):
            case.complain(name, f"the output of {at} is {history.outputs.get(at, 'missing')!r:.80}")
    if tainted:
        return
    for what in ("status_", "outputs", "context", "keys"):
        if getattr(ran, what) != getattr(should, what):
            case.complain(name, f"{what} is {getattr(ran, what)!r:.200}, not {getattr(should, what)!r:.200}")
    if _plain(ran.reason) != _plain(should.reason):
        case.complain(name, f"the reason is {ran.reason!r}, not {should.reason!r}")


def _plain(text: str) -> str:
    return re.sub(r"attempt \d+", "attempt", text)
