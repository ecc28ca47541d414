"""Where a run's outputs are while it runs.

The fold keeps only what decisions read; whole outputs are kept here for as long as there is
room, and fetched from the store again when there was none.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from penstock.engines.items import Items
from penstock.ids import StepId
from penstock.run.events import Event, TaskCompleted
from penstock.run.state import SUCCEEDED, Run
from penstock.steps.base import TaskFailure
from penstock.workflow.expr import Path

ROOM = 1024 * 1024
"""Bytes of outputs kept at hand when a store has them all."""

Fetch = Callable[[int], Awaitable[Any]]
"""The output that the event of this number carries."""

Key = int | tuple[int, int]
"""A step, or an item of one."""

_to_json = msgspec.json.Encoder().encode
_from_json = msgspec.json.Decoder().decode


class Outputs:
    def __init__(self, run: Run, fetch: Fetch | None = None) -> None:
        self.run = run
        self.items = Items(run)
        self._fetch = fetch
        self._held: dict[Key, tuple[Any, int]] = {}
        self._earlier: dict[int, Any] = {}
        """Outputs of the last iteration, in loops of runs that no store remembers."""
        self._rounds: dict[int, int] = {}
        """Which iteration a held output is of, where it is not the first."""
        self._size = 0

    # --- keeping ---

    def keep(self, step: int, item: int | None, output: Any, size: int) -> None:
        if self.run.iterations and item is None:
            self._turn(step)
        self._held[step if item is None else (step, item)] = (output, size)
        if self._fetch is None:
            return
        self._size += size
        while self._size > ROOM:
            oldest = next(iter(self._held))
            self._size -= self._held.pop(oldest)[1]

    def _turn(self, step: int) -> None:
        """A step of a loop has a new output: the old one is what `previous` shows."""
        now = self.run.iterations.get(step, 1)
        if self._rounds.get(step, 1) < now:
            if self._fetch is None and (step in self._held or step in self.items.ended):
                self._earlier[step] = self.value(step)
            self._rounds[step] = now

    def open_map(self, step: int, items: list[Any]) -> None:
        """A map has its list; what its items gave in the last iteration is not theirs any more."""
        again = bool(self.run.iterations) and step in self.items.ended
        if again:
            self._turn(step)
            for item in range(len(self.items.ended[step])):
                self._size -= self._held.pop((step, item), (None, 0))[1]
        self.items.open(step, items, again=again)

    def saw(self, events: Sequence[Event]) -> None:
        """Note where the outputs of items are found, and keep those that nobody kept."""
        index, ended = self.run.graph.index, self.items.ended
        for event in events:
            if type(event) is not TaskCompleted:
                continue
            i, item = index[event.step], event.item
            if item is not None:
                ended[i][item] = event.seq
            elif i in ended:
                self.items.close(i)
                continue
            held = self._held.get(i if item is None else (i, item))
            if event.output is not UNSET and (held is None or held[0] is not event.output):
                # Not from a task of ours: someone gave it.
                self.keep(i, item, event.output, len(msgspec.json.encode(event.output)))

    def recall(self, events: Iterable[Event]) -> None:
        """Learn from a history what its steps gave, or where that is found; gone steps gave nothing."""
        index = self.run.graph.index
        known = [event for event in events if getattr(event, "step", None) in index]
        self.items.recall(known)
        if self._fetch is None:
            self.saw(known)

    # --- at hand ---

    def value(self, step: int) -> Any:
        """A whole output that is at hand."""
        ended = self.items.ended
        if step not in ended:
            return self._held[step][0]
        nothing = (None, 0)  # an item that failed and was let pass
        return [self._held.get((step, item), nothing)[0] for item in range(len(ended[step]))]

    def before(self, i: int) -> Any:
        """The output of the last iteration, at hand: the one held is of that iteration or of this one."""
        if self._rounds.get(i, 1) < self.run.iterations.get(i, 1):
            return self.value(i)
        return self._earlier[i]

    def absent(self, reads: Iterable[Path]) -> list[int]:
        """Steps whose outputs these paths need and which are not at hand; -1 - i: of the last iteration."""
        if self._fetch is None:
            return []
        run = self.run
        wanted: dict[int, None] = {}
        for path in reads:
            i = step_of(run, path)
            if i < 0:
                continue
            if path[0] == "previous":
                if i in run.previous and run.previous[i][0] == "succeeded":
                    wanted[-1 - i] = None
            elif run.phase[i] == SUCCEEDED and not self._has(i):
                wanted[i] = None
        return list(wanted)

    def _has(self, i: int) -> bool:
        ended = self.items.ended
        if i not in ended:
            return i in self._held
        return all((i, item) in self._held for item, seq in enumerate(ended[i]) if seq)

    # --- wherever they are ---

    async def fetch(self, steps: Iterable[int]) -> Mapping[int, Any]:
        """Outputs from the store, for one use."""
        return {i: await self._whole(i) for i in steps}

    async def of(self, step: int) -> Any:
        """A step's whole output; None when it has none."""
        if self.run.phase[step] != SUCCEEDED:
            return None
        if self._fetch is None or self._has(step):
            return self.value(step)
        return await self._whole(step)

    async def checked(self, step: int, item: int | None, seq: int) -> Any:
        """A result whose gate has not been passed; event `seq` carries it."""
        held = self._held.get(step if item is None else (step, item))
        if held is not None:
            return held[0]
        return None if self._fetch is None else await self._fetch(seq)

    async def _whole(self, i: int) -> Any:
        assert self._fetch is not None  # noqa: S101 - nothing is absent without it
        if i < 0:
            return await self._whole_before(-1 - i)
        ended = self.items.ended
        if i not in ended:
            return await self._fetch(self.run.ended_at[i])
        whole: list[Any] = []
        for item, seq in enumerate(ended[i]):
            held = self._held.get((i, item))
            if held is not None:
                whole.append(held[0])
            else:
                whole.append(await self._fetch(seq) if seq else None)
        return whole

    async def _whole_before(self, i: int) -> Any:
        assert self._fetch is not None  # noqa: S101 - nothing is absent without it
        seqs = self.items.before.get(i)
        if seqs is None:
            return await self._fetch(self.run.previous[i][1])
        return [await self._fetch(seq) if seq else None for seq in seqs]


def step_of(run: Run, path: Path) -> int:
    """The step whose output a path reads; -1 when it reads something else, -2 when there is none."""
    if path[0] not in ("steps", "previous") or len(path) < 3 or path[2] != "output":
        return -1
    return run.graph.index.get(StepId(path[1]), -2)


def as_json(value: Any) -> tuple[Any, int]:
    """The value as JSON carries it (fresh, shared with nobody, the same after a restart), and its size."""
    try:
        text = _to_json(value)
        if b"null" in text and value is not None:
            _refuse_strange_numbers(value)
        return _from_json(text), len(text)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise TaskFailure("output", f"the result is not JSON: {error}") from None


def _refuse_strange_numbers(value: Any) -> None:
    """JSON has no infinity, and the encoder writes null for it: what comes out must not be another value."""
    todo = [msgspec.to_builtins(value)]
    while todo:
        one = todo.pop()
        if isinstance(one, float):
            if not math.isfinite(one):
                raise ValueError(f"{one} is not a JSON number; give None or text")
        elif isinstance(one, dict):
            todo.extend(one.values())
        elif isinstance(one, list | tuple):
            todo.extend(one)
