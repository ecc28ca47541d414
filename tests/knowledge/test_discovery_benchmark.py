"""The benchmark reads of a query only what a person would have said."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "discovery.py"
STARTING = SCRIPT.with_name("starting.py")
TOOLS: list[dict[str, Any]] = [
    {"id": "files::write_file", "server": "files", "name": "write_file", "description": "Write a file."},
    {
        "id": "mail::send",
        "server": "mail",
        "name": "send",
        "description": "Send an email.",
        "inputSchema": {},
    },
    {"id": "My Clock::now", "server": "My Clock", "name": "now", "description": "The current time."},
]


def test_predictions_need_nothing_but_id_and_request(tmp_path: Path) -> None:
    tools, queries, out = tmp_path / "tools", tmp_path / "queries", tmp_path / "predictions"
    tools.write_text("\n".join(map(json.dumps, TOOLS)))
    queries.write_text(
        '{"id": 7, "request": "write an e-mail to Ada"}\n{"id": "b", "request": "what time is it"}\n'
    )
    command = [sys.executable, SCRIPT, "--tools", tools, "--queries", queries, "--out", out]

    subprocess.run(list(map(str, command)), check=True)

    first, second = map(json.loads, out.read_text().splitlines())
    assert first["id"] == "7"
    assert first["ranked"][0] == "mail::send"
    assert second == {"id": "b", "ranked": second["ranked"]}
    assert second["ranked"][0] == "My Clock::now"
    assert sorted(second["ranked"]) == sorted(tool["id"] for tool in TOOLS)


@pytest.mark.slow
def test_a_start_is_measured_cold_and_warm() -> None:
    command = [sys.executable, str(STARTING), "--servers", "2", "--tools", "3", "--times", "1"]

    done = subprocess.run(command, check=True, capture_output=True, text=True)

    cold, warm, search = map(json.loads, done.stdout.splitlines())
    assert [row["way"] for row in (cold, warm, search)] == [
        "discover, cold",
        "discover, warm",
        "tools search, warm",
    ]
    assert min(cold["of"], warm["of"]) >= 6
    assert warm["search_p50_ms"] > 0
    assert search["first_s"] > 0
