"""The real command, in a process of its own, on workflows in a folder of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import penstock

PENSTOCK = (sys.executable, "-m", "penstock")

TOOLS = '''
import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import penstock as ps


def echo(value):
    return value


def touch(path: str):
    Path(path).write_text("ran")
    return path


def boom(message: str = "no good"):
    raise ValueError(message)


@ps.tool(effect="read")
async def second_time(task: ps.Task):
    if task.attempt == 1:
        raise ConnectionError("busy")
    return task.attempt


async def forever():
    await asyncio.Event().wait()


async def stubborn():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass


async def deaf():
    """Holds up the event loop itself."""
    while True:
        time.sleep(3600)


def stuck():
    threading.Event().wait()


def noisy():
    print("printed by a step")
    subprocess.run([sys.executable, "-c", "print('printed by a child process')"], check=True)
    return 1


async def leave(code: int):
    sys.exit(code)
'''


class Outcome(NamedTuple):
    code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[Any]:
        """Stdout as JSON Lines."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def messages(self) -> list[str]:
        return self.stderr.splitlines()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tools.py").write_text(TOOLS)
    return tmp_path


@pytest.fixture
def environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
    path = [str(Path(penstock.__file__).parents[1]), *filter(None, [kept.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "100"}


@pytest.fixture
def cli(folder: Path, environment: dict[str, str]) -> Callable[..., Outcome]:
    """Run `penstock …` in the folder and wait for it."""

    def run(*args: object, stdin: str = "", **env: str) -> Outcome:
        done = subprocess.run(
            [*PENSTOCK, *map(str, args)],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=folder,
            env={**environment, **env},
            timeout=50,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def begin(folder: Path, environment: dict[str, str]) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `penstock …` in the folder; whatever still runs at the end of the test is ended."""
    started: list[subprocess.Popen[str]] = []

    def start(*args: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*PENSTOCK, *map(str, args)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environment,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def write(folder: Path) -> Callable[..., Path]:
    """Write a workflow file: the steps, and whatever else it says."""

    def make(steps: str, rest: str = "", *, name: str = "flow") -> Path:
        lines = [f"  - {line.strip()}" for line in steps.strip().splitlines()]
        path = folder / f"{name}.yaml"
        path.write_text("\n".join([f"name: {name}", rest.strip(), "steps:", *lines]) + "\n")
        return path

    return make
