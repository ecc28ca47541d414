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
