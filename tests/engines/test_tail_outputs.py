"""Following a run takes no more memory than its largest output, however many there are."""

from __future__ import annotations

from typing import Any, cast

from penstock.engines.tail import whole
from penstock.ids import RunId, StepId
from penstock.run.events import Event, TaskCompleted
from penstock.store.base import Store
from penstock.testing import clock


class Slow:
    """A store that notes what is read from it."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def output(self, _run: RunId, seq: int) -> Any:
        self.done.append(f"read {seq}")
        return seq


def test_a_large_output_is_read_only_when_the_one_before_it_was_told() -> None:
    store = Slow()
    events: list[Event] = [TaskCompleted(seq, 1.0, StepId(f"s{seq}"), None, ref="a blob") for seq in (1, 2)]

    async def main() -> None:
        async for event in whole(cast(Store, store), RunId("run"), events):
            assert isinstance(event, TaskCompleted)
            store.done.append(f"told {event.output}")

    clock.run(main())

    assert store.done == ["read 1", "told 1", "read 2", "told 2"]
