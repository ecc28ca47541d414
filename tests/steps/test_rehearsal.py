"""Workflows with agents in tests and demos: from a script, or from what a model once said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.models.base import Answer, ToolCall
from penstock.models.providers.cassette import Recorder, Replay
from penstock.models.providers.hosted import Hosted
from penstock.models.providers.http import Http
from penstock.models.providers.scripted import Scripted
from penstock.models.router import Router
from penstock.testing.models import ModelServer
from penstock.testing.rehearsal import rehearsed
from penstock.testing.wires import Called, Says


@ps.tool(id="files:read", effect="read")
async def read(path: str) -> str:
    return f"what {path} says"


async def said(models: Router, **agent: Any) -> Any:
    made = ps.Workflow("asked", agents={"reader": {"prompt": "Read.", "tools": ["files:*"], **agent}})
    made.step("ask", "agent:reader", text="what is in a?")
    made.output("answer", "${ steps.ask.output }")
    async with ps.open("memory:", tools=[read], models=models) as penstock, models:
        result = await (await penstock.start(made)).result()
    return result.check().outputs["answer"]


@pytest.mark.parametrize("tier", ["", "best", "local"])
async def test_a_script_answers_whatever_the_tier(tier: str) -> None:
    script = Scripted(
        [Answer(tool_calls=(ToolCall("1", "files__read", {"path": "a"}),)), "Nothing much."], name="demo"
    )

    answer = await said(rehearsed(script), **({"tier": tier} if tier else {}))

    assert answer == {"text": "Nothing much.", "served_by": "demo/any", "label": "scripted"}
    assert script.asked[1].messages[-1].content == "what a says"


async def test_what_was_recorded_once_is_played_without_anyone_to_ask(tmp_path: Path) -> None:
    cassette = tmp_path / "talk.jsonl"
    async with ModelServer() as server, Http() as http:
        openai = Hosted(server.endpoint("openai"), http)
        server.script(
            "openai",
            Says(text="", calls=[Called(name="files__read", arguments={"path": "a"}, id="1")]),
            Says(text="Nothing much."),
        )
        live = await said(rehearsed(Recorder(openai, cassette), model="gpt"))

    replayed = await said(rehearsed(Replay(cassette, name="openai"), model="gpt"))

    assert live["text"] == replayed["text"] == "Nothing much."
    assert replayed["label"] == "replayed"
