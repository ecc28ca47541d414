"""A pool of servers stays up whatever its servers do."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from serving import FAULTS, VARIABLES, alive, eventually, faults, handles, settled, wait

from penstock.errors import LostCall, ServerDown, ToolFailed, UnknownTool
from penstock.tools.mcp.base import Progress
from penstock.tools.mcp.config import Server
from penstock.tools.mcp.pool import Pool
from penstock.tools.mcp.watchdog import marked

Use = Callable[[Pool], Awaitable[Any]]


def using(use: Use, *servers: Server) -> Any:
    """What comes of using a pool; afterwards nothing of it may be left."""

    async def main() -> Any:
        async with Pool({server.name: server for server in servers}, variables=VARIABLES) as pool:
            result = await use(pool)
        assert marked(pool._watchdog.mark) == []
        return result

    return wait(main())


def test_nothing_is_started_before_it_is_needed() -> None:
    async def use(pool: Pool) -> None:
        assert not pool.upstreams["bad"].running
        assert await pool.call("bad", "echo", {"text": "hi"}) == "hi"
        assert pool.upstreams["bad"].running

    using(use, faults())


def test_callers_share_one_process() -> None:
    async def use(pool: Pool) -> int:
        calls = [pool.call("bad", "echo", {"text": f"{n}"}) for n in range(50)]
        assert await asyncio.gather(*calls) == list(range(50))
        return len(marked(pool._watchdog.mark))

    assert using(use, faults()) == 1


def test_a_server_that_is_not_used_is_stopped_and_started_again() -> None:
    async def use(pool: Pool) -> None:
        await pool.call("bad", "echo", {})
        assert await settled(lambda: not pool.upstreams["bad"].running and not marked(pool._watchdog.mark))
        assert await pool.call("bad", "echo", {"text": "back"}) == "back"

    using(use, faults(idle=0.2))


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (faults("never", start_timeout=0.5), "did not answer within 0.5 s"),
        (faults("mute", start_timeout=0.5), "did not say what it offers within 0.5 s"),
        (faults("dies"), "exit code 1; it last said: the key is missing | set THE_KEY"),
        (Server(name="bad", command="no-such-program"), "no-such-program was not found"),
        (Server(name="bad", command=FAULTS), "is not a program"),
        (Server(name="bad", command="sh", cwd="/nowhere"), "folder /nowhere does not exist"),
        (Server(name="bad", command="true"), "exit code 0"),
        (Server(name="bad", url="http://127.0.0.1:9/mcp"), "cannot be reached"),
    ],
)
def test_a_server_that_does_not_start_says_why_and_the_others_work(server: Server, words: str) -> None:
    told: list[Progress] = []

    async def use(pool: Pool) -> None:
        ended = {one.server: one for one in await pool.start(watch=told.append)}
        assert ended["well"].state == "ready"
        assert ended["bad"].state == "failed"
        assert words in ended["bad"].error
        with pytest.raises(ServerDown):
            await pool.call("bad", "echo", {})
        assert await pool.call("well", "echo", {"text": "fine"}) == "fine"

    using(use, server, faults(name="well"))
    assert [one.state for one in told if one.server == "well"] == ["starting", "ready"]


def test_a_server_that_talks_beside_the_protocol_is_understood() -> None:
    async def use(pool: Pool) -> None:
        assert await pool.call("bad", "echo", {"text": "hi"}) == "hi"
        assert await pool.call("bad", "chatter", {}) == "heard"

    using(use, faults("noisy"))


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("not_utf8", "not UTF-8"),
        ("not_json", "not JSON"),
        ("not_rpc", "JSON-RPC"),
        ("nothing", "no tool nothing"),
    ],
)
def test_an_answer_that_is_none_is_the_error_of_its_call_only(tool: str, words: str) -> None:
    async def use(pool: Pool) -> None:
        with pytest.raises(ToolFailed, match=words):
            await pool.call("bad", tool, {})
        assert await pool.call("bad", "echo", {"text": "still here"}) == "still here"
        assert pool.upstreams["bad"].health.failures == 0

    using(use, faults())


def test_an_answer_that_is_too_large_is_an_error_and_one_that_fits_is_not() -> None:
    async def use(pool: Pool) -> None:
        assert len(await pool.call("bad", "huge", {"size": 900_000})) == 900_000
        with pytest.raises(ToolFailed, match="larger than 1,000,000 bytes"):
            await pool.call("bad", "huge", {"size": 20_000_000})
        assert await pool.call("bad", "echo", {"text": "still here"}) == "still here"

    using(use, faults(max_bytes=1_000_000))


def test_a_server_that_dies_when_it_is_asked_for_its_new_tools_is_started_and_asked_again(
    tmp_path: Path,
) -> None:
    async def use(pool: Pool) -> None:
        upstream = pool.upstreams["bad"]
        await pool.call("bad", "turn", {"marker": str(tmp_path / "died")})
        assert await settled((tmp_path / "died").exists)
        assert "echo" in [tool.name for tool in (await upstream.tools()).tools]

    using(use, faults())


def test_a_write_that_was_lost_is_not_repeated(tmp_path: Path) -> None:
    file = tmp_path / "log"

    async def use(pool: Pool) -> None:
        with pytest.raises(LostCall, match=r"whether it happened is not known.*exit code 9"):
            await pool.call("bad", "append_and_crash", {"path": str(file)}, effect="write")
        assert pool.upstreams["bad"].health.state == "failing"
        assert await pool.call("bad", "append", {"path": str(file)}, effect="write") == "done"
        assert pool.upstreams["bad"].health.state == "ok"

    using(use, faults())
    assert file.read_text() == "once\nonce\n"


def test_a_read_that_was_lost_is_repeated_once(tmp_path: Path) -> None:
    file = tmp_path / "log"

    async def use(pool: Pool) -> None:
        with pytest.raises(LostCall, match="twice in a row"):
            await pool.call("bad", "append_and_crash", {"path": str(file)}, effect="read")

    using(use, faults())
    assert file.read_text() == "once\nonce\n"


def test_a_server_that_keeps_failing_rests_longer_each_time() -> None:
    async def use(pool: Pool) -> None:
        upstream = pool.upstreams["bad"]
        for _ in range(3):
            with pytest.raises(ServerDown):
                await upstream.tools()
        assert upstream.health.failures == 3
        assert 0.5 < upstream.health.not_before - upstream.health.at <= 1.0
        for _ in range(2):
            with pytest.raises(ServerDown):
                await upstream.tools()
        with pytest.raises(ServerDown, match="the next start is in"):  # and nobody waits for that
            await upstream.tools()

    using(use, Server(name="bad", command="no-such-program"))


def test_a_call_that_takes_too_long_is_given_up_and_the_server_is_killed_in_the_end() -> None:
    async def use(pool: Pool) -> None:
        await pool.start()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await pool.call("bad", "hang", {}, effect="read")
        assert pool.upstreams["bad"].health.state == "failing"

    using(use, faults())


def test_a_limit_of_the_server_counts_where_the_caller_has_none() -> None:
    async def use(pool: Pool) -> None:
        with pytest.raises(LostCall, match=r"no answer within 0\.2 s"):
            await pool.call("bad", "hang", {}, effect="read")

    using(use, faults(timeout=0.2))


def test_a_list_of_tools_without_end_is_cut_short() -> None:
    async def use(pool: Pool) -> int:
        return len((await pool.upstreams["bad"].tools()).tools)

    assert using(use, faults("endless")) == 200


def test_twenty_servers_start_side_by_side() -> None:
    servers = [faults(name=f"s{n}") for n in range(18)]
    servers += [faults("dies", name="d"), Server(name="none", command="no-such-program")]

    async def use(pool: Pool) -> list[Progress]:
        ended: list[Progress] = await pool.start()
        return ended

    states = [one.state for one in using(use, *servers)]
    assert (states.count("ready"), states.count("failed")) == (18, 2)


def test_a_server_nobody_configured_is_unknown() -> None:
    async def use(pool: Pool) -> None:
        with pytest.raises(UnknownTool, match="did you mean 'bad'"):
            await pool.call("bat", "echo", {})

    using(use, faults())


def test_a_server_sees_of_our_environment_only_what_it_needs() -> None:
    async def use() -> Any:
        server = Server(name="env", command="sh", args=("-c", "env >&2; exit 3"), env={"OWN": "x"})
        variables = {**VARIABLES, "OPENAI_API_KEY": "sk-1"}
        async with Pool({"env": server}, variables=variables) as pool:
            return (await pool.start())[0].error

    said = wait(use())
    assert "sk-1" not in said
    assert "exit code 3" in said


OWNER = """
import asyncio, os, sys
from penstock.tools.mcp.config import Server
from penstock.tools.mcp.pool import Pool
async def main():
    shell = Server(name="tree", command="sh", args=("-c", "sleep 1000 & setsid sleep 1001 & exec %s -S %s"))
    async with Pool({"tree": shell}, variables=dict(os.environ)) as pool:
        await pool.call("tree", "echo", {})
        print(pool._watchdog.mark, flush=True)
        await asyncio.sleep(1000)
asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_is_left_when_we_are_killed(number: signal.Signals) -> None:
    program = OWNER % (sys.executable, FAULTS)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as us:
        assert us.stdout is not None
        mark = us.stdout.readline().decode().strip()
        pids = marked(mark)
        assert len(pids) == 3  # the server, its child, and one that moved to a session of its own
        us.send_signal(number)
        us.wait()

    assert eventually(lambda: not any(map(alive, pids)))


def test_no_process_or_handle_leaks_over_calls_with_random_crashes() -> None:
    async def one(pool: Pool, n: int) -> str:
        try:
            args = {"chance": 0.04, "text": f"t{n}"}
            assert await pool.call(f"s{n % 3}", "flaky", args, effect="read") == f"t{n}"
        except (LostCall, ServerDown) as error:
            return type(error).__name__
        return "ok"

    async def use(pool: Pool) -> list[str]:
        await asyncio.gather(*(pool.call(f"s{n}", "echo", {}) for n in range(3)))
        before = handles()
        ends: list[str] = []
        for start in range(0, 400, 8):
            ends += await asyncio.gather(*(one(pool, n) for n in range(start, start + 8)))
        await asyncio.gather(*(pool.call(f"s{n}", "echo", {}) for n in range(3)))
        assert await settled(lambda: len(marked(pool._watchdog.mark)) <= 3 and handles() <= before)
        return ends

    before = handles()
    ends = using(use, *(faults(name=f"s{n}") for n in range(3)))

    assert len(ends) == 400
    assert ends.count("ok") > 200
    assert handles() <= before + 3


def test_a_watchdog_that_was_killed_is_replaced() -> None:
    async def use(pool: Pool) -> None:
        await pool.call("a", "echo", {})
        shell = pool._watchdog._shell
        assert shell is not None
        os.kill(shell.pid, signal.SIGKILL)
        shell.wait()
        await pool.call("b", "echo", {})
        assert pool._watchdog._shell is not shell

    using(use, faults(name="a"), faults(name="b"))
