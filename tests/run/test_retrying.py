"""Whether a task is tried again, after how long, and how often: the policy, and the core that asks it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.policy import retry
from penstock.run.effects import StartTimer
from penstock.run.events import TaskFailed, TaskStarted
from penstock.testing.graphs import ALWAYS
from penstock.testing.simulate import Simulation, by_chance
from penstock.testing.sketch import Fate, Node, Record, Sketch, build
from penstock.workflow.spec import Retry


def failures(node: Node, *, id: str = "sim") -> list[TaskFailed]:
    sketch = Sketch(nodes=(node,))
    simulation = Simulation(sketch, build(sketch, Record(lambda: 0.0)).graph, by_chance(0), id=id)
    simulation.begin()
    while simulation.move():
        pass
    return [event for event in simulation.events if isinstance(event, TaskFailed)]


def test_backoff_doubles_and_stays_within_its_jitter() -> None:
    policy = Retry(max_attempts=9, backoff=2.0, jitter=0.1)

    waits = [retry.delay(policy, attempt=n, seed="x") for n in range(1, 5)]

    for wait, nominal in zip(waits, (2, 4, 8, 16), strict=True):
        assert nominal * 0.9 <= wait <= nominal * 1.1


def test_without_jitter_backoff_is_exact() -> None:
    policy = Retry(max_attempts=9, backoff=1.5, jitter=0.0)

    assert [retry.delay(policy, attempt=n, seed="x") for n in (1, 2, 3)] == [1.5, 3.0, 6.0]


@given(st.floats(0, 1e6), st.floats(0, 1), st.integers(1, 10**6), st.text(max_size=20))
def test_no_backoff_is_negative_or_much_longer_than_asked_or_the_longest(
    backoff: float, jitter: float, attempt: int, seed: str
) -> None:
    wait = retry.delay(Retry(backoff=backoff, jitter=jitter), attempt=attempt, seed=seed)

    assert 0 <= wait <= max(retry.LONGEST, backoff) * (1 + jitter)


def test_jitter_is_the_same_for_the_same_task_and_spreads_between_tasks() -> None:
    policy = Retry(backoff=10.0, jitter=0.5)

    waits = {retry.delay(policy, attempt=1, seed=f"run{n}/a.1.None") for n in range(50)}

    assert len(waits) == 50
    assert retry.delay(policy, attempt=1, seed="r") == retry.delay(policy, attempt=1, seed="r")


def test_a_first_wait_is_kept_as_written_however_long() -> None:
    policy = Retry(max_attempts=9, backoff=300.0, jitter=0.0)

    assert [retry.delay(policy, attempt=n, seed="x") for n in (1, 2, 3)] == [300.0, 300.0, 300.0]


def test_a_wait_that_was_asked_for_is_kept_up_to_the_patience_there_is() -> None:
    policy = Retry(backoff=2.0, jitter=0.0)

    waits = [retry.delay(policy, attempt=1, seed="x", asked=asked) for asked in (0.0, 1.0, 45.0, 1e6)]

    assert waits == [2.0, 2.0, 45.0, retry.PATIENCE]


def test_tasks_that_were_asked_for_the_same_wait_come_back_after_it_and_apart() -> None:
    policy = Retry(backoff=1.0, jitter=0.1)

    waits = {retry.delay(policy, attempt=1, seed=f"run{n}/a.1.None", asked=30.0) for n in range(50)}

    assert len(waits) == 50
    assert all(30.0 <= wait <= 33.0 for wait in waits)


def test_a_wait_without_end_leaves_the_backoff_as_it_is() -> None:
    policy = Retry(backoff=2.0, jitter=0.0)

    assert retry.delay(policy, attempt=1, seed="x", asked=float("inf")) == 2.0


@pytest.mark.parametrize("kind", ["cancelled", "expression", "output", "state", "unsupported"])
def test_what_another_attempt_cannot_change_is_not_tried_again(kind: str) -> None:
    assert not retry.retries(Retry(max_attempts=5), attempt=1, kind=kind, name="")


def test_retry_on_names_kinds_and_exceptions() -> None:
    policy = Retry(max_attempts=5, on=("timeout", "OSError"))

    assert retry.retries(policy, attempt=1, kind="timeout", name="")
    assert retry.retries(policy, attempt=1, kind="error", name="OSError")
    assert not retry.retries(policy, attempt=1, kind="error", name="ValueError")


def test_a_task_is_tried_as_often_as_allowed_and_no_more() -> None:
    found = failures(Node(id="a", fate=Fate(fails=ALWAYS), max_attempts=3, backoff=1.0))

    assert [event.attempt for event in found] == [1, 2, 3]
    assert [event.retry_in is None for event in found] == [False, False, True]


def test_the_event_says_how_long_the_wait_is_and_two_runs_wait_differently() -> None:
    node = Node(id="a", fate=Fate(fails=1), max_attempts=2, backoff=10.0)

    first, again, other = (failures(node, id=id)[0].retry_in for id in ("r1", "r1", "r2"))

    assert first == again != other


def test_a_timed_out_write_is_not_repeated_and_says_why() -> None:
    for effect, attempts in (("write", 1), ("read", 3), ("idempotent", 3)):
        found = failures(Node(id="a", fate=Fate(fails=ALWAYS, hangs=True), max_attempts=3, effect=effect))  # type: ignore[arg-type]
        assert len(found) == attempts
    (only,) = failures(Node(id="a", fate=Fate(fails=ALWAYS, hangs=True), max_attempts=3, effect="write"))
    assert "may have taken effect" in only.error


def test_items_of_a_map_are_tried_again_each_by_itself() -> None:
    node = Node(id="a", items=(Fate(fails=2), Fate(), Fate(fails=1)), max_attempts=3, backoff=1.0)

    assert sorted((event.item, event.attempt) for event in failures(node)) == [(0, 1), (0, 2), (2, 1)]


def test_a_map_whose_item_failed_for_good_tries_no_other_item_again() -> None:
    sketch = Sketch(
        nodes=(Node(id="a", items=(Fate(fails=ALWAYS), Fate(fails=1)), max_attempts=2, backoff=5.0),)
    )
    simulation = Simulation(sketch, build(sketch, Record(lambda: 0.0)).graph, lambda c: c[0])
    simulation.begin()
    while simulation.move():
        pass
    started = [e.item for e in simulation.events if isinstance(e, TaskStarted) and e.item is not None]

    assert simulation.run.status == "failed"
    assert started.count(0) == 2


def test_a_map_that_fails_takes_its_waiting_items_along() -> None:
    """One item waits to be tried again, another fails for good: nothing is waited for any more."""
    waits, fails = Fate(fails=1), Fate(fails=ALWAYS, hangs=True)
    node = Node(id="a", items=(waits, fails), max_attempts=2, backoff=5.0, effect="write")
    sketch = Sketch(nodes=(node, Node(id="busy")))
    simulation = Simulation(sketch, build(sketch, Record(lambda: 0.0)).graph, _first_of(0))
    simulation.begin()
    for _ in range(3):  # the list, then both items
        simulation.move()

    run = simulation.run
    assert run.step_status(0) == "failed"
    assert (run.timers, run.running, run.maps) == (0, 1, {})


def _first_of(step: int) -> Any:
    """Tasks of this step first, timers last."""

    def pick(choices: Any) -> Any:
        tasks = [c for c in choices if getattr(c, "step", None) == step and not isinstance(c, StartTimer)]
        return (tasks or choices)[0]

    return pick
