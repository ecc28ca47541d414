"""Whether anybody drives the run that someone follows: until somebody does, nothing will come."""

from __future__ import annotations

from collections.abc import Callable

from penstock.cli import exits, stores
from penstock.store.base import RunRecord
from penstock.store.listing import FINAL


class Driven:
    """Says when nobody drives the run any more, and when somebody does again."""

    def __init__(self, url: str, say: Callable[[str], None] | None = None) -> None:
        self._url = url
        self._say = say or _said
        self._driven = True

    def look(self, record: RunRecord) -> None:
        driven = bool(record.owner) or record.status in FINAL
        if self._driven and not driven:
            self._say(self._words(record))
        elif driven and not self._driven:
            self._say("")
        self._driven = driven

    def _words(self, record: RunRecord) -> str:
        if record.status == "waiting":
            return f"run {record.run} waits for a decision: {stores.line('decide', record.run, self._url)}"
        resume = stores.line("resume", record.run, self._url)
        return f"nobody drives run {record.run} now: {resume} goes on with it"


def _said(text: str) -> None:
    if text:
        exits.say(text)
