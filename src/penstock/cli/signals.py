"""Ctrl-C and `kill`: the first asks the run to stop, the second leaves at once."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, Final, Self

WORDS: Final = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


class Interrupts:
    """Installed for as long as a run lasts.

    A thread of its own hears the signals, by way of the wake-up socket: so they work while a step
    blocks the event loop, and whichever thread the kernel happens to choose for them.
    """

    def __init__(self) -> None:
        self.code: int | None = None
        """128 + the number of the first signal; None while there was none."""
        self.reason = ""
        self.stop: Callable[[], None] = lambda: None
        """Asks the run to stop. Called from the listening thread."""
        self.restore: Callable[[], None] = lambda: None
        """Puts the terminal right before leaving at once."""
        self._deaf = False
        self._before: dict[signal.Signals, Any] = {}
        self._ear, self._mouth = socket.socketpair()
        self._mouth.setblocking(False)
        self._wakeup = -1

    def __enter__(self) -> Self:
        self._wakeup = signal.set_wakeup_fd(self._mouth.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._listen, name="penstock-signals", daemon=True).start()
        for number in WORDS:
            self._before[number] = signal.signal(number, _heard_elsewhere)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        self._mouth.close()

    def _listen(self) -> None:
        with self._ear:
            while numbers := self._ear.recv(64):
                for number in numbers:
                    if number in WORDS:
                        self._caught(number)

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

    @contextlib.contextmanager
    def left_alone(self) -> Iterator[None]:
        """While another program has the terminal, Ctrl-C is for that program."""
        self._deaf = True
        try:
            yield
        finally:
            self._deaf = False

    def _leave(self) -> None:
        self.restore()
        os._exit(self.code or 0)

    def _caught(self, number: int) -> None:
        if self._deaf and number == signal.SIGINT:
            return
        if self.code is not None:
            self.code = 128 + number
            self._leave()
        self.code = 128 + number
        self.reason = WORDS[signal.Signals(number)]
        self.stop()


def _heard_elsewhere(_number: int, _frame: FrameType | None) -> None:
    """The socket has the number already."""
