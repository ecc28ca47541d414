"""Detours as edges: what a step waits for while its caller waits for it.

A caller settles only when its detour has returned, so a detour must not depend on anything
that waits for the caller. Its need on the caller itself is satisfied by the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from penstock.workflow.loops import Loop
from penstock.workflow.order import Edges
from penstock.workflow.routes import Router, loops_in

Extra = Mapping[int, Sequence[int]]


class Deadlock(NamedTuple):
    caller: int
    detour: int
    through: int
    """What the detour waits for, and what waits for the caller."""


def detours_of(steps: Iterable[int], routers: Mapping[int, Router]) -> set[int]:
    """Where these steps may make detours to, and detours from there."""
    found: set[int] = set()
    todo = list(steps)
    while todo:
        router = routers.get(todo.pop())
        if router is not None and router.detour is not None and router.detour not in found:
            found.add(router.detour)
            todo.append(router.detour)
    return found


def reopened_by(routers: Mapping[int, Router]) -> list[Loop]:
    """Loops with everything that runs again in them: their bodies and the detours from there."""
    return [
        Loop(loop.router, loop.target, tuple(sorted({*loop.body, *detours_of(loop.body, routers)})))
        for loop in loops_in(routers)
    ]


def deadlocks(
    routers: Mapping[int, Router], needs: Edges, routed: Extra, barriers: Extra
) -> Iterator[Deadlock]:
    """Detours that could never start, or never return."""
    callers: dict[int, set[int]] = {}
    for i, router in routers.items():
        if router.detour is not None:
            callers.setdefault(router.detour, set()).add(i)

    def before(node: int) -> tuple[int, ...]:
        return (*needs[node], *routed.get(node, ()), *barriers.get(node, ()))

    for detour, direct in callers.items():
        above = _closure(direct, callers)
        for body in routers[detour].bodies.values() if detour in routers else ():
            outside = above.difference(body)  # a caller within its detour's loop runs again, and calls again
            found = ((c, n) for n in body if n != detour for c in before(n) if c in outside)
            yield from (Deadlock(caller, detour, node) for caller, node in islice(found, 1))
        seen = {detour}
        todo = [n for n in (*needs[detour], *barriers.get(detour, ())) if n not in above]
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            waits = next((n for n in before(node) if n in above), None)
            if waits is not None:
                yield Deadlock(waits, detour, node)
                break
            todo += before(node)


def _closure(start: set[int], onward: Mapping[int, set[int]]) -> set[int]:
    found, todo = set(start), list(start)
    while todo:
        new = onward.get(todo.pop(), set()) - found
        found |= new
        todo += new
    return found
