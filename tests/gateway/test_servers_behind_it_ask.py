"""A server behind the gateway asks in the middle of a call: one decision, answered in any of the ways."""

from __future__ import annotations

import json
import sys

import pytest
from reached import ERAS, Gateway, answering, structured

each_era = pytest.mark.parametrize("era", ERAS)
STEPS = [{"id": "pick", "uses": "shop:pick"}]


@pytest.fixture
def shop(gateway: Gateway) -> Gateway:
    server = {"command": sys.executable, "args": ["-m", "penstock.testing.mcp_server"]}
    (gateway.folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"shop": server}}))
    return gateway


@each_era
async def test_the_agent_answers_it_with_respond(shop: Gateway, era: str) -> None:
    async with shop.pipe(era) as client:
        open_ = structured(await client.call_tool("execute", {"steps": STEPS}))
        (asked,) = open_["pending"]
        assert (open_["status"], asked["kind"]) == ("decision_required", "input")
        assert asked["schema"]["respond"]["required"] == ["colour"]
        assert "Which colour?" in asked["summary"]

        given = {"run_id": open_["run_id"], "decision": asked["decision"], "verb": "respond"}
        bad = structured(await client.call_tool("respond", {**given, "args": {"colour": 1}}))
        ended = structured(await client.call_tool("respond", {**given, "args": {"colour": "red"}}))

    assert "is not of type 'string'" in bad["error"]
    assert (ended["status"], ended["results"]) == ("complete", {"pick": "red"})


@each_era
async def test_the_person_behind_the_client_fills_in_the_servers_own_form(shop: Gateway, era: str) -> None:
    answer, asked = answering("accept", colour="blue")
    async with shop.pipe(era, elicitation_callback=answer) as client:
        ended = structured(await client.call_tool("execute", {"steps": STEPS}))

    assert (ended["status"], ended["results"]) == ("complete", {"pick": "blue"})
    assert len(asked) == 1


@each_era
async def test_the_person_behind_the_client_declines(shop: Gateway, era: str) -> None:
    answer, asked = answering("decline")
    async with shop.pipe(era, elicitation_callback=answer) as client:
        ended = structured(await client.call_tool("execute", {"steps": STEPS}))

    assert ended["status"] == "failed"
    assert len(asked) == 1
