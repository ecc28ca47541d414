"""A subscriber that was too slow is told exactly what it missed, also while it handles the news."""

from __future__ import annotations

import asyncio

from penstock.engines.stream import Gap, Stream
from penstock.run.events import LayerStarted


def _events(first: int, last: int) -> list[LayerStarted]:
    return [LayerStarted(seq, 0.0, seq) for seq in range(first, last + 1)]


def test_what_comes_while_a_gap_is_handled_is_not_lost() -> None:
    async def follow() -> list[int]:
        stream = Stream(kept=4)
        stream.publish(_events(1, 10))
        accounted: list[int] = []
        async for event in stream.follow(after=0):
            if isinstance(event, Gap):
                accounted.extend(range(event.after + 1, event.after + event.missed + 1))
                if stream.last == 10:
                    stream.publish(_events(11, 13))
                    stream.close()
            else:
                accounted.append(event.seq)
        return accounted

    assert asyncio.run(follow()) == list(range(1, 14))
