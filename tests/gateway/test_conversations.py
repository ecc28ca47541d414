"""What a client and the gateway say to each other, from the first question to the end of a run."""

from __future__ import annotations

import asyncio
import json
import sys
import time

import pytest
from reached import ERAS, Gateway, Served, answering, structured

from penstock.gateway.definitions import DEFINITIONS

STEPS = [
    {"id": "sum", "uses": "sums:add", "with": {"a": 1, "b": 2}},
    {"id": "erase", "uses": "disk:erase", "with": {"path": "f${ steps.sum.output }"}},
]

each_era = pytest.mark.parametrize("era", ERAS)


@each_era
async def test_a_client_sees_exactly_the_meta_tools_and_what_they_may_do(gateway: Gateway, era: str) -> None:
    async with gateway.pipe(era) as client:
        tools = (await client.list_tools()).tools

    assert [tool.name for tool in tools] == [one.name for one in DEFINITIONS]
    assert [tool.input_schema for tool in tools] == [dict(one.input) for one in DEFINITIONS]
    hints = {tool.name: tool.annotations for tool in tools}
    assert hints["discover"].read_only_hint
    assert hints["execute"].destructive_hint


async def converse(client) -> None:
    found = structured(await client.call_tool("discover", {"intent": "erase a file for ever"}))
    assert found["tools"][0]["id"] == "disk:erase"
    assert found["tools"][0]["input_schema"]["required"] == ["path"]

    asked = structured(await client.call_tool("execute", {"steps": STEPS}))
    assert asked["status"] == "approval_required"
    assert asked["results"] == {"sum": 3}
    (pending,) = asked["pending"]
    assert pending["call"]["args"] == {"path": "f3"}

    answer = {"run_id": asked["run_id"], "decision": pending["decision"], "verb": "approve", "wait_s": 0}
    ended = structured(await client.call_tool("respond", answer))
    results = ended["results"]
    while ended["status"] == "running":
        ended = structured(await client.call_tool("continue", {"run_id": asked["run_id"]}))
        results.update(ended["results"])
    assert ended["status"] == "complete"
    assert results == {"erase": "erased f3"}


@each_era
async def test_a_run_goes_from_discovery_over_an_approval_to_its_end_over_pipes(
    gateway: Gateway, era: str
) -> None:
    async with gateway.pipe(era) as client:
        await converse(client)

    assert (gateway.folder / "erased").read_text() == "f3\n"


@each_era
async def test_a_run_goes_from_discovery_over_an_approval_to_its_end_over_http(
    gateway: Gateway, served: Served, era: str
) -> None:
    async with served.client(era) as client:
        await converse(client)

    assert (gateway.folder / "erased").read_text() == "f3\n"


@each_era
async def test_a_person_behind_the_client_approves_the_same_decision(gateway: Gateway, era: str) -> None:
    answer, asked = answering("accept", verb="approve")
    async with gateway.pipe(era, elicitation_callback=answer) as client:
        ended = structured(await client.call_tool("execute", {"steps": STEPS}))

    assert ended["status"] == "complete"
    assert ended["results"] == {"sum": 3, "erase": "erased f3"}
    assert len(asked) == 1
    assert "disk:erase" in asked[0]


@each_era
async def test_a_person_who_declines_has_rejected_the_call(
    gateway: Gateway, served: Served, era: str
) -> None:
    answer, _ = answering("decline")
    async with served.client(era, elicitation_callback=answer) as client:
        ended = structured(await client.call_tool("execute", {"steps": STEPS}))

    assert ended["status"] == "failed"
    assert not (gateway.folder / "erased").exists()


@each_era
async def test_a_person_who_looks_away_leaves_the_decision_open_and_is_not_asked_again(
    gateway: Gateway, era: str
) -> None:
    answer, asked = answering("cancel")
    async with gateway.pipe(era, elicitation_callback=answer) as client:
        open_ = structured(await client.call_tool("execute", {"steps": STEPS, "wait_s": 1}))
        again = structured(await client.call_tool("continue", {"run_id": open_["run_id"], "wait_s": 1}))

    assert (open_["status"], again["status"]) == ("approval_required", "approval_required")
    assert len(asked) == 1


