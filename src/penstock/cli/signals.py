"""Ctrl-C and `kill`: the first asks the run to stop, the second leaves at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, Final, Self

WORDS: Final = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


class Interrupts:
    """Installed for as long as a run lasts.

    Plain signal handlers, not the event loop's: they work while a step blocks the loop. The loop
    only lends its wake-up: a signal that comes just before it goes to sleep must not wait for the
    next event.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.code: int | None = None
        """128 + the number of the first signal; None while there was none."""
        self.reason = ""
        self.stop: Callable[[], None] = lambda: None
        """Asks the run to stop. Must be safe to call from a signal handler."""
        self.restore: Callable[[], None] = lambda: None
        """Puts the terminal right before leaving at once."""
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in WORDS:
            before = signal.getsignal(number)
            self._loop.add_signal_handler(number, lambda: None)
            signal.signal(number, self._caught)
            self._before[number] = before
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            self._loop.remove_signal_handler(number)
            signal.signal(number, handler)

    def nothing_to_stop(self) -> None:
        """The run is over, only writing is left: from now on the first signal leaves at once, too."""
        self.stop = self._leave

    @contextlib.contextmanager
    def leaving_at_once(self) -> Iterator[None]:
        """While a question is open, the first signal is an answer: leave."""
        before, self.stop = self.stop, self._leave
        try:
            yield
        finally:
            self.stop = before

    def _leave(self) -> None:
        self.restore()
        os._exit(self.code or 0)

    def _caught(self, number: int, _frame: FrameType | None) -> None:
        if self.code is not None:
            self.code = 128 + number
            self._leave()
        self.code = 128 + number
        self.reason = WORDS[signal.Signals(number)]
        self.stop()
