"""What must hold for every run that adapts, tried on the core alone: random routes, hostile everything."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import msgspec
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.ids import CommandId
from penstock.run.commands import Abort
from penstock.run.events import DecisionMade, DecisionRequired, Event, RouteDecided, decode, encode
from penstock.run.replay import replay
from penstock.run.restore import restore
from penstock.run.state import PHASES, Run
from penstock.testing import graphs
from penstock.testing.banks import strays
from penstock.testing.graphs import graph_of
from penstock.testing.history import violations
from penstock.testing.simulate import Simulation, by_chance
from penstock.testing.sketch import Sketch

SEEDS = st.integers(0, 2**16)
MOVES = 2000
"""More than any of these runs may take."""


def simulate(sketch: Sketch, seed: int) -> Simulation:
    simulation = Simulation(sketch, graph_of(sketch), by_chance(seed), inquires=True)
    simulation.begin()
    return finish(simulation)


def finish(simulation: Simulation) -> Simulation:
    for _ in range(MOVES):
        if not simulation.move():
            return simulation
    raise AssertionError("it goes on for ever")


def statuses(run: Run) -> dict[str, str]:
    return {step: PHASES[phase] for step, phase in zip(run.graph.ids, run.phase, strict=True)}


def routes(events: list[Event]) -> dict[str, list[Any]]:
    """What each router chose, in its order."""
    found: dict[str, list[Any]] = defaultdict(list)
    for event in events:
        if isinstance(event, RouteDecided):
            found[event.step].append((event.iteration, event.target, event.rule, event.reason))
    return found


@given(graphs.routed(), SEEDS)
def test_every_run_ends_and_stays_inside_its_graph(sketch: Sketch, seed: int) -> None:
    simulation = simulate(sketch, seed)

    run = simulation.run
    assert simulation.ended, statuses(run)
    assert strays(run.graph.workflow, simulation.events) == []
    assert violations(run.graph.workflow, simulation.batches) == []
    assert (run.running, run.timers, run.open, run.maps) == (0, 0, 0, {})


@given(graphs.routed(), SEEDS)
def test_replay_and_snapshots_equal_the_run_at_every_batch_byte_for_byte(sketch: Sketch, seed: int) -> None:
    simulation = simulate(sketch, seed)
    graph = graph_of(sketch)
    events = [decode(encode(event)) for event in simulation.events]

    for batch, state in zip(simulation.batches, simulation.states, strict=True):
        assert replay(simulation.run.id, graph, events, until=batch[-1].seq).encoded() == state
        assert restore(simulation.run.id, graph, msgspec.json.decode(state)).encoded() == state


@settings(max_examples=60)
@given(graphs.routed(plain=True), SEEDS)
def test_a_run_taken_up_at_any_batch_goes_the_same_ways_and_asks_nothing_twice(
    sketch: Sketch, seed: int
) -> None:
    whole = simulate(sketch, seed)
    graph = graph_of(sketch)
    assert whole.ended, statuses(whole.run)
    assume(not whole.run.ending)  # who is still at work then is a matter of time

    for keep in range(1, len(whole.batches)):
        again = finish(whole.rebuilt(keep, graph, by_chance(seed + keep)))
        assert again.ended, (keep, statuses(again.run))
        assert routes(again.events) == routes(whole.events), keep
        assert statuses(again.run) == statuses(whole.run), keep
        assert again.run.status == whole.run.status
        assert strays(graph.workflow, again.events) == []
        asked = Counter((e.kind, e.step, e.iteration, e.item, e.attempt) for e in _questions(again.events))
        assert asked == Counter(
            (e.kind, e.step, e.iteration, e.item, e.attempt) for e in _questions(whole.events)
        )
        answered = [e.decision for e in again.events if isinstance(e, DecisionMade)]
        assert len(answered) == len(set(answered))


def _questions(events: list[Event]) -> list[DecisionRequired]:
    """But for those of running tasks: they end with the process, and a task that is done again asks again."""
    return [event for event in events if isinstance(event, DecisionRequired) and event.kind != "input"]


@settings(max_examples=60)
@given(graphs.routed(), SEEDS, st.data())
def test_a_run_taken_up_anywhere_ends_inside_its_graph(
    sketch: Sketch, seed: int, data: st.DataObject
) -> None:
    whole = simulate(sketch, seed)
    keep = data.draw(st.integers(1, len(whole.batches)))
    again = finish(whole.rebuilt(keep, graph_of(sketch), by_chance(seed + 1)))

    assert again.ended, statuses(again.run)
    assert strays(again.run.graph.workflow, again.events) == []


@settings(max_examples=60)
@given(graphs.routed(), SEEDS, st.integers(0, 20))
def test_a_run_may_be_aborted_at_any_moment(sketch: Sketch, seed: int, moment: int) -> None:
    simulation = Simulation(sketch, graph_of(sketch), by_chance(seed), inquires=True)
    simulation.begin()
    for _ in range(moment):
        simulation.move()
    simulation.send(Abort(id=CommandId("stop")))
    finish(simulation)

    assert simulation.ended, statuses(simulation.run)
    assert strays(simulation.run.graph.workflow, simulation.events) == []


@given(graphs.routed(), SEEDS)
def test_the_same_choices_make_the_same_run(sketch: Sketch, seed: int) -> None:
    assert simulate(sketch, seed).events == simulate(sketch, seed).events
