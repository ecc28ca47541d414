"""Books of routes: who waits for one, who has still to choose, which loops turn.

A part of the books of a history; like them it knows events and nothing of the core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from penstock.run.events import RouteDecided
from penstock.testing.ways import Ways
from penstock.workflow.spec import Step


class Routes:
    def __init__(self, steps: Sequence[Step]) -> None:
        self._ways = Ways(steps)
        self.dormant = set(self._ways.forward)
        """Targets that nobody has chosen yet."""
        self.open: set[str] = set()
        """Routers that have ended and may choose again."""
        self.settled: set[str] = set()
        """Routers that have made their last choice."""
        self.chosen_by: dict[str, str] = {}
        """A target to the router that chose it: the route satisfies its need."""
        self.calls: dict[str, str] = {}
        """Routers that wait for a detour, and for which."""
        self.forgiven: set[str] = set()
        """Routers whose failure was dealt with by a route."""
        self.ending = False
        """A route led to the end: nothing new starts."""
        self.shortfall = False
        """A router had no way to go."""
        self._turning: dict[str, str] = {}
        """Routers that go back when the body of their loop has come to rest."""

    def grow(self, steps: Sequence[Step]) -> None:
        """The definition has become a longer one."""
        known = set(self._ways.forward)
        self._ways = Ways(steps)
        self.dormant |= set(self._ways.forward) - known

    def ended(self, step: str, *, ran: bool) -> None:
        """A step has ended; a router that did not run has nothing to choose."""
        self.dormant.discard(step)
        if step in self._ways.routers:
            (self.open if ran else self.settled).add(step)
        self.returned(step)

    def returned(self, step: str) -> None:
        """Who called this step as a detour goes on, if it is done."""
        if step not in self.open:
            for router in [router for router, detour in self.calls.items() if detour == step]:
                del self.calls[router]

    def take(self, event: RouteDecided, *, failed: bool) -> None:
        """A router has chosen."""
        step, target = str(event.step), event.target
        routing = self._ways.steps[step].routing
        if target == "human":
            return
        if target is None or target == "end":
            self.ending |= target == "end"
            self.shortfall |= target is None and event.rule != "failed"
            self._settle(step)
        elif (step, str(target)) in self._ways.bodies:
            self._turning[step] = str(target)
        else:
            if str(target) in self.dormant:
                self.dormant.discard(str(target))
                self.chosen_by[str(target)] = step
            if routing is not None and target == routing.detour:
                self.calls[step] = str(target)
                return
            if failed:
                self.forgiven.add(step)
            self._settle(step)

    def _settle(self, step: str) -> None:
        self.open.discard(step)
        self.settled.add(step)
        self.returned(step)

    def undecided(self, router: str, step: str) -> bool:
        """Whether the end of a router counts for `step` only later: it has not made its last choice."""
        return router in self.open and self.calls.get(router) != step

    def held(self, step: str, needs: Iterable[str]) -> bool:
        """Whether a step has to wait: for a route, or until a loop that it comes after turns no more."""
        if step in self.dormant:
            return True
        before = {*needs, *self._ways.forward.get(step, ())}
        return any(
            router not in self.settled and step not in body and before & (body - {router})
            for (router, _), body in self._ways.bodies.items()
        )

    def passed_by(self, step: str) -> bool:
        """Whether no router can choose the step any more."""
        return step in self.dormant and self._ways.forward[step] <= self.settled

    def turn(self, rests: Callable[[str], bool]) -> set[str]:
        """The steps that the next iterations open again, now that what was under way in them has ended."""
        again: set[str] = set()
        for router, target in sorted(self._turning.items()):
            body = self._ways.bodies[router, target]
            if router not in self._turning or not all(rests(step) for step in body):
                continue
            again |= body
            for step in body:
                self.open.discard(step)
                self.settled.discard(step)
                self.forgiven.discard(step)
                self.calls.pop(step, None)
                self._turning.pop(step, None)
                if step in self._ways.forward and step != target and self.chosen_by.get(step, step) in body:
                    self.dormant.add(step)
                    self.chosen_by.pop(step, None)
        return again
