"""Gates: what follows when the checks of a result have been made. The core alone."""

from __future__ import annotations

from typing import Any

import pytest
from core import Core

import penstock as ps
from penstock.ids import StepId
from penstock.run.commands import ModifyArgs
from penstock.run.effects import CheckGate, RememberFailure, StartTask
from penstock.run.events import (
    DecisionRequired,
    GateChecked,
    GateEscalated,
    GateStarted,
    TaskCompleted,
    TaskFailed,
)
from penstock.run.facts import ChildEscalated, GateFinished


def gated(config: dict[str, Any] | None = None, **options: Any) -> ps.Workflow:
    flow = ps.Workflow("gated", **(config or {}))
    options.setdefault("gate", [{"expr": "output > 1"}])
    flow.step("build", "t:build", n=1, **options)
    return flow


def fail(core: Core, times: int, why: str = "too small", outputs: Any = range(100)) -> None:
    for _, output in zip(range(times), outputs, strict=False):
        core.returned("build", output)
        core.checked("build", f"failed:{why}", output=output)
        core.elapse()


def escalated(**options: Any) -> Core:
    core = Core.of(gated(**options))
    fail(core, 3)
    return core


# --- verdicts ---


def test_a_result_is_kept_safe_before_its_gate_is_checked_and_counts_only_after() -> None:
    core = Core.of(gated())
    core.returned("build", {"paid": "dearly"})

    (kept,) = core.of_kind(GateStarted)
    assert kept.output == {"paid": "dearly"}
    assert (core.status("build"), core.of_kind(TaskCompleted)) == ("running", [])
    core.checked("build", "passed", output={"paid": "dearly"})
    assert core.run.status == "succeeded"


@pytest.mark.parametrize(
    ("found", "passes"),
    [
        (("passed", "passed"), True),
        (("passed", "failed"), False),
        (("unavailable", "passed"), False),
        (("unavailable", "failed"), False),
        (("failed", "failed"), False),
    ],
)
def test_all_checks_must_pass(found: tuple[str, ...], passes: bool) -> None:
    core = Core.of(gated())
    core.returned("build", 2)
    core.checked("build", *found, output=2)

    assert (core.run.status == "succeeded") is passes
    assert core.of_kind(GateChecked)[0].passed is passes


def test_a_result_that_fails_is_tried_again_and_the_next_attempt_may_pass() -> None:
    core = Core.of(gated())
    fail(core, 2)
    core.returned("build", 5)
    core.checked("build", "passed", output=5)

    assert [attempt for *_, attempt in core.started()] == [1, 2, 3]
    assert core.run.status == "succeeded"
    assert core.of_kind(DecisionRequired) == []


def test_the_next_attempt_is_told_what_was_tried_and_why_it_failed() -> None:
    core = Core.of(gated())
    fail(core, 2, "too small")

    tried = core.run.tried[0, -1]
    assert [entry["attempt"] for entry in tried] == [1, 2]
    assert tried[0]["failed"] == [{"check": "check 0", "why": "too small"}]


@pytest.mark.parametrize(
    ("config", "gate", "attempts"),
    [
        ({}, {}, 3),
        ({}, {"max_attempts": 1}, 1),
        ({"gate": {"max_attempts": 2}}, {}, 2),
        ({"gate": {"max_attempts": 2}}, {"max_attempts": 5}, 5),
    ],
)
def test_how_often_a_step_may_try(config: dict[str, Any], gate: dict[str, Any], attempts: int) -> None:
    core = Core.of(gated(config, gate={"checks": [{"expr": "output > 1"}], **gate}))
    fail(core, attempts - 1)
    assert core.status("build") == "running"
    fail(core, 1)

    assert core.status("build") == "asking"


# --- checks that cannot be made ---


