"""`penstock tools` and `penstock mcp install`, as they are typed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from reached import Gateway, structured

from penstock.cli.install import Client, changes_for, clients
from penstock.errors import PenstockError

OTHERS = {"git": {"command": "uvx", "args": ["mcp-server-git"]}, "time": {"command": "uvx"}}


def typed(gateway: Gateway, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *words],
        cwd=gateway.folder,
        env={**gateway.env, "HOME": str(gateway.folder)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def test_tools_are_listed_searched_and_priced(gateway: Gateway) -> None:
    listed = typed(gateway, "tools", "--tools", "acts.py", "--json")
    found = typed(gateway, "tools", "search", "erase a file", "--tools", "acts.py", "--json")
    price = typed(gateway, "tools", "--budget", "--tools", "acts.py", "--json")

    rows = {row["id"]: row for row in map(json.loads, listed.stdout.splitlines())}
    assert rows["disk:erase"]["effect"] == "destructive"
    assert json.loads(found.stdout.splitlines()[0])["id"] == "disk:erase"
    costs = json.loads(price.stdout)
    assert costs["tools"] == len(rows)
    assert costs["meta_tokens"] < 2_000
    assert costs["tool_tokens"] == sum(costs["by_server"].values())


def test_the_budget_is_readable(gateway: Gateway) -> None:
    said = typed(gateway, "tools", "--budget").stdout

    assert "behind Penstock" in said
    assert "shown directly" in said


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['penstock', '--help']\n"
        "try: from penstock.cli.main import main; main()\n"
        "except SystemExit: pass\n"
        "heavy = {'mcp', 'mcp_types', 'numpy', 'wordllama', 'tokenizers', 'uvicorn', 'pydantic'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


async def test_a_pinned_tool_is_called_by_its_own_name(gateway: Gateway) -> None:
    async with gateway.pipe("2026-07-28", "--pin", "sums:add") as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        answer = structured(await client.call_tool("sums__add", {"a": 2, "b": 3}))

    assert names[-1] == "sums__add"
    assert len(names) == 8
    assert answer["results"] == {"call": 5}


# --- install ---


def applied(client: Client, folder: Path, **options: Any) -> dict[str, Any]:
    for change in changes_for(client, folder, ["/bin/penstock"], keep=options.get("keep", False)):
        change.path.parent.mkdir(parents=True, exist_ok=True)
        change.path.write_text(change.text)
    read: dict[str, Any] = json.loads(client.path.read_text())
    return read


@pytest.mark.parametrize("name", ["claude-code", "claude-desktop", "vscode", "cursor"])
def test_other_servers_move_behind_and_we_are_the_only_one_left(tmp_path: Path, name: str) -> None:
    client = clients(tmp_path, tmp_path / "home", "linux")[name]
    client.path.parent.mkdir(parents=True, exist_ok=True)
    client.path.write_text(json.dumps({client.key: OTHERS, "theme": "dark", "inputs": []}))

    left = applied(client, tmp_path)

    assert list(left[client.key]) == ["penstock"]
    assert left["theme"] == "dark"
    entry = left[client.key]["penstock"]
    assert entry["args"] == ["mcp", "--folder", str(tmp_path), "--servers", "penstock.mcp.json"]
    assert json.loads((tmp_path / "penstock.mcp.json").read_text())[client.key] == OTHERS
    assert changes_for(client, tmp_path, ["/bin/penstock"], keep=False) == []


def test_other_servers_stay_where_that_is_wanted(tmp_path: Path) -> None:
    client = clients(tmp_path, tmp_path, "linux")["cursor"]
    client.path.parent.mkdir()
    client.path.write_text(json.dumps({"mcpServers": OTHERS}))

    assert list(applied(client, tmp_path, keep=True)["mcpServers"]) == [*OTHERS, "penstock"]
    assert not (tmp_path / "penstock.mcp.json").exists()


def test_a_server_of_the_same_name_behind_us_is_not_overwritten(tmp_path: Path) -> None:
    client = clients(tmp_path, tmp_path, "linux")["claude-code"]
    client.path.write_text(json.dumps({"mcpServers": OTHERS}))
    (tmp_path / "penstock.mcp.json").write_text(json.dumps({"mcpServers": {"git": {"command": "other"}}}))

    with pytest.raises(PenstockError, match="another server 'git'"):
        changes_for(client, tmp_path, ["penstock"], keep=False)


@pytest.mark.parametrize("text", ["{not json", "[]", '{"mcpServers": []}', "{} // a comment"])
def test_a_file_that_cannot_be_understood_is_left_alone(gateway: Gateway, text: str) -> None:
    file = gateway.folder / ".mcp.json"
    file.write_text(text)

    done = typed(gateway, "mcp", "install", "--client", "claude-code", "--write")

    assert done.returncode == 2
    assert file.read_text() == text


def test_nothing_is_written_until_it_is_wanted_and_the_old_file_is_kept(gateway: Gateway) -> None:
    file = gateway.folder / ".mcp.json"
    old = json.dumps({"mcpServers": OTHERS})
    file.write_text(old)

    dry = typed(gateway, "mcp", "install", "--client", "claude-code")
    assert file.read_text() == old
    assert '+    "penstock"' in dry.stdout
    assert "nothing was written" in dry.stderr

    typed(gateway, "mcp", "install", "--client", "claude-code", "--write")
    assert list(json.loads(file.read_text())["mcpServers"]) == ["penstock"]
    assert (gateway.folder / ".mcp.json.bak").read_text() == old


def test_an_unknown_client_is_refused_by_name(gateway: Gateway) -> None:
    done = typed(gateway, "mcp", "install", "--client", "emacs")

    assert done.returncode == 2
    assert "claude-code" in done.stderr
