"""Agents as steps: a child run in which every turn and every tool call is a task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import penstock as ps
from penstock.errors import DefinitionError, Unsupported
from penstock.models.base import Answer, Request, ToolCall, Usage
from penstock.models.calls import Unavailable
from penstock.models.providers.scripted import Scripted
from penstock.run.commands import Decide
from penstock.run.events import DecisionRequired, ModelCalled, TaskStarted
from penstock.testing import clock
from penstock.workflow.read import load

VERDICT = {
    "type": "object",
    "properties": {"verdict": {"enum": ["VERIFIED", "REVISE"]}},
    "required": ["verdict"],
}


class Models:
    """Whatever is asked, the script answers."""

    def __init__(self, *script: Answer) -> None:
        self.provider = Scripted(script)
        self.tiers: list[tuple[str, str]] = []

    @property
    def asked(self) -> list[Request]:
        return self.provider.asked

    async def chat(self, request: Request, *, tier: str = "", model: str = "") -> Answer:
        self.tiers.append((tier, model))
        return await self.provider.chat(model or "any", request)


class Shed:
    """Tools that remember how they were called."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def tools(self) -> list[Callable[..., Any]]:
        @ps.tool(id="files:read", effect="read")
        async def read(path: str) -> str:
            self.calls.append(("read", path))
            return f"what {path} says"

        @ps.tool(id="files:delete", effect="destructive")
        async def delete(path: str) -> str:
            self.calls.append(("delete", path))
            return "gone"

        @ps.tool(id="files:break", effect="read")
        async def broken() -> None:
            raise ValueError("the disk is on fire")

        return [read, delete, broken]


def says(text: str, **more: Any) -> Answer:
    return Answer(text=text, usage=Usage(10, 5), cost=0.01, **more)


def wants(*calls: tuple[str, str, dict[str, Any]]) -> Answer:
    made = tuple(ToolCall(id, name, args) for id, name, args in calls)
    return Answer(tool_calls=made, finish="tool_calls", usage=Usage(10, 5), cost=0.01)


def flow(**agent: Any) -> ps.Workflow:
    made = ps.Workflow("judged", agents={"critic": {"prompt": "You judge.", **agent}})
    made.step("judge", "agent:critic", text="is the sky blue?")
    made.output("answer", "${ steps.judge.output }")
    return made


async def asked(penstock: ps.Penstock) -> tuple[Any, DecisionRequired]:
    """The run that asks, and its first question."""
    async with asyncio.timeout(10):
        while True:
            for drive in penstock.engine.live.values():
                if drive.run.decisions:
                    return drive, next(iter(drive.run.decisions.values()))
            await asyncio.sleep(0)


async def test_an_agent_that_just_answers_gives_its_text() -> None:
    models = Models(says("yes"))
    async with ps.open("memory:", models=models) as penstock:
        result = await (await penstock.start(flow(tier="fast"))).result()

    assert result.outputs["answer"]["text"] == "yes"
    assert models.tiers == [("fast", "")]
    assert [message.role for message in models.asked[0].messages] == ["system", "user"]


async def test_tool_results_come_back_in_the_order_of_the_calls_and_errors_are_told() -> None:
    shed = Shed()
    models = Models(
        wants(("1", "files__read", {"path": "a"}), ("2", "files__break", {}), ("3", "files__nope", {})),
        says("done"),
    )
    async with ps.open("memory:", tools=shed.tools(), models=models) as penstock:
        result = await (await penstock.start(flow(tools=["files:*"]))).result()

    assert result.status == "succeeded"
    told = models.asked[1].messages[3:]
    assert [message.tool_call for message in told] == ["1", "2", "3"]
    assert told[0].content == "what a says"
    assert "the disk is on fire" in told[1].content
    assert "no tool" in told[2].content


