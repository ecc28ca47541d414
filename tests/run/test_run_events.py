"""Events, state, reducers and replay: that they are complete, closed, and mean the same tomorrow."""

from __future__ import annotations

import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.ids import CommandId, DecisionId, RunId, StepId
from penstock.run import commands as command_module
from penstock.run import events as event_module
from penstock.run import evolve as evolve_module
from penstock.run.commands import Command, Message, RequestDecision
from penstock.run.decide import decide
from penstock.run.effects import CollectOutputs, EndRun, ExpandMap, StartTask, effects, owed
from penstock.run.events import (
    CommandAccepted,
    Event,
    LayerStarted,
    StateUpdated,
    TaskCompleted,
    decode,
    encode,
    to_wire,
    wire_name,
)
from penstock.run.facts import CommandReceived, RunRequested, TaskOrphaned, TaskReturned
from penstock.run.reducers import BUILT_IN, apply, complaint, split
from penstock.run.replay import replay
from penstock.run.scope import dig
from penstock.run.state import KEPT_MESSAGES, KEPT_TASKS, Run
from penstock.testing.simulate import Simulation, by_chance
from penstock.testing.sketch import Fate, Node, Record, Sketch, build
from penstock.workflow.builder import WorkflowBuilder
from penstock.workflow.expr import MISSING
from penstock.workflow.graph import compile_graph

KINDS: tuple[type, ...] = typing.get_args(Event)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def one(kind: type) -> Event:
    """An event of a kind, with something in every field that must be given."""
    samples: dict[str, Any] = {
        "seq": 3, "at": 1.5, "step": StepId("a"), "workflow": "w", "hash": "h", "inputs": {"x": 1},
        "layer": 1, "count": 2, "error": "no", "kind": "condition", "reason": "because", "delta": {"k": 1},
        "checkpoint": "c", "decision": DecisionId("d"), "summary": "s", "verb": "approve",
        "command": Message(text="hi"), "id": CommandId("c"), "name": "abort", "target": None, "rule": "next",
        "passed": True, "added": (), "key": "k", "call": {}, "budget": "usd", "used": 1.0, "limit": 2.0,
        "status": "succeeded",
    }  # fmt: skip
    fields = [field for field in msgspec.structs.fields(kind) if field.required]
    return kind(**{field.name: samples[field.name] for field in fields})  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_event_survives_its_journey_to_the_journal_and_back(kind: type) -> None:
    event = one(kind)

    assert decode(encode(event)) == event
    assert type(decode(encode(event))) is kind


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_event_can_be_folded_and_has_a_name_and_a_level(kind: type) -> None:
    assert kind in evolve_module._FOLDS
    wire = to_wire(RunId("r"), one(kind))
    assert wire["type"] == wire_name(one(kind))
    assert wire["level"] in ("error", "warn", "info", "debug")
    assert (wire["run_id"], wire["at"]) == ("r", "1970-01-01T00:00:01.500000Z")


def test_every_event_and_command_there_is_belongs_to_the_closed_set() -> None:
    for module, union in ((event_module, Event), (command_module, Command)):
        classes = {
            value
            for value in vars(module).values()
            if isinstance(value, type)
            and issubclass(value, msgspec.Struct)
            and value.__module__ == module.__name__
        }
        assert {each for each in classes if not each.__name__.startswith("_")} == set(typing.get_args(union))


def test_wire_names_are_those_that_others_rely_on() -> None:
    promised = (
        "workflow_start layer_start task_start task_complete task_error task_skipped state_updated checkpoint"
        " decision_required decision_made command_accepted command_rejected route_decision gate_result"
        " gate_escalated dag_changed speculation_started speculation_used speculation_discarded model_call"
        " budget_warning workflow_paused workflow_resumed workflow_complete workflow_abort"
    )
    assert set(promised.split()) <= {wire_name(one(kind)) for kind in KINDS}


