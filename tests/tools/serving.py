"""Servers to test with, and what is left of them afterwards."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import penstock
from penstock.tools.mcp.config import Server

T = TypeVar("T")
FAULTS = str(Path(penstock.__file__).parent / "testing" / "mcp_faults.py")
VARIABLES = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}


def wait(main: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(main)


def faults(fault: str = "well", *, name: str = "bad", **options: Any) -> Server:
    """The server without manners."""
    return Server(name=name, command=sys.executable, args=("-S", FAULTS, fault), **options)


def mannered(*args: str, name: str = "good", **options: Any) -> Server:
    """The server that was made with the SDK."""
    command = ("-m", "penstock.testing.mcp_server", *args)
    return Server(name=name, command=sys.executable, args=command, **options)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def eventually(fact: Callable[[], bool], *, within: float = 8.0) -> bool:
    end = time.monotonic() + within
    while not fact():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


async def settled(fact: Callable[[], bool], *, within: float = 8.0) -> bool:
    """`eventually`, while the loop goes on."""
    return await asyncio.to_thread(eventually, fact, within=within)


def handles() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
