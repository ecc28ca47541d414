"""What must hold for every run, tried on the core alone: random graphs, fates, commands and orders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.ids import CommandId, RunId
from penstock.run.commands import Abort, Command
from penstock.run.events import TaskSkipped, decode, encode
from penstock.run.evolve import evolve
from penstock.run.replay import replay
from penstock.run.state import PHASES, RUNNING, Run
from penstock.testing import graphs
from penstock.testing.history import History, violations, without_time
from penstock.testing.outcomes import expected
from penstock.testing.simulate import Pick, Simulation, by_chance
from penstock.testing.sketch import Record, Sketch, build
from penstock.workflow.graph import Graph

SEEDS = st.integers(0, 2**16)
ORDERS = SEEDS.map(by_chance)


def graph_of(sketch: Sketch) -> Graph:
    return build(sketch, Record(lambda: 0.0)).graph


def simulate(
    sketch: Sketch, order: Pick, commands: Sequence[tuple[int, Command]] = (), *, id: str = "sim"
) -> Simulation:
    """Run a sketch to its end, with commands at their moments."""
    simulation = Simulation(sketch, graph_of(sketch), order, id=id, inquires=True)
    simulation.begin()
    waiting = sorted(commands, key=lambda pair: pair[0])
    facts = 0
    while True:
        while waiting and waiting[0][0] <= facts:
            simulation.send(waiting.pop(0)[1])
        facts += 1
        if not simulation.move() and (simulation.run.ended or not waiting):
            return simulation


@st.composite
def steered(draw: st.DrawFn) -> tuple[Sketch, list[tuple[int, Command]]]:
    sketch = draw(graphs.sketches())
    return sketch, draw(graphs.commands(sketch))


def statuses(run: Run) -> dict[str, str]:
    return {step: PHASES[phase] for step, phase in zip(run.graph.ids, run.phase, strict=True)}


@given(graphs.sketches(), ORDERS)
def test_every_step_ends_as_the_reference_says_in_whatever_order_things_happen(
    sketch: Sketch, order: Pick
) -> None:
    simulation = simulate(sketch, order)

    ending = expected(sketch)
    run = simulation.run
    assert statuses(run) == {step: outcome.status for step, outcome in ending.steps.items()}
    assert (run.status, dict(run.outputs)) == (ending.status, dict(ending.outputs))
    for event in simulation.events:
        if isinstance(event, TaskSkipped):
            assert event.kind == ending.steps[event.step].kind
    for node in sketch.nodes:
        if node.items is None and ending.steps[node.id].status != "skipped":
            last = [
                e.attempt for e in simulation.events if getattr(e, "step", "") == node.id and e.item is None
            ]
            assert last[-1] == ending.steps[node.id].attempts


@given(graphs.sketches(), ORDERS)
def test_no_promise_is_broken_when_nobody_interferes(sketch: Sketch, order: Pick) -> None:
    simulation = simulate(sketch, order)

    assert simulation.ended
    assert violations(simulation.run.graph.workflow, simulation.batches) == []


@given(steered(), ORDERS)
def test_no_promise_is_broken_whatever_commands_come(
    drawn: tuple[Sketch, list[tuple[int, Command]]], order: Pick
) -> None:
    sketch, commands = drawn
    definition = graph_of(sketch).workflow
    simulation = simulate(sketch, order, commands)

    assert violations(definition, simulation.batches) == []
    run = simulation.run
    assert simulation.ended or run.paused
    assert run.running == 0
    if simulation.ended:
        assert (run.timers, run.open, run.maps) == (0, 0, {})


@given(steered(), ORDERS)
def test_replaying_the_events_gives_the_same_state_at_every_batch_byte_for_byte(
    drawn: tuple[Sketch, list[tuple[int, Command]]], order: Pick
) -> None:
    sketch, commands = drawn
    graph = graph_of(sketch)
    simulation = simulate(sketch, order, commands)
    events = [decode(encode(event)) for event in simulation.events]

    assert events == simulation.events
    for batch, state in zip(simulation.batches, simulation.states, strict=True):
        assert replay(simulation.run.id, graph, events, until=batch[-1].seq).encoded() == state


@given(steered(), ORDERS)
def test_every_counter_of_the_fold_agrees_with_books_kept_apart_from_it(
    drawn: tuple[Sketch, list[tuple[int, Command]]], order: Pick
) -> None:
    sketch, commands = drawn
    graph = graph_of(sketch)
    history = History(graph.workflow)
    run = Run(RunId("sim"), graph)
    for batch in simulate(sketch, order, commands).batches:
        history.take(batch)
        for event in batch:
            evolve(run, event)
        _agree(run, history)


@given(steered(), ORDERS)
def test_folding_never_looks_ahead_nor_back(
    drawn: tuple[Sketch, list[tuple[int, Command]]], order: Pick
) -> None:
    sketch, commands = drawn
    graph = graph_of(sketch)
    simulation = simulate(sketch, order, commands)
    written = [encode(event) for event in simulation.events]

    for seq in range(len(written) + 1):
        alone = replay(simulation.run.id, graph, map(decode, written[:seq]))
        prefix = replay(simulation.run.id, graph, simulation.events, until=seq)
        assert alone.encoded() == prefix.encoded()
        assert alone.seq == seq
    assert [encode(event) for event in simulation.events] == written


@given(steered(), SEEDS)
def test_the_same_facts_lead_to_the_same_events(
    drawn: tuple[Sketch, list[tuple[int, Command]]], seed: int
) -> None:
    sketch, commands = drawn

    first = simulate(sketch, by_chance(seed), commands)
    second = simulate(sketch, by_chance(seed), commands)

    assert first.events == second.events
    assert first.run.encoded() == second.run.encoded()


@given(steered(), steered(), SEEDS)
def test_interleaved_runs_share_nothing(
    one: tuple[Sketch, list[tuple[int, Command]]], two: tuple[Sketch, list[tuple[int, Command]]], seed: int
) -> None:
    alone = [simulate(*_as_given(drawn, seed), id=f"run{n}") for n, drawn in enumerate((one, two))]
    together = _interleaved((one, two), seed)

    for by_itself, beside in zip(alone, together, strict=True):
        assert without_time(by_itself.events) == without_time(beside.events)


@given(graphs.sketches(), SEEDS)
def test_runs_of_the_same_definition_share_nothing(sketch: Sketch, seed: int) -> None:
    graph = graph_of(sketch)
    runs = [Simulation(sketch, graph, by_chance(seed), id="same", inquires=True) for _ in range(2)]
    for simulation in runs:
        simulation.begin()
    while sum(simulation.move() for simulation in runs):
        pass

    assert runs[0].events == runs[1].events == simulate(sketch, by_chance(seed), id="same").events


@given(graphs.sketches(children=False), SEEDS, st.data())
def test_a_run_rebuilt_from_any_batch_ends_like_the_one_that_went_on(
    sketch: Sketch, seed: int, data: st.DataObject
) -> None:
    """What a rebuilt run owes is all it needs: no outcome depends on what was only in memory."""
    whole = simulate(sketch, by_chance(seed))
    keep = data.draw(st.integers(1, len(whole.batches)))
    rebuilt = whole.rebuilt(keep, graph_of(sketch), by_chance(seed))
    while rebuilt.move():
        pass

    assert rebuilt.ended
    assert statuses(rebuilt.run) == statuses(whole.run)
    assert rebuilt.run.status == whole.run.status


@given(graphs.sketches(again=True), SEEDS, st.integers(0, 15))
def test_a_run_that_was_stopped_and_taken_up_again_ends_as_if_nothing_had_happened(
    sketch: Sketch, seed: int, moment: int
) -> None:
    stopped = simulate(sketch, by_chance(seed), [(moment, Abort(id=CommandId("stop")))])
    again = stopped.rebuilt(len(stopped.batches), graph_of(sketch), by_chance(seed + 1))
    while again.move():
        pass

    ending = expected(sketch)
    assert again.ended
    assert violations(graph_of(sketch).workflow, again.batches) == []
    assert statuses(again.run) == {step: outcome.status for step, outcome in ending.steps.items()}
    assert again.run.status == ending.status


@given(steered(), SEEDS, st.data())
def test_whatever_is_opened_again_the_counters_agree_and_no_promise_is_broken(
    drawn: tuple[Sketch, list[tuple[int, Command]]], seed: int, data: st.DataObject
) -> None:
    sketch, commands = drawn
    graph = graph_of(sketch)
    whole = simulate(sketch, by_chance(seed), commands)
    keep = data.draw(st.integers(1, len(whole.batches)))
    before = replay(whole.run.id, graph, (e for batch in whole.batches[:keep] for e in batch))
    begun = [i for i, phase in enumerate(before.phase) if phase >= RUNNING]
    first = data.draw(st.sets(st.sampled_from(begun), min_size=1)) if begun else set()
    body = [str(before.graph.ids[i]) for i in _closed(before.graph, first) if i in begun]

    again = whole.rebuilt(keep, graph, by_chance(seed), reopened=body)
    for _ in range(300):
        if not again.move():
            break

    books = History(graph.workflow)
    run = Run(whole.run.id, graph)
    for batch in again.batches:
        books.take(batch)
        for event in batch:
            evolve(run, event)
        _agree(run, books)
    assert books.wrong == []
    assert again.ended or again.run.paused
    assert run.encoded() == again.run.encoded()


def _closed(graph: Graph, first: set[int]) -> set[int]:
    """These steps and all that depend on them."""
    found, stack = set(first), list(first)
    while stack:
        for d in graph.dependents[stack.pop()]:
            if d not in found:
                found.add(d)
                stack.append(d)
    return found


def _agree(run: Run, history: History) -> None:
    """Every counter of the fold, against books kept apart from it."""
    books = [history.books[step] for step in run.graph.ids]
    assert run.running == sum(len(book.running) for book in books)
    assert run.timers == sum(len(book.waiting) for book in books)
    assert run.open == sum(book.verdict is None for book in books)
    assert run.failures == sum(book.failed and book.verdict == "failure" for book in books)
    needs = [[history.books[need].verdict for need in book.needs] for book in books]
    assert run.pending == [verdicts.count(None) for verdicts in needs]


def _as_given(
    drawn: tuple[Sketch, list[tuple[int, Command]]], seed: int
) -> tuple[Sketch, Pick, list[tuple[int, Command]]]:
    return drawn[0], by_chance(seed), drawn[1]


def _interleaved(drawn: Sequence[tuple[Sketch, list[tuple[int, Command]]]], seed: int) -> list[Simulation]:
    """Each run gets the same picks as by itself; only the turns alternate."""
    generators = [_stepwise(*_as_given(each, seed), id=f"run{n}") for n, each in enumerate(drawn)]
    turns = by_chance(seed + 1)
    done: dict[int, Simulation] = {}
    while len(done) < len(generators):
        n = turns([n for n in range(len(generators)) if n not in done])
        try:
            next(generators[n])
        except StopIteration as stop:
            done[n] = stop.value
    return [done[n] for n in range(len(generators))]


def _stepwise(sketch: Sketch, order: Pick, commands: Sequence[tuple[int, Command]], *, id: str) -> Any:
    simulation = Simulation(sketch, graph_of(sketch), order, id=id, inquires=True)
    simulation.begin()
    waiting = sorted(commands, key=lambda pair: pair[0])
    facts = 0
    while True:
        yield
        while waiting and waiting[0][0] <= facts:
            simulation.send(waiting.pop(0)[1])
        facts += 1
        if not simulation.move() and (simulation.run.ended or not waiting):
            return simulation