@given(JSON)
def test_whatever_json_a_task_returns_is_the_same_after_the_journal(output: Any) -> None:
    event = TaskCompleted(1, 0.0, StepId("a"), output)

    assert decode(encode(event)) == event
    assert encode(decode(encode(event))) == encode(event)


@given(JSON)
def test_whatever_a_command_carries_is_the_same_after_the_journal(args: Any) -> None:
    command = command_module.ModifyArgs(id=CommandId("c"), step=StepId("a"), args={"x": args})
    event = CommandAccepted(1, 0.0, command)

    assert decode(encode(event)) == event


# --- folding ---


def graph_of(*nodes: Node) -> Any:
    return build(Sketch(nodes=nodes), Record(lambda: 0.0)).graph


def test_an_event_that_does_not_follow_is_refused() -> None:
    run = Run(RunId("r"), graph_of(Node(id="a")))

    with pytest.raises(ValueError, match="is at event 0; event 2 does not follow"):
        evolve_module.evolve(run, LayerStarted(2, 0.0, 0))


def test_replay_never_decides() -> None:
    """Conditions are not asked again: a definition that would decide otherwise folds the same."""
    yes = WorkflowBuilder("w")
    yes.step("a", "t:x", when="1 == 1")
    no = WorkflowBuilder("w")
    no.step("a", "t:x", when="1 == 2")
    run = Run(RunId("r"), yes.graph)
    events = decide(run, RunRequested({}), 0.0) + decide(run, TaskReturned(0, 1), 1.0)

    assert run.status == "succeeded"
    assert replay(RunId("r"), no.graph, events).encoded() == run.encoded()


def test_a_fact_and_all_that_follows_from_it_are_one_batch() -> None:
    nodes = (
        Node(id="a", fate=Fate(fails=9)),
        *(Node(id=f"s{n}", needs=("a",)) for n in range(3)),
        Node(id="z", needs=("s0",)),
    )
    simulation = Simulation(Sketch(nodes=nodes), graph_of(*nodes), by_chance(0))
    simulation.begin()
    simulation.move()

    assert [len(batch) for batch in simulation.batches] == [3, 6]
    assert simulation.ended


def test_a_pending_run_is_pending_and_owes_nothing() -> None:
    run = Run(RunId("r"), graph_of(Node(id="a")))

    assert run.status == "pending"
    assert owed(run) == []


def test_a_run_keeps_only_the_latest_messages_and_tasks_at_hand() -> None:
    run = Run(RunId("r"), graph_of(Node(id="a")))
    decide(run, RunRequested({}), 0.0)
    for n in range(KEPT_MESSAGES + 20):
        decide(run, CommandReceived(Message(id=CommandId(f"m{n}"), text=str(n))), 0.0)

    assert len(run.messages) == KEPT_MESSAGES
    assert run.messages[-1]["text"] == str(KEPT_MESSAGES + 19)
    assert run.tasks.maxlen == KEPT_TASKS


def test_effects_follow_from_events_alone() -> None:
    sketch = Sketch(nodes=(Node(id="a"), Node(id="m", items=(Fate(),))), outputs=("a",))
    run = Run(RunId("r"), build(sketch, Record(lambda: 0.0)).graph)
    asked = effects(run, decide(run, RunRequested({}), 0.0))

    assert [type(effect) for effect in asked] in ([StartTask, ExpandMap], [ExpandMap, StartTask])
    assert {type(effect) for effect in owed(run)} == {StartTask, ExpandMap}


def test_outputs_are_collected_before_the_end_when_there_are_any() -> None:
    for outputs, last in ((("a",), CollectOutputs), ((), EndRun)):
        sketch = Sketch(nodes=(Node(id="a"),), outputs=outputs)
        run = Run(RunId("r"), build(sketch, Record(lambda: 0.0)).graph)
        decide(run, RunRequested({}), 0.0)
        assert type(effects(run, decide(run, TaskReturned(0, 1), 1.0))[-1]) is last


