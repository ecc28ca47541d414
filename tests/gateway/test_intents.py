"""What `execute` makes of an intent: it runs what is plainly meant, and asks back about the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.gateway.flows import Flows
from penstock.gateway.handles import Handles
from penstock.gateway.service import Session
from penstock.planner.finder import ToolFinder

FLOWS = {
    "room-report.yaml": """
name: room-report
description: Where a colleague sits, in words.
inputs:
  name: {type: string, description: the colleague}
steps:
  - id: find
    uses: desk:look_up
    with: {name: "${ inputs.name }"}
outputs: {room: "${ steps.find.output }"}
""",
    "tidy-desk.yaml": """
name: tidy-desk
steps:
  - id: note
    uses: desk:write_note
    with: {text: tidy}
""",
    "compose.yaml": "services: {db: {image: postgres}}\n",
}


class Desk:
    """Tools, workflow files, and a caller of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes: list[str] = []

    def tools(self) -> list[Any]:
        @ps.tool(effect="read", id="desk:look_up")
        async def look_up(name: str) -> int:
            """Look up the room of a colleague."""
            return {"Ada": 12}[name]

        @ps.tool(effect="write", id="desk:write_note")
        async def write_note(text: str) -> str:
            """Write a note and leave it on the desk."""
            self.notes.append(text)
            return "written"

        return [look_up, write_note]

    async def said(self, *calls: tuple[str, dict[str, Any]], by_words: bool = False) -> list[dict[str, Any]]:
        async with ps.open("memory:", tools=self.tools()) as penstock:
            finder, flows = ToolFinder(penstock.tools), Flows(self.folder)
            if by_words:
                finder = ToolFinder(penstock.tools, embedder=lambda: None)
            session = Session(penstock, finder, Handles(b"k" * 32), flows=flows)
            return [await session.call(name, args) for name, args in calls]

    async def asked(self, intent: str, **args: Any) -> dict[str, Any]:
        (answer,) = await self.said(("execute", {"intent": intent, "args": args}))
        return answer


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    for name, text in FLOWS.items():
        (tmp_path / name).write_text(text, "utf-8")
    return Desk(tmp_path)


async def test_a_workflow_that_is_plainly_meant_and_only_reads_is_run(desk: Desk) -> None:
    answer = await desk.asked("make the room report for my colleague", name="Ada")

    assert (answer["status"], answer["outputs"]) == ("complete", {"room": 12})


async def test_a_workflow_that_lacks_an_input_is_asked_back_about(desk: Desk) -> None:
    answer = await desk.asked("make the room report for my colleague")

    assert answer["status"] == "needs_input"
    first = answer["candidates"][0]
    assert first["missing"] == {"name": {"type": "string", "description": "the colleague"}}
    assert first["call"] == {"workflow": "room-report", "args": {}}
    assert "room-report needs name" in answer["reason"]


async def test_the_call_that_is_handed_back_can_be_sent_as_it_is(desk: Desk) -> None:
    back = await desk.asked("tidy the desk")
    call = next(one["call"] for one in back["candidates"] if one.get("workflow") == "tidy-desk")
    (answer,) = await desk.said(("execute", call))

    assert answer["status"] == "complete"
    assert desk.notes == ["tidy"]


async def test_a_workflow_that_changes_things_is_not_run_on_a_guess(desk: Desk) -> None:
    answer = await desk.asked("tidy the desk")

    assert answer["status"] == "needs_input"
    assert "not run on a guess" in answer["reason"]
    assert desk.notes == []


async def test_a_tool_that_is_plainly_meant_and_only_reads_is_run(desk: Desk) -> None:
    answer = await desk.asked("look up the room of my colleague", name="Ada")

    assert (answer["status"], answer["results"]) == ("complete", {"call": 12})


async def test_a_tool_that_writes_is_put_before_a_person_with_its_exact_call(desk: Desk) -> None:
    answer = await desk.asked("write a note, leave it on the desk", text="back at 3")

    assert answer["status"] == "approval_required"
    assert answer["pending"][0]["call"] == {"uses": "desk:write_note", "args": {"text": "back at 3"}}
    assert desk.notes == []


async def test_what_is_not_plain_is_answered_with_candidates_that_say_what_they_lack(desk: Desk) -> None:
    answer = await desk.asked("do something about the office party")

    assert answer["status"] == "needs_input"
    tools = {one["tool"]: one for one in answer["candidates"] if "tool" in one}
    assert list(tools["desk:look_up"]["missing"]) == ["name"]
    assert tools["desk:look_up"]["effect"] == "read"
    assert "come nearest" in answer["reason"]
    assert desk.notes == []


async def test_an_intent_that_fits_nothing_is_told_so(desk: Desk) -> None:
    (answer,) = await desk.said(("execute", {"intent": "zzz"}), by_words=True)

    assert answer["status"] == "needs_input"
    assert answer["candidates"] == []
    assert answer["reason"].startswith("nothing here fits")


async def test_arguments_that_a_thing_does_not_take_keep_it_from_being_run(desk: Desk) -> None:
    answer = await desk.asked("make the room report for my colleague", name="Ada", loud=True)

    assert answer["status"] == "needs_input"
    assert answer["candidates"][0]["unknown"] == ["loud"]
    assert answer["candidates"][0]["call"]["args"] == {"name": "Ada"}


async def test_a_workflow_is_run_by_its_name_and_one_that_is_not_there_is_refused(desk: Desk) -> None:
    right, wrong = await desk.said(
        ("execute", {"workflow": "room-report", "args": {"name": "Ada"}}),
        ("execute", {"workflow": "room-raport", "args": {"name": "Ada"}}),
    )

    assert right["outputs"] == {"room": 12}
    assert "room-report" in wrong["error"]
