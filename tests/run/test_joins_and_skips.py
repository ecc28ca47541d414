"""When a step may run, and why it did not: join rules and skips, on the core alone."""

from __future__ import annotations

import pytest

from penstock.run.commands import SkipStep
from penstock.run.events import TaskSkipped, TaskStarted
from penstock.run.facts import TaskReturned
from penstock.run.state import PHASES, Run
from penstock.testing.graphs import ALWAYS
from penstock.testing.simulate import Simulation, by_chance
from penstock.testing.sketch import Condition, Fate, Node, Record, Sketch, build

GOOD = Node(id="good")
BAD = Node(id="bad", fate=Fate(fails=ALWAYS))
OFF = Node(id="off", when=Condition(holds=False))


def simulated(*nodes: Node, seed: int = 0) -> Simulation:
    sketch = Sketch(nodes=nodes)
    simulation = Simulation(sketch, build(sketch, Record(lambda: 0.0)).graph, by_chance(seed))
    simulation.begin()
    return simulation


def finished(*nodes: Node, seed: int = 0) -> Simulation:
    simulation = simulated(*nodes, seed=seed)
    while simulation.move():
        pass
    assert simulation.ended
    return simulation


def status(run: Run, step: str) -> str:
    return PHASES[run.phase[run.graph.index[step]]]  # type: ignore[index]


def skip_of(simulation: Simulation, step: str) -> tuple[str, str]:
    (event,) = [e for e in simulation.events if isinstance(e, TaskSkipped) and e.step == step]
    return event.kind, event.reason


