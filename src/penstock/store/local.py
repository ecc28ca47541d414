"""Mail, checkpoints and examples of a store that one process has to itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.errors import StoreError
from penstock.ids import RunId
from penstock.run.commands import Command
from penstock.store.base import CheckpointRecord


class LocalMail:
    """Commands go straight to the run: there is no other process to come from."""

    def __init__(self) -> None:
        self._receive: Callable[[RunId, Command], None] | None = None
        self._answers: dict[tuple[RunId, str], str] = {}
        self._seen: set[tuple[RunId, str]] = set()

    async def post(self, run: RunId, command: Command) -> None:
        if self._receive is not None and (run, command.id) not in self._seen:
            self._seen.add((run, command.id))
            self._receive(run, command)

    async def answer(self, run: RunId, id: str) -> str | None:
        return self._answers.get((run, id))

    def answered(self, run: RunId, id: str, reason: str) -> None:
        self._answers[run, id] = reason

    def deliver(self, receive: Callable[[RunId, Command], None]) -> None:
        self._receive = receive


class LocalCheckpoints:
    def __init__(self) -> None:
        self._kept: dict[RunId, list[tuple[CheckpointRecord, bytes]]] = defaultdict(list)

    def save(self, record: CheckpointRecord, state: bytes, *, keep: int) -> None:
        self._kept[record.run] = [*self._kept[record.run], (record, state)][-keep:]

    async def list(self, run: RunId) -> Sequence[CheckpointRecord]:
        return [record for record, _ in self._kept[run]]

    async def get(self, checkpoint: str) -> tuple[CheckpointRecord, bytes]:
        for kept in self._kept.values():
            for record, state in kept:
                if record.checkpoint == checkpoint:
                    return record, state
        raise StoreError(f"there is no checkpoint {checkpoint!r}")


class LocalExamples:
    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    async def add(self, id: str, example: Mapping[str, Any]) -> None:
        self._kept.setdefault(id, msgspec.json.encode(example))

    async def list(
        self, *, workflow: str = "", step: str = "", tool: str = "", now: float = 0.0
    ) -> Sequence[dict[str, Any]]:
        where = {"workflow": workflow, "step": step, "tool": tool}
        asked = {key: value for key, value in where.items() if value}
        found = [
            one
            for one in map(msgspec.json.decode, reversed(self._kept.values()))
            if all(one[key] == value for key, value in asked.items()) and not (now and one["expires"] <= now)
        ]
        return sorted(found, key=lambda one: -one["at"])

    async def expire(self, *, now: float) -> int:
        before = len(self._kept)
        kept = ((id, body, msgspec.json.decode(body)) for id, body in self._kept.items())
        self._kept = {id: body for id, body, one in kept if one["expires"] > now}
        return before - len(self._kept)
