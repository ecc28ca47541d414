"""Runs that ask, killed at random: the same routes, no question twice, no answer lost or misplaced."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from campaign import Stop, over
from zygote import Victim, Zygote

import penstock as ps
from penstock.ids import RunId
from penstock.run.events import (
    DecisionMade,
    DecisionRequired,
    Event,
    GateEscalated,
    RouteDecided,
    TaskCompleted,
    WorkflowCompleted,
)


class Trial:
    """One run, driven by one process after another."""

    def __init__(self, zygote: Zygote, folder: Path) -> None:
        folder.mkdir()
        self._zygote = zygote
        self._folder = folder
        self._url = f"sqlite:///{folder / 'store.db'}"
        self.run = ""
        self.answered: set[str] = set()
        """Answers whose sender was told that they count."""
        self.kills = 0

    def drive(self, stops: Sequence[Stop]) -> list[Event]:
        for stop in (*stops, Stop()):
            victim = self._process(stop)
            self.run = self.run or next((line["run"] for line in victim.said if "run" in line), "")
            self.answered |= {line["answered"] for line in victim.said if "answered" in line}
            errors = [line for line in victim.said if "error" in line]
            assert errors == [], victim.errors()
            if over(victim):
                break
        assert over(victim), f"{victim.said[-2:]} {victim.errors()}"
        self.moments = next(line["moments"] for line in victim.said if "moments" in line)
        return asyncio.run(self._load())

    def _process(self, stop: Stop) -> Victim:
        order: dict[str, Any] = {
            "program": "decider", "folder": str(self._folder), "store": self._url, "seed": 0, "run": self.run,
            "stop": stop.moment, "suicide": stop.suicide,
        }  # fmt: skip
        victim = self._zygote.victim(order)
        blocked = any("blocked" in line for line in _until_blocked(victim))
        if blocked:
            victim.kill()
        self.kills += not over(victim)
        return victim

    async def _load(self) -> list[Event]:
        async with ps.open(self._url) as penstock:
            return list(await penstock.store.load(RunId(self.run)))


def _until_blocked(victim: Victim) -> Sequence[dict[str, Any]]:
    heard = []
    for line in victim.listen():
        heard.append(line)
        if "blocked" in line:
            break
    return heard


def routes(events: Sequence[Event]) -> list[tuple[Any, ...]]:
    return [(e.step, e.iteration, e.target, e.rule) for e in events if isinstance(e, RouteDecided)]


def asked(events: Sequence[Event]) -> Counter[tuple[Any, ...]]:
    """Every question, by everything that makes it this one and no other."""
    return Counter(
        (e.kind, e.step, e.iteration, e.item, e.attempt, msgspec.json.encode(e.call))
        for e in events
        if isinstance(e, DecisionRequired)
    )


def made(events: Sequence[Event]) -> Counter[tuple[Any, ...]]:
    found = {e.decision: e for e in events if isinstance(e, DecisionRequired)}
    return Counter(
        (found[e.decision].kind, e.step, e.iteration, e.item, found[e.decision].attempt, e.verb)
        for e in events
        if isinstance(e, DecisionMade)
    )


def results(events: Sequence[Event]) -> dict[tuple[Any, ...], Any]:
    return {
        (e.step, e.iteration, e.item): e.output if e.output is not msgspec.UNSET else None
        for e in events
        if isinstance(e, TaskCompleted)
    }


@pytest.mark.parametrize("seed", range(4))
def test_a_run_full_of_questions_that_is_killed_at_random_asks_and_answers_as_if_it_had_not_been(
    zygote: Zygote, folder: Path, seed: int
) -> None:
    random = Random(seed)  # noqa: S311 - chance, no secret
    untouched = Trial(zygote, folder / "untouched")
    expected = untouched.drive([])
    assert len(asked(expected)) == 3 + 6 + 2
    kills = 0
    for n in range(6):
        trial = Trial(zygote, folder / f"trial-{n}")
        moments = [random.randint(1, untouched.moments // 2) for _ in range(4)]
        events = trial.drive([Stop(moment, suicide=random.random() < 0.5) for moment in moments])
        kills += trial.kills

        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert routes(events) == routes(expected)
        assert asked(events) == asked(expected)
        assert made(events) == made(expected)
        assert results(events) == results(expected)
        assert trial.answered <= {e.decision for e in events if isinstance(e, DecisionMade)}
        assert sum(isinstance(e, GateEscalated) for e in events) == 2
        last = events[-1]
        assert isinstance(last, WorkflowCompleted)
        assert last.outputs == expected[-1].outputs  # type: ignore[union-attr]  # it is one
    assert kills >= 12
