"""Where the items of a run's maps are: those still to be done, and the outputs of those that ended.

Knows no values of outputs, only the events that carry them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.ids import StepId
from penstock.run.events import Event, MapStarted, TaskCompleted
from penstock.run.state import Run

BEFORE = "~"
"""Marks the last iteration of a step, in the places of items."""


class Items:
    def __init__(self, run: Run) -> None:
        self._run = run
        self._lists: dict[int, list[Any]] = {}
        """The items of open maps."""
        self.ended: dict[int, array[int]] = {}
        """For each item of a map the event that completed it; 0 where there is none."""
        self.before: dict[int, array[int]] = {}
        """The same for the last iteration."""

    def open(self, step: int, items: list[Any], *, again: bool = False) -> None:
        """A map has its list; `again`, in the next iteration of a loop."""
        if again:
            self.before[step] = self.ended[step]
        self._lists[step] = items
        self.ended[step] = array("q", bytes(8 * len(items)))

    def reopen(self, step: int, items: list[Any]) -> None:
        """The list of a map that was open before; what its items gave is known already."""
        self._lists[step] = items
        self.ended.setdefault(step, array("q", bytes(8 * len(items))))

    def close(self, step: int) -> None:
        """Nobody asks for the items of this map any more."""
        self._lists.pop(step, None)

    def item(self, step: int, item: int) -> Any:
        """One item of an open map."""
        return self._lists[step][item]

    def recall(self, events: Iterable[Event]) -> None:
        """Learn from a history where the items of its maps are found."""
        index = self._run.graph.index
        for event in events:
            if isinstance(event, MapStarted):
                if event.iteration > 1 and index[event.step] in self.ended:
                    self.before[index[event.step]] = self.ended[index[event.step]]
                self.ended[index[event.step]] = array("q", bytes(8 * event.count))
            elif isinstance(event, TaskCompleted) and event.item is not None:
                self.ended[index[event.step]][event.item] = event.seq

    def places(self) -> dict[str, list[int]]:
        """Where the items of maps are found, by step."""
        ids = self._run.graph.ids
        now = {str(ids[i]): seqs.tolist() for i, seqs in self.ended.items()}
        return now | {f"{ids[i]}{BEFORE}": seqs.tolist() for i, seqs in self.before.items()}

    def know(self, places: Mapping[str, Sequence[int]]) -> None:
        """The inverse of `places`."""
        for step, seqs in places.items():
            maps = self.before if step.endswith(BEFORE) else self.ended
            maps[self._run.graph.index[StepId(step.removesuffix(BEFORE))]] = array("q", seqs)
