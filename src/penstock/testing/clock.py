"""Time that passes only when everybody waits for it, and then at once.

`run` drives a coroutine on an event loop whose clock jumps to the next timer instead of
waiting for it: an hour of backoff takes no time, and the same program takes the same steps
every time, for timers that are due together ring in the order they were set. Built on
public asyncio alone; the code under test sees an ordinary loop.

Work in threads is real, so the clock stands still while a thread works. A function that is
meant to take its time in a thread calls `sleep` from here. Sockets and subprocesses have
clocks of their own and do not belong on this loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import selectors
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_thread = threading.local()


def run(coroutine: Coroutine[Any, Any, T], *, start: float = 0.0) -> T:
    """`asyncio.run` in virtual time, which begins at `start`."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(start)) as runner:
        return runner.run(coroutine)


def sleep(seconds: float) -> None:
    """`time.sleep` for functions in threads: virtual where the loop is, real elsewhere."""
    job: _Job | None = getattr(_thread, "job", None)
    if job is None:
        time.sleep(seconds)
    else:
        job.doze(seconds)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that never waits for a timer."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._alarms: list[tuple[float, int, _Alarm]] = []
        self._numbers = count()
        self._jobs: set[_Job] = set()
        self.over = False
        """The clock will not move any more: nobody sleeps on."""
        super().__init__(_Impatient(self))

    def time(self) -> float:
        return self._now

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        alarm = _Alarm(when, callback, args, self, context)
        heappush(self._alarms, (when, next(self._numbers), alarm))
        return alarm

    def ring(self, *, idle: bool) -> bool:
        """Set off what is due. When `idle`, let time pass until something is. False: no timer is set."""
        alarms = self._alarms
        while alarms and alarms[0][2].cancelled():
            heappop(alarms)
        if not alarms:
            return False
        if idle:
            self._now = max(self._now, alarms[0][0])
        while alarms and alarms[0][0] <= self._now:
            alarm = heappop(alarms)[2]
            self.call_soon(alarm.ring, context=alarm.context)
        return True

    @property
    def busy(self) -> bool:
        """Whether a thread is at work on something that the loop waits for."""
        return any(not job.dozing for job in self._jobs)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        job = _Job(self)
        self._jobs.add(job)
        future = super().run_in_executor(executor, partial(job.call, func, *args))
        future.add_done_callback(lambda _: self._jobs.discard(job))
        return future

    async def shutdown_default_executor(self, *args: Any) -> None:
        job = _Job(self)  # joining threads is work, too
        self._jobs.add(job)
        self._rouse()
        try:
            await super().shutdown_default_executor(*args)
        finally:
            self._jobs.discard(job)

    def close(self) -> None:
        super().close()
        self._rouse()

    def _rouse(self) -> None:
        with _sleepers:
            self.over = True
            for job in _asleep:
                if job.loop is self:
                    job.alarm.set()


class _Alarm(asyncio.TimerHandle):
    """A timer of the virtual clock."""

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: VirtualLoop,
        context: contextvars.Context | None,
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self.context = contextvars.copy_context() if context is None else context
        self._call = partial(callback, *args)

    def ring(self) -> None:
        if not self.cancelled():
            self._call()


class _Job:
    """A call in a thread, and whether it is asleep."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.dozing = False
        self.alarm = threading.Event()

    def call(self, function: Callable[..., T], *args: Any) -> T:
        _thread.job = self
        try:
            return function(*args)
        finally:
            del _thread.job

    def doze(self, seconds: float) -> None:
        self.alarm.clear()
        with _sleepers:
            if self.loop.over:
                return
            _asleep.add(self)
        try:
            self.loop.call_soon_threadsafe(self._set, seconds)
            self.alarm.wait()
        except RuntimeError:
            return  # the loop has closed: nobody is waiting for this thread any more
        finally:
            with _sleepers:
                _asleep.discard(self)

    def _set(self, seconds: float) -> None:
        self.dozing = True
        self.loop.call_later(seconds, self._wake)

    def _wake(self) -> None:
        # Awake before the thread notices: from here on the clock waits for it.
        self.dozing = False
        self.alarm.set()


_sleepers = threading.Lock()
_asleep: set[_Job] = set()


class _Impatient(selectors.DefaultSelector):
    """Where a loop waits. This one moves the loop's clock instead."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout is not None:
            self._loop.ring(idle=False)
            return ready
        if self._loop.busy:
            return super().select(None)
        if self._loop.ring(idle=True):
            return []
        if len(self.get_map()) > 1:  # more than the loop's own pipe: someone may still call
            return super().select(None)
        msg = "everything waits and no timer is set: this would hang for ever"
        raise RuntimeError(msg)
