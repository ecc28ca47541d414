"""Decision points: where an agent is asked how to go on, and what its answers do. The core alone."""

from __future__ import annotations

from typing import Any

import pytest
from core import Core

import penstock as ps
from penstock.ids import StepId
from penstock.run.commands import ReplanDag, RequestDecision
from penstock.run.effects import PrepareCall, Replan, StartDeadline
from penstock.run.events import DagChanged, DecisionMade, DecisionRequired, LayerStarted
from penstock.run.facts import Replanned


def chain(*steps: str, **ail: Any) -> ps.Workflow:
    """Steps one after the other."""
    flow = ps.Workflow("w", ail=ail)
    before: list[str] = []
    for step in steps:
        flow.step(step, f"t:{step}", needs=before)
        before = [step]
    return flow


def policy(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"decider": "policy", "rules": list(rules), **more}


def verbs(core: Core) -> list[tuple[str | None, str]]:
    return [(event.step, event.verb) for event in core.of_kind(DecisionMade)]


def waves(core: Core) -> list[tuple[int, tuple[str, ...]]]:
    return [(event.layer, event.wave) for event in core.of_kind(LayerStarted)]


# --- whom to ask, and when ---


def test_after_a_named_step_nothing_new_starts_until_there_is_an_answer() -> None:
    core = Core.of(chain("a", "b", "c", after=["a"], decider="external"))
    core.returned("a", 1)

    assert (core.question.kind, core.question.step) == ("ail", "a")
    assert core.question.options == ("approve", "reject", "respond", "abort")
    assert (core.run.status, core.status("b")) == ("waiting", "ready")
    core.answer("approve")
    core.returned("b")
    assert core.status("c") == "running"
    assert len(core.of_kind(DecisionRequired)) == 1


def test_what_runs_already_goes_on_while_an_agent_thinks() -> None:
    flow = chain("a", "b", after=["a"], decider="external")
    flow.step("slow", "t:slow")
    core = Core.of(flow)
    core.returned("a")
    assert core.run.status == "running"
    core.returned("slow")

    assert core.run.status == "waiting"


@pytest.mark.parametrize("decider", ["external", "human", "model"])
def test_a_minute_without_an_answer_and_the_run_goes_on(decider: str) -> None:
    core = Core.of(chain("a", "b", after=["a"], decider=decider))
    core.returned("a")

    assert core.asked(StartDeadline)[0].at == core.now + 60.0
    core.expire()
    assert core.status("b") == "running"
    made = core.run.decided[-1]
    assert (made["verb"], made["by"], made["message"]) == ("continue", "timeout", "nobody answered in time")


@pytest.mark.parametrize(("on_timeout", "waits"), [("continue", True), ("wait", True), ("abort", False)])
def test_before_a_critical_step_the_run_waits_or_aborts_but_never_goes_on(
    on_timeout: str, waits: bool
) -> None:
    flow = ps.Workflow("w", ail={"after": ["a"], "decider": "external", "on_timeout": on_timeout})
    flow.step("a", "t:a")
    flow.step("drop", "t:drop", needs="a", critical=True)
    core = Core.of(flow)
    core.returned("a")

    assert (core.question.deadline is None) is waits
    if not waits:
        core.expire()
        assert core.run.status == "aborted"


def test_an_answer_in_time_makes_the_deadline_meaningless() -> None:
    core = Core.of(chain("a", "b", after=["a"], decider="external"))
    core.returned("a")
    core.answer("approve")
    core.expire()

    assert verbs(core) == [("a", "approve")]


@pytest.mark.parametrize("verb", ["reject", "abort"])
def test_reject_and_abort_stop_the_run(verb: str) -> None:
    core = Core.of(chain("a", "b", after=["a"], decider="external"))
    core.returned("a")
    core.answer(verb, message="this leads nowhere")

    assert (core.run.status, core.run.reason) == ("aborted", "this leads nowhere")


def test_what_is_said_in_an_answer_is_part_of_the_conversation() -> None:
    core = Core.of(chain("a", "b", after=["a"], decider="external"))
    core.returned("a")
    core.answer("respond", message="look at the second file", by="planner")
    again = core.taken_up()

    assert [(m["text"], m["by"]) for m in again.run.messages] == [("look at the second file", "planner")]


def test_on_error_asks_after_failures_only() -> None:
    flow = chain("a", at="on_error", decider="external")
    flow.step("b", "t:b")
    flow.step("c", "t:c", needs=["a", "b"], join="all_done")
    core = Core.of(flow)
    core.returned("a")
    assert core.run.decisions == {}
    core.raised("b")

    assert core.question.step == "b"
    assert "b failed" in core.question.summary
    core.answer("approve")
    assert core.status("c") == "running"


