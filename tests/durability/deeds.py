"""What the steps of a killed run do. All of it goes into a ledger that the store knows nothing of.

An execution writes one line when it begins and one when it ends; each is on disk before the
deed goes on. What a deed gives depends on its arguments alone, so that a run that was killed
can be compared with one that was not.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import crc32

import penstock as ps

BIG = 40_000
"""Characters: more than fits into an event."""


class Flaky(Exception):
    """This attempt was meant to fail."""


class Ledger:
    """An append-only file: a line is written at once and is on disk when `write` returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, **line: Any) -> None:
        os.write(self._file, json.dumps({**line, "pid": os.getpid()}).encode() + b"\n")
        os.fsync(self._file)


class Stage:
    """Where deeds are done. A program that runs them says where their ledger is."""

    ledger: Ledger | None = None
    moment: Callable[[], None] = staticmethod(lambda: None)
    """Called at every point where a process may be killed."""


def lines(path: Path) -> list[dict[str, Any]]:
    """The ledger so far, oldest first. What is being written at this very moment is not there yet."""
    if not path.exists():
        return []
    whole = path.read_text("utf-8").rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def digest(state: bytes) -> str:
    """Of the fold of a run."""
    return sha256(state).hexdigest()


def number(n: Any) -> int:
    """A number that follows from an argument."""
    return crc32(json.dumps(n, sort_keys=True).encode()) % 1000


def _begin(task: ps.Task, effect: str, gives: Any, fails: int) -> None:
    failing = task.attempt <= fails
    _write(
        "begin", task, effect=effect, item=task.item, attempt=task.attempt, fails=failing, run=task.run,
        step=task.step, iteration=task.iteration, gives=None if failing else gives,
    )  # fmt: skip
    if failing:
        raise Flaky(f"attempt {task.attempt} fails")


def _write(what: str, task: ps.Task, **more: Any) -> None:
    if Stage.ledger is not None:
        Stage.ledger.write(what=what, key=task.idempotency_key, **more)
        Stage.moment()


async def _do(task: ps.Task, effect: str, gives: Any, fails: int) -> Any:
    _begin(task, effect, gives, fails)
    await asyncio.sleep(0)
    _write("end", task)
    return gives


def _do_in_thread(task: ps.Task, effect: str, gives: Any, fails: int) -> Any:
    _begin(task, effect, gives, fails)
    _write("end", task)
    return gives


@ps.tool(effect="read")
async def look(task: ps.Task, n: Any = 0, fails: int = 0) -> Any:
    return await _do(task, "read", number(n), fails)


@ps.tool(effect="read")
def look_slowly(task: ps.Task, n: Any = 0, fails: int = 0) -> Any:
    return _do_in_thread(task, "read", number(n), fails)


@ps.tool(effect="idempotent")
async def put(task: ps.Task, n: Any = 0, fails: int = 0) -> Any:
    return await _do(task, "idempotent", number([n]), fails)


@ps.tool(effect="idempotent")
def put_slowly(task: ps.Task, n: Any = 0, fails: int = 0) -> Any:
    return _do_in_thread(task, "idempotent", number([n]), fails)


@ps.tool(effect="write")
async def send(task: ps.Task, n: Any = 0, fails: int = 0) -> Any:
    return await _do(task, "write", number({"n": n}), fails)


@ps.tool(effect="write")
def send_slowly(task: ps.Task, n: Any = 0, fails: int = 0) -> Any:
    return _do_in_thread(task, "write", number({"n": n}), fails)


@ps.tool(effect="read")
async def spread(task: ps.Task, n: Any = 0, count: int = 3) -> Any:
    """A list, for maps."""
    return await _do(task, "read", [number([n, i]) for i in range(count)], 0)


@ps.tool(effect="read")
async def read_much(task: ps.Task, n: Any = 0) -> Any:
    """More than an event can hold."""
    return await _do(task, "read", f"{number(n):03}" * (BIG // 3), 0)


@ps.tool(effect="read")
def wait_at_door(door: str) -> str:
    """Wait for as long as someone keeps the door shut."""
    with Path(door).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
    return "through"