async def test_only_the_tools_that_an_agent_may_call_are_shown_to_it() -> None:
    models = Models(says("ok"))
    async with ps.open("memory:", tools=Shed().tools(), models=models) as penstock:
        await (await penstock.start(flow(tools=["files:read"]))).result()

    assert [tool.name for tool in models.asked[0].tools] == ["files__read"]


@pytest.mark.parametrize("store", ["memory:", "sqlite"])
async def test_a_destructive_call_waits_for_approval_and_can_be_edited(store: str, tmp_path: Path) -> None:
    shed = Shed()
    models = Models(
        wants(("1", "files__read", {"path": "a"}), ("2", "files__delete", {"path": "b"})), says("done")
    )
    url = f"sqlite:///{tmp_path}/agents.db" if store == "sqlite" else store
    async with ps.open(url, tools=shed.tools(), models=models) as penstock:
        run = await penstock.start(flow(tools=["files:*"]))
        child, question = await asked(penstock)
        assert question.call == {"uses": "files:delete", "args": {"path": "b"}}
        await child.send(Decide(decision=question.decision, verb="edit", args={"path": "c"}))
        result = await run.result()

    assert result.status == "succeeded"
    assert shed.calls == [("read", "a"), ("delete", "c")]


async def test_a_rejected_call_is_told_to_the_model_and_never_made() -> None:
    shed = Shed()
    models = Models(wants(("2", "files__delete", {"path": "b"})), says("then not"))
    async with ps.open("memory:", tools=shed.tools(), models=models) as penstock:
        run = await penstock.start(flow(tools=["files:*"]))
        child, question = await asked(penstock)
        await child.send(Decide(decision=question.decision, verb="reject"))
        result = await run.result()

    assert result.outputs["answer"]["text"] == "then not"
    assert shed.calls == []
    assert "not made" in models.asked[1].messages[-1].content


async def test_a_restart_while_an_approval_waits_repeats_nothing(tmp_path: Path) -> None:
    shed = Shed()
    url = f"sqlite:///{tmp_path}/agents.db"
    models = Models(
        wants(("1", "files__read", {"path": "a"}), ("2", "files__delete", {"path": "b"})), says("done")
    )
    made = flow(tools=["files:*"])
    async with ps.open(url, tools=shed.tools(), models=models) as penstock:
        run = await penstock.start(made)
        await asked(penstock)
        id = run.id
    async with ps.open(url, tools=shed.tools(), models=models) as penstock:
        penstock.prepare(made)
        run = await penstock.resume(id)
        child, question = await asked(penstock)
        await child.send(Decide(decision=question.decision, verb="approve"))
        result = await run.result()

    assert result.status == "succeeded"
    assert shed.calls == [("read", "a"), ("delete", "b")]
    assert len(models.asked) == 2


async def test_an_answer_in_the_wrong_form_is_a_failed_gate_and_the_next_attempt_is_told() -> None:
    models = Models(
        says('{"verdict": "maybe"}'), says('{"verdict": "perhaps"}'), says('{"verdict": "VERIFIED"}')
    )
    async with ps.open("memory:", models=models) as penstock:
        result = await (await penstock.start(flow(output=VERDICT))).result()

    assert result.outputs["answer"] == {"verdict": "VERIFIED"}
    assert result.steps["judge"].attempts == 2
    assert "refused" in models.asked[-1].messages[1].content


