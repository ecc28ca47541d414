"""Runs that ask: on the native engine, over memory and over a file, with a person who answers by id."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.engines.base import Result
from penstock.ids import StepId
from penstock.run.commands import Decide
from penstock.run.events import DecisionRequired, Event

STORES = ("memory", "sqlite")


def url(kind: str, folder: Path) -> str:
    return "memory:" if kind == "memory" else f"sqlite:///{folder / 'store.db'}"


@asynccontextmanager
async def opened(store: str, *tools: Callable[..., Any]) -> AsyncIterator[ps.Penstock]:
    async with asyncio.timeout(15), ps.open(store, tools=tools) as penstock:
        yield penstock


async def until(run: ps.RunHandle, true: Callable[[], bool]) -> None:
    """Wait until it is true: after each event, so that nothing is waited for by the clock."""
    if true():
        return
    changed = asyncio.Event()
    run.observe(lambda _: changed.set())
    while not true():
        changed.clear()
        try:
            async with asyncio.timeout(0.05):  # some things happen without an event
                await changed.wait()
        except TimeoutError:
            continue


async def questions(run: ps.RunHandle, count: int = 1) -> list[DecisionRequired]:
    """The open questions, as soon as there are so many and nothing else goes on."""
    await until(run, lambda: len(run.state.decisions) == count and run.status != "running")
    return list(run.state.decisions.values())


async def next_question(run: ps.RunHandle, after: DecisionRequired) -> DecisionRequired:
    await until(run, lambda: any(one.seq > after.seq for one in run.state.decisions.values()))
    found: DecisionRequired = max(run.state.decisions.values(), key=lambda one: one.seq)
    return found


async def answer(run: ps.RunHandle, asked: DecisionRequired, verb: str, **more: Any) -> None:
    await run.send(Decide(decision=asked.decision, verb=verb, **more))


async def ended(run: ps.RunHandle) -> Result:
    return await run.result()


async def history(run: ps.RunHandle) -> list[Event]:
    """Everything that has happened, of a run that has ended."""
    return [event async for event in run.events() if not isinstance(event, ps.Gap)]


def at(name: str) -> StepId:
    return StepId(name)


def others() -> list[str]:
    """Tasks besides the one that asks."""
    return [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
