"""Asking a second one when the first takes long: the sooner answer counts, the other call is dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from penstock.models.base import ModelError
from penstock.models.clocks import Clock

T = TypeVar("T")


async def race(
    first: Coroutine[Any, Any, T],
    second: Callable[[], Coroutine[Any, Any, T] | None],
    *,
    after: float,
    clock: Clock,
) -> T:
    """The first answer that comes. `second` is asked for only if `first` is not done by then.

    Where both fail, the failure of the first is raised.
    """
    tasks = [asyncio.create_task(first)]
    try:
        await clock.wait(tasks[0], after)
        if not tasks[0].done() and (other := second()) is not None:
            tasks.append(asyncio.create_task(other))
        waiting = set(tasks)
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if not isinstance(task.exception(), ModelError):
                    return task.result()
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