def test_a_failure_that_will_be_tried_again_is_no_reason_to_ask() -> None:
    flow = ps.Workflow("w", ail={"at": "on_error", "decider": "external"})
    flow.step("a", "t:a", retry=2)
    core = Core.of(flow)
    core.raised("a")

    assert core.run.decisions == {}


def test_steps_named_in_after_are_asked_about_under_on_error_too() -> None:
    core = Core.of(chain("a", "b", at="on_error", after=["a"], decider="external"))
    core.returned("a")

    assert core.question.step == "a"


@pytest.mark.parametrize("own", [True, {"decider": "human", "timeout": "5s"}])
def test_a_step_may_ask_for_itself(own: Any) -> None:
    flow = ps.Workflow("w")
    flow.step("a", "t:a", ail=own)
    flow.step("b", "t:b", needs="a")
    core = Core.of(flow)
    core.returned("a")

    assert core.question.step == "a"
    assert core.question.deadline == core.now + (60.0 if own is True else 5.0)


def test_two_steps_may_be_asked_about_at_once_and_both_must_be_answered() -> None:
    flow = ps.Workflow("w", ail={"after": ["a", "b"], "decider": "external"})
    flow.step("a", "t:a")
    flow.step("b", "t:b")
    flow.step("c", "t:c", needs=["a", "b"])
    core = Core.of(flow)
    core.returned("a")
    core.returned("b")
    first, second = core.run.decisions.values()
    core.answer("approve", second)
    assert core.status("c") == "ready"
    core.answer("approve", first)

    assert core.status("c") == "running"


@pytest.mark.parametrize("kept", [False, True])
def test_a_point_that_was_passed_is_not_asked_about_after_a_restart(kept: bool) -> None:
    core = Core.of(chain("a", "b", "c", after=["a"], decider="external"))
    core.returned("a")
    asked = core.question
    core = core.taken_up(kept=kept)
    assert core.question == asked
    assert core.asked(StartDeadline)
    core.answer("approve")
    core = core.taken_up(kept=kept)

    assert core.run.decisions == {}
    assert len(core.of_kind(DecisionRequired)) == 1


# --- between waves ---


def test_between_waves_someone_is_asked_and_waves_are_numbered_by_depth() -> None:
    flow = ps.Workflow("w", ail={"at": "per_layer", "decider": "external"})
    flow.step("a", "t:a")
    flow.step("b", "t:b")
    flow.step("c", "t:c", needs="a")
    flow.step("d", "t:d", needs=["b", "c"])
    core = Core.of(flow)
    core.returned("a")
    assert core.status("c") == "ready", "b is still part of the first wave"
    core.returned("b")
    assert core.question.step is None
    core.answer("approve")
    core.returned("c")
    core.answer("approve")
    core.returned("d")

    assert waves(core) == [(0, ("a", "b")), (1, ("c",)), (2, ("d",))]
    assert core.run.status == "succeeded"
    assert len(core.of_kind(DecisionRequired)) == 2


def test_a_wave_that_waits_for_a_person_waits() -> None:
    flow = ps.Workflow("w", ail={"at": "per_layer", "decider": "policy", "rules": []})
    flow.step("a", "t:a")
    flow.step("b", "t:b", approval=True)
    flow.step("c", "t:c", needs="a")
    core = Core.of(flow)
    core.prepared("b")
    core.returned("a")

    assert core.status("c") == "ready"
    assert core.run.status == "waiting"
    core.answer("approve")
    core.returned("b")
    assert core.status("c") == "running"


def test_every_round_of_a_loop_is_a_wave_of_its_own() -> None:
    flow = ps.Workflow("w", ail={"at": "per_layer", "decider": "external"})
    flow.step("draft", "t:draft")
    routing = {"kind": "loop", "loop_target": "draft", "max_iterations": 2, "next": "end"}
    flow.step("judge", "t:judge", needs="draft", routing=routing)
    core = Core.of(flow)
    for n in range(4):
        core.returned("draft" if n % 2 == 0 else "judge", n)
        if n < 3:
            core.answer("approve")

    assert [wave for _, wave in waves(core)] == [("draft",), ("judge",)] * 2
    assert core.run.status == "succeeded"


