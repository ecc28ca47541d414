"""Hypothesis strategies for workflows: graphs of every shape, and steps that fail in every way.

Hypothesis is a dependency of tests, not of Penstock: it is imported when a strategy is
asked for. Everything drawn is a `Sketch`, so what it must come to is known (`outcomes`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import DefinitionError
from penstock.ids import CommandId, StepId
from penstock.run.commands import (
    Abort,
    Command,
    InjectTasks,
    Message,
    ModifyArgs,
    Pause,
    Resume,
    RetryStep,
    SkipLayer,
    SkipStep,
)
from penstock.testing.sketch import HOSTILE, Condition, Fate, Node, Record, Sketch, build
from penstock.workflow import spec
from penstock.workflow.graph import Graph
from penstock.workflow.spec import ExprPolicy, JoinRule, Routing, Step, TieBreaker

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

T = TypeVar("T")

ALWAYS = 99
"""More failures than anything tries."""

EXTRA = "test:extra"
"""The tool that injected steps call; register one of this id."""

_JOINS: tuple[JoinRule, ...] = ("all_success", "none_failed", "any_success", "all_done")


@cache
def sketches(
    *, most: int = 8, children: bool = True, threads: bool = True, again: bool = False
) -> SearchStrategy[Sketch]:
    """Workflows of up to `most` steps, with children of their own and functions in threads if wanted.

    With `again` their steps may be run several times and come to the same each time.
    """
    from hypothesis import strategies as st

    @st.composite
    def sketch(draw: DrawFn) -> Sketch:
        dice = _Dice(draw)
        child = _child(dice) if children and dice.rarely(3) else None
        nodes: list[Node] = []
        for n in range(dice.number(1, most)):
            nodes.append(_node(dice, f"s{n}", nodes, child=child, threads=threads, again=again))
        return Sketch(
            nodes=tuple(nodes),
            max_parallel=dice.one((32, 1, 2, 3)),
            outputs=dice.some([node.id for node in nodes], 2),
        )

    return sketch()


@cache
def routed(*, most: int = 7, plain: bool = False) -> SearchStrategy[Sketch]:
    """Workflows whose steps choose their successors, go back, make detours and ask people.

    With `plain` the order in which things happen makes no difference to the routes: nothing
    starts with the first of several, nobody ends the run early, and no two routers share a target.
    """
    from hypothesis import strategies as st

    @st.composite
    def sketch(draw: DrawFn) -> Sketch:
        dice = _Dice(draw)
        nodes: list[Node] = []
        for n in range(dice.number(2, most)):
            nodes.append(_adaptive(dice, f"s{n}", nodes, plain=plain))
        free = [node.id for node in nodes]
        for n, node in enumerate(nodes):
            if dice.rarely(1):
                ways = _routing(dice, n, nodes, free, plain=plain)
                nodes[n] = replace(node, routing=ways, on_expr_error=dice.one(_ON_ERROR))
        return _legal(
            Sketch(
                nodes=tuple(nodes),
                max_parallel=dice.one((32, 1, 2)),
                outputs=dice.some([node.id for node in nodes], 2),
            )
        )

    return sketch()


_ON_ERROR: tuple[ExprPolicy | None, ...] = (None, "fallthrough", "default", "halt")
_CONDITIONS = (
    "output.value == 1",
    "output.value == 2",
    "output.value == 3",
    "output.missing == 1",
    "output.value + 'x' == 'x'",
    "status == 'failed'",
    "iteration < 2",
    "output.status == 's1'",
    "output.deep[9] == 1",
)


def graph_of(sketch: Sketch) -> Graph:
    """The sketch, compiled; what its functions would note is lost."""
    return build(sketch, Record(lambda: 0.0)).graph


def _legal(sketch: Sketch) -> Sketch:
    """The sketch with so many of its routes that it is a definition one may run."""
    routed = [node.id for node in sketch.nodes if node.routing]
    while True:
        try:
            graph_of(sketch)
        except DefinitionError:
            last = routed.pop()
            nodes = [replace(node, routing=None) if node.id == last else node for node in sketch.nodes]
            sketch = replace(sketch, nodes=tuple(nodes))
        else:
            return sketch


def _adaptive(dice: _Dice, id: str, before: Sequence[Node], *, plain: bool) -> Node:
    joins = ("all_success", "none_failed", "all_done") if plain else _JOINS
    needs = dice.some([each.id for each in before], 2)
    later = tuple(dice.number(1, 3) for _ in range(dice.number(1, 2)))
    fate = replace(_fate(dice, 1, again=True), later=later, hostile=dice.number(0, len(HOSTILE) - 1))
    fate = replace(fate, fails=0, hangs=False) if dice.rarely(1) else fate
    items = (fate,) * dice.number(0, 2) if dice.rarely(5) else None
    return Node(
        id=id,
        needs=needs,
        reads=dice.some(needs, 1),
        join=dice.one(joins) if needs else "all_success",
        when=Condition(holds=False) if dice.rarely(9) else None,
        fate=fate,
        items=items,
        max_attempts=dice.one((1, 1, 2)),
        timeout=10.0,
        carry_on=dice.rarely(7),
        approval=dice.rarely(7) and not (plain and items is not None),
    )


def _routing(dice: _Dice, at: int, nodes: Sequence[Node], free: list[str], *, plain: bool) -> Routing:
    """Ways from one step to others, mostly later ones; targets of `free` that it takes are gone."""
    ids = [node.id for node in nodes]

    def target() -> StepId:
        if dice.rarely(4):
            return StepId("human" if plain else dice.one(("human", "end")))
        if dice.rarely(2):
            return StepId(ids[dice.number(0, at)])
        later = [id for id in ids[at + 1 :] if id in free or not plain]
        if not later:
            return StepId(ids[dice.number(0, at)])
        found = dice.one(later)
        if plain:
            free.remove(found)
        return StepId(found)

    chosen: dict[str, Any] = {}
    if dice.rarely(1):
        chosen["conditions"] = tuple(
            spec.Condition(expr, target())
            for expr in {dice.one(_CONDITIONS) for _ in range(dice.number(1, 2))}
        )
    if dice.rarely(2):
        chosen["branches"] = {
            key: target() for key in {dice.one(("1", "2", "failed", "__proto__")) for _ in "ab"}
        }
        chosen["on"] = dice.one(("output.value", "output.status"))
    if dice.rarely(1):
        chosen["loop_target"] = StepId(ids[dice.number(0, at)])
    if dice.rarely(3) and at + 1 < len(ids):
        chosen["detour"] = detour = target()
        if detour in ("human", "end"):
            del chosen["detour"]
    if dice.rarely(3):
        names = tuple(dict.fromkeys((target(), target(), target())))
        chosen["tie_breaker"] = TieBreaker(enabled=True, valid_targets=names)
    if dice.rarely(1) or len(chosen) < 2:
        chosen["next"] = target()
    ways = Routing(**chosen)
    single = (ways.loop_target, ways.next)
    tie = ways.tie_breaker.valid_targets if ways.tie_breaker else ()
    named = {*(one.target for one in ways.conditions), *ways.branches.values(), *single, *tie}
    back = named & set(ids[: at + 1])
    return spec.Routing(**chosen, max_iterations=dice.number(1, 4) if back else None)


def commands(sketch: Sketch, *, most: int = 6) -> SearchStrategy[list[tuple[int, Command]]]:
    """Commands, sensible and not, each with the moment it comes: the number of facts before it."""
    return _commands(tuple(StepId(node.id) for node in sketch.nodes), most)


@cache
def _commands(steps: tuple[StepId, ...], most: int) -> SearchStrategy[list[tuple[int, Command]]]:
    from hypothesis import strategies as st

    @st.composite
    def several(draw: DrawFn) -> list[tuple[int, Command]]:
        dice = _Dice(draw)
        return [(dice.number(0, 25), _command(dice, steps)) for _ in range(dice.number(0, most))]

    return several()


class _Dice:
    """Draws by small numbers only, which is quick, and shrinks towards the first of everything."""

    def __init__(self, draw: DrawFn) -> None:
        self._draw = draw

    def number(self, least: int, most: int) -> int:
        return self._draw(_numbers(least, most))

    def one(self, choices: Sequence[T]) -> T:
        return choices[self.number(0, len(choices) - 1)]

    def some(self, choices: Sequence[str], most: int) -> tuple[str, ...]:
        if not choices:
            return ()
        return tuple(sorted({self.one(choices) for _ in range(self.number(0, most))}))

    def rarely(self, n: int) -> bool:
        """True once in `n + 1` times."""
        return self.number(0, n) == n


@cache
def _numbers(least: int, most: int) -> SearchStrategy[int]:
    from hypothesis import strategies as st

    return st.integers(least, most)


def _child(dice: _Dice) -> Sketch:
    nodes: list[Node] = []
    for n in range(dice.number(1, 3)):
        nodes.append(_node(dice, f"c{n}", nodes, child=None, threads=False, again=True))
    return Sketch(name="child", nodes=tuple(nodes), max_parallel=2, outputs=(nodes[-1].id,))


def _node(
    dice: _Dice, id: str, before: Sequence[Node], *, child: Sketch | None, threads: bool, again: bool = False
) -> Node:
    """A step that may need those `before` it. `again`: it may be run several times and must act the same."""
    needs = dice.some([each.id for each in before], 3)
    join = dice.one(_JOINS) if needs else "all_success"
    given: dict[str, Any] = {"id": id, "needs": needs, "join": join, "reads": dice.some(needs, 2)}
    given["when"] = _when(dice, [each for each in before if each.id in needs], join)
    given["max_attempts"] = tries = dice.one((1, 1, 1, 2, 3))
    given["backoff"] = dice.one((0.0, 0.5, 1.0))
    given["effect"] = "read" if again else dice.one(("read", "idempotent", "write"))
    given["carry_on"] = dice.rarely(5)
    if dice.rarely(3):
        given["items"] = tuple(_fate(dice, tries, again=again) for _ in range(dice.number(0, 4)))
        given["keep"] = dice.rarely(1)
        given["max_parallel"] = dice.one((None, 1, 2))
    else:
        given["fate"] = _fate(dice, tries, again=again)
    if child is not None and dice.rarely(2):
        return Node(**given | {"child": child, "reads": ()})
    return Node(**given, timeout=10.0, blocking=threads and dice.rarely(5))


def _when(dice: _Dice, needs: Sequence[Node], join: JoinRule) -> Condition | None:
    match dice.number(0, 7):
        case 6:
            return Condition(holds=dice.rarely(1))
        case 7:
            # With `any_success` the step may be judged before its other needs have ended.
            plain = [each.id for each in needs if each.items is None and each.child is None]
            if plain and join != "any_success":
                return Condition(step=dice.one(plain), value=dice.number(1, 2))
    return None


def _fate(dice: _Dice, tries: int, *, again: bool) -> Fate:
    fails = dice.one((0, 0, 0, 1, 2, ALWAYS))
    if again and fails >= tries:
        fails = ALWAYS
    return Fate(
        value=dice.number(1, 2),
        seconds=dice.one((0.0, 0.0, 1.0, 2.5)),
        fails=fails,
        hangs=fails > 0 and dice.rarely(2),
    )


def _command(dice: _Dice, steps: Sequence[StepId]) -> Command:
    id = CommandId(f"c{dice.number(0, 7)}")
    step = dice.one((*steps, StepId("nobody")))
    wishes: tuple[Callable[[], Command], ...] = (
        lambda: Message(id=id, text=dice.one(("go on", ""))),
        lambda: Pause(id=id),
        lambda: Resume(id=id),
        lambda: Resume(id=id),
        lambda: SkipStep(id=id, step=step),
        lambda: SkipLayer(id=id, layer=dice.number(-1, 4)),
        lambda: ModifyArgs(id=id, step=step, args={"got": {}}),
        lambda: RetryStep(id=id, step=step),
        lambda: RetryStep(id=id, step=step),
        lambda: InjectTasks(id=id, steps=_injection(dice, steps)),
        lambda: Abort(id=id),
    )
    return dice.one(wishes)()


def _injection(dice: _Dice, steps: Sequence[StepId]) -> tuple[Step, ...]:
    return tuple(
        Step(
            id=StepId(f"x{dice.number(0, 2)}"),
            uses=dice.one((EXTRA, EXTRA, EXTRA, "test:unknown", "py:os:getcwd")),
            needs=tuple(map(StepId, dice.some((*steps, "nobody"), 2))),
            join=dice.one(_JOINS),
        )
        for _ in range(dice.number(1, 2))
    )
