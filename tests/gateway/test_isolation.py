"""Who sees what: clients apart from each other, runs that outlive clients, and calls that are wrong."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from reached import ERAS, Gateway, Served, structured

HELD = {"tool": "clocks:held", "wait_s": 0}
each_era = pytest.mark.parametrize("era", ERAS)


@each_era
async def test_a_client_that_comes_back_over_http_finds_its_run_by_the_handle(
    gateway: Gateway, served: Served, era: str
) -> None:
    async with served.client(era) as client:
        handle = structured(await client.call_tool("execute", HELD))["run_id"]
    (gateway.folder / "go").touch()
    async with served.client(era) as client:
        ended = structured(await client.call_tool("continue", {"run_id": handle}))

    assert (ended["status"], ended["results"]) == ("complete", {"call": "gone"})
    assert (gateway.folder / "begun").read_text() == "begun\n"


@each_era
async def test_a_run_that_was_unfinished_when_its_process_ended_is_taken_up_by_the_next(
    gateway: Gateway, era: str
) -> None:
    async with gateway.pipe(era) as client:
        handle = structured(await client.call_tool("execute", HELD))["run_id"]
    (gateway.folder / "go").touch()
    async with gateway.pipe(era) as client:
        ended = structured(await client.call_tool("continue", {"run_id": handle}))
        listed = structured(await client.call_tool("status", {}))

    assert (ended["status"], ended["results"]) == ("complete", {"call": "gone"})
    assert listed["runs"] == []


async def test_the_next_process_takes_it_up_by_itself(gateway: Gateway) -> None:
    async with gateway.pipe() as client:
        handle = structured(await client.call_tool("execute", HELD))["run_id"]
    (gateway.folder / "go").touch()
    async with gateway.pipe() as client:
        stands = {"status": "running"}
        while stands["status"] == "running":  # `status` only looks
            stands = structured(await client.call_tool("status", {"run_id": handle}))

    assert stands["status"] == "complete"


async def test_two_who_go_on_with_a_run_at_the_same_time_drive_it_once(tmp_path: Path) -> None:
    import asyncio

    import penstock as ps
    from penstock.engines.waiting import let_go
    from penstock.gateway.handles import Handles
    from penstock.gateway.service import Session
    from penstock.gateway.taking import Taken
    from penstock.planner.finder import ToolFinder

    begun: asyncio.Queue[int] = asyncio.Queue()

    @ps.tool(effect="read", id="clocks:held")
    async def held() -> None:
        begun.put_nowait(1)
        await asyncio.Event().wait()

    url = f"sqlite:///{tmp_path}/runs.db"
    async with ps.open(url, tools=[held]) as penstock:
        session = Session(penstock, ToolFinder(penstock.tools), Handles(b"k" * 32))
        id = (await session.call("execute", HELD))["run_id"].partition("~")[0]
        await begun.get()
        await let_go(penstock.engine)
    async with ps.open(url, tools=[held]) as penstock:
        runs = Taken(penstock)
        one, other, _ = await asyncio.gather(runs.resume(id), runs.resume(id), runs.take_up())
        await begun.get()
        assert one.state is other.state
        await let_go(penstock.engine)

    assert begun.empty()


@each_era
async def test_two_clients_at_once_see_only_their_own_runs(
    gateway: Gateway, served: Served, era: str
) -> None:
    async with served.client(era) as one, served.client(era) as other:
        handle = structured(await one.call_tool("execute", HELD))["run_id"]
        theirs = structured(await other.call_tool("status", {}))
        bare = {"run_id": handle.partition("~")[0]}
        peeks = [
            await other.call_tool("status", bare),
            await other.call_tool("abort", bare),
            await other.call_tool("continue", {**bare, "fetch": "call"}),
        ]
        still = structured(await one.call_tool("status", {"run_id": handle}))
        (gateway.folder / "go").touch()
        ended = structured(await one.call_tool("continue", {"run_id": handle}))

    assert theirs["runs"] == []
    assert all(peek.is_error for peek in peeks)
    assert (still["status"], ended["status"]) == ("running", "complete")


async def test_a_handle_of_another_gateway_opens_nothing(gateway: Gateway, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Gateway(tmp_path / "other")
    async with gateway.pipe() as client:
        handle = structured(await client.call_tool("execute", HELD))["run_id"]
    async with other.pipe() as client:
        peek = await client.call_tool("status", {"run_id": handle})

    assert peek.is_error
    assert "no run has the handle" in structured(peek)["error"]


@pytest.mark.parametrize(
    ("name", "args", "said"),
    [
        ("execute", {}, "give one of"),
        ("execute", {"tool": "no:such"}, "unknown tool 'no:such'"),
        ("execute", {"tool": "sums:add", "args": {"a": 1}}, "needs the argument 'b'"),
        ("execute", {"tool": "sums:add", "argz": {}}, "argz"),
        ("execute", {"tool": "sums:add", "wait_s": 600}, "wait_s: 600 is greater than the maximum"),
        ("execute", {"steps": [{"id": "a"}]}, "'uses' is a required property"),
        ("execute", {"steps": [{"id": "a", "uses": "py:os:getcwd"}]}, "allowed only in workflow files"),
        ("execute", {"steps": [{"id": "a", "uses": "workflow:ship"}]}, "allowed only in workflow files"),
        (
            "execute",
            {"steps": [{"id": "a", "uses": "disk:erase", "approval": "never"}]},
            "steps without approval are allowed only in workflow files",
        ),
        (
            "execute",
            {"steps": [{"id": "a", "uses": "disk:erase", "effect": "read"}]},
            "`effect: read` is allowed only in workflow files",
        ),
        ("discover", {"intent": 7}, "intent: 7 is not of type 'string'"),
        ("respond", {"run_id": "x"}, "'decision' is a required property"),
        ("status", {"run_id": "nonsense"}, "no run has the handle"),
        ("_live", {"id": "x"}, "there is no tool '_live'"),
        ("exekute", {}, "execute"),
    ],
)
@each_era
async def test_a_call_that_is_wrong_is_answered_with_what_is_wrong_and_nothing_breaks(
    calls: Any, era: str, name: str, args: dict[str, Any], said: str
) -> None:
    wrong, right = await calls(era, (name, args), ("execute", {"tool": "sums:add", "args": {"a": 1, "b": 1}}))

    assert wrong.is_error
    assert said in structured(wrong)["error"]
    assert structured(right)["results"] == {"call": 2}


@pytest.fixture
def calls() -> Any:
    """Calls of a gateway in this process, which is as good for this and quicker."""
    from mcp import Client

    import penstock as ps
    from penstock.gateway.handles import Handles
    from penstock.gateway.server import Gateway as Server
    from penstock.planner.finder import ToolFinder

    async def make(era: str, *wanted: tuple[str, dict[str, Any]]) -> list[Any]:
        @ps.tool(effect="read", id="sums:add")
        async def add(a: int, b: int) -> int:
            return a + b

        async with ps.open("memory:", tools=[add]) as penstock:
            server = Server(penstock, ToolFinder(penstock.tools), Handles(b"k" * 32)).server
            async with Client(server, mode=era) as client:
                return [await client.call_tool(name, args) for name, args in wanted]

    return make


async def test_http_is_refused_without_the_token_and_to_pages_of_the_web(served: Served) -> None:
    import aiohttp

    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    right = {"Authorization": f"Bearer {served.token}", "Accept": "application/json, text/event-stream"}
    cases = [
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Host": "evil.example"}, 421),
        ({"Origin": "https://evil.example"}, 403),
    ]
    async with aiohttp.ClientSession() as web:
        for wrong, status in cases:
            async with web.post(served.url, json=body, headers={**right, **wrong}) as answer:
                assert answer.status == status, wrong


@pytest.mark.parametrize("address", ["0.0.0.0:0", "192.168.1.5:80", "127.0.0.1:x", "127.0.0.1:99999"])
def test_only_this_machine_may_be_served(gateway: Gateway, address: str) -> None:
    done = subprocess.run(
        [*gateway.line, "--http", address],
        cwd=gateway.folder,
        env=gateway.env,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert "may be served" in done.stderr or "is not an address" in done.stderr


async def test_the_key_and_the_token_are_readable_by_nobody_else(gateway: Gateway, served: Served) -> None:
    own = gateway.folder / ".penstock"
    async with served.client() as client:
        await client.call_tool("status", {})

    assert {path.name: path.stat().st_mode & 0o777 for path in own.glob("gateway.*")} == {
        "gateway.key": 0o600,
        "gateway.token": 0o600,
    }
