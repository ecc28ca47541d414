"""What `[tools]` says holds for every call of a run: steps, children, agents, gates, steps added later."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from serving import FAULTS, VARIABLES

import penstock as ps
from penstock import settings
from penstock.ids import StepId
from penstock.models.base import Answer, Request, ToolCall
from penstock.models.providers.scripted import Scripted
from penstock.run.commands import Decide, ReplanDag
from penstock.run.events import DecisionRequired
from penstock.workflow.spec import Step


@ps.tool(id="shop:look", effect="read")
async def look(what: str = "") -> str:
    return f"saw {what}"


@ps.tool(id="shop:check", effect="read")
async def check() -> bool:
    return True


class Models:
    def __init__(self, *script: Answer) -> None:
        self._provider = Scripted(script)

    async def chat(self, request: Request, *, tier: str = "", model: str = "") -> Answer:  # noqa: ARG002
        return await self._provider.chat(model or "any", request)


Say = Callable[[str], None]


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    """Writes `penstock.toml` in a folder that has a server `bad`."""
    entry = {"command": sys.executable, "args": ["-S", FAULTS, "well"]}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"bad": entry}}))
    monkeypatch.chdir(tmp_path)
    return lambda text: (tmp_path / "penstock.toml").write_text(text) and None


@asynccontextmanager
async def opened(models: Any = None, store: str = "memory:") -> AsyncIterator[ps.Penstock]:
    configuration = settings.read({**VARIABLES, "PENSTOCK_STORE": store})
    async with (
        asyncio.timeout(20),
        ps.Penstock(configuration, tools=[look, check], models=models) as penstock,
    ):
        yield penstock


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - some of it is the work of other processes
        await asyncio.sleep(0.005)


async def question(penstock: ps.Penstock) -> tuple[Any, DecisionRequired]:
    """The run that asks, and what."""
    await until(lambda: any(drive.run.decisions for drive in penstock.engine.live.values()))
    drive = next(drive for drive in penstock.engine.live.values() if drive.run.decisions)
    return drive, next(iter(drive.run.decisions.values()))


def one(uses: str = "shop:look", **more: Any) -> ps.Workflow:
    flow = ps.Workflow("one")
    flow.step("a", uses, **more)
    return flow


def waiting() -> ps.Workflow:
    """A run that stays until it is told to go on."""
    flow = ps.Workflow("waiting")
    flow.step("first", "shop:look", approval=True)
    return flow


def agent(*tools: str) -> ps.Workflow:
    flow = ps.Workflow("asked", agents={"helper": {"prompt": "Help.", "tools": list(tools)}})
    flow.step("a", "agent:helper", text="help")
    return flow


def wants(name: str, **args: Any) -> Answer:
    return Answer(tool_calls=(ToolCall("1", name, args),), finish="tool_calls")


def gated(tool: str, **args: Any) -> ps.Workflow:
    return one("shop:look", gate={"checks": [{"tool": tool, "with": args}]})


# --- deny ---


@pytest.mark.parametrize(
    "flow", [one(), one("files:read", path="x"), agent("shop:look"), gated("shop:check")]
)
async def test_a_definition_that_names_a_denied_tool_is_refused_before_anything_runs(
    say: Say, flow: ps.Workflow
) -> None:
    say('[tools]\ndeny = ["shop:*", "files:*"]\n')

    async with opened(Models()) as penstock:
        with pytest.raises(ps.DefinitionError, match=r"may not be called .* is in \[tools\] deny"):
            await penstock.start(flow)


async def test_a_function_given_in_python_is_denied_like_any_other(say: Say) -> None:
    say('[tools]\ndeny = ["py:*", "local:*"]\n')
    flow = ps.Workflow("given")
    flow.step("a", look, what="x")

    async with opened() as penstock:
        with pytest.raises(ps.DefinitionError, match="may not be called"):
            await penstock.start(flow)


async def test_a_child_that_names_a_denied_tool_stops_its_parent_from_starting(say: Say) -> None:
    say('[tools]\ndeny = ["shop:look"]\n')
    flow = ps.Workflow("parent")
    flow.step("child", one())

    async with opened() as penstock:
        with pytest.raises(ps.DefinitionError, match="shop:look may not be called"):
            await penstock.start(flow)


async def test_an_injected_step_that_names_a_denied_tool_is_rejected(say: Say) -> None:
    say('[tools]\ndeny = ["bad:*"]\n')

    async with opened() as penstock:
        run = await penstock.start(waiting())
        with pytest.raises(ps.CommandRejected, match="bad:echo may not be called"):
            await run.send(ps.InjectTasks(steps=(Step(id=StepId("x"), uses="bad:echo"),)))


async def test_an_agent_is_not_even_shown_what_a_pattern_of_its_tools_would_give_it(say: Say) -> None:
    say('[tools]\ndeny = ["shop:look"]\n')
    models = Models(Answer(text="done"))

    async with opened(models) as penstock:
        result = await (await penstock.start(agent("shop:*"))).result()

    assert result.status == "succeeded"
    assert [tool.name for tool in models._provider.asked[0].tools] == ["shop__check"]


async def test_what_was_injected_and_is_denied_by_the_time_of_its_turn_fails_and_says_why(
    say: Say, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    async with opened(store=store) as penstock:
        run = await penstock.start(waiting())
        _, asked = await question(penstock)
        late = Step(id=StepId("late"), uses="bad:echo", with_={"text": "hi"}, needs=(StepId("first"),))
        await run.send(ps.InjectTasks(steps=(late,)))
    say('[tools]\ndeny = ["bad:*"]\n')
    async with opened(store=store) as penstock:
        again = await penstock.resume(run.id)
        await again.send(Decide(decision=asked.decision, verb="approve"))
        result = await again.result()

    assert (result.status, "bad:echo may not be called" in result.reason) == ("failed", True)


# --- ask ---


@pytest.mark.parametrize("more", [{}, {"approval": False}, {"effect": "read"}, {"approval": "never"}])
async def test_a_tool_to_ask_about_is_asked_about_whatever_the_step_says(
    say: Say, more: dict[str, Any]
) -> None:
    say('[tools]\nask = ["shop:l*"]\n')

    async with opened() as penstock:
        run = await penstock.start(one(what="it", **more))
        _, asked = await question(penstock)
        await run.send(Decide(decision=asked.decision, verb="approve"))
        result = await run.result()

    assert asked.kind == "approval"
    assert "the rules for tools ask about 'shop:l*'" in asked.summary
    assert result.status == "succeeded"


async def test_a_call_of_a_child_is_asked_about(say: Say) -> None:
    say('[tools]\nask = ["shop:*"]\n')
    flow = ps.Workflow("parent", approval="never")
    flow.step("child", one())

    async with opened() as penstock:
        await penstock.start(flow)
        drive, asked = await question(penstock)
        assert (asked.kind, "/" in drive.id) == ("approval", True)


async def test_a_call_of_an_agent_is_asked_about(say: Say) -> None:
    say('[tools]\nask = ["shop:*"]\n')
    flow = ps.Workflow("asked", agents={"helper": {"prompt": "Help.", "tools": ["shop:look"]}})
    flow.step("a", "agent:helper", text="help", approval="never")

    async with opened(Models(wants("shop__look", what="it"), Answer(text="done"))) as penstock:
        run = await penstock.start(flow)
        drive, asked = await question(penstock)
        await drive.send(Decide(decision=asked.decision, verb="approve"))
        result = await run.result()

    assert asked.call["uses"] == "shop:look"
    assert result.status == "succeeded"


async def test_an_injected_call_is_asked_about(say: Say) -> None:
    say('[tools]\nask = ["bad:*"]\n')

    async with opened() as penstock:
        run = await penstock.start(waiting())
        extra = Step(id=StepId("x"), uses="bad:echo", with_={"text": "hi"})
        await run.send(ps.InjectTasks(steps=(extra,)))
        await until(lambda: len(run.state.decisions) == 2)
        assert {asked.step for asked in run.state.decisions.values()} == {"first", "x"}


POLICY = """
name: policy
config:
  approval: never
  ail:
    after: [first]
    decider: policy
    rules:
      - if: "true"
        do: inject
        tasks:
          - {id: more, uses: "bad:echo", with: {text: hi}}
