"""Routes, iterations, gates, decisions, budgets and new steps, as people see them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

import penstock as ps
from penstock.cli import lines
from penstock.cli.question import Question, described, keys
from penstock.cli.view import View
from penstock.engines.base import step_results
from penstock.engines.plain import summary_of
from penstock.ids import DecisionId, StepId
from penstock.run.events import (
    BudgetWarned,
    CommandAccepted,
    DecisionRequired,
    GateChecked,
    GateEscalated,
    RouteDecided,
)
from penstock.workflow.read import load

YES = {"expr": "output.x", "value": "yes"}
UNCHECKED = {"name": "n", "status": "unavailable"}


@pytest.mark.parametrize("name", ["looped", "grown"])
def test_the_view_agrees_with_the_engine_about_loops_and_added_steps(flow, folder: Path, name: str) -> None:
    source = load(folder / flow(name))
    view = View.of(source.graph)

    async def go() -> None:
        async with ps.open() as penstock:
            run = await penstock.start(source)
            async for event in run.events():
                view.take(event)
                assert sum(view.counts.values()) == len(view.rows)
                assert sum(layer.over for layer in view.layers.values()) == view.over
                assert sum(layer.active for layer in view.layers.values()) == len(view.active)
            summary, mine = summary_of(await run.result()), view.summary(run.id)
            del mine["duration_ms"], summary["duration_ms"]
            assert mine == summary

    asyncio.run(go())


@pytest.mark.parametrize("name", ["ship", "gated", "routed", "spent", "agreed"])
def test_the_view_agrees_with_a_run_that_waits(flow, folder: Path, name: str) -> None:
    source = load(folder / flow(name))
    view = View.of(source.graph)

    async def go() -> None:
        async with ps.open() as penstock:
            run = await penstock.start(source)
            async for event in run.events():
                view.take(event)
                if run.state.status == "waiting" and event.seq == run.state.seq:
                    break
            words = {"retrying": "backoff", "waiting": "waiting"}
            other = {"ready": "waiting", "dormant": "waiting"}
            states = {row.id: words.get(row.state, row.state) for row in view.rows.values()}
            assert states == {id: other.get(s.status, s.status) for id, s in step_results(run.state).items()}
            assert view.status == "waiting"
            assert list(view.decisions) == list(run.state.decisions)
            await run.send(ps.Abort())
            await run.result()

    asyncio.run(go())


def test_a_way_back_opens_the_steps_of_the_loop_again(flow, folder: Path) -> None:
    view = View.of(load(folder / flow("looped")).graph)
    for id in ("draft", "judge"):
        view.move(view.rows[id], "running")
        view.move(view.rows[id], "succeeded")

    view.take(RouteDecided(9, 1.0, StepId("judge"), StepId("draft"), "loop"))

    assert view.rows["draft"].state == view.rows["judge"].state == "waiting"
    assert view.rows["draft"].iteration == 2
    assert view.rows["judge"].route == "⇢ draft (loop)"
    assert view.over == 0


def test_events_and_progress_tell_of_routes_with_their_rule(cli, flow) -> None:
    done = cli("run", flow("looped"))
    events = cli("events", "last", "--type", "route_decision").stdout

    assert done.code == 0
    assert "route    judge ⇢ draft (loop)" in done.stderr
    assert "route    judge iteration 3 ⇢ done (condition: output.good)" in done.stderr
    assert "start    draft iteration 2" in done.stderr
    assert "judge iteration 3 ⇢ done (condition: output.good)" in events
    assert len(events.splitlines()) == 3


def test_show_tells_of_routes_and_iterations(cli, flow) -> None:
    cli("run", flow("looped"))

    shown = cli("show", "last").stdout

    assert re.search(r"✓ draft .* iteration 3", shown)
    assert re.search(r"✓ judge .* iteration 3, ⇢ done \(condition: output.good\)", shown)


def test_gates_and_escalations_are_told(cli, flow) -> None:
    done = cli("run", flow("gated"))
    shown = cli("show", "last").stdout

    assert done.code == 3
    refused = "gate said no, 1 of 1: large: output.size > 5 is false"
    assert f"gate     build: {refused}; tried again" in done.stderr
    assert f"gate     build attempt 2: {refused}; a person is called" in done.stderr
    assert "person   build: 2 attempts, and the gate still says no: large (failed)" in done.stderr
    assert re.search(r"\? build .* 2 attempts, its gate called a person", shown)
    assert "(retry, accept, edit, skip, abort)" in shown


def test_added_steps_are_told_as_a_difference(cli, flow) -> None:
    done = cli("run", flow("grown"))
    shown = cli("show", "last").stdout

    assert "added    + parse (py:acts:plain), ~ report.value by policy" in done.stderr
    assert "inject" in done.stderr
    assert re.search(r"✓ parse .* added by policy", shown)
    assert re.search(
        r"decided\n\d\d:\d\d:\d\d  list ail: inject .* by policy: the rule applies: steps.list.output ==",
        shown,
    )


def test_budgets_are_told_when_they_run_out(cli, flow) -> None:
    done = cli("run", flow("spent"))
    shown = cli("show", "last").stdout

    assert done.code == 5
    assert "limit    tool_calls: 2 of 2 (100%)" in done.stderr
    assert "! tool_calls: 2 of 2" in shown


def test_the_live_view_shows_gate_route_and_question(terminal, flow) -> None:
    gate = terminal("run", flow("gated"), "--no-input").finish()[1]
    loop = terminal("run", flow("looped")).finish()[1]

    assert re.search(r"its gate called a person, waits for a decision", gate)
    assert "⇢ done (condition: output.good)" in loop
    assert "iteration 3" in loop


def test_the_live_view_counts_a_deadline_down(terminal, flow) -> None:
    text = terminal("run", flow("impatient"), "--no-input").finish()[1]

    assert re.search(r"\? \w+:\d+  .*0\.\d s left", re.sub(r"\x1b\[[0-9;]*m", "", text))


def test_watch_tells_what_run_tells(cli, flow) -> None:
    cli("run", flow("grown"))

    watched = cli("watch", "last")

    assert watched.code == 0
    assert "added    + parse (py:acts:plain), ~ report.value by policy" in watched.stderr


def test_a_saved_run_tells_the_same(cli, flow) -> None:
    cli("run", flow("looped"), "--save", "saved.jsonl")

    assert "⇢ done (condition: output.good)" in cli("show", "saved.jsonl").stdout
    assert "⇢ done (condition: output.good)" in cli("events", "saved.jsonl").stdout


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            RouteDecided(1, 0.0, StepId("a"), None, "cap", reason="max_iterations: 3 is reached"),
            "a ⇢ nowhere (cap: max_iterations: 3 is reached)",
        ),
        (
            RouteDecided(1, 0.0, StepId("a"), StepId("b"), "tie_breaker", confidence=0.8, needs_human=True),
            "a ⇢ b (tie_breaker, 80% sure, a person should look)",
        ),
        (
            RouteDecided(1, 0.0, StepId("a"), StepId("b"), "branch", evaluated_conditions=(YES,)),
            "a ⇢ b (branch: output.x is 'yes')",
        ),
        (
            GateChecked(
                1, 0.0, StepId("a"), False, checks=({"name": "n", "status": "unavailable"},), then="recheck"
            ),
            "a: gate could not be checked, 1 of 1: n: unavailable; checked again",
        ),
        (
            GateEscalated(1, 0.0, StepId("a"), "no", item=3, unrecoverable=True, child="r/a.1.1:9"),
            "a[3] (child r/a.1.1:9): no, more of the same will not help",
        ),
        (BudgetWarned(1, 0.0, "usd", 0.4, 0.5, StepId("a")), "usd of a: 0.4 of 0.5 (80%)"),
        (BudgetWarned(1, 0.0, "tokens", 1_250_000, 1_500_000), "tokens: 1,250,000 of 1,500,000 (83%)"),
        (CommandAccepted(1, 0.0, ps.Pause(reason="lunch", by="Ada")), "pause reason=lunch by Ada"),
        (
            CommandAccepted(1, 0.0, ps.ModifyArgs(step=StepId("a"), args={"n": 5})),
            'modify_args step=a args={"n":5}',
        ),
    ],
    ids=["no way", "tie", "branch", "unavailable", "escalated", "budget", "tokens", "pause", "modify"],
)
def test_an_event_is_one_readable_line(event, line: str) -> None:
    assert lines.listed(event, 0.0).endswith(line)


def test_a_question_shows_long_values_shortened_and_nothing_that_steers_a_terminal() -> None:
    asked = DecisionRequired(
        5, 0.0, DecisionId("r:5"), "approval", "may it?\nRisk: much", StepId("a"), options=("approve",),
        call={"uses": "x:y", "args": {"text": "\x1b[2J" + "long " * 500, "n": 1}}, deadline=100.0,
    )  # fmt: skip

    text = described(Question(asked, lambda _: "", lambda: True, "destructive"), 90.0)

    assert "\x1b" not in text
    assert "(2,5" in text
    assert len(text) < 600
    assert "risk   destructive" in text
    assert "10.0 s left" in text
    assert [key.verb for key in keys(asked)] == ["approve", ""]
