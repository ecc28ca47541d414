"""Approvals: who is asked what, which answers count, and what each means. The core alone."""

from __future__ import annotations

from typing import Any

import pytest
from core import Core

import penstock as ps
from penstock.ids import CommandId, DecisionId, StepId
from penstock.run.commands import Decide, ModifyArgs, SkipLayer, SkipStep
from penstock.run.effects import PrepareCall, StartTask
from penstock.run.events import DecisionMade, DecisionRequired, TaskFailed, TaskSkipped, TaskStarted
from penstock.run.facts import CallPrepared, TaskRaised


def one(**options: Any) -> ps.Workflow:
    flow = ps.Workflow("one")
    flow.step("deploy", "t:deploy", env="prod", approval=True, **options)
    return flow


def three_items(**options: Any) -> ps.Workflow:
    flow = ps.Workflow("items")
    flow.step("deploy", "t:deploy", env="${ item }", for_each=["x", "y", "z"], approval=True, **options)
    return flow


def open_items(flow: ps.Workflow) -> tuple[Core, list[DecisionRequired]]:
    core = Core.of(flow)
    core.counted("deploy", "xyz")
    return core, [core.prepared("deploy", n, env="xyz"[n]) for n in range(3)]


# --- asking ---


def test_a_step_that_needs_approval_does_not_start_but_shows_its_exact_call() -> None:
    core = Core.of(one())
    asked = core.prepared("deploy", env="prod")

    assert (asked.kind, asked.step, asked.options) == (
        "approval", "deploy", ("approve", "reject", "edit", "skip", "abort"),
    )  # fmt: skip
    assert asked.call == {"uses": "t:deploy", "args": {"env": "prod"}}
    assert '"env":"prod"' in asked.summary
    assert core.started() == []
    assert core.run.status == "waiting"


@pytest.mark.parametrize(
    ("config", "options", "asks"),
    [
        ({}, {}, False),
        ({}, {"effect": "destructive"}, True),
        ({}, {"critical": True}, True),
        ({}, {"approval": True}, True),
        ({}, {"effect": "destructive", "approval": False}, False),
        ({"approval": "always"}, {}, True),
        ({"approval": "always"}, {"approval": False}, False),
        ({"approval": "never"}, {"effect": "destructive"}, False),
        ({"approval": "never"}, {"critical": True, "approval": "critical_only"}, True),
    ],
)
def test_who_is_asked_about(config: dict[str, Any], options: dict[str, Any], asks: bool) -> None:
    flow = ps.Workflow("w", **config)
    flow.step("a", "t:a", **options)

    assert bool(Core.of(flow).asked(PrepareCall)) is asks


def test_siblings_go_on_while_a_person_thinks() -> None:
    flow = one()
    flow.step("other", "t:other")
    flow.step("after", "t:after", needs="other")
    core = Core.of(flow)
    core.prepared("deploy", env="prod")
    core.returned("other")

    assert core.status("after") == "running"
    assert core.run.status == "running"
    core.returned("after")
    assert core.run.status == "waiting"


# --- answers ---


def test_an_approved_call_starts_once_as_its_first_attempt() -> None:
    core = Core.of(one())
    core.prepared("deploy", env="prod")

    assert core.answer("approve", by="ada", message="looks right") == ""
    core.returned("deploy", 1)

    assert core.started() == [("deploy", 1, None, 1)]
    assert core.run.status == "succeeded"
    assert core.run.attempts.get(0, 1) == 1
    (made,) = core.run.decided
    assert {key: made[key] for key in ("kind", "step", "verb", "by", "message", "at")} == {
        "kind": "approval", "step": "deploy", "verb": "approve", "by": "ada", "message": "looks right",
        "at": 100.0,
    }  # fmt: skip


def test_an_approval_is_single_use() -> None:
    core = Core.of(one())
    asked = core.prepared("deploy", env="prod")
    core.answer("approve")

    assert core.answer("approve", asked) == f"no open decision {asked.decision!r}"
    core.returned("deploy")
    assert core.run.approved == {}