@pytest.mark.parametrize(
    ("join", "needs", "outcome"),
    [
        ("all_success", ("good",), "succeeded"),
        ("all_success", ("good", "bad"), "upstream_failed"),
        ("all_success", ("good", "off"), "condition"),
        ("all_success", ("bad", "off"), "upstream_failed"),
        ("none_failed", ("good", "off"), "succeeded"),
        ("none_failed", ("off",), "succeeded"),
        ("none_failed", ("good", "bad"), "upstream_failed"),
        ("none_failed", ("bad", "off"), "upstream_failed"),
        ("any_success", ("good", "bad", "off"), "succeeded"),
        ("any_success", ("bad", "off"), "upstream_failed"),
        ("any_success", ("off",), "condition"),
        ("any_success", ("bad",), "upstream_failed"),
        ("all_done", ("good", "bad", "off"), "succeeded"),
        ("all_done", ("bad",), "succeeded"),
        ("all_done", ("off",), "succeeded"),
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_a_join_judges_by_how_the_needs_ended(
    join: str, needs: tuple[str, ...], outcome: str, seed: int
) -> None:
    simulation = finished(GOOD, BAD, OFF, Node(id="last", needs=needs, join=join), seed=seed)  # type: ignore[arg-type]

    if outcome == "succeeded":
        assert status(simulation.run, "last") == "succeeded"
    else:
        assert skip_of(simulation, "last")[0] == outcome


@pytest.mark.parametrize("join", ["all_success", "none_failed", "any_success", "all_done"])
def test_a_step_skipped_because_of_a_failure_counts_as_failed_in_the_next_join(join: str) -> None:
    simulation = finished(
        BAD,
        Node(id="middle", needs=("bad",)),
        Node(id="last", needs=("middle",), join=join),  # type: ignore[arg-type]
    )

    if join == "all_done":
        assert status(simulation.run, "last") == "succeeded"
    else:
        assert skip_of(simulation, "last")[0] == "upstream_failed"


def test_a_failure_settles_its_dependents_at_once_whatever_else_they_wait_for() -> None:
    simulation = simulated(BAD, Node(id="slow"), Node(id="last", needs=("bad", "slow")))
    simulation.pick = lambda choices: next((c for c in choices if getattr(c, "step", None) == 0), choices[0])
    simulation.move()

    assert status(simulation.run, "last") == "skipped"
    assert status(simulation.run, "slow") == "running"


def test_any_success_starts_with_the_first_success_and_only_once() -> None:
    simulation = simulated(
        Node(id="one"), Node(id="two"), Node(id="first_of", needs=("one", "two"), join="any_success")
    )
    simulation.move()

    assert status(simulation.run, "first_of") == "running"
    while simulation.move():
        pass
    starts = [e for e in simulation.events if isinstance(e, TaskStarted) and e.step == "first_of"]
    assert len(starts) == 1


def test_a_skip_cascades_and_every_step_says_why() -> None:
    simulation = finished(
        OFF, Node(id="second", needs=("off",)), Node(id="third", needs=("second",)), Node(id="beside")
    )

    assert skip_of(simulation, "off") == ("condition", "when is false: inputs.no")
    assert skip_of(simulation, "second") == ("condition", "needs off, which was skipped")
    assert skip_of(simulation, "third") == ("condition", "needs second, which was skipped")
    assert simulation.run.status == "succeeded"


def test_a_failure_names_the_need_that_failed() -> None:
    simulation = finished(BAD, Node(id="second", needs=("bad",)), Node(id="third", needs=("second",)))

    assert skip_of(simulation, "second") == ("upstream_failed", "needs bad, which failed")
    assert skip_of(simulation, "third") == ("upstream_failed", "needs second, which did not run")
    assert simulation.run.status == "failed"
    assert simulation.run.reason.startswith("step bad failed: ")


def test_siblings_of_a_failure_go_on() -> None:
    simulation = finished(BAD, GOOD, Node(id="after", needs=("good",)))

    assert status(simulation.run, "after") == "succeeded"


def test_on_error_continue_counts_as_success_and_the_run_succeeds() -> None:
    simulation = finished(
        Node(id="bad", fate=Fate(fails=ALWAYS), carry_on=True),
        Node(id="all", needs=("bad",)),
        Node(id="some", needs=("bad",), join="any_success"),
        Node(id="none", needs=("bad",), join="none_failed"),
    )

    run = simulation.run
    assert [status(run, step) for step in ("bad", "all", "some", "none")] == ["failed"] + ["succeeded"] * 3
    assert run.status == "succeeded"


def test_a_condition_reads_the_output_of_a_need() -> None:
    for value, outcome in ((1, "succeeded"), (2, "skipped")):
        simulation = finished(
            Node(id="ask", fate=Fate(value=value)),
            Node(id="act", needs=("ask",), when=Condition(step="ask", value=1)),
        )
        assert status(simulation.run, "act") == outcome


def test_a_condition_reads_null_below_a_step_that_did_not_run() -> None:
    simulation = finished(
        OFF, Node(id="act", needs=("off",), join="all_done", when=Condition(step="off", value=1))
    )

    assert skip_of(simulation, "act")[0] == "condition"


def test_the_first_step_of_a_round_being_skipped_skips_the_rounds_after_it() -> None:
    rounds = [OFF]
    for n in range(1, 5):
        rounds.append(Node(id=f"draft{n}", needs=(rounds[-1].id,)))
        rounds.append(Node(id=f"review{n}", needs=(f"draft{n}",)))
    simulation = finished(*rounds)

    assert not [e for e in simulation.events if isinstance(e, TaskStarted)]


def test_a_step_that_a_command_skipped_cascades_as_such() -> None:
    simulation = simulated(GOOD, Node(id="second", needs=("good",)), Node(id="third", needs=("second",)))
    simulation.send(SkipStep(id="c", step="second", reason="not needed"))  # type: ignore[arg-type]
    while simulation.move():
        pass

    assert skip_of(simulation, "second") == ("command", "not needed")
    assert skip_of(simulation, "third")[0] == "command"
    assert simulation.run.status == "succeeded"


def test_an_any_success_step_that_waits_to_be_tried_again_is_not_hurried_by_another_success() -> None:
    simulation = simulated(
        Node(id="one"),
        Node(id="two"),
        Node(id="last", needs=("one", "two"), join="any_success", max_attempts=2, backoff=100.0,
             fate=Fate(fails=1)),
    )  # fmt: skip
    run = simulation.run
    for step in ("one", "last", "two"):
        wanted = run.graph.index[step]  # type: ignore[index]
        simulation.pick = lambda choices, wanted=wanted: next(
            (c for c in choices if getattr(c, "step", None) == wanted), choices[0]
        )
        simulation.move()

    assert status(run, "last") == "backoff"


def test_a_joined_step_runs_once_when_its_needs_end_in_the_same_batch() -> None:
    wide = [Node(id=f"n{i}") for i in range(20)]
    simulation = finished(*wide, Node(id="join", needs=tuple(node.id for node in wide)))

    assert len([e for e in simulation.events if isinstance(e, TaskStarted) and e.step == "join"]) == 1


def test_a_fact_about_a_step_moves_only_its_dependents() -> None:
    simulation = simulated(GOOD, Node(id="other"), Node(id="last", needs=("good",)))
    before = simulation.run.encoded()
    simulation.tell(TaskReturned(0, 1))

    assert before != simulation.run.encoded()
    assert status(simulation.run, "other") == "running"