def test_a_single_step_that_loops_to_itself_is_asked_about_between_its_rounds() -> None:
    flow = ps.Workflow("w", ail={"at": "per_layer", "decider": "external"})
    routing = {"kind": "loop", "loop_target": "a", "max_iterations": 3, "next": "end"}
    flow.step("a", "t:a", routing=routing)
    core = Core.of(flow)
    for n in range(3):
        core.returned("a", n)
        if n < 2:
            core.answer("approve")

    assert len(waves(core)) == 3
    assert core.run.status == "succeeded"


@pytest.mark.parametrize("kept", [False, True])
def test_a_restart_in_the_middle_of_a_wave_changes_nothing(kept: bool) -> None:
    flow = ps.Workflow("w", ail={"at": "per_layer", "decider": "external"})
    flow.step("a", "t:a")
    flow.step("b", "t:b")
    flow.step("c", "t:c", needs="a")
    core = Core.of(flow)
    core.returned("a")
    core = core.taken_up(kept=kept)
    assert core.status("c") != "running"
    core.returned("b")
    core = core.taken_up(kept=kept)
    core.answer("approve")

    assert core.status("c") == "running"
    assert len(core.of_kind(DecisionRequired)) == 1


def test_steps_injected_during_a_wave_belong_to_the_next() -> None:
    core = Core.of(chain("a", "b", at="per_layer", decider="external"))
    core.send(ps.InjectTasks(steps=(ps.Step(id=StepId("x"), uses="t:x"),)))
    assert core.status("x") == "ready"
    core.returned("a")
    core.answer("approve")

    assert waves(core)[-1][1] == ("b", "x")


def test_a_failed_wave_is_over_too() -> None:
    flow = chain("a", "b", at="per_layer", decider="external")
    flow.step("c", "t:c", needs="a", join="all_done")
    core = Core.of(flow)
    core.raised("a")
    core.answer("approve")

    assert core.status("c") == "running"


# --- the policy decider ---


def test_a_rule_that_applies_once_does_not_apply_again() -> None:
    rule = {"if": "steps.a.output.n > 0", "do": "continue"}
    flow = chain("a", "b", "c", **policy(rule, after=["a", "b", "c"]))
    core = Core.of(flow)
    for step in "abc":
        core.returned(step, {"n": 1})

    applied = [event.args for event in core.of_kind(DecisionMade)]
    assert applied == [{"rule": "#0"}, None, None]
    assert core.run.status == "succeeded"


def test_a_rule_that_repeats_applies_every_time() -> None:
    rule = {"if": "steps.a.output.n > 0", "do": "continue", "repeat": True}
    core = Core.of(chain("a", "b", **policy(rule, after=["a", "b"])))
    core.returned("a", {"n": 1})
    core.returned("b")

    assert [event.args for event in core.of_kind(DecisionMade)] == [{"rule": "#0"}] * 2


def test_a_rule_about_failures_fires_once_per_run_and_not_once_per_step() -> None:
    flow = ps.Workflow("w", ail=policy({"if": "true", "do": "continue"}, at="on_error"))
    flow.step("a", "t:a")
    flow.step("b", "t:b")
    core = Core.of(flow)
    core.raised("a")
    core.raised("b")

    assert [event.args for event in core.of_kind(DecisionMade)] == [{"rule": "#0"}, None]


def test_a_rule_may_abort_and_the_rules_after_it_have_no_say() -> None:
    rules = ({"if": "steps.a.output.bad", "do": "abort"}, {"if": "true", "do": "continue"})
    core = Core.of(chain("a", "b", **policy(*rules, after=["a"])))
    core.returned("a", {"bad": True})

    assert verbs(core) == [("a", "abort")]
    assert core.run.status == "aborted"
    assert [step for step, *_ in core.started()] == ["a"]


def test_a_rule_that_cannot_be_evaluated_does_not_apply() -> None:
    rule = {"if": "steps.a.output.missing > 1", "do": "abort"}
    core = Core.of(chain("a", "b", **policy(rule, after=["a"])))
    core.returned("a", {})

    assert core.status("b") == "running"


def injecting(feeds: str = "last.found", **more: Any) -> ps.Workflow:
    task = {"id": "xml", "uses": "t:xml", "with": {"files": "${ steps.look.output.xml }"}}
    rule = {"if": "size(steps.look.output.xml) > 0", "do": "inject", "tasks": [task | more], "feeds": feeds}
    flow = ps.Workflow("w", ail=policy(rule, after=["look"]))
    flow.step("look", "t:look")
    flow.step("json", "t:json", needs="look")
    flow.step("last", "t:last", found="${ steps.json.output }")
    return flow


