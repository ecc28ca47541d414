"""Whether a history could have happened: the promises of a run, checked against its events alone.

Reads a definition and the batches that an engine wrote, and keeps books of its own. It shares
no code with the core that it checks; the events are all they have in common.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from penstock.run.commands import Abort, Command, RetryStep, SkipLayer, SkipStep
from penstock.run.events import (
    BudgetWarned,
    CommandAccepted,
    CommandRefused,
    DagChanged,
    DecisionMade,
    DecisionRequired,
    Event,
    GateChecked,
    MapStarted,
    RouteDecided,
    TaskCompleted,
    TaskFailed,
    TaskSkipped,
    TaskStarted,
    WorkflowAborted,
    WorkflowCompleted,
    WorkflowPaused,
    WorkflowResumed,
    WorkflowStarted,
)
from penstock.testing.routes import Routes
from penstock.workflow.spec import Step, Workflow

Verdict = Literal["success", "failure", "skip"]

_READS = re.compile(r"\bsteps\.(\w+)")
_ABOUT_TASKS = ("approval", "gate", "orphan")
_SOON = 1e-6
"""Seconds: clocks and sums are not exact."""


@dataclass(slots=True)
class _Book:
    """One step."""

    step: Step
    needs: tuple[str, ...]
    verdict: Verdict | None = None
    """How its ending counts in joins; None while it has not ended."""
    kind: str = ""
    """Of a skip."""
    failed: bool = False
    running: dict[int | None, int] = field(default_factory=dict)
    """Item to attempt; a plain step is item None."""
    waiting: dict[int | None, tuple[int, float]] = field(default_factory=dict)
    """Item to the attempt that failed and the time when the next may begin."""
    seen: set[tuple[int, int | None, int]] = field(default_factory=set)
    """Every iteration, item and attempt there ever was: together they name a task."""
    iteration: int = 1
    tries: Counter[int | None] = field(default_factory=Counter)
    """How often each item was tried since the step was opened."""
    asking: dict[int | None, DecisionRequired] = field(default_factory=dict)
    """Items that a person is asked about."""
    approved: set[int | None] = field(default_factory=set)
    """Items whose next call a person has allowed."""
    layer: int = 0
    mapped: bool = False
    """A map that is open."""
    count: int | None = None
    next: int = 0
    item_failed: bool = False
    stopped: bool = False
    """It ended only because the run was being stopped."""

    @property
    def opened(self) -> bool:
        return bool(self.running or self.waiting or self.asking or self.mapped)


class History:
    """Books kept while a run goes on. `wrong` lists every promise that was broken."""

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self.wrong: list[str] = []
        self.books: dict[str, _Book] = {}
        self._steps: list[Step] = []
        self._routes = Routes([])
        self._add(workflow.steps)
        self._seq = 0
        self._paused = False
        self._stopping = ""
        self._ended = False
        self._allowed: set[str] = set()
        """Steps that a command of this batch skips."""
        self._commands: set[str] = set()
        self._layers: set[int] = set()
        """Layers that one does."""

    def take(self, batch: Sequence[Event]) -> None:
        """One batch, as it was written."""
        self._allowed.clear()
        self._layers.clear()
        for event in batch:
            self._seq += 1
            if event.seq != self._seq:
                self._say(event, f"expected number {self._seq}")
            if self._ended and not (isinstance(event, WorkflowResumed) and event.by != "command"):
                self._say(event, "comes after the end")
            if (event.seq == 1) != isinstance(event, WorkflowStarted):
                self._say(event, "a run begins once, first of all")
            self._take(event)
        if not self._ended:
            self._check_nothing_is_late()

    def _say(self, event: Event, text: str) -> None:
        step = getattr(event, "step", "")
        self.wrong.append(f"{event.seq} {type(event).__name__} {step}: {text}")

    def _add(self, steps: Sequence[Step]) -> None:
        for step in steps:
            texts = (step.when, step.for_each, repr(step.with_))
            found = {*step.needs, *(name for text in texts for name in _READS.findall(text))}
            self.books[step.id] = _Book(step, tuple(sorted(found)))
        self._steps += steps
        self._routes.grow(self._steps)
        new = {step.id for step in steps}
        for _ in new:  # as often as the longest chain could be long
            for name in new:
                book = self.books[name]
                book.layer = max((self.books[need].layer + 1 for need in book.needs), default=0)

    def _take(self, event: Event) -> None:
        match event:
            case TaskStarted():
                self._started(event)
            case MapStarted():
                self.books[event.step].count = event.count
            case TaskCompleted() | TaskFailed():
                self._came_back(event)
            case TaskSkipped():
                self._skipped(event)
            case CommandAccepted():
                self._heard(event, event.command.id)
                self._obeyed(event.command)
            case CommandRefused():
                self._heard(event, event.id)
            case DagChanged():
                self._add(event.added)
            case DecisionRequired(step=str()) if event.kind in _ABOUT_TASKS:
                self._asked(event)
            case DecisionMade():
                self._decided(event)
            case RouteDecided():
                self._routed(event)
            case GateChecked(then="again"):
                self._refused(event)
            case BudgetWarned(budget="timeout"):
                self._stopping = self._stopping or event.budget
            case WorkflowPaused():
                self._paused = True
            case WorkflowResumed():
                self._went_on(event)
            case WorkflowCompleted() | WorkflowAborted():
                self._ends(event)
            case _:
                pass

    # --- tasks ---

    def _started(self, event: TaskStarted) -> None:
        book = self.books.get(event.step)
        if book is None:
            self._say(event, "no such step")
            return
        if self._paused:
            self._say(event, "started while the run was paused")
        if event.iteration != book.iteration:
            self._say(event, f"iteration {event.iteration} while {book.iteration} is open")
        if self._routes.ending and event.item is None and not book.opened:
            self._say(event, "started although the run was to end")
        if self._stopping:
            self._say(event, "started while the run was being stopped")
        if book.verdict is not None:
            self._say(event, "started after it had ended")
        if event.item is None and not book.opened and not self._allows(book):
            self._say(event, "started before its needs allow")
        mapping = bool(book.step.for_each) and event.item is None
        if book.step.approval == "always" and not mapping and event.item not in book.approved:
            self._say(event, "started without approval")
        self._check_attempt(event, book)
        if book.step.for_each and event.item is None:
            book.mapped, book.count, book.next, book.item_failed = True, None, 0, False
            book.stopped = False
            book.tries.clear()
            return
        book.running[event.item] = event.attempt
        if sum(len(each.running) for each in self.books.values()) > self.workflow.config.max_parallel:
            self._say(event, "more tasks than max_parallel")

    def _check_attempt(self, event: TaskStarted, book: _Book) -> None:
        item = event.item
        if item in book.running or (item is None and book.mapped):
            self._say(event, "is running already")
        again = book.waiting.pop(item, None)
        if again is not None:
            if event.attempt != again[0] + 1:
                self._say(event, f"attempt {event.attempt} after {again[0]}")
            if event.at < again[1] - _SOON:
                self._say(event, f"tried again {again[1] - event.at:g} s too early")
        elif item is not None:
            self._check_item(event, book, item)
        if (event.iteration, item, event.attempt) in book.seen:
            self._say(event, f"there was an attempt {event.attempt} before")
        book.seen.add((event.iteration, item, event.attempt))
        book.tries[item] += 1
        if book.tries[item] > self._most_attempts(book):
            self._say(event, "more attempts than allowed")

    def _check_item(self, event: TaskStarted, book: _Book, item: int) -> None:
        if not book.mapped or book.count is None or item >= book.count:
            self._say(event, f"no item {item}")
        if item != book.next:
            self._say(event, f"item {item} before item {book.next}")
        if book.item_failed:
            self._say(event, "a new item after one had failed")
        book.next += 1
        cap = book.step.max_parallel
        if cap is not None and len(book.running) >= cap:
            self._say(event, "more items than the map's max_parallel")

    def _most_attempts(self, book: _Book) -> int:
        policy = book.step.retry or self.workflow.config.retry
        return policy.max_attempts if policy else 1

    def _came_back(self, event: TaskCompleted | TaskFailed) -> None:
        book = self.books[event.step]
        item = event.item
        if book.verdict is not None:
            self._say(event, "ended twice")
        if item is None and book.mapped:
            self._map_ended(event, book)
            return
        if item in book.running:
            if book.running.pop(item) != event.attempt:
                self._say(event, "of an attempt that was not running")
        elif not self._ended_at_rest(event, book):
            self._say(event, "was not running")
        if isinstance(event, TaskFailed) and event.retry_in is not None:
            book.waiting[item] = (event.attempt, event.at + event.retry_in)
            if self._stopping:
                self._say(event, "to be tried again although the run is being stopped")
        elif item is None:
            self._settle(event, book)
        elif isinstance(event, TaskFailed):
            # An item that was not let finish has not failed.
            own = not (self._stopping and event.kind == "cancelled")
            book.item_failed |= own and book.step.on_item_error == "fail"

    def _ended_at_rest(self, event: TaskCompleted | TaskFailed, book: _Book) -> bool:
        """A task may end without running: by a person, while it waits to be tried again, by its condition."""
        if book.asking.pop(event.item, None) is not None:
            return True
        if not isinstance(event, TaskFailed):
            return False
        if event.item in book.waiting:
            del book.waiting[event.item]
            return bool(self._stopping)
        return event.kind == "expression" and bool(book.step.when) and self._allows(book)

    def _map_ended(self, event: TaskCompleted | TaskFailed, book: _Book) -> None:
        if book.running:
            self._say(event, "a map ended before its items")
        if isinstance(event, TaskCompleted) and (book.waiting or book.next != book.count):
            self._say(event, "a map succeeded without all its items")
        if isinstance(event, TaskCompleted) and book.item_failed:
            self._say(event, "a map succeeded with a failed item")
        book.mapped = False
        book.waiting.clear()
        book.asking.clear()
        book.stopped = bool(self._stopping) and isinstance(event, TaskFailed) and not book.item_failed
        self._settle(event, book)

    def _settle(self, event: TaskCompleted | TaskFailed, book: _Book) -> None:
        book.failed = isinstance(event, TaskFailed)
        if self._stopping and isinstance(event, TaskFailed) and not book.step.for_each:
            book.stopped = event.kind == "cancelled"
        allowed = not book.failed or book.step.on_error == "continue"
        book.verdict = "success" if allowed else "failure"
        self._routes.ended(book.step.id, ran=True)
        self._turn()
        if isinstance(event, TaskFailed) and not event.error:
            self._say(event, "failed without a reason")

    # --- people and gates ---

    def _asked(self, event: DecisionRequired) -> None:
        book = self.books[str(event.step)]
        item = event.item
        if item in book.asking:
            self._say(event, "is being asked about already")
        if event.kind == "approval" and item is not None and item == book.next:
            book.next += 1
        book.running.pop(item, None)
        book.waiting.pop(item, None)
        book.approved.discard(item)
        book.asking[item] = event

    def _decided(self, event: DecisionMade) -> None:
        if event.verb == "abort":
            self._stopping = "abort"
        book = self.books.get(str(event.step))
        asked = book.asking.get(event.item) if book is not None else None
        if book is None or asked is None or asked.decision != event.decision:
            return
        if event.verb == "skip" and event.item is None:
            self._allowed.add(book.step.id)
        if event.verb not in ("approve", "edit", "retry", "superseded"):
            return
        del book.asking[event.item]
        last = asked.attempt - 1 if asked.kind == "approval" else asked.attempt
        book.waiting[event.item] = (last, event.at)
        if asked.kind == "approval" and event.verb != "superseded":
            book.approved.add(event.item)
        if asked.kind == "gate":
            book.tries[event.item] = 0

    def _refused(self, event: GateChecked) -> None:
        """A gate wants another attempt: it does not count against `retry`, and is approved by itself."""
        book = self.books[event.step]
        book.waiting[event.item] = (book.running.pop(event.item, event.attempt), event.at + event.retry_in)
        book.approved.discard(event.item)
        book.tries[event.item] = 0

    # --- routes ---

    def _routed(self, event: RouteDecided) -> None:
        if event.step not in self._routes.open:
            self._say(event, "chooses although it has nothing to choose")
        self._routes.take(event, failed=self.books[event.step].verdict == "failure")
        self._turn()

    def _turn(self) -> None:
        """Loops whose body has come to rest open their next iteration."""
        if self._stopping or self._routes.ending:
            return
        for step in self._routes.turn(lambda step: not self.books[step].opened):
            book = self.books[step]
            self._reopen(book)
            book.iteration += 1

    # --- joins ---

    def _verdicts(self, book: _Book) -> list[Verdict | None]:
        return [self._verdict(need, book.step.id) for need in book.needs]

    def _verdict(self, need: str, step: str) -> Verdict | None:
        """How the end of a need counts for a step: a route to it counts as success of whoever chose it."""
        verdict = self.books[need].verdict
        if verdict is not None and self._routes.chosen_by.get(step) == need:
            return "success"
        return None if self._routes.undecided(need, step) else verdict

    def _allows(self, book: _Book) -> bool:
        """Whether the join lets the step start, as things stand."""
        if self._routes.held(book.step.id, book.needs):
            return False
        seen = self._verdicts(book)
        match book.step.join:
            case "all_success":
                return all(verdict == "success" for verdict in seen)
            case "none_failed":
                return all(verdict in ("success", "skip") for verdict in seen)
            case "any_success":
                return not seen or "success" in seen
            case "all_done":
                return None not in seen

    def _forbids(self, book: _Book) -> str:
        """The kind of skip that the join calls for by now; empty when it does not."""
        if self._routes.held(book.step.id, book.needs):
            return ""
        seen = self._verdicts(book)
        join = book.step.join
        if join == "all_done" or (join == "any_success" and ("success" in seen or None in seen)):
            return ""
        if "failure" in seen:
            return "upstream_failed"
        if join == "none_failed" or None in seen or "skip" not in seen:
            return ""
        return "skip"

    def _skipped(self, event: TaskSkipped) -> None:
        book = self.books[event.step]
        if book.verdict is not None:
            self._say(event, "skipped after it had ended")
        book.asking.clear()
        if book.running or book.mapped or (book.waiting and event.kind != "command"):
            self._say(event, "skipped although it had started")
        if not event.reason:
            self._say(event, "skipped without a reason")
        if not self._may_skip(event, book):
            self._say(event, f"skipped for no good reason: {event.kind}, {event.reason}")
        book.waiting.clear()
        book.stopped = bool(self._stopping)
        book.kind = event.kind
        book.verdict = "failure" if event.kind == "upstream_failed" else "skip"
        self._routes.ended(book.step.id, ran=False)
        self._turn()

    def _may_skip(self, event: TaskSkipped, book: _Book) -> bool:
        forbidden = self._forbids(book)
        if self._routes.ending and event.kind == "run_ended":
            return True
        if self._routes.passed_by(event.step):
            return event.kind in ("not_routed", "upstream_failed")
        if event.kind == "upstream_failed":
            return forbidden == "upstream_failed"
        if self._stopping:
            return event.kind == ("command" if self._stopping == "abort" else "run_ended")
        if event.kind == "command" and (event.step in self._allowed or book.layer in self._layers):
            return True
        inherited = {self.books[need].kind for need in book.needs}
        if forbidden == "skip":
            return event.kind in inherited
        return event.kind == "condition" and bool(book.step.when) and self._allows(book)

    # --- commands and the end ---

    def _heard(self, event: Event, id: str) -> None:
        if id in self._commands:
            self._say(event, f"command {id} was answered before")
        self._commands.add(id)

    def _obeyed(self, command: Command) -> None:
        match command:
            case Abort():
                self._stopping = "abort"
            case SkipStep():
                self._allowed.add(command.step)
            case SkipLayer():
                self._layers.add(command.layer)
            case RetryStep():
                self._retried(command.step)
            case _:
                pass

    def _retried(self, step: str) -> None:
        book = self.books[step]
        if not book.failed or book.verdict is None:
            self.wrong.append(f"{self._seq}: retry_step of {step}, which had not failed")
        opened = [step]
        for name in opened:  # grows as it goes
            opened += [
                other
                for other, its in self.books.items()
                if name in its.needs and its.kind == "upstream_failed" and other not in opened
            ]
        for name in opened:
            self._reopen(self.books[name])

    def _reopen(self, book: _Book) -> None:
        """The step is as if it had never begun; only the attempts it had remain taken."""
        book.verdict, book.failed, book.kind, book.stopped = None, False, "", False
        book.mapped = False
        book.running.clear()
        book.waiting.clear()
        book.asking.clear()
        book.approved.clear()
        book.tries.clear()

    def _went_on(self, event: WorkflowResumed) -> None:
        if event.by == "command":
            self._paused = False
        if self._ended and self._stopping:
            self._stopping = ""
            for book in self.books.values():
                if book.stopped:
                    self._reopen(book)
        for step in event.reopened:
            self._reopen(self.books[step])
        self._ended = False

    def _ends(self, event: WorkflowCompleted | WorkflowAborted) -> None:
        self._ended = True
        for name, book in self.books.items():
            if book.verdict is None:
                self._say(event, f"{name} never ended")
            if book.opened:
                self._say(event, f"{name} is left running")
        if isinstance(event, WorkflowAborted):
            if self._stopping != "abort":
                self._say(event, "nobody asked for it")
            return
        bad = self._stopping or self._routes.shortfall or any(self._failed(b) for b in self.books.values())
        produced = any(value is not None for value in event.outputs.values())
        if self._routes.shortfall and not self.workflow.outputs:
            produced = any(book.verdict == "success" and not book.failed for book in self.books.values())
        worse = "partial" if produced else "failed"
        if self._stopping == "abort":
            self._say(event, "an aborted run says it completed")
        if bad and (event.status != worse or not event.reason):
            self._say(event, f"says {event.status} ({event.reason!r}), but it is {worse}")
        if not bad and event.status != "succeeded" and not event.reason.startswith("output "):
            self._say(event, f"says {event.status}, but nothing went wrong")

    def _failed(self, book: _Book) -> bool:
        """A failure that nobody has dealt with."""
        return book.failed and book.verdict == "failure" and book.step.id not in self._routes.forgiven

    def _check_nothing_is_late(self) -> None:
        """After a batch, whatever could have happened has: steps start as soon as they may."""
        running = sum(len(book.running) for book in self.books.values())
        free = running < self.workflow.config.max_parallel and not self._paused and not self._stopping
        for name, book in self.books.items():
            if book.verdict is not None or book.opened:
                if free and self._has_an_item_to_start(book):
                    self.wrong.append(f"{self._seq}: {name} does not start its next item")
                continue
            if self._stopping or self._routes.ending or self._routes.passed_by(name) or self._forbids(book):
                self.wrong.append(f"{self._seq}: {name} should have been skipped by now")
            elif free and self._allows(book) and book.step.approval != "always":  # else it is asked about
                self.wrong.append(f"{self._seq}: {name} does not start")

    def _has_an_item_to_start(self, book: _Book) -> bool:
        if not book.mapped or book.count is None or book.item_failed or book.step.approval == "always":
            return False
        cap = book.step.max_parallel
        return book.next < book.count and (cap is None or len(book.running) < cap)


def violations(workflow: Workflow, batches: Iterable[Sequence[Event]]) -> list[str]:
    """Every promise that this history breaks; empty for an honest one."""
    history = History(workflow)
    for batch in batches:
        history.take(batch)
    return history.wrong


def without_time(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Events as data, without the time they were written at: what two equal runs have in common."""
    return [{k: v for k, v in msgspec.to_builtins(event).items() if k != "at"} for event in events]
