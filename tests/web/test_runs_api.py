"""Runs over HTTP: starting, listing, looking at them, steering them."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from surface import Api, served

INLINE = {
    "name": "inline",
    "inputs": {"text": {"type": "string"}},
    "steps": [{"id": "parse", "uses": "data:parse_json", "with": {"text": "${ inputs.text }"}}],
    "outputs": {"parsed": "${ steps.parse.output }"},
}


async def test_health_and_the_description_need_no_token(folder: Path) -> None:
    async with served(folder) as api:
        api.http.headers.clear()
        health = await api.get("/healthz")
        described = (await api.get("/openapi.json")).body

    assert health == (200, {"status": "ok", "version": "1.2.3"})
    assert {"/api/runs", "/api/decisions/{decision}"} <= set(described["paths"])
    assert described["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert described["components"]["schemas"]["SkipStep"]["required"] == ["command", "step"]


async def test_a_run_of_a_file_is_started_with_its_inputs_and_shown(folder: Path) -> None:
    async with served(folder) as api:
        run = await api.start("ship", env="staging")
        [asked] = await api.asked(run)
        await api.answer(asked["id"], "approve")
        shown = await api.ended(run)

    assert shown["status"] == "succeeded"
    assert shown["outputs"] == {"where": "staging", "share": 100}
    assert shown["steps"]["pack"] == {"status": "succeeded", "attempts": 1, "iterations": 1, "reason": ""}


async def test_a_run_is_shown_as_the_command_line_shows_it(folder: Path) -> None:
    async with served(folder) as api:
        run = await api.start("ship")
        await api.asked(run)
        await api.let_go()
        shown = (await api.get(f"/api/runs/{run}")).body
    line = [sys.executable, "-m", "penstock", "show", run, "--json"]
    store = f"sqlite:///{folder}/.penstock/penstock.db"
    done = await asyncio.create_subprocess_exec(*line, "--store", store, stdout=asyncio.subprocess.PIPE)
    printed, _ = await done.communicate()

    assert shown == json.loads(printed)
    assert shown["status"] == "waiting"


async def test_the_state_after_any_event_can_be_looked_at(folder: Path) -> None:
    async with served(folder) as api:
        run = await api.start("ship")
        await api.asked(run)
        before = (await api.get(f"/api/runs/{run}?at=1")).body
        beyond = await api.get(f"/api/runs/{run}?at=99999")

    assert before["steps"]["pack"]["status"] != "succeeded"
    assert before["pending"] == []
    assert beyond.status == 400


async def test_runs_are_listed_a_page_at_a_time_and_narrowed_down(folder: Path) -> None:
    async with served(folder) as api:
        started = [await api.start("ship") for _ in range(3)]
        other = await api.start("held")
        first = (await api.get("/api/runs?workflow=ship&limit=2")).body
        second = (await api.get(f"/api/runs?workflow=ship&limit=2&cursor={first['next']}")).body
        running = (await api.get("/api/runs?status=running&workflow=held")).body
        (folder / "go").touch()

    pages = [[one["run_id"] for one in page["runs"]] for page in (first, second)]
    assert pages == [[started[2], started[1]], [started[0]]]
    assert second["next"] is None
    assert [one["run_id"] for one in running["runs"]] == [other]


async def test_a_definition_may_come_with_the_request(folder: Path) -> None:
    async with served(folder) as api:
        said = await api.post("/api/runs", {"definition": INLINE, "inputs": {"text": "[1, 2]"}})
        shown = await api.ended(said.body["run_id"])

    assert shown["outputs"] == {"parsed": [1, 2]}


@pytest.mark.parametrize(
    "change",
    [
        {"steps": [{"id": "a", "uses": "py:os:getcwd"}]},
        {"steps": [{"id": "a", "uses": "workflow:ship"}]},
        {"steps": [{"id": "a", "uses": "data:parse_json", "gate": {"checks": [{"run": ["true"]}]}}]},
        {"steps": [{"id": "a", "uses": "data:parse_json", "gate": {"checks": [{"tool": "py:os:getcwd"}]}}]},
        {"config": {"gate": {"checks": [{"run": ["true"]}]}}},
        {
            "config": {
                "ail": {
                    "rules": [{"if": "true", "do": "inject", "tasks": [{"id": "b", "uses": "py:os:getcwd"}]}]
                }
            }
        },
        {"config": {"agents": {"a": {"prompt": "p", "tools": ["py:os:getcwd"]}}}},
        {"reducers": {"a": "py:os:getcwd"}},
        {"on_complete": "ship"},
        {"steps": [{"id": "a", "uses": "data:parse_json", "approval": "never"}]},
        {"steps": [{"id": "a", "uses": "data:parse_json", "effect": "read"}]},
        {"config": {"approval": "never"}},
    ],
    ids=[
        *("py", "child", "run", "check-by-py", "gate-of-all", "rule", "agent", "reducer", "follower"),
        *("unapproved", "effect", "all-unapproved"),
    ],
)
async def test_a_definition_from_outside_brings_no_code_and_lowers_no_guard(
    folder: Path, change: dict[str, Any]
) -> None:
    async with served(folder) as api:
        said = await api.post(
            "/api/runs", {"definition": {**INLINE, "outputs": {}, **change}, "inputs": {"text": "1"}}
        )
        runs = (await api.get("/api/runs")).body["runs"]

    assert (said.status, said.error) == (422, "definition_error")
    assert "allowed only in workflow files" in said.body["error"]["message"]
    assert runs == []


async def test_only_files_of_the_served_folder_are_workflows(folder: Path) -> None:
    inside, outside = folder / "in", folder / "out"
    inside.mkdir()
    outside.mkdir()
    (outside / "secret.yaml").write_text("name: secret\nsteps: [{id: a, uses: 'data:parse_json'}]\n")
    (inside / "link.yaml").symlink_to(outside / "secret.yaml")
    (inside / "other.yaml").write_text("services: {web: {image: x}}\n")
    (inside / "broken.yaml").write_text("name: broken\nsteps:\n  - {id: a, uzes: x}\n")
    async with served(inside) as api:
        listed = {one["file"]: one for one in (await api.get("/api/workflows")).body["workflows"]}
        tries = ["../out/secret.yaml", str(outside / "secret.yaml"), "link.yaml", "nothing", "\x00"]
        said = [await api.post("/api/runs", {"workflow": name}) for name in tries]

    assert set(listed) == {
        "all.yaml",
        "curious.yaml",
        "broken.yaml",
        "busy.yaml",
        "family.yaml",
        "held.yaml",
        "many.yaml",
        "ship.yaml",
    }
    assert listed["ship.yaml"]["description"] == "Packs and deploys."
    assert listed["ship.yaml"]["inputs"]["env"]["default"] == "prod"
    assert "uzes" in str(listed["broken.yaml"]["problems"])
    assert str(folder) not in str(listed["broken.yaml"]["problems"])
    assert {(one.status, one.error) for one in said} == {(404, "unknown_workflow")}


async def test_tools_are_listed_with_their_schemas(folder: Path) -> None:
    async with served(folder) as api:
        tools = {one["id"]: one for one in (await api.get("/api/tools")).body["tools"]}

    assert tools["data:parse_json"]["effect"] == "read"
    assert "text" in tools["data:parse_json"]["input_schema"]["properties"]


async def test_a_command_steers_a_run_and_its_id_makes_it_one_command(folder: Path) -> None:
    async with served(folder) as api:
        run = await api.start("held")
        path = f"/api/runs/{run}/commands"
        skip = {"command": "skip_step", "step": "say", "id": "once"}
        twice = [await api.post(path, skip) for _ in range(2)]
        again = await api.post(path, {**skip, "id": "twice"})
        (folder / "go").touch()
        shown = await api.ended(run)
        late = await api.post(path, skip)

    accepted = {"run_id": run, "command": "skip_step", "id": "once", "accepted": True}
    assert [*twice, late] == [(200, accepted)] * 3
    assert (again.status, again.error) == (409, "command_rejected")
    assert shown["steps"]["say"]["status"] == "skipped"


async def test_a_command_for_a_run_that_waits_is_taken_and_the_run_goes_on(folder: Path) -> None:
    async with served(folder, looks=False) as api:
        run = await api.start("ship")
        await api.asked(run)
        await api.let_go()
        said = await api.post(f"/api/runs/{run}/commands", {"command": "skip_step", "step": "deploy"})
        shown = await api.ended(run)

    assert said.status == 200
    assert shown["steps"]["deploy"]["status"] == "skipped"


async def test_every_command_is_understood(folder: Path) -> None:
    from penstock.run.commands import kinds

    fields = {
        "skip_step": {"step": "nix"}, "skip_layer": {"layer": 99}, "retry_step": {"step": "nix"},
        "modify_args": {"step": "nix", "args": {}}, "message": {"text": "hello"},
        "inject_tasks": {"steps": [{"id": "new", "uses": "data:parse_json", "with": {"text": "1"}}]},
        "replan_dag": {"requirement": "more"}, "decide": {"decision": "x:1", "verb": "approve"},
    }  # fmt: skip
    last = ["abort"]
    async with served(folder) as api:
        run = await api.start("held")
        said = {
            name: await api.post(f"/api/runs/{run}/commands", {"command": name, **fields.get(name, {})})
            for name in [*(name for name in kinds() if name not in last), *last]
        }

    taken = {name for name, one in said.items() if one.status == 200}
    assert {one.status for one in said.values()} == {200, 409}
    assert taken == {
        "pause", "resume", "message", "checkpoint", "request_decision", "inject_tasks", "abort",
    }  # fmt: skip


async def rejected(api: Api, body: dict[str, Any]) -> None:
    run = await api.start("held")
    said = await api.post(f"/api/runs/{run}/commands", body)
    assert (said.status, said.error) == (422, "definition_error"), said


@pytest.mark.parametrize(
    "body",
    [{}, {"command": "pauze"}, {"command": "pause", "why": "x"}, {"command": "skip_step"}, {"command": []}],
)
async def test_what_is_no_command_is_refused_with_a_hint(folder: Path, body: dict[str, Any]) -> None:
    async with served(folder) as api:
        await rejected(api, body)
        (folder / "go").touch()
