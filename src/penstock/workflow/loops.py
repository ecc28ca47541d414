"""Routes as edges: which lead on, which lead back, and what a loop re-opens.

Plain graphs of numbers again. An edge to an ancestor over needs and the routes declared
before it is a back edge; every other route leads forward, so that needs and forward routes
together never form a circle. What a route means while a run goes is the core's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.workflow.order import Edges, Extra, topological

Neighbours = Callable[[int], Sequence[int]]

EFFORT: Final = 5_000_000
"""Edges that may be looked at beyond one pass; only routes against the declared order need many."""

CROSSINGS: Final = 20
"""Enough to say that loops overlap."""

FUSE: Final = 10
"""A run may open this many steps for each step it has."""


class Loop(NamedTuple):
    router: int
    target: int
    body: tuple[int, ...]


class Flow:
    """Needs and forward routes, kept free of circles while routes are added one by one."""

    def __init__(self, needs: Edges, dependents: Edges) -> None:
        self.needs = needs
        self.dependents = dependents
        self.forward: dict[int, list[int]] = {}
        """Router to targets."""
        self.routed: dict[int, list[int]] = {}
        """Target to routers."""
        self.back: dict[int, list[int]] = {}
        """Router to targets before it, or itself."""
        self.position: Sequence[int] = range(len(needs))
        """Where each node is in a topological order of needs and forward routes."""
        self.effort = 0

    @property
    def tangled(self) -> bool:
        """Looking further would take too long; what was found so far is incomplete."""
        return self.effort > EFFORT

    def add_routes(self, routes: Iterable[tuple[int, int]]) -> None:
        """Sort `routes`, given in declared order, into forward and back."""
        doubtful = self._settle_the_plain_ones(list(dict.fromkeys(routes)))
        place = list(self.position)  # mended as routes come in
        for router, target in doubtful:
            if self.tangled:
                return
            if self._leads_back(router, target, place):
                self.back.setdefault(router, []).append(target)
            else:
                self._accept(router, target)
        self.position = place

    def body(self, router: int, target: int) -> tuple[int, ...]:
        """What lies on a way from `target` to `router`, both included; ascending."""
        if router == target:
            return (router,)
        place = self.position
        after = self._reach(target, self.successors, lambda node: place[node] <= place[router])
        return tuple(sorted(self._reach(router, self.predecessors, after.__contains__)))

    def successors(self, node: int) -> Sequence[int]:
        return (*self.dependents[node], *self.forward.get(node, ()))

    def predecessors(self, node: int) -> Sequence[int]:
        return (*self.needs[node], *self.routed.get(node, ()))

    def _accept(self, router: int, target: int) -> None:
        self.forward.setdefault(router, []).append(target)
        self.routed.setdefault(target, []).append(router)

    def _settle_the_plain_ones(self, routes: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Take the routes that lie on no circle, whatever the others are; return the rest."""
        for router, target in routes:
            if router == target:
                self.back.setdefault(router, []).append(target)
        onward = [(router, target) for router, target in routes if router != target]
        order = topological(self.needs, self.dependents, _by_first(onward))
        outside = set(order)
        if len(order) < len(self.needs):
            outside.update(topological(self.dependents, self.needs, _by_first((t, r) for r, t in onward)))
        doubtful: list[tuple[int, int]] = []
        for router, target in onward:
            if router in outside or target in outside:
                self._accept(router, target)
            else:
                doubtful.append((router, target))
        if doubtful:
            order = topological(self.needs, self.dependents, self.forward)
        place = [0] * len(order)
        for position, node in enumerate(order):
            place[node] = position
        self.position = place
        return doubtful

    def _leads_back(self, router: int, target: int, place: list[int]) -> bool:
        """Whether `target` is an ancestor of `router`. If not, `place` is mended for the new edge.

        The order is repaired only between the two ends, so that routes which follow the
        order, which is nearly all of them, cost nothing.
        """
        if place[router] < place[target]:
            return False
        low, high = place[target], place[router]
        after = self._reach(target, self.successors, lambda node: place[node] <= high)
        if router in after:
            return True
        before = self._reach(router, self.predecessors, lambda node: place[node] >= low)
        moved = sorted(before, key=place.__getitem__) + sorted(after, key=place.__getitem__)
        for node, position in zip(moved, sorted(place[node] for node in moved), strict=True):
            place[node] = position
        return False

    def _reach(self, start: int, onward: Neighbours, allowed: Callable[[int], bool]) -> set[int]:
        seen = {start}
        todo = [start]
        while todo:
            near = onward(todo.pop())
            self.effort += 1 + len(near)
            for node in near:
                if node not in seen and allowed(node):
                    seen.add(node)
                    todo.append(node)
        return seen


def loops_of(flow: Flow) -> list[Loop]:
    """Every back edge and its body, by router and target. Incomplete when the flow is `tangled`."""
    found: list[Loop] = []
    for router in sorted(flow.back):
        for target in sorted(flow.back[router]):
            if flow.tangled:
                return found
            found.append(Loop(router, target, flow.body(router, target)))
    return found


def crossing(loops: Sequence[Loop]) -> list[tuple[Loop, Loop]]:
    """Pairs of bodies that overlap although neither holds the other."""
    innermost: dict[int, Loop] = {}
    pairs: list[tuple[Loop, Loop]] = []
    for loop in sorted(loops, key=lambda loop: -len(loop.body)):
        around = {id(other): other for node in loop.body if (other := innermost.get(node))}
        known = sum(1 for node in loop.body if node in innermost)
        if len(around) > 1 or (around and known < len(loop.body)):
            # Larger bodies came first: one that misses a node of this body cannot hold it.
            pairs.extend((other, loop) for other in around.values() if not set(loop.body) <= set(other.body))
            if len(pairs) >= CROSSINGS:
                break
        innermost.update(dict.fromkeys(loop.body, loop))
    return pairs


def barriers_of(loops: Iterable[Loop], dependents: Edges, forward: Extra) -> dict[int, set[int]]:
    """Nodes that depend on a body from outside, to the routers that must have ended before them.

    One that depends on nothing but the router itself waits for it anyway.
    """
    found: dict[int, set[int]] = {}
    for loop in loops:
        inside = set(loop.body)
        for node in loop.body:
            if node == loop.router:
                continue
            for after in (*dependents[node], *forward.get(node, ())):
                if after not in inside:
                    found.setdefault(after, set()).add(loop.router)
    return found


def worst_openings(count: int, loops: Iterable[Loop], caps: Mapping[int, int]) -> int:
    """How many steps a run of `count` could open if every loop went on to its cap."""
    bodies: dict[int, set[int]] = {}
    for loop in loops:
        bodies.setdefault(loop.router, set()).update(loop.body)
    times: dict[int, int] = {}
    for router, body in bodies.items():
        for node in body:
            times[node] = times.get(node, 1) * caps[router]
    return count + sum(times.values()) - len(times)


def _by_first(pairs: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for first, second in pairs:
        found.setdefault(first, []).append(second)
    return found
