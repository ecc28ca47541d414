"""The real command, in a process of its own, on workflows in a folder of their own."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from adaptive import ACTS, FLOWS
from reading import until

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


@ps.tool(effect="read")
async def held(value=None, file: str = "go"):
    """Waits until a file is there."""
    note("held")
    while not Path(file).exists():
        await asyncio.sleep(0.01)
    return value


async def deed(name: str, file: str = "go"):
    """Something that must not happen twice; then it waits until a file is there."""
    note(name)
    while not Path(file).exists():
        await asyncio.sleep(0.01)
    return name


@ps.tool(effect="read")
def look(value):
    note(f"look {value}")
    return value


def fixable():
    if not Path("fixed").exists():
        raise ValueError("broken")
    return "whole"


def note(name: str):
    with Path("ledger").open("a") as ledger:
        ledger.write(f"{name}\\n")


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

    def run(*args: object, stdin: str = "", before: tuple[str, ...] = (), **env: str) -> Outcome:
        done = subprocess.run(
            [*before, *PENSTOCK, *map(str, args)],
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

    def start(*args: object, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*PENSTOCK, *map(str, args)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**environment, **env},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def ledger(folder: Path) -> Callable[[], list[str]]:
    """What tools have noted that they did."""
    path = folder / "ledger"
    return lambda: path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def killed(begin, ledger) -> Callable[..., str]:
    """Run a workflow, end its process without a word in the middle of a step; the run's id.

    The start of the step is on record then, and its tool has noted that it was called.
    """

    def run(flow: Path, step: str, *, noted: str) -> str:
        process = begin("run", flow, "--json")
        run_id: str = until(process, "task_start", step=step)["run_id"]
        while noted not in ledger():
            assert process.poll() is None, process.communicate()
        process.kill()
        process.wait()
        return run_id

    return run


@pytest.fixture
def write(folder: Path) -> Callable[..., Path]:
    """Write a workflow file: the steps, and whatever else it says."""

    def make(steps: str, rest: str = "", *, name: str = "flow") -> Path:
        lines = [f"  - {line.strip()}" for line in steps.strip().splitlines()]
        path = folder / f"{name}.yaml"
        path.write_text("\n".join([f"name: {name}", rest.strip(), "steps:", *lines]) + "\n")
        return path

    return make


@pytest.fixture
def flow(folder: Path) -> Callable[[str], str]:
    """The file of one of the workflows that ask, route and check, by its name."""
    (folder / "acts.py").write_text(ACTS)

    def make(name: str) -> str:
        (folder / f"{name}.yaml").write_text(FLOWS[name])
        return f"{name}.yaml"

    return make


@pytest.fixture
def deployed(folder: Path) -> Callable[[], list[str]]:
    """What was deployed."""
    path = folder / "deployed"
    return lambda: path.read_text().splitlines() if path.exists() else []


class Terminal:
    """A process on a terminal of its own, and everything it wrote there."""

    def __init__(self, args: list[str], *, cwd: Path, env: dict[str, str], rows: int, columns: int) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            args, stdin=slave, stdout=slave, stderr=slave, cwd=cwd, env=env, start_new_session=True
        )
        os.close(slave)
        self.text = ""

    def until(self, mark: str) -> str:
        """Read on until the mark has been written."""
        while mark not in self.text and self._more():
            pass
        assert mark in self.text
        return self.text

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def finish(self) -> tuple[int, str]:
        while self._more():
            pass
        os.close(self._master)
        return self.process.wait(30), self.text

    def _more(self) -> bool:
        data = b""
        with contextlib.suppress(OSError):  # Linux says so when the other end is closed
            data = os.read(self._master, 65536)
        self.text += data.decode(errors="replace")
        return bool(data)


@pytest.fixture
def terminal(folder: Path, environment: dict[str, str]) -> Iterator[Callable[..., Terminal]]:
    """Start `penstock …` on a terminal; whatever still runs at the end of the test is ended."""
    started: list[Terminal] = []

    def start(*args: object, rows: int = 24, columns: int = 100, **env: str) -> Terminal:
        env = {k: v for k, v in environment.items() if k not in ("COLUMNS", "NO_COLOR")} | {
            "TERM": "xterm-256color",
            **env,
        }
        command = [sys.executable, "-m", "penstock", *map(str, args)]
        started.append(Terminal(command, cwd=folder, env=env, rows=rows, columns=columns))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()
