"""How batches look on disk, whatever the disk is.

A batch is one line: a JSON array of events. A large output is taken out of its event and
kept once, by its hash; the event then says where it is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from penstock.errors import StoreError
from penstock.run.commands import Command
from penstock.run.events import (
    Event,
    GateStarted,
    MapStarted,
    TaskCompleted,
    WorkflowAborted,
    WorkflowCompleted,
)
from penstock.workflow.spec import Workflow

INLINE = 32 * 1024
"""Bytes of an output that stay in its event."""

_encode = msgspec.json.Encoder().encode

Blob = tuple[str, bytes]


def encode(events: Sequence[Event]) -> tuple[bytes, list[Blob]]:
    """One batch as a line, and the outputs that are too large for it."""
    line = _encode(events)
    if len(line) <= INLINE:
        return line + b"\n", []
    blobs: list[Blob] = []
    small: list[Event] = []
    for event in events:
        if isinstance(event, TaskCompleted | MapStarted | GateStarted) and event.output is not msgspec.UNSET:
            body = _encode(event.output)
            if len(body) > INLINE:
                ref = sha256(body).hexdigest()
                blobs.append((ref, body))
                event = msgspec.structs.replace(event, output=msgspec.UNSET, ref=ref)  # noqa: PLW2901
        small.append(event)
    return _encode(small) + b"\n", blobs


def decode(lines: bytes) -> Iterator[list[Event]]:
    """The batches of some lines. `StoreError` when they are none."""
    read = _decoder().decode
    for line in lines.splitlines():
        try:
            yield read(line)
        except msgspec.MsgspecError as error:
            raise damaged("a batch of events", error) from error


def value(body: bytes, what: str) -> Any:
    """Any JSON that was kept. `StoreError` when it is none."""
    try:
        return msgspec.json.decode(body)
    except msgspec.MsgspecError as error:
        raise damaged(what, error) from error


def blob(body: bytes, ref: str) -> Any:
    """What was kept by its hash. `StoreError` when it is something else."""
    if sha256(body).hexdigest() != ref:
        raise damaged(f"the output {ref[:12]}…", "it is not what was written")
    return value(body, f"the output {ref[:12]}…")


def damaged(what: str, why: object) -> StoreError:
    return StoreError(f"{what} in the store is damaged: {why}")


def whole(events: list[Event], *, after: int) -> list[Event]:
    """The same events. `StoreError` when some in between are missing."""
    if events and (events[0].seq != after + 1 or events[-1].seq != after + len(events)):
        raise damaged(f"the history after event {after}", "events are missing")
    return events


@cache
def _decoder() -> msgspec.json.Decoder[list[Event]]:
    """Made when first needed: it has to look at every event there is."""
    return msgspec.json.Decoder(list[Event])


def learn() -> None:
    """Look at all that is read from stores, before any thread reads it.

    msgspec looks at a type when it first meets it. A second thread that meets it meanwhile finds
    half of what it needs, and the process crashes.
    """
    with _LEARNING:
        _learnt()


@cache
def _learnt() -> None:
    _decoder()
    msgspec.json.Decoder(Command)
    msgspec.json.Decoder(Workflow)


_LEARNING = threading.Lock()


def flat(rows: Iterable[bytes], *, after: int) -> list[Event]:
    """The events past `after`, in order."""
    return [event for row in rows for batch in decode(row) for event in batch if event.seq > after]


def output_of(event: Event) -> tuple[Any, str]:
    """The output (or the list of items) in an event, or the hash it is kept under."""
    if not isinstance(event, TaskCompleted | MapStarted | GateStarted):
        return None, ""
    if event.ref:
        return None, event.ref
    return (None if event.output is msgspec.UNSET else event.output), ""


class Summary(NamedTuple):
    status: str
    reason: str
    ended: float | None


def summary(events: Sequence[Event]) -> Summary:
    """How a run stands, as far as its last event tells."""
    if not events:
        return Summary("pending", "", None)
    last = events[-1]
    if isinstance(last, WorkflowCompleted):
        return Summary(last.status, last.reason, last.at)
    if isinstance(last, WorkflowAborted):
        return Summary("aborted", last.reason, last.at)
    return Summary("running", "", None)
