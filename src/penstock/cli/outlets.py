"""Where a run's events go while it runs: a pipe, a file, a terminal.

Each outlet has a thread of its own, so that a full pipe, a slow disk or a held terminal
never holds up the run. What an outlet could not write is remembered and said at the end.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import msgspec

from penstock.cli import lines
from penstock.cli.text import count, legible, one_line, span
from penstock.cli.view import View
from penstock.ids import RunId
from penstock.run.events import Event, to_wire

BATCH = 2_000
"""Events handed over at once, at most."""

GLANCE = 0.2
"""Seconds between looks at whether a signal has come, while a reader takes its time."""

_encode = msgspec.json.Encoder().encode


class Consumer(Protocol):
    """What an outlet does with events. Called from one thread only."""

    period: float | None
    """Seconds between calls of `tick`; None when it need not be called."""

    def take(self, events: Sequence[Event]) -> None: ...

    def tick(self) -> None: ...

    def end(self, summary: dict[str, Any] | None) -> None:
        """The run is over. No summary: it broke off."""
        ...


class Outlet:
    """A consumer in a thread of its own."""

    def __init__(self, consumer: Consumer, *, name: str, vital: bool = False) -> None:
        self.name = name
        self.vital = vital
        """Whether what it writes was asked for as a result, so that losing it is a failure."""
        self.error: Exception | None = None
        self._consumer = consumer
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._summary: dict[str, Any] | None = None
        self._thread = threading.Thread(target=self._work, name=f"penstock-{name}", daemon=True)
        self._thread.start()

    def put(self, event: Event) -> None:
        self._events.put(event)

    def close(self, summary: dict[str, Any] | None) -> None:
        """Say that the run is over, and wait until everything is written."""
        self._summary = summary
        self._events.put(None)
        while self._thread.is_alive():
            self._thread.join(GLANCE)

    def _work(self) -> None:
        try:
            self._consume()
            self._consumer.end(self._summary)
        except BrokenPipeError:
            pass  # the reader has left; watching or not watching changes nothing about the run
        except Exception as error:  # noqa: BLE001 - kept and said at the end: an observer never touches the run
            self.error = error

    def _consume(self) -> None:
        consumer, due = self._consumer, 0.0
        while True:
            batch, last = self._next(consumer.period)
            if batch:
                consumer.take(batch)
            if last:
                return
            if consumer.period is not None and (now := time.monotonic()) >= due:
                consumer.tick()
                due = now + consumer.period

    def _next(self, wait: float | None) -> tuple[list[Event], bool]:
        """What has come in, and whether that was all."""
        batch: list[Event] = []
        with contextlib.suppress(queue.Empty):
            event = self._events.get(timeout=wait)
            while event is not None:
                batch.append(event)
                if len(batch) >= BATCH:
                    return batch, False
                event = self._events.get_nowait()
            return batch, True
        return batch, False


class JsonLines:
    """Events as JSON Lines, whole lines only, then the summary as the last line."""

    period: float | None = None

    def __init__(self, file: int, run: RunId) -> None:
        self._file = file
        self._run = run

    def take(self, events: Sequence[Event]) -> None:
        write(self._file, b"".join(json_line(to_wire(self._run, event)) for event in events))

    def tick(self) -> None:
        return

    def end(self, summary: dict[str, Any] | None) -> None:
        if summary is not None:
            write(self._file, json_line(summary))


class PlainLines:
    """One line for each task event, on stderr."""

    period: float | None = None

    def __init__(self, view: View, run: RunId, hint: str = "") -> None:
        self._view = view
        self._run = run
        self._hint = hint
        self._origin: float | None = None
        """When the first event that is told here happened."""

    def take(self, events: Sequence[Event]) -> None:
        view, text = self._view, []
        for event in events:
            view.take(event)
            if self._origin is None:
                self._origin = event.at
                text += self._heading(event)
                if event.seq == 1:
                    continue
            if line := lines.progress(event, self._origin):
                text.append(line)
        self._print(text)

    def _heading(self, event: Event) -> list[str]:
        view = self._view
        since = f", from event {event.seq:,} on" if event.seq > 1 else ""
        text = f"{view.workflow}: run {self._run}, {count(len(view.rows), 'step')}{since}"
        return [text, *(f"{'':11}{line}" for line in self._hint.splitlines())]

    def tick(self) -> None:
        return

    def end(self, summary: dict[str, Any] | None) -> None:
        if summary is not None and self._origin is not None:
            self._print([closing(self._view, summary["status"])])

    def _print(self, text: list[str]) -> None:
        if text and sys.stderr is not None:
            sys.stderr.write(legible("\n".join(text)) + "\n")
            sys.stderr.flush()


def closing(view: View, status: str) -> str:
    """The line that says how it all went."""
    counts = ", ".join(f"{n:,} {state}" for state, n in view.counts.items() if n)
    took = span(view.at - view.started)
    so_far = status in ("waiting", "paused")
    text = f"{view.workflow} is {status} after {took}" if so_far else f"{view.workflow} {status} in {took}"
    text = f"{text}: {counts}"
    return f"{text}\n{one_line(view.reason)}" if view.reason else text


def json_line(data: Any) -> bytes:
    """One line of JSON."""
    try:
        return _encode(data) + b"\n"
    except ValueError:  # text that is not valid Unicode, such as a file name that came in as bytes
        import json

        return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def write(file: int, data: bytes) -> None:
    """Write all of it."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


@contextlib.contextmanager
def stdout_kept_clean() -> Iterator[None]:
    """What steps print meanwhile goes to stderr."""
    data = claim_stdout()
    try:
        yield
    finally:
        if sys.stdout is not None:
            sys.stdout.flush()
            os.dup2(data, 1)
        os.close(data)


def claim_stdout() -> int:
    """Stdout, for data alone. From now on what steps print, or their child processes, goes to stderr."""
    if sys.stdout is None:
        return os.open(os.devnull, os.O_WRONLY)
    sys.stdout.flush()
    data = os.dup(1)
    os.dup2(2 if sys.stderr is not None else os.open(os.devnull, os.O_WRONLY), 1)
    return data
