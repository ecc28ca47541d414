"""Threads for plain functions: daemons, so that one that never returns cannot keep the process alive."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

IDLE = 10.0
"""Seconds a thread waits for more work before it ends."""

_Order = tuple[Future[Any], Callable[[], Any]]
"""None in the queue: go home."""


class Threads(Executor):
    """As many threads as there are calls at once; the engine's slots bound that number."""

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        """Threads that wait and have not been promised an order."""
        self._count = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        order: _Order = (Future(), lambda: fn(*args, **kwargs))
        with self._lock:
            waiting = self._idle > 0
            if waiting:
                self._idle -= 1
            else:
                self._count += 1
        if waiting:
            self._orders.put(order)
        else:
            name = f"penstock-{self._count}"
            threading.Thread(target=self._work, args=(order,), name=name, daemon=True).start()
        return order[0]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """Send idle threads home. One that is at work ends by itself, and none holds the process."""
        with self._lock:
            idle, self._idle = self._idle, 0
        for _ in range(idle):
            self._orders.put(None)

    def _work(self, first: _Order) -> None:
        order: _Order | None = first
        del first
        while order is not None:
            _carry_out(*order)
            order = None
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


def _carry_out(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except StopIteration:  # a future cannot carry it
        future.set_exception(RuntimeError("the function raised StopIteration"))
    except BaseException as error:  # noqa: BLE001 - handed to whoever waits
        future.set_exception(error)
    else:
        future.set_result(result)