async def test_a_person_who_takes_their_time_holds_up_no_call_and_is_heard_later(gateway: Gateway) -> None:
    from mcp_types import ElicitResult

    ready = asyncio.Event()

    async def slow(_context, _params) -> ElicitResult:
        await ready.wait()
        return ElicitResult(action="accept", content={"verb": "approve"})

    async with gateway.pipe("legacy", elicitation_callback=slow) as client:
        began = time.monotonic()
        first = structured(await client.call_tool("execute", {"steps": STEPS, "wait_s": 0.5}))
        took = time.monotonic() - began
        ready.set()
        ended = first
        while ended["status"] in ("approval_required", "running"):
            ended = structured(await client.call_tool("status", {"run_id": first["run_id"]}))

    assert first["status"] == "approval_required"
    assert took < 3
    assert ended["status"] == "complete"


@each_era
async def test_progress_tells_steps_done_of_steps_known_and_what_goes_on(gateway: Gateway, era: str) -> None:
    told: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))
        (gateway.folder / f"go{progress:.0f}").touch()

    steps = [
        {"id": "hold", "uses": "clocks:held", "with": {"file": "go0"}},
        {"id": "again", "uses": "clocks:held", "needs": ["hold"], "with": {"file": "go1"}},
    ]
    async with gateway.pipe(era) as client:
        call = {"steps": steps, "wait_s": 25}
        answer = structured(await client.call_tool("execute", call, progress_callback=hear))

    assert answer["status"] == "complete"
    assert [(done, known) for done, known, _ in told][:2] == [(0, 2), (1, 2)]
    assert told[1][2] == "1 of 2 steps done; again"


@each_era
async def test_nothing_is_told_to_a_client_that_did_not_ask_for_progress(gateway: Gateway, era: str) -> None:
    heard: list[str] = []

    async def hear(message: object) -> None:
        heard.append(type(message).__name__)

    async with gateway.pipe(era, message_handler=hear) as client:
        await client.call_tool("execute", {"steps": [STEPS[0]]})
        await client.call_tool("status", {})  # whatever was said before has arrived

    assert heard == []


@each_era
async def test_an_argument_that_looks_like_an_expression_is_a_text(gateway: Gateway, era: str) -> None:
    call = {"tool": "testing:echo", "args": {"text": "${HOME} is $${ not } yours"}}
    server = {"command": sys.executable, "args": ["-m", "penstock.testing.mcp_server"]}
    (gateway.folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"testing": server}}))
    async with gateway.pipe(era) as client:
        answer = structured(await client.call_tool("execute", call))

    assert answer["results"] == {"call": "${HOME} is $${ not } yours"}


@each_era
async def test_a_huge_result_is_shown_by_its_beginning_and_fetched_in_pages(
    gateway: Gateway, era: str
) -> None:
    async with gateway.pipe(era) as client:
        call = {"tool": "texts:long", "args": {"size": 40_000}}
        answer = structured(await client.call_tool("execute", call))
        shown = answer["results"]["call"]
        assert shown["characters"] == 40_000
        assert len(shown["beginning"]) < 1_000

        text, offset = "", 0
        while offset is not None:
            page = {"run_id": answer["run_id"], "fetch": shown["fetch"], "offset": offset}
            part = structured(await client.call_tool("continue", page))
            text, offset = text + part["text"], part["next"]
    assert text == "x" * 40_000


async def test_layers_are_shown_one_by_one_on_request(gateway: Gateway) -> None:
    async with gateway.pipe() as client:
        steps = [STEPS[0], {"id": "more", "uses": "sums:add", "with": {"a": "${ steps.sum.output }", "b": 4}}]
        first = structured(await client.call_tool("execute", {"steps": steps, "per_layer": True}))
        last = structured(await client.call_tool("continue", {"run_id": first["run_id"]}))

    assert (first["status"], first["results"]) == ("layer_complete", {"sum": 3})
    assert (last["status"], last["results"]) == ("complete", {"more": 7})


@each_era
async def test_tools_of_servers_are_found_and_called_behind_the_gateway(gateway: Gateway, era: str) -> None:
    server = {"command": sys.executable, "args": ["-m", "penstock.testing.mcp_server"]}
    broken = {"command": "no-such-command"}
    servers = {"mcpServers": {"testing": server, "broken": broken}}
    (gateway.folder / "servers.json").write_text(json.dumps(servers))

    async with gateway.pipe(era, "--servers", "servers.json") as client:
        found = structured(await client.call_tool("discover", {"intent": "say something back"}))
        call = {"tool": "testing:echo", "args": {"text": "hello"}}
        answer = structured(await client.call_tool("execute", call))

    assert "testing:echo" in [tool["id"] for tool in found["tools"]]
    assert answer["results"] == {"call": "hello"}