def test_checks_that_cannot_be_made_are_made_again_as_retry_says_and_the_task_is_not() -> None:
    core = Core.of(gated(retry={"max_attempts": 3, "backoff": "2s", "jitter": False}))
    core.returned("build", 5)
    core.checked("build", "unavailable", output=5)
    (again,) = core.asked(CheckGate)
    assert again.delay == 2.0
    core.checked("build", "unavailable", output=5)
    assert core.asked(CheckGate)[0].delay == 4.0
    core.checked("build", "passed", output=5)

    assert core.run.status == "succeeded"
    assert len(core.started()) == 1


def test_checks_that_can_never_be_made_call_a_person_and_teach_nothing() -> None:
    core = Core.of(gated(retry={"max_attempts": 2, "backoff": 0}))
    core.returned("build", 5)
    core.checked("build", "unavailable", output=5)
    core.checked("build", "unavailable", output=5)

    (event,) = core.of_kind(GateEscalated)
    assert (event.example, event.unrecoverable) == ({}, False)
    assert core.asked(RememberFailure) == []
    assert core.question.summary.startswith("build did not pass its gate: the gate could not be checked: ")
    assert "(unavailable)" in core.question.summary
    core.answer("accept", outputs={0: 5})
    assert core.run.status == "succeeded"


def test_trouble_of_infrastructure_and_failed_checks_have_attempts_of_their_own() -> None:
    core = Core.of(gated(retry={"max_attempts": 2, "backoff": 0}))
    for attempt in range(3):
        core.raised("build")
        core.elapse()
        assert core.status("build") == "running", f"round {attempt}"
        fail(core, 1, outputs=[attempt])

    assert core.status("build") == "asking"
    assert [attempt for *_, attempt in core.started()] == [1, 2, 3, 4, 5, 6]


def test_items_have_attempts_of_their_own_for_both() -> None:
    core = Core.of(gated(for_each=[1, 2], retry={"max_attempts": 2, "backoff": 0}))
    core.counted("build", [1, 2])
    core.returned("build", 0, item=0)
    core.checked("build", "failed", item=0, output=0)
    core.elapse()
    core.raised("build", item=0)
    core.elapse()

    assert core.run.maps[0].failed is None
    assert core.run.maps[0].running[0] == 3


# --- when nothing helps ---


def test_after_the_last_attempt_a_person_is_asked_and_siblings_go_on() -> None:
    flow = gated()
    flow.step("other", "t:other")
    flow.step("after", "t:after", needs="other")
    flow.step("needs", "t:needs", needs="build")
    core = Core.of(flow)
    fail(core, 3)

    asked = core.question
    assert (asked.kind, asked.options) == ("gate", ("retry", "accept", "edit", "skip", "abort"))
    assert core.run.status == "running"
    core.returned("other")
    core.returned("after")
    assert (core.run.status, core.status("needs")) == ("waiting", "waiting")


def test_the_failure_is_an_example_with_the_shape_of_its_arguments() -> None:
    core = escalated()

    (kept,) = core.asked(RememberFailure)
    example = kept.example
    assert kept.id == f"run:{core.of_kind(GateEscalated)[0].seq}"
    assert (example["workflow"], example["step"], example["tool"]) == ("gated", "build", "t:build")
    assert example["shape"] == {"n": "integer"}
    assert example["expires"] > example["at"]
    assert [entry["attempt"] for entry in example["digest"]] == [1, 2, 3]


@pytest.mark.parametrize(
    ("outputs", "reasons", "hopeless"),
    [
        ([1, 1, 1], ["a", "b", "c"], True),
        ([1, 2, 3], ["same 1", "same 2", "same 3"], True),
        ([1, 2, 3], ["a", "b", "c"], False),
        ([1, 1, 2], ["a", "a", "b"], False),
    ],
)
def test_three_alike_are_flagged_as_beyond_help(
    outputs: list[int], reasons: list[str], hopeless: bool
) -> None:
    core = Core.of(gated())
    for output, why in zip(outputs, reasons, strict=True):
        fail(core, 1, why, [output])

    assert core.of_kind(GateEscalated)[0].unrecoverable is hopeless
    assert ("Unrecoverable" in core.question.summary) is hopeless
    assert core.status("build") == "asking"


