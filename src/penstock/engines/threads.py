"""Threads for plain functions: daemons, so that one that never returns cannot keep the process alive."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

Order = tuple[Callable[[], Any], contextvars.Context, asyncio.Future[Any]]

IDLE = 10.0
"""Seconds a thread waits for more work before it ends."""


class Threads:
    """As many threads as there are calls at once; the engine's slots bound that number."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._idle = 0
        self._lock = threading.Lock()
        self._count = 0

    async def call(self, function: Callable[[], Any]) -> Any:
        """What the function returns or raises. Cancelling stops the waiting, not the thread."""
        done: asyncio.Future[Any] = self._loop.create_future()
        order = (function, contextvars.copy_context(), done)
        with self._lock:
            if self._idle:
                self._idle -= 1
                self._orders.put(order)
                order = None  # type: ignore[assignment]  # taken
        if order is not None:
            self._count += 1
            name = f"penstock-{self._count}"
            threading.Thread(target=self._work, args=(order,), name=name, daemon=True).start()
        return await done

    def _work(self, order: Order) -> None:
        while True:
            function, context, done = order
            try:
                outcome: tuple[Any, BaseException | None] = (context.run(function), None)
            except BaseException as error:  # noqa: BLE001 - handed to whoever waits
                outcome = (None, error)
            self._report(done, *outcome)
            del function, context, done, outcome
            with self._lock:
                self._idle += 1
            try:
                order = self._orders.get(timeout=IDLE)
            except queue.Empty:
                with self._lock:
                    if self._idle:
                        self._idle -= 1
                        return
                order = self._orders.get()  # everyone who waits has been promised one: it is on its way

    def _report(self, done: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        try:
            self._loop.call_soon_threadsafe(_settle, done, value, error)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more


def _settle(done: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(value)
    elif isinstance(error, StopIteration):
        # A future refuses it; say what happened instead.
        done.set_exception(RuntimeError("the function raised StopIteration"))
    else:
        done.set_exception(error)
