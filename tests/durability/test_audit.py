"""The audit sees what it is there to see: each kind of damage to a good case is found."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import audit
import deeds
import msgspec
import pytest
from campaign import Campaign, Stop
from zygote import Zygote

from penstock.run.events import TaskCompleted, TaskStarted


class Kept(Campaign):
    """A campaign that keeps what it saw of its last case."""

    seen: tuple[str, dict[str, audit.History], Any, Any]

    def case(self, name: str, stops: Any) -> None:
        root, said = self._drive(name, stops)
        ledger = deeds.lines(self._folder / name / "ledger")
        self.seen = root, self._histories(name, root), ledger, said


@pytest.fixture(scope="module")
def good(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], audit.Case]:
    """A case in which nothing is wrong, as often as it is asked for."""
    campaign = Kept(zygote, tmp_path_factory.mktemp("audit"), seed=20)
    campaign.case("killed", [Stop(campaign.moments // 2), Stop(campaign.moments // 4)])
    root, found, ledger, said = campaign.seen

    def make() -> audit.Case:
        fresh = {
            name: audit.History(h.id, h.graph, list(h.events), h.listed, h.owner) for name, h in found.items()
        }
        return audit.Case(root, fresh, campaign._expected, copy.deepcopy(ledger), copy.deepcopy(said))

    return make


def test_a_good_case_has_no_violations(good: Callable[[], audit.Case]) -> None:
    assert audit.violations(good()) == []


def _lose_an_event(case: audit.Case) -> None:
    case.found[""].events.pop()  # type: ignore[attr-defined]  # a list here


def _lose_one_in_the_middle(case: audit.Case) -> None:
    case.found[""].events.pop(3)  # type: ignore[attr-defined]  # a list here


def _repeat_a_finished_task(case: audit.Case) -> None:
    finished = next(event for event in case.found[""].events if isinstance(event, TaskCompleted))
    begun = next(line for line in case.ledger if line.get("step") == finished.step)
    last = [line["pid"] for line in case.ledger if line["what"] == "process"][-1]
    case.ledger.append({**begun, "pid": last})  # type: ignore[attr-defined]  # a list here


def _write_twice(case: audit.Case) -> None:
    begun = next(line for line in case.ledger if line.get("effect") == "write")
    case.ledger.insert(case.ledger.index(begun), begun)  # type: ignore[attr-defined]  # a list here


def _write_unannounced(case: audit.Case) -> None:
    started = next(
        event for event in case.found[""].events if isinstance(event, TaskStarted) and event.item is not None
    )
    for line in case.ledger:
        if line.get("step") == started.step:
            line["attempt"], line["effect"] = 7, "write"  # type: ignore[index]  # a dict here


def _say_what_never_was(case: audit.Case) -> None:
    line = next(line for line in case.said[0] if "event" in line)
    line["event"]["at"] += 1.0


def _come_out_differently(case: audit.Case) -> None:
    events: list[Any] = case.found[""].events  # type: ignore[assignment]  # a list here
    at = next(i for i, event in enumerate(events) if isinstance(event, TaskCompleted) and event.item is None)
    events[at] = msgspec.structs.replace(events[at], output="something else")
    case.said = ()


def _still_be_owned(case: audit.Case) -> None:
    case.found[""].owner = "process 1 on mars"


@pytest.mark.parametrize(
    "damage",
    [
        _lose_an_event,
        _lose_one_in_the_middle,
        _repeat_a_finished_task,
        _write_twice,
        _write_unannounced,
        _say_what_never_was,
        _come_out_differently,
        _still_be_owned,
    ],
    ids=lambda damage: damage.__name__.strip("_").replace("_", " "),
)
def test_damage_is_seen(good: Callable[[], audit.Case], damage: Callable[[audit.Case], None]) -> None:
    case = good()
    damage(case)

    assert audit.violations(case) != []


def test_every_violation_names_its_run(good: Callable[[], audit.Case]) -> None:
    case = good()
    _lose_an_event(case)

    assert all(wrong.startswith(case.root) for wrong in audit.violations(case))


def test_the_good_case_has_a_child_that_is_checked_as_well(good: Callable[[], audit.Case]) -> None:
    assert any(name.startswith("/") for name in good().found)