def test_the_same_answer_sent_twice_is_one_answer() -> None:
    core = Core.of(one())
    asked = core.prepared("deploy", env="prod")

    assert core.answer("approve", asked, id="a") == ""
    assert core.answer("approve", asked, id="a") == "again"
    assert len(core.of_kind(DecisionMade)) == 1


@pytest.mark.parametrize(
    ("verb", "args", "reason"),
    [
        ("yes", None, "'yes' is not an answer; choose one of approve, reject, edit, skip, abort"),
        ("", None, "is not an answer"),
        ("retry", None, "is not an answer"),
        ("edit", None, "edit needs the arguments to change"),
        ("edit", {}, "edit needs the arguments to change"),
        ("edit", {"where": "here"}, "the call has no argument 'where'; it has env"),
        ("approve", {"env": "dev"}, "approve takes no arguments"),
    ],
)
def test_what_is_not_an_answer_leaves_the_question_open(verb: str, args: Any, reason: str) -> None:
    core = Core.of(one())
    asked = core.prepared("deploy", env="prod")

    assert reason in core.answer(verb, args=args)
    assert core.question == asked
    assert core.answer("approve") == ""


@pytest.mark.parametrize("id", ["", "deploy", "run:99"])
def test_an_answer_without_a_question_is_refused(id: str) -> None:
    core = Core.of(one())
    core.prepared("deploy", env="prod")

    assert core.send(Decide(decision=DecisionId(id), verb="approve")) == f"no open decision {id!r}"


def test_an_edit_changes_the_call_and_the_digest() -> None:
    core = Core.of(one())
    asked = core.prepared("deploy", env="prod")
    core.answer("edit", args={"env": "${ inputs.secret }"})

    (made,) = core.of_kind(DecisionMade)
    assert made.digest not in ("", asked.digest)
    assert core.run.edits == {(0, -1): {"env": "${ inputs.secret }"}}
    assert core.started() == [("deploy", 1, None, 1)]


@pytest.mark.parametrize("on_reject", ["fail", "abort"])
def test_a_rejected_step_fails_and_aborts_if_it_says_so(on_reject: str) -> None:
    flow = one(on_reject=on_reject)
    flow.step("after", "t:after", needs="deploy")
    core = Core.of(flow)
    core.prepared("deploy", env="prod")
    core.answer("reject", message="not on a Friday")

    (failed,) = core.of_kind(TaskFailed)
    assert (failed.kind, failed.error) == ("rejected", "not on a Friday")
    assert core.started() == []
    assert core.run.status == ("failed" if on_reject == "fail" else "aborted")


def test_a_rejected_call_is_not_tried_again_by_retry() -> None:
    core = Core.of(one(retry=3))
    core.prepared("deploy", env="prod")
    core.answer("reject")

    assert core.run.status == "failed"


def test_skip_leaves_the_step_out_and_abort_stops_the_run() -> None:
    skipped, aborted = Core.of(one()), Core.of(one())
    for core, verb in ((skipped, "skip"), (aborted, "abort")):
        core.prepared("deploy", env="prod")
        core.answer(verb)

    assert (skipped.run.status, aborted.run.status) == ("succeeded", "aborted")
    assert skipped.of_kind(TaskSkipped)[0].kind == "command"


# --- the exact call ---


def test_changed_arguments_are_asked_for_again() -> None:
    core = Core.of(one())
    first = core.prepared("deploy", env="prod")
    assert core.send(ModifyArgs(step=StepId("deploy"), args={"env": "stage"})) == ""
    core.elapse()
    second = core.prepared("deploy", env="stage")

    assert second.digest != first.digest
    assert "no open decision" in core.answer("approve", first)
    core.answer("approve", second)
    assert core.started() == [("deploy", 1, None, 1)]