def test_status_is_waiting_only_when_nothing_else_can_happen() -> None:
    run = Run(RunId("r"), graph_of(Node(id="a"), Node(id="b")))
    decide(run, RunRequested({}), 0.0)
    decide(run, TaskOrphaned(0), 1.0)

    assert run.status == "running"
    decide(run, TaskReturned(1, None), 2.0)
    assert run.status == "waiting"


def test_a_decision_that_holds_everything_leaves_the_run_waiting_although_steps_are_ready() -> None:
    run = Run(RunId("r"), graph_of(Node(id="a"), Node(id="b", needs=("a",))))
    decide(run, RunRequested({}), 0.0)
    decide(run, CommandReceived(RequestDecision(id=CommandId("c"))), 1.0)

    assert run.status == "running"
    decide(run, TaskReturned(0, None), 2.0)
    assert (run.status, run.step_status(1)) == ("waiting", "ready")


@pytest.mark.parametrize(
    ("value", "path", "found"),
    [
        ({"a": {"b": 1}}, ("a", "b"), 1),
        ({"a": None}, ("a", "b", "c"), None),
        ({"a": 1}, ("b",), MISSING),
        ({"a": 1}, ("a", "b"), MISSING),
        (None, ("x",), None),
    ],
)
def test_below_null_everything_is_null_and_a_missing_key_is_missing(
    value: Any, path: Any, found: Any
) -> None:
    assert dig(value, path) == found or dig(value, path) is found


# --- state keys ---


@pytest.mark.parametrize(
    ("name", "updates", "value"),
    [
        ("last", [1, 2], 2),
        ("append", [1, [2, 3], {"a": 1}], [1, 2, 3, {"a": 1}]),
        ("merge", [{"a": 1}, {"a": 2, "b": 3}], {"a": 2, "b": 3}),
        ("sum", [1, 2.5], 3.5),
        ("max", [2, 5, 3], 5),
        ("min", ["b", "a", "c"], "a"),
    ],
)
def test_reducers_take_updates_in(name: str, updates: list[Any], value: Any) -> None:
    assert name in BUILT_IN
    current = None
    for update in updates:
        assert complaint(name, current, update) is None
        current = apply(name, current, update)
    assert current == value


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("merge", {}, [1], "merge takes an object, not a list"),
        ("sum", 1, "x", "sum takes a number, not a string"),
        ("sum", 1, True, "sum takes a number, not a boolean"),
        ("max", 1, "x", "max cannot compare a number with a string"),
        ("min", None, [], "min cannot compare null with a list"),
    ],
)
def test_reducers_say_what_they_cannot_take_in(name: str, old: Any, new: Any, words: str) -> None:
    assert complaint(name, old, new) == words


def keeper(**reducers: str) -> Run:
    flow = WorkflowBuilder("w", reducers=reducers)
    flow.step(
        "a", "t:x", set={key: f"${{ output.{key} }}" for key in reducers} | {"note": "${ output.note }"}
    )
    run = Run(RunId("r"), flow.graph)
    decide(run, RunRequested({}), 0.0)
    return run


def test_an_update_is_all_or_nothing() -> None:
    run = keeper(total="sum", seen="append")
    (failed, *_) = decide(run, TaskReturned(0, {"total": "many", "seen": 1, "note": "x"}), 1.0)

    assert failed.kind == "state"  # type: ignore[union-attr]
    assert (run.keys, run.context) == ({}, {})


def test_declared_keys_are_reduced_and_the_rest_goes_into_the_context() -> None:
    run = keeper(total="sum", seen="append")
    batch = decide(run, TaskReturned(0, {"total": 2, "seen": 1, "note": "x"}), 1.0)

    assert (run.keys, run.context) == ({"total": 2, "seen": [1]}, {"note": "x"})
    (update,) = [event for event in batch if isinstance(event, StateUpdated)]
    assert update.delta == {"total": 2, "seen": 1, "context": {"note": "x"}}