async def test_what_a_person_puts_in_the_place_of_a_lost_call_is_its_result(tmp_path: Path) -> None:
    begun = asyncio.Event()

    @ps.tool(id="files:write", effect="write")
    async def write(path: str) -> str:
        begun.set()
        await asyncio.Event().wait()
        return path

    url = f"sqlite:///{tmp_path}/agents.db"
    models = Models(
        wants(("1", "files__write", {"path": "a"}), ("2", "files__read", {"path": "b"})), says("done")
    )
    made = flow(tools=["files:*"])
    tools = [write, *Shed().tools()]
    async with ps.open(url, tools=tools, models=models) as penstock:
        run = await penstock.start(made)
        await begun.wait()
        id = run.id
    async with ps.open(url, tools=tools, models=models) as penstock:
        penstock.prepare(made)
        run = await penstock.resume(id)
        child, question = await asked(penstock)
        assert question.kind == "orphan"
        assert question.call == {"uses": "files:write", "args": {"path": "a"}}
        assert 'called files:write {"path":"a"} when the process died' in question.summary
        await child.send(Decide(decision=question.decision, verb="accept", args={"output": {"bytes": 3}}))
        result = await run.result()

    assert result.status == "succeeded", result.reason
    assert [(one.tool_call, one.content) for one in models.asked[1].messages[-2:]] == [
        ("1", '{"bytes":3}'),
        ("2", "what b says"),
    ]


@pytest.mark.parametrize(
    "call",
    [
        ToolCall("1", "files__erase", {"path": "a"}),
        ToolCall("1", "files__delete", {"pth": "a"}),
        ToolCall("1", "files__delete", {"path": 3}),
        ToolCall("1", "files__delete", problem="the arguments are not JSON", raw="{path"),
    ],
)
async def test_nobody_is_asked_about_a_call_that_cannot_be_made(call: ToolCall) -> None:
    shed = Shed()
    models = Models(Answer(tool_calls=(call,), finish="tool_calls"), says("then not"))
    made = ps.Workflow("judged", agents={"critic": {"tools": ["files:*"]}})
    made.step("judge", "agent:critic", text="tidy up", approval=True)
    async with ps.open("memory:", tools=shed.tools(), models=models) as penstock, asyncio.timeout(10):
        run = await penstock.start(made)
        parent, question = await asked(penstock)
        await parent.send(Decide(decision=question.decision, verb="approve"))  # the agent itself
        result = await run.result()

    assert (result.status, shed.calls) == ("succeeded", [])
    assert models.asked[1].messages[-1].content.startswith("error: ")


async def test_a_degraded_answer_says_so_in_the_steps_output() -> None:
    class Degraded(Models):
        async def chat(self, request: Request, *, tier: str = "", model: str = "") -> Answer:
            answer = await super().chat(request, tier=tier, model=model)
            return replace(answer, degraded=True)

    async with ps.open("memory:", models=Degraded(says("yes"))) as penstock:
        result = await (await penstock.start(flow())).result()

    assert result.outputs["answer"]["degraded"] is True


@pytest.mark.parametrize("most", [1, 2, 3])
async def test_an_agent_that_never_stops_is_stopped_at_its_last_turn(most: int) -> None:
    shed = Shed()
    models = Models(*(wants((str(n), "files__read", {"path": str(n)})) for n in range(9)))
    async with ps.open("memory:", tools=shed.tools(), models=models) as penstock:
        result = await (await penstock.start(flow(tools=["files:*"], max_turns=most))).result()

    assert result.status == "failed"
    assert f"max_turns: {most}" in result.reason
    assert "still wants to call files:read" in result.reason
    assert len(models.asked) == most
    assert len(shed.calls) == most - 1  # what nobody would read is not called for


async def test_one_turn_is_enough_for_an_agent_that_calls_nothing() -> None:
    models = Models(says("yes"))
    async with ps.open("memory:", tools=Shed().tools(), models=models) as penstock:
        result = await (await penstock.start(flow(tools=["files:*"], max_turns=1))).result()

    assert result.outputs["answer"]["text"] == "yes"


async def test_a_tool_that_is_not_on_the_list_is_never_called_whatever_the_model_wants() -> None:
    shed = Shed()
    models = Models(wants(("1", "files__delete", {"path": "a"}), ("2", "files:delete", {})), says("then not"))
    async with ps.open("memory:", tools=shed.tools(), models=models) as penstock:
        result = await (await penstock.start(flow(tools=["files:read"]))).result()

    assert (result.status, shed.calls) == ("succeeded", [])
    assert all("there is no tool" in message.content for message in models.asked[1].messages[-2:])