def test_changed_arguments_take_back_an_approval_that_has_not_been_used() -> None:
    core = Core.of(one())
    core.prepared("deploy", env="prod")
    core.send(Decide(decision=core.question.decision, verb="approve"))
    core.send(ModifyArgs(step=StepId("deploy"), args={"env": "stage"}))
    core.elapse()

    assert core.started() == []
    core.prepared("deploy", env="stage")
    core.answer("approve")
    assert core.status("deploy") == "running"


def test_changed_arguments_win_over_an_earlier_edit_of_the_same_ones() -> None:
    core = Core.of(one())
    core.prepared("deploy", env="prod")
    core.send(Decide(decision=core.question.decision, verb="edit", args={"env": "dev"}))
    core.send(ModifyArgs(step=StepId("deploy"), args={"env": "stage"}))

    assert not any(core.run.edits.values())


def test_once_it_runs_its_arguments_cannot_be_changed() -> None:
    core = Core.of(one())
    core.prepared("deploy", env="prod")
    core.answer("approve")

    assert core.send(ModifyArgs(step=StepId("deploy"), args={"env": "x"})) == "too late: deploy is running"


def test_a_call_that_turned_out_to_be_another_is_asked_for_again_and_not_made() -> None:
    """Between the question and the start something that the arguments read has changed."""
    core = Core.of(one())
    core.prepared("deploy", env="prod")
    core.answer("approve")
    (start,) = core.asked(StartTask)
    core.todo.remove(start)
    core.tell(
        CallPrepared(0, {"uses": "t:deploy", "args": {"env": "other"}}, "another", attempt=start.attempt)
    )

    assert core.status("deploy") == "asking"
    assert core.question.call["args"] == {"env": "other"}
    assert core.run.approved == {}
    core.answer("approve")
    core.returned("deploy")
    assert core.run.status == "succeeded"


def test_trouble_of_infrastructure_uses_the_same_approval_again() -> None:
    core = Core.of(one(retry={"max_attempts": 3, "backoff": "1s"}))
    core.prepared("deploy", env="prod")
    core.answer("approve")
    core.raised("deploy")
    core.elapse()

    assert core.started() == [("deploy", 1, None, 1), ("deploy", 1, None, 2)]
    assert len(core.of_kind(DecisionRequired)) == 1


def test_every_attempt_at_a_gate_asks_again() -> None:
    core = Core.of(one(gate=[{"expr": "output > 1"}]))
    core.prepared("deploy", env="prod")
    core.answer("approve")
    core.returned("deploy", 0)
    core.checked("deploy", "failed")
    core.elapse()

    assert core.started() == [("deploy", 1, None, 1)]
    core.prepared("deploy", env="prod")
    core.answer("approve")
    assert core.started() == [("deploy", 1, None, 1), ("deploy", 1, None, 2)]


def test_every_iteration_of_a_loop_asks_again() -> None:
    flow = ps.Workflow("loop")
    flow.step("deploy", "t:deploy", env="prod", approval=True)
    routing = {"kind": "loop", "loop_target": "deploy", "max_iterations": 2, "next": "end"}
    flow.step("look", "t:look", needs="deploy", routing=routing)
    core = Core.of(flow)
    digests = set()
    for _ in range(2):
        digests.add(core.prepared("deploy", env="prod").digest)
        core.answer("approve")
        core.returned("deploy")
        core.returned("look")

    assert len(digests) == 2
    assert core.run.status == "succeeded"


def test_a_step_that_is_tried_again_by_command_asks_again() -> None:
    flow = one()
    flow.step("busy", "t:busy")
    core = Core.of(flow)
    core.prepared("deploy", env="prod")
    core.answer("approve")
    core.raised("deploy")
    core.send(ps.RetryStep(step=StepId("deploy")))

    assert core.status("deploy") != "running"
    core.prepared("deploy", env="prod")
    core.answer("approve")
    assert core.started()[-1] == ("deploy", 1, None, 2)


# --- while the call is being made ready ---


def test_a_step_skipped_while_its_call_is_made_ready_is_not_asked_about() -> None:
    core = Core.of(one())
    core.send(SkipStep(step=StepId("deploy")))
    (effect,) = core.asked(PrepareCall)

    assert core.tell(core._call(effect, {"env": "prod"})) == []
    assert core.run.status == "succeeded"