def test_retry_gives_a_whole_new_set_of_attempts() -> None:
    core = escalated()
    core.answer("retry")
    fail(core, 3, outputs=[7, 8, 9])

    assert [attempt for *_, attempt in core.started()] == [1, 2, 3, 4, 5, 6]
    assert len(core.of_kind(GateEscalated)) == 2
    assert [entry["attempt"] for entry in core.run.tried[0, -1]] == [1, 2, 3, 4, 5, 6]


def test_edit_does_so_with_other_arguments() -> None:
    core = escalated()
    assert "no argument 'm'" in core.answer("edit", args={"m": 1})
    assert core.answer("edit", args={"n": 9}) == ""

    assert core.run.edits == {(0, -1): {"n": 9}}
    assert core.status("build") == "running"


def test_accept_takes_the_result_as_it_is_or_as_someone_gives_it() -> None:
    as_it_is, given = escalated(), escalated()
    as_it_is.answer("accept", outputs={0: 2})
    given.answer("accept", args={"output": "by hand"})

    assert [core.of_kind(TaskCompleted)[0].output for core in (as_it_is, given)] == [2, "by hand"]
    assert as_it_is.run.status == "succeeded"
    assert as_it_is.run.checking == {}


def test_skip_leaves_the_step_out_and_abort_stops_the_run() -> None:
    skipped, aborted = escalated(), escalated()
    skipped.answer("skip")
    aborted.answer("abort")

    assert (skipped.run.status, aborted.run.status) == ("succeeded", "aborted")
    assert skipped.run.checking == {}


def test_on_error_continue_does_not_cover_a_gate_that_gave_up() -> None:
    core = escalated(on_error="continue")

    assert core.status("build") == "asking"


def test_a_gate_that_gave_up_is_no_time_to_change_arguments_by_command() -> None:
    core = escalated()

    assert core.send(ModifyArgs(step=StepId("build"), args={"n": 2})) == "too late: build is asking"


# --- items and iterations ---


def test_every_item_has_its_own_attempts_and_its_own_person() -> None:
    core = Core.of(gated(for_each=[1, 2], gate={"checks": [{"expr": "output > 1"}], "max_attempts": 2}))
    core.counted("build", [1, 2])
    core.returned("build", 5, item=1)
    core.checked("build", "passed", item=1, output=5)
    for _ in range(2):
        core.returned("build", 0, item=0)
        core.checked("build", "failed", item=0, output=0)
        core.elapse()

    assert core.question.item == 0
    assert core.run.status == "waiting"
    core.answer("accept", args={"output": 0})
    assert core.run.status == "succeeded"


def test_every_iteration_of_a_loop_has_its_own_attempts() -> None:
    flow = gated(gate={"checks": [{"expr": "output > 1"}], "max_attempts": 2})
    routing = {"kind": "loop", "loop_target": "build", "max_iterations": 2, "next": "end"}
    flow.step("look", "t:look", needs="build", routing=routing)
    core = Core.of(flow)
    for round_ in range(2):
        fail(core, 1, outputs=[round_])
        assert len(core.run.tried[0, -1]) == 1
        core.returned("build", 5)
        core.checked("build", "passed", output=5)
        core.returned("look", round_)

    assert core.run.status == "succeeded"


# --- children ---


def test_the_escalation_of_a_child_is_copied_once_and_the_parent_goes_on() -> None:
    flow = ps.Workflow("parent")
    flow.step("child", "t:child")
    core = Core.of(flow)
    heard = ChildEscalated(0, "run/child.1.1:9", "no good", unrecoverable=True)
    core.tell(heard)
    core.tell(heard)
    again = core.taken_up()
    again.tell(heard)

    (copy,) = again.of_kind(GateEscalated)
    assert (copy.child, copy.step, copy.reason, copy.unrecoverable) == (
        "run/child.1.1:9", "child", "no good", True,
    )  # fmt: skip
    assert again.run.decisions == {}
    assert again.asked(RememberFailure) == []
    again.returned("child")
    assert again.run.status == "succeeded"


