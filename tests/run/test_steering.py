"""Commands: which are accepted, which are refused and why, and what follows from each. The core alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.ids import CommandId, StepId
from penstock.run.commands import (
    Abort,
    Command,
    Decide,
    InjectTasks,
    Message,
    ModifyArgs,
    Pause,
    ReplanDag,
    RequestDecision,
    Resume,
    RetryStep,
    SkipLayer,
    SkipStep,
)
from penstock.run.events import (
    CommandAccepted,
    CommandRefused,
    DecisionRequired,
    TaskFailed,
    TaskSkipped,
    TaskStarted,
    WorkflowAborted,
)
from penstock.run.facts import TaskRaised, TaskReturned, TimeRanOut
from penstock.run.state import PHASES
from penstock.testing.graphs import ALWAYS, EXTRA
from penstock.testing.history import violations
from penstock.testing.simulate import Simulation, by_chance
from penstock.testing.sketch import Fate, Node, Record, Sketch, build
from penstock.workflow.spec import Check, Gate, Routing, Step

CHAIN = (Node(id="a"), Node(id="b", needs=("a",)), Node(id="c", needs=("b",)))


class Bench:
    """A simulated run that is moved by naming steps."""

    def __init__(self, *nodes: Node, max_parallel: int = 32) -> None:
        sketch = Sketch(nodes=nodes, max_parallel=max_parallel)
        self.simulation = Simulation(sketch, build(sketch, Record(lambda: 0.0)).graph, by_chance(0))
        self.simulation.begin()
        self.run = self.simulation.run
        self._sent = 0

    def send(self, command: Command, id: str = "") -> str:
        """The reason for which it was refused; empty when it was accepted, `again` when it was not heard."""
        self._sent += 1
        command = msgspec.structs.replace(command, id=CommandId(id or f"c{self._sent}"))
        before = len(self.simulation.events)
        self.simulation.send(command)
        for event in self.simulation.events[before:]:
            if isinstance(event, CommandRefused):
                return event.reason
            if isinstance(event, CommandAccepted):
                return ""
        return "again"

    def move(self, *steps: str) -> None:
        """Let what is under way for these steps happen, one after the other."""
        for step in steps:
            wanted = self.run.graph.index[StepId(step)]
            self.simulation.pick = lambda choices, wanted=wanted: next(
                (c for c in choices if getattr(c, "step", None) == wanted), choices[0]
            )
            self.simulation.move()

    def finish(self) -> str:
        self.simulation.pick = by_chance(0)
        while self.simulation.move():
            pass
        assert violations(self.run.graph.workflow, self.simulation.batches) == []
        assert (self.run.running, self.run.timers, self.run.open, self.run.maps) == (0, 0, 0, {})
        return self.run.status

    def status(self, step: str) -> str:
        return PHASES[self.run.phase[self.run.graph.index[StepId(step)]]]

    def events(self, kind: type) -> list[Any]:
        return [event for event in self.simulation.events if isinstance(event, kind)]


def step(id: str, *needs: str, **more: Any) -> Step:
    return Step(id=StepId(id), uses=EXTRA, needs=tuple(map(StepId, needs)), **more)


# --- abort ---


def test_abort_skips_what_has_not_started_and_waits_for_what_runs() -> None:
    bench = Bench(*CHAIN, Node(id="d"))

    assert bench.send(Abort(reason="enough")) == ""

    assert [bench.status(s) for s in "abcd"] == ["running", "skipped", "skipped", "running"]
    assert bench.finish() == "aborted"
    assert bench.run.reason == "enough"
    assert {e.kind for e in bench.events(TaskSkipped)} == {"command"}


def test_nothing_starts_after_an_abort_even_if_a_task_still_succeeds() -> None:
    bench = Bench(*CHAIN)
    bench.send(Abort())
    bench.simulation.tell(TaskReturned(0, 1))

    assert bench.status("a") == "succeeded"
    assert bench.run.status == "aborted"
    assert len(bench.events(TaskStarted)) == 1


def test_abort_gives_up_tasks_that_wait_to_be_tried_again() -> None:
    bench = Bench(Node(id="a", fate=Fate(fails=1), max_attempts=2), Node(id="b"))
    bench.move("a")
    bench.send(Abort(reason="enough"))

    assert bench.status("a") == "failed"
    assert bench.events(TaskFailed)[-1].error == "not tried again: enough"
    assert bench.finish() == "aborted"


def test_abort_ends_a_map_when_its_running_items_have_ended() -> None:
    bench = Bench(Node(id="a", items=(Fate(),) * 5, max_parallel=2))
    bench.move("a")
    bench.send(Abort())

    assert bench.status("a") == "running"
    bench.finish()
    assert bench.status("a") == "failed"
    assert bench.events(TaskFailed)[-1].error
    assert len([e for e in bench.events(TaskStarted) if e.item is not None]) == 2


def test_a_second_abort_is_refused() -> None:
    bench = Bench(*CHAIN)
    bench.send(Abort())

    assert bench.send(Abort()) == "the run is already being stopped"


@pytest.mark.parametrize(
    "command",
    [
        Pause(),
        Resume(),
        SkipStep(step=StepId("a")),
        SkipLayer(layer=1),
        ModifyArgs(step=StepId("b"), args={}),
        RetryStep(step=StepId("a")),
        InjectTasks(steps=(step("x"),)),
    ],
)
def test_while_a_run_is_being_stopped_nothing_else_is_accepted(command: Command) -> None:
    bench = Bench(*CHAIN)
    bench.send(Abort())

    assert bench.send(command) == "the run is being stopped"
    assert bench.finish() == "aborted"


def test_a_run_that_has_ended_hears_nothing_and_its_last_event_stays_the_last() -> None:
    bench = Bench(*CHAIN)
    bench.finish()
    before = bench.simulation.events

    assert bench.send(Abort()) == "again"
    assert bench.simulation.events == before


# --- pause and resume ---


def test_a_paused_run_starts_nothing_and_goes_on_where_it_was() -> None:
    bench = Bench(*CHAIN)
    assert bench.send(Pause(reason="lunch")) == ""
    bench.move("a")

    assert (bench.run.status, bench.run.reason) == ("paused", "lunch")
    assert [bench.status(s) for s in "ab"] == ["succeeded", "waiting"]
    assert bench.send(Resume()) == ""
    assert bench.status("b") == "running"
    assert bench.finish() == "succeeded"


def test_a_paused_run_starts_no_item_and_no_further_attempt() -> None:
    bench = Bench(
        Node(id="m", items=(Fate(),) * 3, max_parallel=1), Node(id="r", fate=Fate(fails=1), max_attempts=2)
    )
    bench.move("m", "r")
    bench.send(Pause())
    started = len(bench.events(TaskStarted))
    bench.move("m", "r")

    assert len(bench.events(TaskStarted)) == started
    bench.send(Resume())
    assert bench.finish() == "succeeded"


def test_a_join_whose_needs_ended_during_a_pause_runs_once_after_it() -> None:
    bench = Bench(Node(id="a"), Node(id="b"), Node(id="join", needs=("a", "b")))
    bench.send(Pause())
    bench.move("a", "b")
    bench.send(Resume())
    assert bench.status("join") == "running"

    assert bench.finish() == "succeeded"
    assert len([event for event in bench.events(TaskStarted) if event.step == "join"]) == 1


def test_pausing_twice_and_resuming_what_is_not_paused_are_refused() -> None:
    bench = Bench(*CHAIN)

    assert bench.send(Resume()) == "the run is not paused"
    bench.send(Pause())
    assert bench.send(Pause()) == "the run is already paused"


def test_a_paused_run_can_be_aborted() -> None:
    bench = Bench(*CHAIN)
    bench.send(Pause())
    bench.send(Abort())

    assert bench.finish() == "aborted"


def test_a_run_that_is_paused_while_its_last_step_runs_still_ends() -> None:
    bench = Bench(Node(id="a"))
    bench.send(Pause())

    assert bench.finish() == "succeeded"


# --- skipping ---


def test_skip_step_takes_waiting_steps_ready_steps_and_those_between_attempts() -> None:
    bench = Bench(
        Node(id="a", fate=Fate(fails=1), max_attempts=2),
        Node(id="ready"),
        Node(id="later", needs=("a",), join="all_done"),
        max_parallel=1,
    )
    bench.move("a")
    for name in ("a", "later"):
        assert bench.send(SkipStep(step=StepId(name))) == ""

    assert bench.status("a") == bench.status("later") == "skipped"
    assert bench.finish() == "succeeded"


def test_a_ready_step_that_waits_for_a_slot_can_be_skipped() -> None:
    bench = Bench(Node(id="a"), Node(id="b"), max_parallel=1)
    waiting = "b" if bench.status("a") == "running" else "a"

    assert bench.send(SkipStep(step=StepId(waiting))) == ""
    assert bench.finish() == "succeeded"
    assert bench.status(waiting) == "skipped"


def test_a_step_that_runs_or_has_ended_cannot_be_skipped() -> None:
    bench = Bench(*CHAIN)
    assert bench.send(SkipStep(step=StepId("a"))) == "too late: a is running"
    bench.move("a")
    assert bench.send(SkipStep(step=StepId("a"))) == "too late: a has succeeded"


def test_an_unknown_step_is_refused_with_a_suggestion() -> None:
    bench = Bench(Node(id="fetch"))

    assert (
        bench.send(SkipStep(step=StepId("fetsch"))) == "no step 'fetsch' in this run; did you mean 'fetch'?"
    )


def test_skip_layer_skips_the_unstarted_steps_of_that_depth_only() -> None:
    bench = Bench(Node(id="a"), Node(id="b"), Node(id="c", needs=("a",)), Node(id="d", needs=("b",)),
                  Node(id="e", needs=("c",), join="all_done"))  # fmt: skip
    assert bench.send(SkipLayer(layer=1)) == ""

    assert bench.finish() == "succeeded"
    assert [bench.status(s) for s in "abcde"] == ["succeeded", "succeeded", "skipped", "skipped", "succeeded"]


def test_a_layer_without_unstarted_steps_is_refused() -> None:
    bench = Bench(*CHAIN)

    assert bench.send(SkipLayer(layer=0)) == "no unstarted step in layer 0"
    assert bench.send(SkipLayer(layer=7)) == "no unstarted step in layer 7"


# --- arguments ---


def test_arguments_change_until_the_step_starts() -> None:
    bench = Bench(*CHAIN)

    assert bench.send(ModifyArgs(step=StepId("b"), args={"got": {}})) == ""
    assert bench.run.overrides == {1: {"got": {}}}
    assert bench.send(ModifyArgs(step=StepId("a"), args={"got": {}})) == "too late: a is running"


def test_arguments_may_change_between_attempts() -> None:
    bench = Bench(Node(id="a", fate=Fate(fails=1), max_attempts=2))
    bench.move("a")

    assert bench.send(ModifyArgs(step=StepId("a"), args={"got": {}})) == ""


def test_new_arguments_are_checked_like_a_definition() -> None:
    bench = Bench(*CHAIN)

    assert "nobody" in bench.send(ModifyArgs(step=StepId("b"), args={"got": "${ steps.nobody.output }"}))
    assert bench.send(ModifyArgs(step=StepId("b"), args={"got": "${ 1 + }"}))
    assert bench.run.overrides == {}


# --- injections ---


def test_injected_steps_run_when_their_needs_allow() -> None:
    bench = Bench(*CHAIN)
    assert bench.send(InjectTasks(steps=(step("x", "b"), step("y", "x")))) == ""

    assert bench.status("x") == "waiting"
    assert bench.finish() == "succeeded"
    assert bench.status("y") == "succeeded"


def test_a_step_injected_after_its_needs_ended_starts_at_once() -> None:
    bench = Bench(*CHAIN)
    bench.move("a")
    bench.send(InjectTasks(steps=(step("x", "a"),)))

    assert bench.status("x") == "running"


def test_a_step_injected_behind_a_failure_is_skipped_at_once() -> None:
    bench = Bench(Node(id="a", fate=Fate(fails=ALWAYS)), Node(id="b"))
    bench.move("a")
    bench.send(InjectTasks(steps=(step("x", "a"), step("y", "a", join="all_done"))))

    assert (bench.status("x"), bench.status("y")) == ("skipped", "running")


def test_an_injected_step_waits_for_a_slot_like_any_other() -> None:
    bench = Bench(Node(id="a"), max_parallel=1)
    bench.send(InjectTasks(steps=(step("x"),)))

    assert bench.status("x") == "waiting"
    assert bench.finish() == "succeeded"


def test_a_step_freed_by_a_skip_waits_for_a_slot_like_any_other() -> None:
    bench = Bench(
        Node(id="hog"),
        Node(id="b", needs=("hog",)),
        Node(id="c", needs=("b",), join="all_done"),
        max_parallel=1,
    )
    bench.send(SkipStep(step=StepId("b")))

    assert bench.status("c") == "waiting"
    assert bench.finish() == "succeeded"


def test_an_injected_layer_is_one_more_than_that_of_its_needs() -> None:
    bench = Bench(*CHAIN)
    bench.send(InjectTasks(steps=(step("x", "c"), step("y"))))

    graph = bench.run.graph
    assert [graph.layers[graph.index[StepId(s)]] for s in "cxy"] == [2, 3, 0]


def test_ready_steps_keep_their_place_when_the_graph_grows() -> None:
    bench = Bench(Node(id="a"), Node(id="b"), Node(id="c"), max_parallel=1)
    bench.send(InjectTasks(steps=(step("x"),)))

    assert bench.finish() == "succeeded"
    assert len(bench.events(TaskStarted)) == 4


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ((), "no steps to inject"),
        ((step("a"),), "two steps are called 'a'"),
        ((step("x", "nobody"),), "no step is called 'nobody'"),
        ((step("x", "x"),), "a step cannot need itself"),
        ((step("x", "y"), step("y", "x")), "steps wait for each other"),
        ((step("x", when="steps.nobody.output"),), "nobody"),
        ((Step(id=StepId("x"), uses="py:os:getcwd"),), "`py:` steps are allowed only in workflow files"),
        ((step("x", approval="never"),), "steps without approval are allowed only in workflow files"),
        ((step("x", effect="read"),), "`effect: read` is allowed only in workflow files"),
        ((Step(id=StepId("x"), uses="test:unknown"),), "unknown tool"),
        ((step("x", routing=Routing(next=StepId("a"))),), "'a' is part of the run already"),
        ((step("x", routing=Routing(next=StepId("nobody"))),), "no step is called 'nobody'"),
        ((step("x", gate=Gate(checks=(Check(run=("true",)),))),), "`run` checks are allowed only"),
    ],
)
def test_a_bad_injection_is_refused_whole_and_changes_nothing(steps: tuple[Step, ...], reason: str) -> None:
    bench = Bench(*CHAIN)
    before = bench.run.graph

    assert reason in bench.send(InjectTasks(steps=steps))
    assert bench.run.graph is before
    assert bench.finish() == "succeeded"


# --- trying again ---


def test_retry_step_opens_a_failed_step_and_what_was_skipped_because_of_it() -> None:
    bench = Bench(Node(id="a", fate=Fate(fails=1)), Node(id="b", needs=("a",)), Node(id="c", needs=("b",)),
                  Node(id="busy"))  # fmt: skip
    bench.move("a")
    assert [bench.status(s) for s in "abc"] == ["failed", "skipped", "skipped"]

    assert bench.send(RetryStep(step=StepId("a"))) == ""

    assert [bench.status(s) for s in "abc"] == ["running", "waiting", "waiting"]
    assert bench.events(TaskStarted)[-1].attempt == 2
    assert bench.finish() == "succeeded"


def test_after_retry_step_the_attempts_count_afresh() -> None:
    bench = Bench(Node(id="a", fate=Fate(fails=3), max_attempts=2, backoff=0.0), Node(id="busy"))
    bench.move("a", "a", "a")
    assert bench.status("a") == "failed"

    bench.send(RetryStep(step=StepId("a")))
    bench.move("a", "a", "a")

    assert bench.status("a") == "succeeded"
    assert [e.attempt for e in bench.events(TaskStarted) if e.step == "a"] == [1, 2, 3, 4]


@pytest.mark.parametrize("join", ["all_done", "any_success"])
def test_a_step_that_still_waits_for_others_waits_for_the_reopened_one_too(join: str) -> None:
    slow = Node(id="slow", fate=Fate(fails=ALWAYS))
    bench = Bench(Node(id="a", fate=Fate(fails=1)), slow, Node(id="last", needs=("a", "slow"), join=join))  # type: ignore[arg-type]
    bench.move("a")
    bench.send(RetryStep(step=StepId("a")))
    bench.move("slow")

    assert bench.status("last") == "waiting"
    bench.move("a")
    assert bench.status("last") == "running"
    assert bench.finish() == "failed"


def test_a_ready_step_waits_again_when_a_need_is_reopened() -> None:
    bench = Bench(
        Node(id="a", fate=Fate(fails=1)),
        Node(id="hog"),
        Node(id="last", needs=("a",), join="all_done"),
        max_parallel=1,
    )
    bench.move("a")
    assert (bench.status("hog"), bench.run.step_status(2)) == ("running", "ready")

    bench.send(RetryStep(step=StepId("a")))

    assert bench.finish() == "succeeded"
    order = [event.step for event in bench.events(TaskStarted)]
    assert order == ["a", "hog", "a", "last"]


def test_a_retried_map_starts_its_items_as_new_attempts() -> None:
    bench = Bench(Node(id="a", items=(Fate(), Fate(fails=1))), Node(id="busy"))
    bench.move("a", "a", "a")
    assert bench.status("a") == "failed"
    bench.send(RetryStep(step=StepId("a")))
    bench.move("a", "a", "a")

    assert bench.status("a") == "succeeded"
    tasks = [(e.item, e.attempt) for e in bench.events(TaskStarted) if e.step == "a" and e.item is not None]
    assert len(tasks) == len(set(tasks)) == 4


def test_the_reason_of_a_run_never_names_a_failure_that_was_allowed() -> None:
    bad = Fate(fails=ALWAYS)
    bench = Bench(Node(id="allowed", fate=bad, carry_on=True), Node(id="a", fate=bad), Node(id="busy"))
    bench.move("allowed", "a")
    bench.send(RetryStep(step=StepId("a")))

    assert bench.finish() == "failed"
    assert bench.run.reason.startswith("step a failed")


@pytest.mark.parametrize(("name", "state"), [("a", "running"), ("b", "waiting")])
def test_only_a_failed_step_can_be_tried_again(name: str, state: str) -> None:
    bench = Bench(*CHAIN)

    assert bench.send(RetryStep(step=StepId(name))) == f"{name} has not failed; it is {state}"


# --- the rest ---


def test_a_message_joins_the_conversation_and_an_empty_one_does_not() -> None:
    bench = Bench(*CHAIN)

    assert bench.send(Message(text="hello", role="agent", by="me")) == ""
    assert [(m["role"], m["text"], m["by"]) for m in bench.run.messages] == [("agent", "hello", "me")]
    assert bench.send(Message(text="")) == "an empty message"


@pytest.mark.parametrize(
    ("command", "kind", "verb"),
    [(RequestDecision(), "requested", "approve"), (ReplanDag(requirement="more"), "replan", "skip")],
)
def test_a_command_that_asks_something_holds_the_run_until_there_is_an_answer(
    command: Command, kind: str, verb: str
) -> None:
    bench = Bench(*CHAIN)
    assert bench.send(command) == ""
    (asked,) = bench.events(DecisionRequired)
    bench.simulation.tell(TaskReturned(0, 1))

    assert (asked.kind, bench.run.status, bench.status("b")) == (kind, "waiting", "waiting")
    assert bench.send(Decide(decision=asked.decision, verb=verb)) == ""
    assert bench.status("b") == "running"


def test_an_empty_requirement_is_refused() -> None:
    assert Bench(*CHAIN).send(ReplanDag(requirement="")) == "an empty requirement"


def test_an_injected_step_that_needs_approval_waits_for_it() -> None:
    bench = Bench(*CHAIN)

    assert bench.send(InjectTasks(steps=(step("x", approval="always"),))) == ""

    assert bench.status("x") == "waiting"
    assert (bench.run.graph.index[StepId("x")], -1) in bench.run.preparing


def test_the_same_id_is_the_same_command() -> None:
    bench = Bench(*CHAIN)

    assert bench.send(Message(text="once"), id="m") == ""
    assert bench.send(Message(text="twice"), id="m") == "again"
    assert len(bench.run.messages) == 1


def test_a_refused_command_is_not_heard_a_second_time_either() -> None:
    bench = Bench(*CHAIN)

    assert bench.send(Resume(), id="r")
    bench.send(Pause())
    assert bench.send(Resume(), id="r") == "again"


def test_a_refusal_is_on_record_and_changes_nothing_else() -> None:
    bench = Bench(*CHAIN)
    before = msgspec.json.decode(bench.run.encoded())
    bench.send(SkipStep(step=StepId("a")), id="x")
    after = msgspec.json.decode(bench.run.encoded())

    changed = {key for key in after if after[key] != before[key]}
    assert changed == {"seq", "commands"}
    assert [(e.id, e.name) for e in bench.events(CommandRefused)] == [("x", "skip_step")]


# --- the run's own timeout ---


def test_when_its_time_has_run_out_a_run_stops_and_says_so() -> None:
    bench = Bench(*CHAIN)
    bench.simulation.tell(TimeRanOut(5.0))
    bench.simulation.tell(TaskRaised(0, "cancelled", "cancelled"))

    assert (bench.run.status, bench.run.reason) == ("failed", "timed out after 5 s")
    assert {e.kind for e in bench.events(TaskSkipped)} == {"run_ended"}
    assert not bench.events(WorkflowAborted)