@pytest.mark.parametrize("skipped", [False, True])
def test_a_call_that_cannot_be_made_ready_fails_its_step_once(skipped: bool) -> None:
    core = Core.of(one())
    if skipped:
        core.send(SkipStep(step=StepId("deploy")))
    core.tell(CallPrepared(0, {}, "", error="no such key: x", kind="expression"))

    assert core.run.status == ("succeeded" if skipped else "failed")
    assert len(core.of_kind(TaskFailed)) == (not skipped)


def test_an_item_whose_call_cannot_be_made_ready_fails_and_the_next_is_asked_about() -> None:
    core = Core.of(three_items(on_item_error="keep"))
    core.counted("deploy", "xyz")
    core._take(PrepareCall, "deploy", 0)
    core.tell(CallPrepared(0, {}, "", item=0, error="no such key: x", kind="expression"))
    for n in (1, 2):
        core.prepared("deploy", n, env="xyz"[n])
        core.answer("approve")
        core.returned("deploy", n, item=n)

    assert core.run.status == "succeeded"
    assert [event.item for event in core.of_kind(TaskFailed)] == [0]


def test_a_step_that_has_to_wait_again_is_not_asked_about_meanwhile() -> None:
    flow = ps.Workflow("w")
    flow.step("a", "t:a")
    flow.step("busy", "t:busy")
    flow.step("deploy", "t:deploy", needs="a", join="all_done", approval=True)
    core = Core.of(flow)
    core.raised("a")
    core.send(ps.RetryStep(step=StepId("a")))
    (effect,) = core.asked(PrepareCall)
    core.todo.remove(effect)
    core.tell(core._call(effect, {}))

    assert core.run.decisions == {}
    core.returned("a")
    core.prepared("deploy")
    assert core.question.step == "deploy"


def test_skip_step_and_skip_layer_answer_for_whoever_was_asked() -> None:
    for command in (SkipStep(step=StepId("deploy")), SkipLayer(layer=0)):
        core = Core.of(one())
        core.prepared("deploy", env="prod")
        assert core.send(command) == ""
        assert core.run.decisions == {}
        assert core.run.status == "succeeded"


# --- items ---


def test_every_item_of_a_map_is_asked_about_and_answered_by_itself() -> None:
    core, asked = open_items(three_items())
    assert len({one.digest for one in asked}) == 3
    assert core.run.status == "waiting"

    core.answer("approve", asked[2])
    core.answer("edit", asked[0], args={"env": "E"})
    core.answer("skip", asked[1])
    assert sorted(core.started()[1:]) == [("deploy", 1, 0, 1), ("deploy", 1, 2, 1)]
    core.returned("deploy", "z", item=2)
    core.returned("deploy", "E", item=0)

    assert core.run.status == "succeeded"
    assert core.run.edits == core.run.approved == {}


def test_a_rejected_item_fails_the_map_and_nobody_is_asked_about_the_others_any_more() -> None:
    core, asked = open_items(three_items())
    core.answer("reject", asked[1])

    assert core.run.status == "failed"
    assert core.run.decisions == {}
    assert len(core.started()) == 1


def test_a_rejected_item_that_is_kept_leaves_the_others_open() -> None:
    core, asked = open_items(three_items(on_item_error="keep"))
    core.answer("reject", asked[1])
    for n in (2, 0):
        core.answer("approve", asked[n])
        core.returned("deploy", n, item=n)

    assert core.run.status == "succeeded"


def test_items_beyond_max_parallel_start_as_others_end() -> None:
    core, asked = open_items(three_items(max_parallel=1))
    for one in reversed(asked):
        core.answer("approve", one)
    assert len(core.asked(StartTask)) == 1
    for _ in range(3):
        (running,) = core.asked(StartTask)
        core.returned("deploy", None, item=running.item)

    assert core.run.status == "succeeded"


