"""Which runs may be forgotten, and why.

A run never goes alone: children go with their parents, and forks with the run whose history
they share. A family goes when all of it may, or stays as a whole. What has not ended stays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.ids import RunId

ENDED: Final = frozenset({"succeeded", "failed", "partial", "aborted"})
"""Nothing else is ever forgotten, whatever the limits say."""

DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Caps. A run that is beyond any of them may go; without a cap nothing goes."""

    older_than: float | None = None
    """Seconds since a run ended."""
    keep_count: int | None = None
    """Runs of each workflow that stay: the newest ones. Children count with their parents."""
    max_bytes: int | None = None
    """What all runs may take together: the oldest go first."""
    statuses: frozenset[str] = ENDED
    """Only runs that ended like this may go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """A run, as far as it matters here."""

    run: RunId
    workflow: str
    status: str
    started: float
    ended: float | None = None
    parent: RunId | None = None
    fork_of: RunId | None = None
    owner: str = ""
    """Who drives it now; empty when nobody does."""
    size: int = 0
    """Bytes that would be free without it."""

    @property
    def last(self) -> float:
        """When something last happened to it, as far as is known."""
        return self.started if self.ended is None else self.ended


@dataclass(frozen=True, slots=True)
class Verdict:
    run: RunId
    reason: str


@dataclass(frozen=True, slots=True)
class Family:
    """Runs that go together, the oldest first."""

    runs: tuple[Verdict, ...]
    size: int


@dataclass(frozen=True, slots=True)
class Plan:
    forget: tuple[Family, ...]
    """The oldest first."""
    keep: tuple[Family, ...]
    size: int
    """Bytes before."""

    @property
    def size_after(self) -> int:
        return sum(family.size for family in self.keep)


def plan(runs: Iterable[Remembered], limits: Limits, *, now: float) -> Plan:
    """Sort families into those that may go and those that stay. Every run is in exactly one."""
    families = sorted(_families(list(runs)), key=lambda family: (_last(family), family[0].run))
    rank = _ranks(families)
    total = size = sum(_size(family) for family in families)
    forget: list[Family] = []
    keep: list[Family] = []
    for family in families:
        held = _held(family, limits)
        over = "" if held else _over(family, limits, rank, now)
        if not held and not over and limits.max_bytes is not None and size > limits.max_bytes:
            most = in_bytes(limits.max_bytes)
            over = f"all runs take {in_bytes(size)}, more than {most}, and it is the oldest"
        if over:
            size -= _size(family)
            forget.append(Family(tuple(Verdict(run.run, over) for run in family), _size(family)))
        else:
            keep.append(Family(_why_kept(family, held), _size(family)))
    return Plan(tuple(forget), tuple(keep), total)


def _families(runs: Sequence[Remembered]) -> list[list[Remembered]]:
    """Runs that are tied by parents or forks, each family in order of start."""
    known = {run.run: run for run in runs}
    head = {run.run: run.run for run in runs}

    def find(run: RunId) -> RunId:
        while head[run] != run:
            head[run] = head[head[run]]
            run = head[run]
        return run

    for run in runs:
        for other in (run.parent, run.fork_of):
            if other is not None and other in known:
                head[find(run.run)] = find(other)
    grouped: dict[RunId, list[Remembered]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: (run.started, run.run)):
        grouped[find(run.run)].append(run)
    return list(grouped.values())


def _ranks(families: Sequence[Sequence[Remembered]]) -> dict[RunId, int]:
    """How many newer runs of the same workflow there are. Children have no rank."""
    newest = sorted(
        (run for family in families for run in family if run.parent is None),
        key=lambda run: (run.started, run.run),
        reverse=True,
    )
    seen: dict[str, int] = defaultdict(int)
    rank: dict[RunId, int] = {}
    for run in newest:
        rank[run.run] = seen[run.workflow]
        seen[run.workflow] += 1
    return rank


def _held(family: Sequence[Remembered], limits: Limits) -> dict[RunId, str]:
    """The runs that must stay, and why."""
    held: dict[RunId, str] = {}
    for run in family:
        if run.owner:
            held[run.run] = f"{run.owner} drives it"
        elif run.status not in ENDED:
            held[run.run] = f"it is {run.status}"
        elif run.status not in limits.statuses:
            held[run.run] = f"it {_how(run.status)}"
    return held


def _over(family: Sequence[Remembered], limits: Limits, rank: dict[RunId, int], now: float) -> str:
    """Which limit the whole family is beyond; empty when it is beyond none."""
    age = now - _last(family)
    if limits.older_than is not None and age > limits.older_than:
        return f"ended {in_time(age)} ago, more than {in_time(limits.older_than)}"
    ranked = [rank[run.run] for run in family if run.run in rank]
    if limits.keep_count is not None and all(place >= limits.keep_count for place in ranked):
        return f"beyond the {limits.keep_count} newest of its workflow"
    return ""


def _why_kept(family: Sequence[Remembered], held: dict[RunId, str]) -> tuple[Verdict, ...]:
    if not held:
        return tuple(Verdict(run.run, "within the limits") for run in family)
    holder, why = next(iter(held.items()))
    return tuple(
        Verdict(run.run, held.get(run.run) or f"it belongs with {holder}, which stays: {why}")
        for run in family
    )


def _how(status: str) -> str:
    return {"aborted": "was aborted", "partial": "ended partial"}.get(status, status)


def _last(family: Iterable[Remembered]) -> float:
    return max(run.last for run in family)


def _size(family: Iterable[Remembered]) -> int:
    return sum(run.size for run in family)


def in_time(seconds: float) -> str:
    """A length of time as people say it: `3 days`, `5 h`."""
    for unit, name in ((DAY, "days"), (3_600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit or (unit == 60.0 and seconds >= unit):
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


def in_bytes(size: int) -> str:
    """A size as people say it: `1.5 MB`."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "KB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} B"
