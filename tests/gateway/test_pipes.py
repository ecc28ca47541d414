"""The pipes to a client: what tools print stays out of them, and nonsense in them does no harm."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from reached import ERAS, Gateway, structured

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


@pytest.mark.parametrize("era", ERAS)
async def test_what_a_tool_prints_does_not_get_between_the_messages(gateway: Gateway, era: str) -> None:
    async with gateway.pipe(era) as client:
        noisy = structured(await client.call_tool("execute", {"tool": "texts:noisy"}))
        after = structured(await client.call_tool("execute", {"tool": "sums:add", "args": {"a": 1, "b": 2}}))

    assert noisy["results"] == {"call": "read b''"}
    assert after["results"] == {"call": 3}


def answers(gateway: Gateway, *lines: bytes) -> list[dict[str, Any]]:
    """What the gateway says to these lines, from a client that then leaves."""
    done = subprocess.run(
        gateway.line,
        cwd=gateway.folder,
        env=gateway.env,
        input=b"".join(line + b"\n" for line in lines),
        capture_output=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    "nonsense",
    [b"{not json", b"\xff\xfe", b"[]", b"null", b'{"jsonrpc": "1.0"}', b"x" * 200_000],
    ids=["no-json", "no-utf8", "list", "null", "other-version", "long"],
)
def test_nonsense_before_the_first_word_does_not_keep_the_gateway_from_answering(
    gateway: Gateway, nonsense: bytes
) -> None:
    (answer,) = answers(gateway, nonsense, json.dumps(HELLO).encode())

    assert answer["id"] == 1
    assert answer["result"]["protocolVersion"] == "2025-11-25"


def test_a_request_of_an_unknown_method_is_answered_with_an_error(gateway: Gateway) -> None:
    strange = {"jsonrpc": "2.0", "id": 2, "method": "no/such", "params": {}}
    first, second = answers(gateway, json.dumps(HELLO).encode(), json.dumps(strange).encode())

    assert first["id"] == 1
    assert second["error"]["code"] == -32601


def test_a_client_that_is_a_file_is_answered_too(gateway: Gateway) -> None:
    said = gateway.folder / "said.jsonl"
    said.write_text(json.dumps(HELLO) + "\n")
    with said.open() as source:
        done = subprocess.run(
            gateway.line, cwd=gateway.folder, env=gateway.env, stdin=source, capture_output=True,
            timeout=50, check=False,
        )  # fmt: skip

    assert done.returncode == 0
    assert json.loads(done.stdout)["id"] == 1


# --- the words of the protocol, as they are on the wire ---

NEWER = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
GREETED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def asks(id: int, method: str, era: str, **params: Any) -> dict[str, Any]:
    meta = {"_meta": NEWER} if era != "legacy" else {}
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, **meta}}


def calls(id: int, tool: str, era: str, **more: Any) -> dict[str, Any]:
    return asks(id, "tools/call", era, name="execute", arguments={"tool": tool, **more})


def greeting(era: str) -> list[dict[str, Any]]:
    return [HELLO, GREETED] if era == "legacy" else []


def told(gateway: Gateway, count: int, *messages: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """So many answers to these messages, by their ids, while the client stays."""
    with subprocess.Popen(
        gateway.line, cwd=gateway.folder, env=gateway.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"".join(json.dumps(one).encode() + b"\n" for one in messages))
        process.stdin.flush()
        found = [json.loads(process.stdout.readline()) for _ in range(count)]
        process.stdin.close()
        assert process.stdout.read() == b""
    return {one["id"]: one for one in found}


def test_a_greeting_counts_for_what_comes_in_the_same_breath(gateway: Gateway) -> None:
    first, second = answers(
        gateway, *(json.dumps(one).encode() for one in (*greeting("legacy"), asks(2, "tools/list", "legacy")))
    )

    assert first["id"] == 1
    assert "execute" in [tool["name"] for tool in second["result"]["tools"]]


def test_a_call_before_the_greeting_is_refused(gateway: Gateway) -> None:
    (answer,) = answers(gateway, json.dumps(calls(1, "sums:add", "legacy")).encode())

    assert answer["error"]["code"] == -32602


@pytest.mark.parametrize("era", ERAS)
def test_an_answer_has_the_form_of_its_era(gateway: Gateway, era: str) -> None:
    lines = [*greeting(era), calls(7, "sums:add", era, args={"a": 1, "b": 2})]
    answer = told(gateway, len(lines) - (era == "legacy"), *lines)[7]["result"]

    assert answer["structuredContent"]["results"] == {"call": 3}
    assert json.loads(answer["content"][0]["text"]) == answer["structuredContent"]
    assert answer["isError"] is False
    if era == "legacy":
        assert set(answer) == {"content", "structuredContent", "isError"}
    else:
        assert answer["resultType"] == "complete"
        assert answer["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "penstock"


@pytest.mark.parametrize("era", ERAS)
def test_calls_that_are_none_are_refused_as_the_protocol_has_it(gateway: Gateway, era: str) -> None:
    odd: list[dict[str, Any]] = [{}, {"name": 5}, {"name": "execute", "arguments": ["a"]}]
    lines = [*greeting(era), *(asks(10 + n, "tools/call", era, **one) for n, one in enumerate(odd))]
    found = [one for one in answers(gateway, *(json.dumps(one).encode() for one in lines)) if one["id"] >= 10]

    assert [(one["id"], one["error"]["code"]) for one in found] == [
        (10, -32602), (11, -32602), (12, -32602)
    ]  # fmt: skip


@pytest.mark.parametrize("era", ERAS)
def test_a_call_that_the_client_cancels_is_not_answered_and_the_next_one_is(
    gateway: Gateway, era: str
) -> None:
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
    lines = [*greeting(era), calls(5, "clocks:held", era, wait_s=20), cancel]
    lines.append(calls(6, "sums:add", era, args={"a": 1, "b": 2}))
    found = told(gateway, 2 if era == "legacy" else 1, *lines)

    assert 5 not in found
    assert found[6]["result"]["structuredContent"]["status"] == "complete"


def test_a_client_of_the_newer_protocol_says_with_each_request_what_it_speaks(gateway: Gateway) -> None:
    silent = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
    other = asks(3, "tools/list", "2026-07-28")
    other["params"]["_meta"] = {**NEWER, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    lines = (asks(1, "tools/list", "2026-07-28"), silent, other, asks(4, "tools/list", "2026-07-28"))
    first, second, third, fourth = answers(gateway, *(json.dumps(one).encode() for one in lines))

    assert second["error"]["code"] == -32602
    assert third["error"]["data"]["requested"] == "2099-01-01"
    assert first["result"]["tools"] == fourth["result"]["tools"]
