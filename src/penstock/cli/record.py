"""A saved run: the JSON Lines that `run --json` prints and `run --save` keeps.

Events, one a line, and at the end one line that sums the run up. A run that was killed has
no such line, and its last event may be torn; both are told, neither is an error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec

from penstock.cli import stores
from penstock.cli.exits import say
from penstock.cli.view import View
from penstock.errors import DefinitionError, Problem
from penstock.run.events import Event

_RUN: Final = re.compile(rf"{stores.LAST}|[0-9a-hjkmnp-tv-z]{{1,16}}([/+].+)?")
_decode = msgspec.json.Decoder().decode


class Line(NamedTuple):
    raw: bytes
    data: dict[str, Any]
    event: Event | None
    """None for the summary, and for an event that this version does not know."""


class Step(msgspec.Struct):
    status: str
    attempts: int
    iterations: int
    reason: str


class Summary(msgspec.Struct):
    """The shape of the last line."""

    run_id: str
    status: str
    outputs: dict[str, Any]
    steps: dict[str, Step]
    pending: list[dict[str, Any]]
    duration_ms: float


class Record(NamedTuple):
    """A saved run as a whole."""

    run_id: str
    view: View
    summary: dict[str, Any]
    events: int
    complete: bool
    """Whether the record goes to the end of the run."""
    notes: tuple[str, ...] = ()
    """What else there is to say, a line each."""


def is_file(source: str) -> bool:
    """Whether a file is meant; otherwise it is a run."""
    path = Path(source)
    return source == "-" or (path.exists() and not path.is_dir()) or not _RUN.fullmatch(source)


def read(source: str) -> Iterator[Line]:
    """The lines of a saved run; `-` is stdin."""
    run_id = ""
    with _opened(source) as file:
        for number, raw in enumerate(file, start=1):
            if not raw.strip():
                continue
            if not raw.endswith(b"\n") and not _whole(raw):
                say(f"{source}:{number}: the last line is incomplete and was left out")
                return
            line = _line(raw, source, number)
            run_id = run_id or line.data["run_id"]
            if line.data["run_id"] != run_id:
                raise _wrong(source, number, "this line is of another run", "one file holds one run")
            yield line


def load(source: str) -> Record:
    """A saved run, folded."""
    view, run_id, events = View(), "", 0
    summary: dict[str, Any] | None = None
    for line in read(source):
        run_id = line.data["run_id"]
        if "type" not in line.data:
            summary = line.data
            continue
        events += 1
        if line.event is not None:
            view.take(line.event)
    if not run_id:
        raise DefinitionError([Problem("there is no run in this file", file=source)])
    return Record(run_id, view, summary or view.summary(run_id), events, summary is not None or view.ended)


@contextmanager
def _opened(source: str) -> Iterator[BinaryIO]:
    if source == "-":
        yield sys.stdin.buffer
        return
    path = Path(source)
    try:
        file = path.open("rb")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        no_path = isinstance(error, FileNotFoundError) and path.name == source and not path.suffix
        hint = "and no run has such an id: `penstock runs` lists them" if no_path else ""
        raise DefinitionError([Problem(f"cannot read the file: {reason}", hint, file=source)]) from None
    with file:
        yield file


def _whole(raw: bytes) -> bool:
    try:
        _decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _line(raw: bytes, source: str, number: int) -> Line:
    try:
        data = _decode(raw)
    except (msgspec.DecodeError, RecursionError):
        data = None
    if not isinstance(data, dict) or not isinstance(data.get("run_id"), str):
        hint = "expected what `penstock run --save` or `--json` writes"
        raise _wrong(source, number, "this is not a line of a saved run", hint)
    if "type" in data:
        return Line(raw, data, _event(data))
    try:
        msgspec.convert(data, Summary)
    except msgspec.ValidationError as error:
        raise _wrong(source, number, f"this is not how a run is summed up: {error}", "") from None
    return Line(raw, data, None)


def _event(data: dict[str, Any]) -> Event | None:
    try:
        at = datetime.fromisoformat(data["at"]).timestamp()
        event: Event = msgspec.convert({**data, "at": at}, Event)
    except (KeyError, TypeError, ValueError):  # a ValidationError is a ValueError
        return None
    return event


def _wrong(source: str, number: int, message: str, hint: str) -> DefinitionError:
    return DefinitionError([Problem(message, hint, file=source, line=number)])