def test_abort_while_items_wait_ends_the_run() -> None:
    core, _ = open_items(three_items())
    core.send(ps.Abort())

    assert (core.run.status, core.run.decisions) == ("aborted", {})


# --- another process ---


@pytest.mark.parametrize("kept", [False, True])
def test_open_questions_and_unused_approvals_survive_a_restart(kept: bool) -> None:
    core, asked = open_items(three_items())
    core.send(Decide(decision=asked[0].decision, verb="approve"))  # and the process dies
    core = core.taken_up(kept=kept)
    core.elapse()

    assert core.asked(PrepareCall) == []
    assert len(core.of_kind(DecisionRequired)) == 3
    core.answer("approve", asked[2])
    core.answer("approve", asked[1])
    assert sorted(core.started()[1:]) == [("deploy", 1, n, 1) for n in range(3)]


@pytest.mark.parametrize("kept", [False, True])
def test_an_approved_task_that_was_running_is_owed_as_the_attempt_it_was(kept: bool) -> None:
    core = Core.of(one())
    core.prepared("deploy", env="prod")
    core.answer("approve")
    again = core.taken_up(kept=kept)

    assert [(effect.step, effect.attempt) for effect in again.asked(StartTask)] == [(0, 1)]
    assert again.run.approved


@pytest.mark.parametrize("kept", [False, True])
def test_a_question_that_was_being_prepared_is_asked_after_a_restart(kept: bool) -> None:
    core = Core.of(one()).taken_up(kept=kept)
    core.prepared("deploy", env="prod")

    assert core.run.status == "waiting"


@pytest.mark.parametrize("kept", [False, True])
def test_an_injected_step_that_needs_approval_needs_it_after_a_restart_too(kept: bool) -> None:
    flow = ps.Workflow("w")
    flow.step("a", "t:a")
    core = Core.of(flow)
    step = ps.Step(id=StepId("x"), uses="t:destroy", needs=(StepId("a"),))
    core.send(ps.InjectTasks(steps=(step,)), guarded=(StepId("x"),))
    core = core.taken_up(kept=kept)
    core.returned("a")

    assert core.started() == [("a", 1, None, 1)]
    core.prepared("x")
    assert core.run.status == "waiting"


def test_an_answer_to_a_paused_run_counts_when_it_goes_on() -> None:
    core = Core.of(one())
    core.prepared("deploy", env="prod")
    core.send(ps.Pause())
    assert core.answer("approve") == ""
    assert (core.run.status, core.started()) == ("paused", [])
    core.send(ps.Resume())

    assert core.status("deploy") == "running"


def test_a_task_that_raises_while_a_question_about_another_is_open_disturbs_nobody() -> None:
    flow = one()
    flow.step("other", "t:other")
    core = Core.of(flow)
    core.prepared("deploy", env="prod")
    core.tell(TaskRaised(1, "no"))
    core.answer("approve")
    core.returned("deploy")

    assert core.run.status == "failed"
    assert len(core.of_kind(TaskStarted)) == 2


def test_ids_of_commands_are_not_ids_of_decisions() -> None:
    core = Core.of(one())
    asked = core.prepared("deploy", env="prod")
    command = Decide(id=CommandId("x"), decision=asked.decision, verb="approve")

    assert core.send(command, id=str(asked.decision)) == ""


def test_a_map_all_of_whose_items_wait_for_approval_is_not_called_running() -> None:
    flow = three_items(concurrency=3)
    flow.step("slow", "t:slow")
    _, asked = open_items(flow)

    assert all("Running: slow.\n" in one.summary for one in asked)


def test_a_map_with_an_item_under_way_is_running_although_others_wait_for_approval() -> None:
    flow = three_items(concurrency=3)
    core = Core.of(flow)
    core.counted("deploy", "xyz")
    core.answer("approve", core.prepared("deploy", 0, env="x"))
    asked = core.prepared("deploy", 1, env="y")

    assert "Running: deploy.\n" in asked.summary