def test_a_reducer_function_is_asked_once_and_never_again() -> None:
    calls: list[Any] = []

    def longest(old: Any, new: Any) -> Any:
        calls.append(new)
        return max(old or "", new, key=len)

    flow = WorkflowBuilder("w", reducers={"k": "py:os:longest"})
    flow.step("a", "t:x", set={"k": "${ output }"})
    run = Run(RunId("r"), flow.graph, reducers={"k": longest})
    events = decide(run, RunRequested({}), 0.0) + decide(run, TaskReturned(0, "long"), 1.0)

    assert replay(RunId("r"), flow.graph, events).encoded() == run.encoded()
    assert calls == ["long"]


def test_a_reducer_function_that_changes_the_old_value_does_not_change_history() -> None:
    def sloppy(old: Any, new: Any) -> Any:
        old = [] if old is None else old
        old.append(new)
        return old

    flow = WorkflowBuilder("w", reducers={"k": "py:os:sloppy"})
    for step in "ab":
        flow.step(step, "t:x", set={"k": "${ output }"})
    run = Run(RunId("r"), flow.graph, reducers={"k": sloppy})
    events = decide(run, RunRequested({}), 0.0) + decide(run, TaskReturned(0, [1]), 1.0)
    half = run.encoded()
    seq = run.seq
    events += decide(run, TaskReturned(1, [2]), 2.0)

    assert run.keys == {"k": [[1], [2]]}
    assert replay(RunId("r"), flow.graph, events, until=seq).encoded() == half


@pytest.mark.parametrize("bad", [lambda _old, _new: object(), lambda _old, _new: 1 / 0])
def test_a_reducer_function_that_misbehaves_fails_the_step(bad: Any) -> None:
    flow = WorkflowBuilder("w", reducers={"k": "py:os:bad"})
    flow.step("a", "t:x", set={"k": "${ output }"})
    run = Run(RunId("r"), flow.graph, reducers={"k": bad})
    decide(run, RunRequested({}), 0.0)
    decide(run, TaskReturned(0, 1), 1.0)

    assert run.status == "failed"
    assert run.keys == {}


def test_appending_costs_the_same_at_the_end_as_at_the_beginning() -> None:
    values: Any = None
    for n in range(10_000):
        before = values
        values = apply("append", values, n)
        assert before is None or values is before


def test_split_leaves_the_run_alone() -> None:
    run = keeper(total="sum")
    before = run.encoded()
    split(run, {"total": 1, "context": {"x": 1}})

    assert run.encoded() == before


def test_a_control_value_that_is_too_large_is_not_kept() -> None:
    flow = WorkflowBuilder("w")
    flow.step("a", "t:x")
    flow.step("b", "t:x", when="steps.a.output.big == 'x'")
    run = Run(RunId("r"), flow.graph)
    decide(run, RunRequested({}), 0.0)
    decide(run, TaskReturned(0, {"big": "x" * 100_000, "other": 1}), 1.0)

    assert run.status == "failed"
    assert "when: " in run.reason


def test_the_fold_keeps_only_what_decisions_read() -> None:
    flow = WorkflowBuilder("w")
    flow.step("a", "t:x")
    flow.step("b", "t:x", when="steps.a.output.small == 1")
    run = Run(RunId("r"), flow.graph)
    decide(run, RunRequested({}), 0.0)
    decide(run, TaskReturned(0, {"small": 1, "large": "y" * 1000}), 1.0)

    assert run.control == {0: {"small": 1}}
    assert b"yyyy" not in run.encoded()


def test_a_definition_and_its_compiled_form_decide_alike() -> None:
    flow = WorkflowBuilder("w")
    flow.step("a", "t:x")
    first, second = Run(RunId("r"), flow.graph), Run(RunId("r"), compile_graph(flow.build()))

    assert decide(first, RunRequested({}), 0.0) == decide(second, RunRequested({}), 0.0)