def test_an_injected_step_feeds_the_step_that_waits_for_it() -> None:
    core = Core.of(injecting())
    core.returned("look", {"xml": ["a.xml"]})
    core.returned("json")
    assert core.status("last") == "waiting", "it waits for the new step as well"
    core.returned("xml")

    assert core.status("last") == "running"
    assert core.run.overrides[2] == {"found": ["${ steps.json.output }", "${ steps.xml.output }"]}
    (grown,) = core.of_kind(DagChanged)
    assert (grown.by, [step.id for step in grown.added]) == ("policy", ["xml"])


@pytest.mark.parametrize("kept", [False, True])
def test_it_still_feeds_it_after_a_restart(kept: bool) -> None:
    core = Core.of(injecting())
    core.returned("look", {"xml": ["a.xml"]})
    core = core.taken_up(kept=kept)
    core.returned("json")
    assert core.status("last") == "waiting"
    core.returned("xml")

    assert core.status("last") == "running"


def test_a_second_injection_joins_the_same_list() -> None:
    core = Core.of(injecting())
    core.returned("look", {"xml": ["a.xml"]})
    core.send(ReplanDag(requirement="csv as well"))
    core.tell(
        Replanned(core.question.decision, (ps.Step(id=StepId("csv"), uses="t:csv"),), feeds="last.found")
    )

    assert core.run.overrides[2]["found"] == [
        "${ steps.json.output }", "${ steps.xml.output }", "${ steps.csv.output }",
    ]  # fmt: skip


def test_an_injection_that_comes_too_late_is_refused_on_record_and_the_run_goes_on() -> None:
    task = {"id": "xml", "uses": "t:xml"}
    rule = {"if": "true", "do": "inject", "tasks": [task], "feeds": "a.found"}
    core = Core.of(chain("a", "b", **policy(rule, after=["a"])))
    core.returned("a")

    assert "too late: a has succeeded" in core.of_kind(DecisionMade)[0].message
    assert core.of_kind(DagChanged) == []
    assert core.status("b") == "running"


def test_an_injected_step_that_needs_approval_asks_for_it() -> None:
    core = Core.of(injecting(approval="always"))
    core.returned("look", {"xml": ["a.xml"]})

    assert core.asked(PrepareCall)
    assert "xml" not in [step for step, *_ in core.started()]


def test_between_waves_a_rule_may_add_to_the_next_wave() -> None:
    rule = {"if": "steps.a.output.n > 0", "do": "inject", "tasks": [{"id": "x", "uses": "t:x"}]}
    core = Core.of(chain("a", "b", **policy(rule, at="per_layer")))
    core.returned("a", {"n": 1})

    assert waves(core)[-1][1] == ("b", "x")
    core.returned("b")
    core.returned("x")
    assert core.run.status == "succeeded"


def test_a_rule_may_add_steps_after_the_last_wave() -> None:
    rule = {"if": "steps.a.output.n > 0", "do": "inject", "tasks": [{"id": "x", "uses": "t:x"}]}
    core = Core.of(chain("a", **policy(rule, at="per_layer")))
    core.returned("a", {"n": 1})
    core.returned("x")

    assert core.run.status == "succeeded"


def test_the_rules_of_a_step_are_its_own() -> None:
    flow = ps.Workflow("w", ail=policy({"if": "true", "do": "continue"}, after=["a"]))
    flow.step("a", "t:a")
    flow.step("b", "t:b", needs="a", ail=policy({"if": "true", "do": "continue"}))
    core = Core.of(flow)
    core.returned("a")
    core.returned("b")

    assert [event.args for event in core.of_kind(DecisionMade)] == [{"rule": "#0"}, {"rule": "b#0"}]


# --- requests and plans ---


def test_a_requested_decision_holds_the_run_and_anyone_may_answer() -> None:
    core = Core.of(chain("a", "b", decider="external"))
    core.send(RequestDecision(summary="is this right?", by="ada"))
    core.returned("a")

    assert (core.question.kind, core.question.holds) == ("requested", True)
    assert (core.run.status, core.status("b")) == ("waiting", "ready")
    core.answer("respond", message="yes")
    assert core.status("b") == "running"
    assert [m["text"] for m in core.run.messages] == ["yes"]


def test_a_plan_is_waited_for_and_its_steps_are_checked_like_anyones() -> None:
    core = Core.of(chain("a", "b", decider="external"))
    core.send(ReplanDag(requirement="more tests"))
    core.returned("a")
    assert (core.question.kind, core.status("b")) == ("replan", "ready")
    (effect,) = core.asked(Replan)
    step = ps.Step(id=StepId("x"), uses="t:x", needs=(StepId("b"),))
    core.tell(Replanned(effect.decision, (step,)))
    core.returned("b")

    assert core.status("x") == "running"
    assert verbs(core) == [(None, "inject")]