# --- another process, and the end ---


@pytest.mark.parametrize("kept", [False, True])
def test_a_crash_while_checking_loses_no_result_and_repeats_no_task(kept: bool) -> None:
    core = Core.of(gated())
    core.returned("build", 5)
    again = core.taken_up(kept=kept)

    assert again.asked(StartTask) == []
    (check,) = again.asked(CheckGate)
    assert check.seq == core.of_kind(GateStarted)[0].seq
    again.checked("build", "passed", output=5)
    assert again.run.status == "succeeded"
    assert len(again.started()) == 1


@pytest.mark.parametrize("kept", [False, True])
def test_a_crash_while_an_item_is_checked_loses_nothing_either(kept: bool) -> None:
    core = Core.of(gated(for_each=[1, 2]))
    core.counted("build", [1, 2])
    core.returned("build", 5, item=1)
    again = core.taken_up(kept=kept)

    assert [effect.item for effect in again.asked(StartTask)] == [0]
    assert [effect.item for effect in again.asked(CheckGate)] == [1]
    again.checked("build", "passed", item=1, output=5)
    again.returned("build", 5, item=0)
    again.checked("build", "passed", item=0, output=5)
    assert again.run.status == "succeeded"


@pytest.mark.parametrize("kept", [False, True])
def test_an_open_escalation_and_what_was_tried_survive_a_restart(kept: bool) -> None:
    core = escalated().taken_up(kept=kept)

    assert core.asked(CheckGate) == core.asked(StartTask) == []
    assert len(core.run.tried[0, -1]) == 3
    core.answer("retry")
    fail(core, 3, outputs=[7, 8, 9])
    assert len(core.of_kind(GateEscalated)) == 2


def test_a_verdict_that_comes_too_late_is_not_heard() -> None:
    core = Core.of(gated())
    core.returned("build", 5)
    late = GateFinished(0, ({"name": "x", "status": "passed", "detail": "", "ms": 0.0},), 5, attempt=7)

    assert core.tell(late) == []


def test_a_run_that_is_stopped_while_it_checks_ends_and_keeps_what_passed() -> None:
    stopped, passed = Core.of(gated()), Core.of(gated())
    for core, found in ((stopped, "unavailable"), (passed, "passed")):
        core.returned("build", 5)
        core.send(ps.Abort(reason="enough"))
        core.checked("build", found, output=5)
        assert core.run.status == "aborted"

    assert stopped.of_kind(TaskFailed)[0].kind == "cancelled"
    assert passed.of_kind(TaskCompleted)


@pytest.mark.parametrize("verb", ["retry", "edit", "accept", "skip", "abort"])
def test_who_decided_what_and_why_is_on_record(verb: str) -> None:
    core = escalated()
    core.answer(verb, by="ada", message="because", args={"n": 2} if verb == "edit" else None, outputs={0: 1})

    made = core.run.decided[-1]
    assert (made["kind"], made["verb"], made["by"], made["message"]) == ("gate", verb, "ada", "because")


def test_a_question_does_not_call_what_waits_for_an_answer_running() -> None:
    flow = gated()
    flow.step("other", "t:other", gate=[{"expr": "output > 1"}])
    flow.step("slow", "t:slow")
    core = Core.of(flow)
    for step in ("build", "other"):
        for _ in range(3):
            core.returned(step, 0)
            core.checked(step, "failed:too small", output=0)
            core.elapse()

    summary = core.of_kind(DecisionRequired)[-1].summary
    assert "Running: slow.\n" in summary
    assert "Waiting for an answer: build.\n" in summary
