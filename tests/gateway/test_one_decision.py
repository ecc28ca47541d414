"""One decision, three ways to answer it; and a gateway that is killed in the middle of it all."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from reached import ERAS, Gateway, Served, structured

ERASE = {"tool": "disk:erase", "args": {"path": "f"}}
each_era = pytest.mark.parametrize("era", ERAS)


def typed(gateway: Gateway, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *words],
        cwd=gateway.folder,
        env=gateway.env,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


@each_era
async def test_an_approval_from_another_terminal_is_the_answer_and_a_second_one_counts_no_more(
    gateway: Gateway, era: str
) -> None:
    async with gateway.pipe(era) as client:
        asked = structured(await client.call_tool("execute", ERASE))
        (pending,) = asked["pending"]
        approved = typed(gateway, "approve", pending["decision"])
        ended = structured(await client.call_tool("continue", {"run_id": asked["run_id"]}))
        again = {"run_id": asked["run_id"], "decision": pending["decision"], "verb": "reject"}
        late = structured(await client.call_tool("respond", again))

    assert approved.returncode == 0, approved.stderr
    assert (ended["status"], ended["results"]) == ("complete", {"call": "erased f"})
    assert "ended" in late["error"]
    assert (gateway.folder / "erased").read_text() == "f\n"


async def test_the_inbox_lists_what_a_client_is_asked(gateway: Gateway) -> None:
    async with gateway.pipe() as client:
        asked = structured(await client.call_tool("execute", ERASE))
        listed = typed(gateway, "decide", "--list", "--json")

    assert asked["pending"][0]["decision"] in listed.stdout


@contextmanager
def serving(gateway: Gateway) -> Iterator[tuple[subprocess.Popen[str], Served]]:
    """A gateway that is killed in the end, without a word of warning."""
    line = [*gateway.line, "--http", "127.0.0.1:0"]
    process = subprocess.Popen(line, cwd=gateway.folder, env=gateway.env, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = process.stderr.readline() + process.stderr.readline()
        url, token = re.search(r"http://\S+", said), re.search(r"Bearer (\S+)", said)
        assert url is not None, said
        assert token is not None, said
        yield process, Served(url[0], token[1])
    finally:
        process.kill()
        process.wait(15)
        assert process.stderr is not None
        process.stderr.close()


@each_era
async def test_a_run_goes_on_after_the_gateway_was_killed_and_the_handle_still_opens_it(
    gateway: Gateway, era: str
) -> None:
    with serving(gateway) as (_, served):
        async with served.client(era) as client:
            handle = structured(await client.call_tool("execute", {"tool": "clocks:held", "wait_s": 1}))
    (gateway.folder / "go").touch()
    with serving(gateway) as (_, served):
        async with served.client(era) as client:
            ended = structured(await client.call_tool("continue", {"run_id": handle["run_id"]}))

    assert handle["status"] == "running"
    assert (ended["status"], ended["results"]) == ("complete", {"call": "gone"})