@pytest.mark.parametrize(
    ("steps", "error", "reason"),
    [
        ((), "the planner is asleep", "the planner is asleep"),
        ((), "", "nothing fits"),
        ((ps.Step(id=StepId("a"), uses="t:x"),), "", "two steps are called 'a'"),
        ((ps.Step(id=StepId("x"), uses="t:x", needs=(StepId("nobody"),)),), "", "no step is called"),
        ((ps.Step(id=StepId("x"), uses="py:os:getcwd"),), "", "`py:` steps are allowed only in workflow"),
    ],
)
def test_a_bad_plan_is_refused_and_the_run_goes_on(
    steps: tuple[ps.Step, ...], error: str, reason: str
) -> None:
    core = Core.of(chain("a", "b", decider="external"))
    core.send(ReplanDag(requirement="more"))
    core.returned("a")
    core.tell(Replanned(core.question.decision, steps, error))

    assert reason in core.run.decided[-1]["message"]
    assert core.of_kind(DagChanged) == []
    assert core.status("b") == "running"


def test_a_planned_step_that_destroys_needs_approval() -> None:
    core = Core.of(chain("a", decider="external"))
    core.send(ReplanDag(requirement="clean up"))
    step = ps.Step(id=StepId("x"), uses="t:destroy")
    core.tell(Replanned(core.question.decision, (step,), guarded=(StepId("x"),)))

    assert core.asked(PrepareCall)
    assert [name for name, *_ in core.started()] == ["a"]


def test_someone_may_end_the_waiting_for_a_plan() -> None:
    core = Core.of(chain("a", "b", decider="external"))
    core.send(ReplanDag(requirement="more"))
    core.returned("a")
    (effect,) = core.asked(Replan)
    core.answer("skip")
    core.tell(Replanned(effect.decision, (ps.Step(id=StepId("x"), uses="t:x"),)))

    assert core.status("b") == "running"
    assert core.of_kind(DagChanged) == []


def test_a_rule_may_ask_the_planner() -> None:
    rule = {"if": "true", "do": "replan", "requirement": "parse xml", "feeds": "b.found"}
    core = Core.of(chain("a", "b", **policy(rule, after=["a"])))
    core.returned("a")
    (effect,) = core.asked(Replan)
    assert (effect.requirement, effect.feeds) == ("parse xml", "b.found")
    core.tell(Replanned(effect.decision, (ps.Step(id=StepId("x"), uses="t:x"),), feeds="b.found"))

    assert core.status("b") == "waiting"
    core.returned("x")
    assert core.status("b") == "running"


def test_a_plan_that_was_being_made_is_asked_for_again_after_a_restart() -> None:
    core = Core.of(chain("a", decider="external"))
    core.send(ReplanDag(requirement="more"))
    again = core.taken_up()

    assert [effect.requirement for effect in again.asked(Replan)] == ["more"]
    assert len(again.of_kind(DecisionRequired)) == 1


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ({}, "rule 1 could not be evaluated: steps.a.output.ok: no such value"),
        ({"ok": "yes"}, 'rule 1 gave "yes"'),
    ],
)
def test_a_rule_that_could_not_be_evaluated_is_on_record(output: Any, why: str) -> None:
    core = Core.of(chain("a", "b", **policy({"if": "steps.a.output.ok", "do": "abort"}), after=["a"]))
    core.returned("a", output)

    [made] = core.of_kind(DecisionMade)
    assert made.verb == "continue"
    assert made.message.startswith("no rule applies; ")
    assert why in made.message
    assert core.status("b") == "running"


def test_a_rule_after_one_that_could_not_be_evaluated_still_counts_and_both_are_told() -> None:
    rules = ({"if": "steps.a.output.nope == 1", "do": "continue"}, {"if": "true", "do": "abort"})
    core = Core.of(chain("a", "b", **policy(*rules), after=["a"]))
    core.returned("a", {})

    [made] = core.of_kind(DecisionMade)
    assert made.verb == "abort"
    assert "rule 1 could not be evaluated" in made.message


def test_a_run_that_a_rule_aborts_says_that_a_rule_did() -> None:
    core = Core.of(chain("a", "b", **policy({"if": "steps.a.output == 1", "do": "abort"}), after=["a"]))
    core.returned("a", 1)

    assert core.run.reason == "the rule applies: steps.a.output == 1"