async def test_what_the_models_cost_is_counted_in_the_parent() -> None:
    models = Models(wants(("1", "files__read", {"path": "a"})), says("done"))
    async with ps.open("memory:", tools=Shed().tools(), models=models) as penstock:
        run = await penstock.start(flow(tools=["files:*"]))
        result = await run.result()
        events = [
            event for child in await penstock.store.runs() for event in await penstock.store.load(child.run)
        ]

    assert result.usage["usd"] == pytest.approx(0.02)
    assert result.usage["tokens"] == 30
    assert sum(isinstance(event, ModelCalled) for event in events) == 2
    assert sum(isinstance(event, TaskStarted) and event.step == "turn" for event in events) == 2


def test_a_turn_whose_time_is_up_fails_with_what_the_models_said() -> None:
    class Slow:
        async def chat(self, request: Request, *, tier: str = "", model: str = "") -> Answer:  # noqa: ARG002
            await asyncio.sleep(request.timeout)
            raise Unavailable("standard", retry_after=5.0, why="its time is up")

    async def main() -> ps.Result:
        async with ps.open("memory:", models=Slow()) as penstock:
            return await (await penstock.start(flow())).result()

    result = clock.run(main())

    assert result.unavailable
    assert "its time is up" in result.reason


async def test_a_model_that_cannot_be_asked_fails_the_step_with_its_reason() -> None:
    async with ps.open("memory:", models=Models()) as penstock:
        result = await (await penstock.start(flow())).result()

    assert result.status == "failed"
    assert "agent run ended failed" in result.reason


async def test_a_tier_or_model_that_nobody_knows_is_refused_before_anything_runs() -> None:
    class Named(Models):
        def unknown(self, *, tier: str = "", model: str = "") -> str:
            return "" if (tier, model) == ("best", "") else f"there is no {tier or model}"

    models = Named(says("yes"))
    async with ps.open("memory:", models=models) as penstock:
        for wrong in ({"tier": "bset"}, {"model": "lab/x"}):
            with pytest.raises(DefinitionError, match=r"agent critic: there is no (bset|lab/x)"):
                await penstock.start(flow(**wrong))
        result = await (await penstock.start(flow(tier="best"))).result()

    assert result.status == "succeeded"
    assert len(models.asked) == 1


async def test_an_unknown_agent_or_tool_is_refused_before_anything_runs() -> None:
    made = ps.Workflow("lost")
    made.step("judge", "agent:critic", text="?")
    async with ps.open("memory:", models=Models()) as penstock:
        with pytest.raises(DefinitionError, match="no agent is called 'critic'"):
            await penstock.start(made)
        with pytest.raises(DefinitionError, match="files:nope"):
            await penstock.start(flow(tools=["files:nope"]))


def test_an_agent_may_be_described_in_a_file_beside_the_workflow(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "flow.yaml").write_text('name: x\nsteps:\n  - {id: a, uses: "agent:writer"}\n')
    (tmp_path / "agents" / "writer.md").write_text("---\ntier: fast\nmax_turns: 4\n---\nYou write.\n")

    spec = load(tmp_path / "flow.yaml").workflow.config.agents["writer"]

    assert (spec.prompt, spec.tier, spec.max_turns) == ("You write.", "fast", 4)


def test_a_mistake_in_such_a_file_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "flow.yaml").write_text('name: x\nsteps:\n  - {id: a, uses: "agent:writer"}\n')
    (tmp_path / "agents" / "writer.yaml").write_text("promt: You write.\n")

    with pytest.raises(DefinitionError, match=r"writer\.yaml.*promt"):
        load(tmp_path / "flow.yaml")


async def test_without_models_an_agent_is_refused_by_name() -> None:
    async with ps.open("memory:") as penstock:
        penstock._preparer._models = None
        with pytest.raises(Unsupported, match="no models"):
            await penstock.start(flow())
