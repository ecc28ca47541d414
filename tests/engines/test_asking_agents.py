"""Decision points on the native engine: deciders, deadlines, plans, and the complete set of commands."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from asked import STORES, answer, at, ended, next_question, opened, questions, until, url

import penstock as ps
from penstock.ids import CommandId
from penstock.run.commands import Checkpoint, Command, Decide, ReplanDag, RequestDecision
from penstock.run.events import CommandAccepted, DagChanged, DecisionMade
from penstock.run.state import Run
from penstock.testing import clock
from penstock.testing.rig import EPOCH, Rig


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url(request.param, tmp_path)


@ps.tool(id="test:say", effect="read")
async def say(value: Any = None) -> Any:
    return value


@ps.tool(id="test:destroy", effect="destructive")
async def destroy() -> str:
    return "gone"


def discovery(**task: Any) -> ps.Workflow:
    """A listing finds XML; a rule adds a parser whose result the report waits for."""
    new = {"id": "xml", "uses": "test:say", "with": {"value": "${ steps.look.output.xml }"}, **task}
    rule = {"if": "size(steps.look.output.xml) > 0", "do": "inject", "tasks": [new], "feeds": "report.value"}
    flow = ps.Workflow("discovery", ail={"at": "per_layer", "decider": "policy", "rules": [rule]})
    flow.step("look", "test:say", value={"json": ["a"], "xml": ["b", "c"]})
    flow.step("json", "test:say", value="${ steps.look.output.json }")
    flow.output("report", flow.step("report", "test:say", value="${ steps.json.output }"))
    return flow


def chain(*names: str, **ail: Any) -> ps.Workflow:
    flow = ps.Workflow("chain", ail=ail or None) if ail else ps.Workflow("chain")
    before: list[str] = []
    for name in names:
        flow.step(name, "test:say", value=name, needs=before)
        before = [name]
    return flow


async def test_a_rule_adds_a_step_whose_result_the_next_one_receives_in_a_list(store: str) -> None:
    async with opened(store, say) as penstock:
        result = await ended(await penstock.start(discovery()))

    assert result.outputs == {"report": [["a"], ["b", "c"]]}


async def test_a_step_that_a_rule_adds_and_that_destroys_asks_first(store: str) -> None:
    async with opened(store, say, destroy) as penstock:
        run = await penstock.start(discovery(uses="test:destroy", **{"with": {}}))
        (asked,) = await questions(run)
        assert (asked.kind, asked.step) == ("approval", "xml")
        await answer(run, asked, "approve")
        assert (await ended(run)).outputs == {"report": [["a"], "gone"]}


async def test_the_rules_of_a_single_step_are_held_to_the_same(store: str) -> None:
    rule = {"if": "true", "do": "inject", "tasks": [{"id": "x", "uses": "test:destroy"}]}
    flow = ps.Workflow("w")
    flow.step("a", "test:say", ail={"decider": "policy", "rules": [rule]})
    async with opened(store, say, destroy) as penstock:
        run = await penstock.start(flow)
        (asked,) = await questions(run)
        assert (asked.kind, asked.step) == ("approval", "x")
        await answer(run, asked, "reject")
        assert (await ended(run)).steps[at("x")].status == "failed"


async def test_an_external_agent_injects_and_lets_the_run_go_on(store: str) -> None:
    async with opened(store, say) as penstock:
        run = await penstock.start(chain("a", "b", after=["a"], decider="external"))
        (asked,) = await questions(run)
        extra = ps.Step(id=at("x"), uses="test:say", needs=(at("b"),))
        await run.send(ps.InjectTasks(steps=(extra,), by="agent"))
        assert run.steps[at("b")].status == "ready"
        await answer(run, asked, "respond", message="I added x", by="agent")
        result = await ended(run)

    assert result.steps[at("x")].status == "succeeded"
    assert [m["text"] for m in result.state.messages] == ["I added x"]


def test_a_minute_without_an_answer_and_the_run_goes_on() -> None:
    async def main() -> None:
        async with Rig(say) as rig:
            result = await rig.run(chain("a", "b", after=["a"], decider="external"))
            assert result.ok
            made = next(event for event in rig.events() if isinstance(event, DecisionMade))
            assert (made.by, made.verb, made.at) == ("timeout", "continue", EPOCH + 60)

    clock.run(main())


def test_before_a_critical_step_a_minute_is_not_enough() -> None:
    async def main() -> None:
        flow = ps.Workflow("w", ail={"after": ["a"], "decider": "external"})
        flow.step("a", "test:say")
        flow.step("b", "test:destroy", needs="a")
        async with Rig(say, destroy) as rig:
            run = await rig.start(flow)
            await asyncio.sleep(10_000)
            (asked,) = run.state.decisions.values()
            assert (asked.kind, run.status) == ("ail", "waiting")

    clock.run(main())


async def test_a_deadline_that_passed_while_nobody_drove_the_run_counts(tmp_path: Path) -> None:
    store = url("sqlite", tmp_path)
    flow = chain("a", "b", after=["a"], decider="external", timeout="1h")
    async with opened(store, say) as penstock:
        run = await penstock.start(flow)
        await questions(run)
    async with opened(store, say) as penstock:
        penstock.engine.wall = lambda: run.state.at + 3601
        again = await penstock.resume(run.id)
        result = await ended(again)

    assert result.ok
    assert result.state.decided[-1]["by"] == "timeout"


async def test_the_conversation_goes_on_after_a_restart(tmp_path: Path) -> None:
    store = url("sqlite", tmp_path)
    async with opened(store, say) as penstock:
        run = await penstock.start(chain("a", "b", after=["a"], decider="human"))
        await run.send(ps.Message(text="one", role="human", by="ada"))
        await questions(run)
    async with opened(store, say) as penstock:
        again = await penstock.resume(run.id)
        (asked,) = await questions(again)
        await answer(again, asked, "respond", message="two", by="ada")
        result = await ended(again)

    assert [m["text"] for m in result.state.messages] == ["one", "two"]


# --- plans ---


class Planner:
    def __init__(self, *steps: ps.Step, error: Exception | None = None) -> None:
        self.steps = steps
        self.error = error
        self.asked: list[str] = []

    async def __call__(self, run: Run, requirement: str) -> Sequence[ps.Step]:  # noqa: ARG002 - the port has it
        self.asked.append(requirement)
        if self.error:
            raise self.error
        return self.steps


async def _planned(store: str, planner: Planner) -> tuple[ps.Result, list[Any]]:
    async with opened(store, say, destroy) as penstock:
        penstock.engine.planner = planner
        flow = chain("a", "b", after=["a"], decider="external")
        run = await penstock.start(flow)
        (asked,) = await questions(run)
        await run.send(ReplanDag(requirement="also c"))
        await until(run, lambda: len(run.state.decisions) == 1)
        await answer(run, asked, "approve")
        await until(run, lambda: run.state.ended or bool(run.state.decisions))
        for one in list(run.state.decisions.values()):
            await answer(run, one, "approve")
        result = await ended(run)
        return result, [e for e in await penstock.store.load(run.id) if isinstance(e, DagChanged)]


async def test_a_planner_is_asked_and_its_steps_run(store: str) -> None:
    planner = Planner(ps.Step(id=at("c"), uses="test:say"))
    result, grown = await _planned(store, planner)

    assert (result.status, planner.asked, len(grown)) == ("succeeded", ["also c"], 1)
    assert result.steps[at("c")].status == "succeeded"


async def test_a_planned_step_that_destroys_is_approved_like_any_other(store: str) -> None:
    result, _ = await _planned(store, Planner(ps.Step(id=at("c"), uses="test:destroy")))

    assert [(made["kind"], made["step"]) for made in result.state.decided][-1] == ("approval", "c")


@pytest.mark.parametrize(
    "planner",
    [
        Planner(error=RuntimeError("no idea")),
        Planner(),
        Planner(ps.Step(id=at("c"), uses="test:nobody")),
        Planner(ps.Step(id=at("c"), uses="py:os:getcwd")),
    ],
    ids=["raises", "nothing", "unknown", "barred"],
)
async def test_a_planner_that_is_of_no_use_does_no_harm(store: str, planner: Planner) -> None:
    result, grown = await _planned(store, planner)

    assert (result.status, grown) == ("succeeded", [])


async def test_without_a_planner_the_command_is_refused(store: str) -> None:
    async with opened(store, say) as penstock:
        run = await penstock.start(chain("a", "b", after=["a"], decider="external"))
        (asked,) = await questions(run)
        with pytest.raises(ps.CommandRejected, match="there is no planner"):
            await run.send(ReplanDag(requirement="more"))
        await answer(run, asked, "approve")
        assert (await ended(run)).ok


# --- every command, on a run that waits ---


def commands() -> list[tuple[Command, bool]]:
    """Each, and whether a run that waits after `a` accepts it."""
    extra = ps.Step(id=at("x"), uses="test:say")
    return [
        (ps.Message(text="hello"), True),
        (ps.Pause(), True),
        (ps.Resume(), True),
        (Checkpoint(), True),
        (ps.SkipStep(step=at("d")), True),
        (ps.SkipStep(step=at("a")), False),
        (ps.SkipLayer(layer=2), True),
        (ps.SkipLayer(layer=0), False),
        (ps.ModifyArgs(step=at("b"), args={"value": "new"}), True),
        (ps.ModifyArgs(step=at("a"), args={"value": "new"}), False),
        (ps.InjectTasks(steps=(extra,)), True),
        (ps.InjectTasks(steps=(extra,)), False),
        (ps.RetryStep(step=at("a")), False),
        (RequestDecision(summary="sure?"), True),
        (Decide(decision=at("nobody"), verb="approve"), False),  # type: ignore[arg-type]  # no decision
        (ps.Abort(reason="enough"), True),
    ]


async def test_a_run_that_waits_hears_every_command_once(store: str) -> None:
    async with opened(store, say) as penstock:
        run = await penstock.start(chain("a", "b", "c", "d", after=["a"], decider="external"))
        await questions(run)
        for n, (command, accepted) in enumerate(commands()):
            given = type(command)(
                **{f: getattr(command, f) for f in command.__struct_fields__} | {"id": f"c{n}"}
            )
            for _ in range(2):
                if run.state.ended:
                    break
                if accepted:
                    assert isinstance(await run.send(given), CommandAccepted)
                else:
                    with pytest.raises(ps.CommandRejected):
                        await run.send(given)
        result = await ended(run)
        kept = await penstock.store.load(run.id)

    assert (result.status, result.reason) == ("aborted", "enough")
    heard = [event.command.id for event in kept if isinstance(event, CommandAccepted)]
    assert len(heard) == len(set(heard)) == sum(accepted for _, accepted in commands())
    assert CommandId("c0") in heard


async def test_arguments_changed_while_a_run_waits_are_the_ones_that_count(store: str) -> None:
    async with opened(store, say) as penstock:
        flow = chain("a", "b", after=["a"], decider="external")
        flow.output("b", "${ steps.b.output }")
        run = await penstock.start(flow)
        (asked,) = await questions(run)
        await run.send(ps.ModifyArgs(step=at("b"), args={"value": "new"}))
        await run.send(RequestDecision())
        second = await next_question(run, asked)
        await answer(run, asked, "approve")
        await answer(run, second, "approve")
        assert (await ended(run)).outputs == {"b": "new"}
