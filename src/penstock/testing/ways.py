"""Which way leads back and what a loop re-opens: worked out once more, by the words of the design.

For those who check histories; it shares no code with the compiler that it checks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from penstock.workflow.spec import Routing, Step


class Ways:
    """A definition as a graph of names."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = {str(step.id): step for step in steps}
        self.before: dict[str, set[str]] = {
            id: {str(need) for need in step.needs} for id, step in self.steps.items()
        }
        for id, step in self.steps.items():
            text = repr((step.with_, step.when, step.for_each))
            self.before[id] |= {other for other in self.steps if f"steps.{other}." in text}
        self.needs = {id: set(needs) for id, needs in self.before.items()}
        self.routers = {id for id, step in self.steps.items() if step.routing}
        self.forward: dict[str, set[str]] = defaultdict(set)
        """A target to its routers."""
        self.bodies: dict[tuple[str, str], set[str]] = {}
        back: list[tuple[str, str]] = []
        for id, step in self.steps.items():
            for target in targets(step.routing) if step.routing else ():
                if target == id or target in self.ancestors(id):
                    back.append((id, target))
                else:
                    self.before[target].add(id)
                    self.forward[target].add(id)
        for router, target in back:
            inside = {n for n in self.ancestors(router) if target in self.ancestors(n)} | {router, target}
            self.bodies[router, target] = self._with_detours(inside)

    def ancestors(self, id: str) -> set[str]:
        found: set[str] = set()
        todo = [id]
        while todo:
            new = self.before[todo.pop()] - found
            found |= new
            todo += new
        return found

    def _with_detours(self, inside: set[str]) -> set[str]:
        found, todo = set(inside), list(inside)
        while todo:
            ways = self.steps[todo.pop()].routing
            if ways and ways.detour and ways.detour not in found:
                found.add(ways.detour)
                todo.append(ways.detour)
        return found


def targets(ways: Routing) -> list[str]:
    """The steps that a routing names, in the order in which it names them."""
    tie = ways.tie_breaker
    named = [
        *(condition.target for condition in ways.conditions),
        *ways.branches.values(),
        *(tie.valid_targets if tie and tie.enabled else ()),
        *(one for one in (ways.loop_target, ways.next, ways.detour) if one),
    ]
    return [str(name) for name in dict.fromkeys(named) if name not in ("end", "human")]
