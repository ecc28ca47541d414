"""`penstock models --watch`, at a terminal and in a pipe: what another process finds out is seen."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from penstock.models.assemble import assemble
from penstock.models.base import Request, user
from penstock.models.catalog import configured
from penstock.models.tiers import read_table

TABLE = """
[models]
last_resort = "none"
[models.tiers]
near = ["ollama/llama"]
"""
NOBODY = "127.0.0.1:1"


def prepared(folder: Path) -> Path:
    (folder / "penstock.toml").write_text(TABLE)
    (folder / ".penstock").mkdir()
    return folder / ".penstock" / "models.db"


def find_it_down(path: Path) -> None:
    """Another process, as it were: asks a model until it is known to be down."""

    async def ask() -> None:
        table, _ = read_table({"tiers": {"near": ["ollama/llama"]}, "last_resort": "none"})
        async with assemble(table, configured({"OLLAMA_HOST": NOBODY}), path=path) as router:
            for _ in range(3):
                await asyncio.gather(router.chat(Request(messages=(user("Hi"),))), return_exceptions=True)

    asyncio.run(ask())


def test_at_a_terminal_the_table_is_drawn_again_and_shows_what_others_find_out(
    terminal: Any, folder: Path
) -> None:
    path = prepared(folder)
    watching = terminal("models", "--watch", columns=140, OLLAMA_HOST=NOBODY)
    watching.until("system health 100%")

    find_it_down(path)

    text = watching.until("system health 0%")
    assert "open after failures" in text
    assert "\x1b[1A" in text  # drawn over, not below
    watching.process.send_signal(signal.SIGINT)
    assert watching.finish()[0] == 130


def test_on_a_narrow_screen_what_there_is_to_say_stands_below(terminal: Any, folder: Path) -> None:
    find_it_down(prepared(folder))

    code, text = terminal("models", columns=80, OLLAMA_HOST=NOBODY).finish()

    assert code == 0
    assert "ollama/llama: open after failures" in text
    assert "…" not in text


def test_in_a_pipe_it_is_json_lines_until_it_is_told_to_stop(
    folder: Path, environment: dict[str, str]
) -> None:
    path = prepared(folder)
    command = [sys.executable, "-m", "penstock", "models", "--watch", "--json"]
    watching = subprocess.Popen(
        command, cwd=folder, env={**environment, "OLLAMA_HOST": NOBODY}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert watching.stdout is not None
    assert json.loads(watching.stdout.readline())["breaker"] == "closed"

    find_it_down(path)

    seen = next(row for line in watching.stdout if (row := json.loads(line))["breaker"] == "open")
    assert (seen["type"], seen["name"], seen["status"]) == ("model", "ollama/llama", "open")
    assert seen["probe_in"] <= 5.0
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=30)
    assert (watching.returncode, said) == (130, "")


def test_whoever_reads_may_stop_reading(folder: Path, environment: dict[str, str]) -> None:
    prepared(folder)
    command = f"{sys.executable} -m penstock models --watch | head -n 1"

    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert json.loads(done.stdout)["name"] == "ollama/llama"
    assert "Traceback" not in done.stderr
