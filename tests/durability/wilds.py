"""Random workflows that end the same way however often they are interrupted.

What a step gives follows from its arguments alone, and nothing depends on which of two tasks
was quicker. The same seed gives the same workflow.
"""

from __future__ import annotations

from random import Random
from typing import Any

import deeds

import penstock as ps

_DEEDS = (
    deeds.look, deeds.look_slowly, deeds.put, deeds.put_slowly, deeds.send, deeds.send, deeds.send_slowly
)  # fmt: skip
_KINDS = (
    ("deed",) * 5 + ("map",) * 2 + ("child",) * 2 + ("flaky", "flaky", "spread", "much", "doomed", "open")
)
_RETRY = {"max_attempts": 3, "backoff": 0.002}


def wild(seed: int) -> ps.Workflow:
    """A workflow of fan-outs, chains, maps, children, retries and all classes of effects."""
    return _Wild(Random(seed), kid(seed)).flow  # noqa: S311 - chance, no secret


def kid(seed: int) -> ps.Workflow:
    """The child that a wild workflow runs: reads, writes, and ends."""
    random = Random(seed)  # noqa: S311 - chance, no secret
    flow = ps.Workflow("kid")
    n = flow.input("n")
    first = flow.step("first", deeds.look, n=n)
    if random.random() < 0.5:
        flow.step("each", deeds.send, for_each="${ [1, 2] }", n="${ [item, steps.first.output] }")
        flow.step("last", deeds.put, n="${ steps.each.output }")
    else:
        flow.step("send", deeds.send_slowly, n=first)
        flow.step("last", deeds.look, n="${ steps.send.output }")
    flow.output("n", "${ steps.last.output }")
    return flow


class _Wild:
    def __init__(self, random: Random, child: ps.Workflow) -> None:
        self.random = random
        self.child = child
        self.flow = ps.Workflow(
            "wild", max_parallel=random.choice((1, 2, 32)), reducers={"total": "sum", "most": "max"}
        )
        self.flow.input("n", int, default=7)
        self.numbers: list[str] = []
        """Steps that give a number."""
        self.lists: list[str] = []
        self.doomed = False
        self.orphans: tuple[str | None, ...] = (None, None, None, "rerun")
        if random.random() < 0.25:  # a step that fails as an orphan hides what comes after it
            self.orphans += ("fail",)
        for i in range(random.randint(3, 8)):
            self._add(f"s{i}", random.choice(_KINDS))
        for name in [*self.numbers, *self.lists]:
            self.flow.output(name, f"${{ steps.{name}.output }}")

    def _add(self, name: str, kind: str) -> None:
        random, flow = self.random, self.flow
        match kind:
            case "map":
                self._map(name)
                return
            case "child":
                each = {"for_each": "${ [3, 1, 2] }", "n": "${ item }"} if random.random() < 0.3 else {}
                flow.step(name, self.child, **{"n": self._value(), **each})
                return
            case "flaky":
                fails = random.randint(1, 2)
                flow.step(
                    name, random.choice(_DEEDS), n=self._value(), fails=fails, retry=_RETRY, **self._orphan()
                )
            case "spread":
                flow.step(name, deeds.spread, n=self._value(), count=random.randint(0, 4))
                self.lists.append(name)
                return
            case "much":
                flow.step(name, deeds.read_much, n=self._value())
                self.lists.append(name)
                return
            case "doomed" if not self.doomed:
                self.doomed = True
                error = random.choice(("fail", "continue"))
                flow.step(name, random.choice(_DEEDS), n=self._value(), fails=9, on_error=error)
                return
            case "open":
                needs = random.sample(self.numbers, min(2, len(self.numbers)))
                join = random.choice(("all_done", "none_failed", "any_success"))
                flow.step(name, random.choice(_DEEDS), n=len(needs), needs=needs, join=join, **self._orphan())
            case _:
                self._deed(name)
        self.numbers.append(name)

    def _deed(self, name: str) -> None:
        random = self.random
        more = self._orphan()
        if self.numbers and random.random() < 0.2:
            more["when"] = f"steps.{random.choice(self.numbers)}.output % 2 == 0"
        if random.random() < 0.3:
            more["set"] = {random.choice(("total", "most", name)): "${ output }"}
        self.flow.step(name, random.choice(_DEEDS), n=self._value(), **more)

    def _map(self, name: str) -> None:
        random = self.random
        lists = [one for one in self.lists if self._is_spread(one)]
        items = f"${{ steps.{random.choice(lists)}.output }}" if lists else "${ [4, 5, 6] }"
        flaky: dict[str, Any] = {"fails": 1, "retry": _RETRY} if random.random() < 0.3 else {}
        more: dict[str, Any] = {"max_parallel": random.choice((None, 1, 2)), **flaky, **self._orphan()}
        more["on_item_error"] = random.choice(("fail", "keep"))
        self.flow.step(name, random.choice(_DEEDS), for_each=items, n="${ item }", **more)
        self.lists.append(name)

    def _is_spread(self, name: str) -> bool:
        return next(s for s in self.flow.build().steps if s.id == name).uses == "py:deeds:spread"

    def _orphan(self) -> dict[str, Any]:
        return {"on_orphan": self.random.choice(self.orphans)}

    def _value(self) -> Any:
        known = [*self.numbers, *self.lists]
        if known and self.random.random() < 0.7:
            return f"${{ steps.{self.random.choice(known)}.output }}"
        return self.random.choice(("${ inputs.n }", self.random.randint(0, 9)))
