"""Who is let in: tokens, hosts, origins, bodies; and what those are told who are not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from surface import TOKEN, served

from penstock.listening import Hosts
from penstock.web.library import Library

OPEN = ("/healthz", "/openapi.json")
GUARDED = (
    "/api/runs", "/api/runs/x", "/api/runs/x/events", "/api/decisions", "/api/decisions/x:1",
    "/api/workflows", "/api/tools", "/nix", "/", "/healthz/", "/healthz/../api/runs",
)  # fmt: skip


@pytest.mark.parametrize("given", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x"])
async def test_nothing_but_health_and_the_description_is_told_without_the_token(
    folder: Path, given: str
) -> None:
    async with served(folder) as api:
        api.http.headers.clear()
        headers = {"Authorization": given} if given else {}
        open_ = [await api.get(path, headers=headers) for path in OPEN]
        closed = [await api.get(path, headers=headers) for path in GUARDED]
        closed += [await api.post(path, {}, headers=headers) for path in GUARDED]

    assert [one.status for one in open_] == [200, 200]
    assert {(one.status, one.error) for one in closed} == {(401, "no_token")}
    assert "penstock serve" in closed[0].body["error"]["hint"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "localhost.evil.example:80"}, 421),
        ({"Host": "10.0.0.7"}, 421),
        ({"Host": "["}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "file://localhost"}, 403),
        ({"Origin": "http://127.0.0.1@evil.example"}, 403),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "[::1]:80"}, 200),
        ({"Host": "LOCALHOST"}, 200),
        ({"Origin": "http://localhost:8320"}, 200),
    ],
)
async def test_pages_of_other_sites_are_kept_out_even_where_no_token_is_needed(
    folder: Path, headers: dict[str, str], status: int
) -> None:
    async with served(folder) as api:
        said = [await api.get(path, headers=headers) for path in ("/healthz", "/api/runs")]

    assert [one.status for one in said] == [status, status]


def test_where_others_may_come_any_address_is_ours_but_no_name_of_somebody_else() -> None:
    hosts = Hosts("0.0.0.0")  # noqa: S104 - nobody listens

    assert hosts.ours("192.168.1.7:8320")
    assert hosts.ours("[fe80::1]:8320")
    assert not hosts.ours("evil.example:8320")
    assert Hosts("box.example").ours("box.example:8320")


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(folder: Path) -> None:
    async def endless() -> Any:
        while True:
            yield b"x" * 65_536
            await asyncio.sleep(0)

    async with served(folder) as api:
        announced = await api.ask("POST", "/api/runs", data=b"x" * 1_000_001)
        trickled = await api.ask("POST", "/api/runs", data=endless())
        fine = await api.post("/api/runs", {"workflow": "x" * 900_000})

    assert (announced.status, announced.error) == (413, "too_large")
    assert (trickled.status, trickled.error) == (413, "too_large")
    assert fine.status == 404


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b'"x"', b'{"workflow": NaN}', b'{"workflow": "\\ud800"}', b"\xff\xfe",
        b"[" * 100_000, b'{"workflow": 7}', b'{"workflow": "ship", "extra": 1}', b'{"inputs": {}}',
        b'{"workflow": "ship", "definition": {}}', b'{"definition": []}', b'{"definition": {}}',
        b'{"definition": {"name": 1, "steps": {"a": []}}}', b'{"workflow": "ship", "inputs": {"no": 1}}',
        b'{"workflow": "ship", "inputs": {"env": 1}}',
    ],
)  # fmt: skip
async def test_what_is_no_request_is_refused_with_a_reason_and_starts_nothing(
    folder: Path, body: bytes
) -> None:
    async with served(folder) as api:
        said = await api.ask("POST", "/api/runs", data=body, headers={"Content-Type": "application/json"})
        runs = (await api.get("/api/runs")).body["runs"]

    assert said.status == 422, said
    assert set(said.body["error"]) == {"type", "message", "hint"}
    assert said.body["error"]["message"]
    assert runs == []


@pytest.mark.parametrize(
    "query",
    ["status=nix", "limit=0", "limit=-1", "limit=1000000", "limit=x", f"limit={10**40}", "cursor=nix"],
)
async def test_a_wrong_query_is_refused(folder: Path, query: str) -> None:
    async with served(folder) as api:
        said = await api.get(f"/api/runs?{query}")

    assert said.status in (404, 422)
    assert said.body["error"]["message"]


async def test_unknown_paths_and_methods_are_answered_in_the_same_shape(folder: Path) -> None:
    async with served(folder) as api:
        path = await api.get("/nix")
        method = await api.ask("DELETE", "/api/runs")
        run = await api.get("/api/runs/nix")

    assert (path.status, path.error) == (404, "unknown_path")
    assert (method.status, method.error) == (405, "wrong_method")
    assert (run.status, run.error) == (404, "unknown_run")


async def test_secrets_and_paths_of_this_machine_are_masked_in_errors(folder: Path) -> None:
    async with served(folder) as api:
        said = await api.post("/api/runs", {"workflow": "postgresql://me:hunter2@host/x"})

    assert "hunter2" not in str(said.body)


async def test_a_fault_of_ours_is_told_to_who_runs_the_server_and_to_nobody_else(folder: Path) -> None:
    class Broken(Library):
        def lines(self) -> list[dict[str, Any]]:
            raise RuntimeError("what is inside")

    faults: list[Exception] = []
    async with served(folder, library=Broken(folder), faults=faults) as api:
        said = await api.get("/api/workflows")
        next_one = await api.get("/api/runs")

    assert (said.status, said.error) == (500, "fault")
    assert "inside" not in str(said.body)
    assert [str(one) for one in faults] == ["what is inside"]
    assert next_one.status == 200
