"""Hypothesis strategies for workflows: graphs of every shape, and steps that fail in every way.

Hypothesis is a dependency of tests, not of Penstock: it is imported when a strategy is
asked for. Everything drawn is a `Sketch`, so what it must come to is known (`outcomes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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
from penstock.testing.sketch import Condition, Fate, Node, Sketch
from penstock.workflow.spec import JoinRule, Step

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

ALWAYS = 99
"""More failures than anything tries."""

EXTRA = "test:extra"
"""The tool that injected steps call; register one of this id."""

_JOINS: tuple[JoinRule, ...] = ("all_success", "none_failed", "any_success", "all_done")


def sketches(*, most: int = 8, children: bool = True, threads: bool = True) -> SearchStrategy[Sketch]:
    """Workflows of up to `most` steps, with children of their own and functions in threads if wanted."""
    from hypothesis import strategies as st

    @st.composite
    def sketch(draw: DrawFn) -> Sketch:
        inner = draw(_child()) if children and draw(st.integers(0, 3)) == 3 else None
        nodes: list[Node] = []
        for n in range(draw(st.integers(1, most))):
            nodes.append(draw(_nodes(f"s{n}", tuple(nodes), inner, threads=threads)))
        ids = [node.id for node in nodes]
        return Sketch(
            nodes=tuple(nodes),
            max_parallel=draw(st.sampled_from((1, 2, 3, 32))),
            outputs=tuple(draw(st.lists(st.sampled_from(ids), unique=True, max_size=2))),
        )

    return sketch()


def commands(sketch: Sketch, *, most: int = 6) -> SearchStrategy[list[tuple[int, Command]]]:
    """Commands, sensible and not, each with the moment it comes: the number of facts before it."""
    from hypothesis import strategies as st

    steps = st.sampled_from([StepId(node.id) for node in sketch.nodes] + [StepId("nobody")])
    ids = st.sampled_from([CommandId(f"c{n}") for n in range(8)])
    # Adding `x` arguments would make a step fail: changing what it reads must not.
    args: SearchStrategy[dict[str, Any]] = st.fixed_dictionaries({"got": st.just({})})
    one = st.one_of(
        st.builds(Abort, id=ids),
        st.builds(Pause, id=ids),
        st.builds(Resume, id=ids),
        st.builds(Resume, id=ids),
        st.builds(SkipStep, id=ids, step=steps),
        st.builds(SkipLayer, id=ids, layer=st.integers(-1, 4)),
        st.builds(ModifyArgs, id=ids, step=steps, args=args),
        st.builds(RetryStep, id=ids, step=steps),
        st.builds(RetryStep, id=ids, step=steps),
        st.builds(Message, id=ids, text=st.sampled_from(("", "go on"))),
        st.builds(InjectTasks, id=ids, steps=_injections(steps)),
    )
    return st.lists(st.tuples(st.integers(0, 25), one), max_size=most)


def _injections(steps: SearchStrategy[StepId]) -> SearchStrategy[tuple[Step, ...]]:
    from hypothesis import strategies as st

    step = st.builds(
        Step,
        id=st.sampled_from([StepId(f"x{n}") for n in range(3)]),
        uses=st.sampled_from((EXTRA, EXTRA, EXTRA, "test:unknown", "py:os:getcwd")),
        needs=st.lists(steps, unique=True, max_size=2).map(tuple),
        join=st.sampled_from(_JOINS),
    )
    return st.lists(step, min_size=1, max_size=2).map(tuple)


def _child() -> SearchStrategy[Sketch]:
    from hypothesis import strategies as st

    @st.composite
    def child(draw: DrawFn) -> Sketch:
        nodes: list[Node] = []
        for n in range(draw(st.integers(1, 3))):
            nodes.append(draw(_nodes(f"c{n}", tuple(nodes), None, threads=False, again=True)))
        return Sketch(name="child", nodes=tuple(nodes), max_parallel=2, outputs=(nodes[-1].id,))

    return child()


def _nodes(
    id: str, before: Sequence[Node], child: Sketch | None, *, threads: bool, again: bool = False
) -> SearchStrategy[Node]:
    """A step that may need those `before` it. `again`: it may be run several times and must act the same."""
    from hypothesis import strategies as st

    @st.composite
    def node(draw: DrawFn) -> Node:
        needs = _some(draw, [each.id for each in before])
        join = draw(st.sampled_from(_JOINS)) if needs else "all_success"
        given: dict[str, Any] = {"id": id, "needs": needs, "join": join}
        given["reads"] = _some(draw, needs) if needs else ()
        given["when"] = _when(draw, [each for each in before if each.id in needs], join)
        given["max_attempts"] = tries = draw(st.sampled_from((1, 1, 1, 2, 3)))
        given["backoff"] = draw(st.sampled_from((0.0, 0.5, 1.0)))
        given["effect"] = "read" if again else draw(st.sampled_from(("read", "idempotent", "write")))
        given["carry_on"] = draw(st.integers(0, 5)) == 0
        if draw(st.integers(0, 3)) == 0:
            given["items"] = tuple(_fate(draw, tries, again) for _ in range(draw(st.integers(0, 4))))
            given["keep"] = draw(st.booleans())
            given["max_parallel"] = draw(st.sampled_from((None, 1, 2)))
        else:
            given["fate"] = _fate(draw, tries, again)
        if child is not None and draw(st.integers(0, 2)) == 0:
            return Node(**given | {"child": child, "reads": ()})
        return Node(**given, timeout=10.0, blocking=threads and draw(st.integers(0, 5)) == 0)

    return node()


def _some(draw: DrawFn, ids: Sequence[str]) -> tuple[str, ...]:
    from hypothesis import strategies as st

    if not ids:
        return ()
    return tuple(sorted(draw(st.lists(st.sampled_from(list(ids)), unique=True, max_size=3))))


def _when(draw: DrawFn, needs: Sequence[Node], join: JoinRule) -> Condition | None:
    from hypothesis import strategies as st

    match draw(st.integers(0, 7)):
        case 0:
            return Condition(holds=draw(st.booleans()))
        case 1:
            # With `any_success` the step may be judged before its other needs have ended.
            plain = [each.id for each in needs if each.items is None and each.child is None]
            if plain and join != "any_success":
                return Condition(step=draw(st.sampled_from(plain)), value=draw(st.sampled_from((1, 2))))
    return None


def _fate(draw: DrawFn, tries: int, again: bool) -> Fate:
    from hypothesis import strategies as st

    fails = draw(st.sampled_from((0, 0, 0, 1, 2, ALWAYS)))
    if again and fails >= tries:
        fails = ALWAYS
    return Fate(
        value=draw(st.sampled_from((1, 2))),
        seconds=draw(st.sampled_from((0.0, 0.0, 1.0, 2.5))),
        fails=fails,
        hangs=fails > 0 and draw(st.integers(0, 2)) == 0,
    )
