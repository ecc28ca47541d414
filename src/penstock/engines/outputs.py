"""Where a run's outputs are while it runs, and how expressions read them.

The fold keeps only what decisions read; whole outputs are kept here for as long as there is
room, and fetched from the store again when there was none. Values handed out are always
fresh: nothing a step does to its arguments can be seen by another.
"""

from __future__ import annotations

from array import array
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from penstock.ids import StepId
from penstock.policy import gates
from penstock.run.events import Event, MapStarted, TaskCompleted
from penstock.run.state import SUCCEEDED, Run, dig, place
from penstock.workflow.amend import amended
from penstock.workflow.expr import MISSING, Failure, Path
from penstock.workflow.interpolate import Template

ROOM = 1024 * 1024
"""Bytes of outputs kept at hand when a store has them all."""

Fetch = Callable[[int], Awaitable[Any]]
"""The output that the event of this number carries."""

BEFORE = "~"
"""Marks the last iteration of a step, in the places of items."""

Key = int | tuple[int, int]
"""A step, or an item of one."""


class Outputs:
    def __init__(self, run: Run, fetch: Fetch | None = None) -> None:
        self.run = run
        self._fetch = fetch
        self._held: dict[Key, tuple[Any, int]] = {}
        self._earlier: dict[int, Any] = {}
        """Outputs of the last iteration, in loops of runs that no store remembers."""
        self._rounds: dict[int, int] = {}
        """Which iteration a held output is of, where it is not the first."""
        self._size = 0
        self._lists: dict[int, list[Any]] = {}
        """The items of open maps."""
        self._maps: dict[int, array[int]] = {}
        """For each item of a map the event that completed it."""
        self._maps_before: dict[int, array[int]] = {}
        """The same for the last iteration."""

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
            if self._fetch is None and (step in self._held or step in self._maps):
                self._earlier[step] = self.value(step)
            self._rounds[step] = now

    def open_map(self, step: int, items: list[Any]) -> None:
        if step in self._maps and self.run.iterations:
            self._turn(step)
            self._maps_before[step] = self._maps[step]
            for item in range(len(self._maps[step])):
                self._size -= self._held.pop((step, item), (None, 0))[1]
        self._lists[step] = items
        self._maps[step] = array("q", bytes(8 * len(items)))

    def reopen_map(self, step: int, items: list[Any]) -> None:
        """The list of a map that was open before; what its items gave is known already."""
        self._lists[step] = items
        self._maps.setdefault(step, array("q", bytes(8 * len(items))))

    def saw(self, events: Sequence[Event]) -> None:
        """Note where the outputs of items are found, and keep those that nobody kept."""
        index = self.run.graph.index
        for event in events:
            if not isinstance(event, TaskCompleted):
                continue
            i, item = index[event.step], event.item
            if item is not None:
                self._maps[i][item] = event.seq
            elif i in self._maps:
                self._lists.pop(i, None)
                continue
            held = self._held.get(i if item is None else (i, item))
            if event.output is not UNSET and (held is None or held[0] is not event.output):
                # Not from a task of ours: someone gave it.
                self.keep(i, item, event.output, len(msgspec.json.encode(event.output)))

    def recall(self, events: Iterable[Event]) -> None:
        """Learn from a history where the items of its maps are found."""
        index = self.run.graph.index
        for event in events:
            if isinstance(event, MapStarted):
                if event.iteration > 1 and index[event.step] in self._maps:
                    self._maps_before[index[event.step]] = self._maps[index[event.step]]
                self._maps[index[event.step]] = array("q", bytes(8 * event.count))
            elif isinstance(event, TaskCompleted) and event.item is not None:
                self._maps[index[event.step]][event.item] = event.seq

    def places(self) -> dict[str, list[int]]:
        """Where the items of maps are found, by step."""
        ids = self.run.graph.ids
        now = {str(ids[i]): seqs.tolist() for i, seqs in self._maps.items()}
        return now | {f"{ids[i]}{BEFORE}": seqs.tolist() for i, seqs in self._maps_before.items()}

    def know(self, places: Mapping[str, Sequence[int]]) -> None:
        """The inverse of `places`."""
        for step, seqs in places.items():
            maps = self._maps_before if step.endswith(BEFORE) else self._maps
            maps[self.run.graph.index[StepId(step.removesuffix(BEFORE))]] = array("q", seqs)

    # --- reading ---

    def absent(self, reads: Iterable[Path]) -> list[int]:
        """Steps whose outputs these paths need and which are not at hand; -1 - i: of the last iteration."""
        if self._fetch is None:
            return []
        run = self.run
        wanted: dict[int, None] = {}
        for path in reads:
            i = self._step(path)
            if i < 0:
                continue
            if path[0] == "previous":
                if i in run.previous and run.previous[i][0] == "succeeded":
                    wanted[-1 - i] = None
            elif run.phase[i] == SUCCEEDED and not self._has(i):
                wanted[i] = None
        return list(wanted)

    async def fetch(self, steps: Iterable[int]) -> dict[int, Any]:
        """Outputs from the store, for one use."""
        return {i: await self._whole(i) for i in steps}

    def look_up(self, path: Path, step: int = -1, fetched: Mapping[int, Any] | None = None) -> Any:
        """What an expression of `step` finds at a path."""
        i = self._step(path)
        if i == -1:
            return self.run.look_up(path, step)
        if i < 0:
            return MISSING
        if path[0] == "previous":
            return self._previous(i, path, fetched)
        if self.run.phase[i] != SUCCEEDED:
            return None
        return dig(fetched[i] if fetched and i in fetched else self.value(i), path[3:])

    async def of(self, step: int) -> Any:
        """A step's whole output, wherever it is; None when it has none."""
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

    def _previous(self, i: int, path: Path, fetched: Mapping[int, Any] | None) -> Any:
        """What the last iteration gave: nothing the first time, or where it did not succeed."""
        before = self.run.previous.get(i)
        if before is None or before[0] != "succeeded":
            return None
        whole = fetched[-1 - i] if fetched and -1 - i in fetched else self._before(i)
        return dig(whole, path[3:])

    def _before(self, i: int) -> Any:
        """The output of the last iteration, at hand: the one held is of that iteration or of this one."""
        if self._rounds.get(i, 1) < self.run.iterations.get(i, 1):
            return self.value(i)
        return self._earlier[i]

    def value(self, step: int) -> Any:
        """A whole output that is at hand."""
        if step not in self._maps:
            return self._held[step][0]
        nothing = (None, 0)  # an item that failed and was let pass
        return [self._held.get((step, item), nothing)[0] for item in range(len(self._maps[step]))]

    def arguments(
        self, step: int, item: int | None, fetched: Mapping[int, Any] | None = None
    ) -> dict[str, Any] | Failure:
        """The arguments of a task, evaluated now. Everything absent must have been fetched."""
        run = self.run
        args: dict[str, Any] | Failure = {}
        if step in run.graph.args or step in run.overrides:
            args = self.template(step).render(lambda path: self.around(path, step, item, fetched))
        return args

    def item(self, step: int, item: int) -> Any:
        """One item of an open map."""
        return self._lists[step][item]

    def around(
        self, path: Path, step: int, item: int | None, fetched: Mapping[int, Any] | None = None
    ) -> Any:
        """What an expression about one task finds: its item and its earlier attempts, besides the rest."""
        if path[0] == "item":
            return dig(self._lists[step][item], path[1:]) if item is not None else MISSING
        if path[0] == "attempts":
            return dig(gates.memory(self.run.tried.get(place(step, item), ())), path[1:])
        return self.look_up(path, step, fetched)

    def template(self, step: int) -> Template:
        """What a step's arguments are made of, as it stands after commands."""
        run = self.run
        if step in run.overrides:
            return amended(run.graph, step, run.overrides[step])
        return run.graph.args[step]

    def expand(self, step: int, fetched: Mapping[int, Any] | None = None) -> list[Any] | Failure:
        """Evaluate a `for_each`."""
        expression = self.run.graph.for_each[step]
        value = expression.evaluate(lambda path: self.look_up(path, step, fetched))
        if isinstance(value, Failure):
            return value
        if not isinstance(value, list):
            return Failure(f"expected a list, got {type(value).__name__}", expression.source)
        return value

    # --- inside ---

    def _step(self, path: Path) -> int:
        """The step whose output a path reads; -1 when it reads something else, -2 when there is none."""
        if path[0] not in ("steps", "previous") or len(path) < 3 or path[2] != "output":
            return -1
        return self.run.graph.index.get(StepId(path[1]), -2)

    def _has(self, i: int) -> bool:
        if i not in self._maps:
            return i in self._held
        return all((i, item) in self._held for item, seq in enumerate(self._maps[i]) if seq)

    async def _whole(self, i: int) -> Any:
        assert self._fetch is not None  # noqa: S101 - nothing is absent without it
        if i < 0:
            return await self._whole_before(-1 - i)
        if i not in self._maps:
            return await self._fetch(self.run.ended_at[i])
        whole: list[Any] = []
        for item, seq in enumerate(self._maps[i]):
            held = self._held.get((i, item))
            if held is not None:
                whole.append(held[0])
            else:
                whole.append(await self._fetch(seq) if seq else None)
        return whole

    async def _whole_before(self, i: int) -> Any:
        assert self._fetch is not None  # noqa: S101 - nothing is absent without it
        seqs = self._maps_before.get(i)
        if seqs is None:
            return await self._fetch(self.run.previous[i][1])
        return [await self._fetch(seq) if seq else None for seq in seqs]
