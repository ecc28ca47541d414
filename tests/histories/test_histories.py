"""Golden histories: whatever changes, what happened once still means the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from golden import view

from penstock.ids import RunId, StepId
from penstock.run.events import Event, RouteDecided, TaskStarted, decode, encode
from penstock.run.replay import replay
from penstock.testing.history import violations
from penstock.workflow import spec
from penstock.workflow.graph import compile_graph

FILES = sorted(Path(__file__).parent.glob("*.jsonl"))


def read(path: Path) -> tuple[RunId, spec.Workflow, list[Event], dict[str, Any]]:
    head, *events, state = path.read_bytes().splitlines()
    first = msgspec.json.decode(head)
    workflow = spec.decode(msgspec.json.encode(first["definition"]))
    return (
        RunId(first["run"]),
        workflow,
        [decode(line) for line in events],
        msgspec.json.decode(state)["state"],
    )


def missing(recorded: Any, found: Any, path: str = "") -> list[str]:
    """Where what was recorded is not found again. New keys are no loss; lost or changed ones are."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        lost = [f"{path}.{key} is gone" for key in recorded if key not in found]
        kept = [key for key in recorded if key in found]
        return lost + [each for key in kept for each in missing(recorded[key], found[key], f"{path}.{key}")]
    return [] if recorded == found else [f"{path}: {recorded!r} became {found!r}"]


def test_there_are_enough_of_them() -> None:
    assert len(FILES) >= 10


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_golden_history_still_folds_to_the_state_it_had(path: Path) -> None:
    run, workflow, events, recorded = read(path)

    folded = replay(run, compile_graph(workflow), events)

    assert missing(recorded, msgspec.json.decode(msgspec.json.encode(view(folded)))) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_events_of_a_golden_history_are_written_as_they_were(path: Path) -> None:
    lines = path.read_bytes().splitlines()[1:-1]

    assert [msgspec.json.decode(encode(decode(line))) for line in lines] == [
        msgspec.json.decode(line) for line in lines
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_golden_history_breaks_no_promise(path: Path) -> None:
    _run, workflow, events, _state = read(path)

    assert violations(workflow, [events]) == []


def test_a_loop_that_turns_without_a_route_is_noticed() -> None:
    _run, workflow, events, _state = read(Path(__file__).parent / "rounds.jsonl")
    turns = next(i for i, event in enumerate(events) if isinstance(event, RouteDecided))
    without = [
        msgspec.structs.replace(e, seq=n) for n, e in enumerate(events[:turns] + events[turns + 1 :], 1)
    ]

    assert any("iteration 2 while 1 is open" in wrong for wrong in violations(workflow, [without]))


def test_a_step_after_a_loop_that_does_not_wait_for_its_route_is_noticed() -> None:
    _run, workflow, events, _state = read(Path(__file__).parent / "rounds.jsonl")
    early = [*events[:3], TaskStarted(4, events[2].at, StepId("publish"))]

    assert any("publish: started before its needs allow" in wrong for wrong in violations(workflow, [early]))