steps:
  - {id: first, uses: "shop:look"}
  - {id: last, uses: "shop:look", needs: [first]}
"""


async def test_a_step_that_a_policy_adds_is_asked_about_or_refused_before_the_start(
    say: Say, tmp_path: Path
) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    say('[tools]\nask = ["bad:*"]\n')
    async with opened() as penstock:
        run = await penstock.start("policy.yaml")
        _, asked = await question(penstock)
        assert (asked.kind, asked.step) == ("approval", "more")
        await run.send(Decide(decision=asked.decision, verb="approve"))
        assert (await run.result()).status == "succeeded"

    say('[tools]\ndeny = ["bad:*"]\n')
    async with opened() as penstock:
        with pytest.raises(
            ps.DefinitionError, match=r"policy\.yaml:12:\d+: config.*bad:echo may not be called"
        ):
            await penstock.start("policy.yaml")


async def test_a_check_of_a_gate_cannot_wait_for_a_person(say: Say) -> None:
    say('[tools]\nask = ["shop:check"]\n')

    async with opened() as penstock:
        with pytest.raises(ps.DefinitionError, match="a check cannot wait for one"):
            await penstock.start(gated("shop:check"))


async def test_a_rule_that_came_while_a_run_was_away_holds_for_what_was_injected(
    say: Say, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    async with opened(store=store) as penstock:
        run = await penstock.start(waiting())
        _, asked = await question(penstock)
        late = Step(id=StepId("late"), uses="bad:echo", with_={"text": "hi"}, needs=(StepId("first"),))
        await run.send(ps.InjectTasks(steps=(late,)))
    say('[tools]\nask = ["bad:*"]\n')
    async with opened(store=store) as penstock:
        again = await penstock.resume(run.id)
        await again.send(Decide(decision=asked.decision, verb="approve"))
        await until(lambda: any(asked.step == "late" for asked in again.state.decisions.values()))


async def test_what_was_injected_goes_on_where_nobody_remembers_what_its_server_offers(
    say: Say, tmp_path: Path
) -> None:
    say("")
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    async with opened(store=store) as penstock:
        run = await penstock.start(waiting())
        _, asked = await question(penstock)
        late = Step(id=StepId("late"), uses="bad:echo", with_={"text": "hi"}, needs=(StepId("first"),))
        await run.send(ps.InjectTasks(steps=(late,)))
    (tmp_path / ".penstock" / "tools.json").unlink()
    async with opened(store=store) as penstock:
        again = await penstock.resume(run.id)
        await again.send(Decide(decision=asked.decision, verb="approve"))
        assert (await again.result()).status == "succeeded"


# --- effects and limits ---


async def test_an_effect_that_is_said_here_counts(say: Say) -> None:
    say('[tools.effects]\n"shop:*" = "destructive"\n"bad:echo" = "read"\n')

    async with opened() as penstock:
        assert penstock.prepare(one()).graph.guarded == {0}
        await penstock.tools.ready(["bad:echo"])
        assert penstock.tools.find("bad:echo").effect == "read"


async def test_a_limit_that_is_said_here_counts_where_the_step_sets_none(say: Say) -> None:
    say('[tools.timeouts]\n"*" = "2m"\n"shop:look" = 5\n')

    async with opened(Models()) as penstock:
        flows = (one(), one("shop:check"), one(timeout=1))
        assert [penstock.prepare(flow).works[0].timeout for flow in flows] == [5.0, 120.0, 1.0]


# --- what the built-in tools may touch ---


async def test_files_may_be_read_in_the_folders_that_are_named(say: Say, tmp_path: Path) -> None:
    say('[tools.files]\nroots = ["docs"]\n')
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("inside")

    async with opened() as penstock:
        good = await (await penstock.start(one("files:read", path="a.txt"))).result()
        bad = await (await penstock.start(one("files:read", path="../.mcp.json"))).result()

    assert good.status == "succeeded"
    assert "outside of the allowed folders" in bad.reason


async def test_a_program_is_run_when_it_is_named(say: Say) -> None:
    say('[tools.shell]\ncommands = ["printf"]\n')

    async with opened() as penstock:
        assert "shell:run" in penstock.tools.ids()
        flow = one("shell:run", argv=["rm", "x"], approval="never")
        assert "not among the programs" in (await (await penstock.start(flow)).result()).reason
    say("")
    async with opened() as penstock:
        assert "shell:run" not in penstock.tools.ids()


async def test_servers_whose_entry_does_not_say_take_what_is_said_for_all(say: Say) -> None:
    say('[tools.servers]\nidle = "7s"\ntimeout = 3\n')

    async with opened() as penstock:
        server = penstock.tools.servers.known["bad"]
        assert (server.idle, server.timeout, server.file) == (7.0, 3.0, ".mcp.json")


# --- servers that were never asked ---


async def test_an_injected_step_may_name_a_server_that_was_never_asked(say: Say) -> None:
    say("")
    async with opened() as penstock:
        run = await penstock.start(waiting())
        assert not penstock.tools.pool.upstreams["bad"].running
        _, asked = await question(penstock)
        extra = Step(id=StepId("x"), uses="bad:echo", with_={"text": "hi"})
        await run.send(ps.InjectTasks(steps=(extra,)))
        with pytest.raises(ps.CommandRejected, match="did you mean 'echo'"):
            await run.send(ps.InjectTasks(steps=(Step(id=StepId("y"), uses="bad:ecko"),)))
        await run.send(Decide(decision=asked.decision, verb="approve"))
        result = await run.result()

    assert result.steps[StepId("x")].status == "succeeded"


async def test_a_planner_may_name_a_server_that_was_never_asked(say: Say) -> None:
    say("")

    async def plan(_: Any, requirement: str) -> list[Step]:
        return [Step(id=StepId("x"), uses="bad:echo", with_={"text": requirement})]

    configuration = settings.read({**VARIABLES, "PENSTOCK_STORE": "memory:"})
    async with asyncio.timeout(20), ps.Penstock(configuration, tools=[look], planner=plan) as penstock:
        run = await penstock.start(waiting())
        _, asked = await question(penstock)
        await run.send(ReplanDag(requirement="more"))
        await until(lambda: StepId("x") in run.state.graph.index)
        await run.send(Decide(decision=asked.decision, verb="approve"))
        result = await run.result()

    assert result.steps[StepId("x")].status == "succeeded"


@pytest.mark.parametrize("pattern", ["bad:echo", "bad:*", "b*:echo"])
async def test_an_agent_may_name_a_server_that_was_never_asked(say: Say, pattern: str) -> None:
    say("")
    async with opened(Models(Answer(text="done"))) as penstock:
        assert (await (await penstock.start(agent(pattern))).result()).status == "succeeded"


async def test_a_gate_may_name_a_server_that_was_never_asked(say: Say) -> None:
    say("")
    async with opened() as penstock:
        result = await (await penstock.start(gated("bad:echo", text="true"))).result()
    assert result.status == "succeeded"


async def test_an_injected_gate_and_agent_are_looked_over(say: Say) -> None:
    say("")
    flow = ps.Workflow("waiting", agents={"helper": {"prompt": "Help.", "tools": ["bad:echo"]}})
    flow.step("first", "shop:look", approval=True)
    async with opened(Models(Answer(text="done"))) as penstock:
        run = await penstock.start(flow)
        await run.send(ps.InjectTasks(steps=(Step(id=StepId("x"), uses="agent:helper"),)))
        await until(lambda: run.steps[StepId("x")].status == "succeeded")
