"""A store that cannot be written: whoever is there is told at once, not when it is over."""

from __future__ import annotations

import resource
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from reading import line_with, until

FLOW = """
    {id: one, uses: "py:tools:held"}
    {id: two, uses: "py:tools:echo", with: {value: 2}, needs: [one]}
"""
ALL = resource.RLIM_INFINITY


def no_larger_files(process: subprocess.Popen[str]) -> None:
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, ALL))


@pytest.fixture
def stalled(begin, write, folder: Path) -> Callable[..., subprocess.Popen[str]]:
    """A run whose store refuses what comes after its first step."""

    def start(*how: str) -> subprocess.Popen[str]:
        process: subprocess.Popen[str] = begin("run", write(FLOW), *how)
        if "--json" in how:
            until(process, "task_start", step="one")
        else:
            line_with(process, "start    one")
        no_larger_files(process)
        (folder / "go").touch()
        return process

    return start


@pytest.mark.parametrize("how", [(), ("--json",)], ids=["lines", "json"])
def test_a_pause_is_told_while_the_store_cannot_be_written(stalled, how: tuple[str, ...]) -> None:
    process = stalled(*how)

    said = line_with(process, "paused")
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (ALL, ALL))
    _, rest = process.communicate(timeout=30)

    assert "storage: " in said
    assert "paused" not in rest
    assert process.returncode == 0


def test_who_wants_to_leave_meanwhile_is_told_how(stalled, cli) -> None:
    process = stalled()
    line_with(process, "paused")

    process.send_signal(signal.SIGTERM)
    line_with(process, "a second time leaves at once")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)

    assert process.returncode == 143
    assert cli("resume", "last", "--json").lines[-1]["status"] == "succeeded"
