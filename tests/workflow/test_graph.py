"""The compiled graph: needs, layers, routes, loops, and what is kept for decisions."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.errors import DefinitionError
from penstock.ids import StepId
from penstock.workflow.graph import (
    ALL_DONE,
    ALL_SUCCESS,
    ANY_SUCCESS,
    NONE_FAILED,
    Graph,
    bottom_levels,
    compile_graph,
    extend,
)
from penstock.workflow.spec import (
    Ail,
    Check,
    Condition,
    Config,
    Gate,
    Input,
    Routing,
    Rule,
    Step,
    Workflow,
)


def step(name: str, *needs: str, **parts: Any) -> Step:
    return Step(
        id=StepId(name), uses=parts.pop("uses", "py:flow:work"), needs=tuple(map(StepId, needs)), **parts
    )


def compiled(*steps: Step, **parts: Any) -> Graph:
    return compile_graph(Workflow(name="flow", steps=steps, **parts))


def problems(*steps: Step, **parts: Any) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        compiled(*steps, **parts)
    return [str(problem) for problem in caught.value.problems]


def attempted(*steps: Step) -> tuple[Graph | None, list[str]]:
    try:
        return compiled(*steps), []
    except DefinitionError as error:
        return None, [str(problem) for problem in error.problems]


def names(graph: Graph, indices: Sequence[int]) -> list[str]:
    return [graph.ids[i] for i in indices]


# -- needs -----------------------------------------------------------------------------------------


def test_a_step_that_names_no_other_starts_at_once_and_is_in_layer_0() -> None:
    graph = compiled(step("a"), step("b"))

    assert graph.needs == [(), ()]
    assert graph.layers == [0, 0]


@pytest.mark.parametrize(
    "parts",
    [
        {"with_": {"x": {"deep": ["${ steps.a.output.y }"]}}},
        {"with_": {"text": "for ${ steps.a.output } only"}},
        {"when": "steps.a.output.ok"},
        {"for_each": "steps.a.output.files"},
        {"set": {"total": "${ steps.a.output.n + output.n }"}},
        {"gate": Gate(checks=(Check(expr="output.n > steps.a.output.n"),))},
        {"gate": Gate(checks=(Check(tool="files:stat", with_={"path": "${ steps.a.output.path }"}),))},
        {"gate": Gate(checks=(Check(run=("test", "-s", "${ steps.a.output.path }")),))},
        {"routing": Routing(conditions=(Condition(expr="steps.a.output.ok", target=StepId("end")),))},
        {"routing": Routing(on="steps.a.output.kind", branches={"x": StepId("end")})},
        {"when": "steps['a'].status == 'succeeded'"},
    ],
)
def test_a_reference_to_a_step_is_a_need_wherever_it_stands(parts: dict[str, Any]) -> None:
    graph = compiled(step("a"), step("b", **parts))

    assert graph.needs[1] == (0,)
    assert graph.dependents[0] == (1,)


def test_written_and_inferred_needs_are_one_set_in_order() -> None:
    graph = compiled(
        step("a"),
        step("b"),
        step("c"),
        step("d", "c", "a", with_={"x": "${ steps.b.output }", "y": "${ steps.a.output }"}),
    )

    assert graph.needs[3] == (0, 1, 2)


def test_previous_is_loop_carried_data_and_never_a_need() -> None:
    graph = compiled(step("a", with_={"x": "${ previous.b.output }"}), step("b", "a"))

    assert graph.needs == [(), (0,)]


def test_a_steps_own_result_is_no_need() -> None:
    gate = Gate(checks=(Check(expr="output.n > 0 && status == 'succeeded'"),))
    graph = compiled(step("a", set={"n": "${ output.n }"}, gate=gate))

    assert graph.needs == [()]


def test_a_need_may_be_named_before_it_is_declared() -> None:
    graph = compiled(step("late", "early"), step("early"))

    assert graph.needs == [(1,), ()]
    assert graph.layers == [1, 0]


def test_joins_are_small_numbers() -> None:
    graph = compiled(
        step("a"), step("b", join="none_failed"), step("c", join="any_success"), step("d", join="all_done")
    )

    assert list(graph.joins) == [ALL_SUCCESS, NONE_FAILED, ANY_SUCCESS, ALL_DONE]


def test_a_plain_step_is_in_no_table() -> None:
    graph = compiled(step("a"), step("b", "a"))

    tables = (graph.args, graph.when, graph.for_each, graph.sets, graph.routers, graph.gates, graph.barriers)
    assert not any((*tables, graph.control, graph.dormant, graph.outputs, graph.rules))


# -- what is compiled --------------------------------------------------------------------------------


def test_arguments_outputs_and_sets_become_templates() -> None:
    graph = compiled(
        step("a", with_={"x": "${ inputs.n }"}, set={"seen": "${ output }"}),
        step("b", when="inputs.n > 1", for_each="[1, 2]", with_={"x": "${ item }"}),
        inputs={"n": Input(type="integer")},
        outputs={"all": "${ steps.b.output }", "fixed": [1]},
    )

    assert graph.args[0].render(lambda _path: 3) == {"x": 3}
    assert [key for key, _ in graph.sets[0]] == ["seen"]
    assert graph.when[1].source == "inputs.n > 1"
    assert graph.for_each[1].evaluate(lambda _path: None) == [1, 2]
    assert [name for name, _ in graph.outputs] == ["all", "fixed"]


def test_a_check_has_the_name_it_was_given_or_what_it_asks() -> None:
    checks = (
        Check(name="size", expr="output.n > 0"),
        Check(expr="output.ok"),
        Check(tool="files:stat", with_={"path": "${ output.path }"}, timeout=5),
        Check(run=("test", "-s", "${ output.path }")),
    )
    first, second, third, fourth = compiled(step("a", gate=Gate(checks=checks))).gates[0]

    assert [first.name, second.name, third.name] == ["size", "output.ok", "files:stat"]
    assert first.expr is not None
    assert third.tool == "files:stat"
    assert third.timeout == 5
    assert fourth.run is not None
    assert fourth.run.render(lambda _path: "/x") == ["test", "-s", "/x"]


def test_a_gate_in_config_is_the_gate_of_every_step_without_one() -> None:
    own = Gate(checks=(Check(expr="output.mine"),))
    graph = compiled(
        step("a"), step("b", gate=own), config=Config(gate=Gate(checks=(Check(expr="output.ok"),)))
    )

    assert graph.gates[0][0].name == "output.ok"
    assert graph.gates[1][0].name == "output.mine"


def test_control_lists_what_decisions_read_and_nothing_else() -> None:
    rule = Rule(if_="steps.a.output.files.size() > 3", do="continue")
    graph = compiled(
        step("a"),
        step(
            "b",
            when="steps.a.output.ok && steps.a.status == 'succeeded'",
            with_={"x": "${ steps.a.output.big }"},
        ),
        step(
            "c",
            for_each="steps.a.output.list",
            gate=Gate(checks=(Check(expr="output.n > steps.b.output.n"),)),
        ),
        step(
            "d",
            "b",
            set={"k": "${ output.private + steps.c.output[0] }"},
            routing=Routing(
                branches={"x": StepId("end")},
                conditions=(Condition(expr="previous.b.output.y", target=StepId("e")),),
            ),
        ),
        step("e"),
        config=Config(ail=Ail(rules=(rule,))),
        outputs={"o": "${ steps.d.output.report }"},
    )

    assert graph.control == {
        graph.index[StepId("a")]: (("ok",), ("files",)),
        graph.index[StepId("b")]: (("n",), ("y",)),
        graph.index[StepId("c")]: ((),),
        graph.index[StepId("d")]: (("status",),),
    }
    assert [expression.source for expression in graph.rules] == [rule.if_]


# -- circles -----------------------------------------------------------------------------------------


def test_a_circle_of_needs_is_shown_as_a_path_along_the_flow() -> None:
    (problem,) = problems(step("a", "c"), step("b", "a"), step("c", "b"), step("d", "c"))

    assert "a -> b -> c -> a" in problem
    assert "loop_target" in problem


def test_a_circle_through_a_reference_suggests_previous() -> None:
    (problem,) = problems(step("author", with_={"x": "${ steps.critic.output }"}), step("critic", "author"))

    assert "author -> critic -> author" in problem
    assert "in 'author' say previous.critic" in problem


def test_each_circle_is_reported_once() -> None:
    found = problems(step("a", "b"), step("b", "a"), step("c", "d"), step("d", "c"), step("e", "a", "c"))

    assert len(found) == 2


def test_a_circle_of_100_000_steps_is_shortened_in_the_middle() -> None:
    count = 100_000
    (problem,) = problems(*(step(f"s{i}", f"s{(i - 1) % count}") for i in range(count)))

    assert "s0 -> s1 -> s2 -> s3 -> … 99,993 more … -> s99997 -> s99998 -> s99999 -> s0" in problem
    assert len(problem) < 400


# -- size --------------------------------------------------------------------------------------------


def test_a_chain_of_100_000_plain_steps_costs_little_time_and_memory() -> None:
    count = 100_000
    workflow = Workflow(name="chain", steps=tuple(step(f"s{i}", *[f"s{i - 1}"][:i]) for i in range(count)))

    began = time.process_time()
    graph = compile_graph(workflow)
    took = time.process_time() - began
    tracemalloc.start()
    again = compile_graph(workflow)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert graph.layers[-1] == count - 1
    assert len(again.ids) == count
    assert kept / count < 300
    assert took < 10, "two seconds on an idle machine"


@pytest.mark.parametrize("backwards", [False, True])
def test_a_chain_of_routes_is_followed_in_either_order_of_declaration(backwards: bool) -> None:
    count = 20_000
    steps = [step(f"s{i}", routing=Routing(next=StepId(f"s{i + 1}"))) for i in range(count - 1)]
    steps.append(step(f"s{count - 1}"))
    graph = compiled(*(reversed(steps) if backwards else steps))

    assert sorted(graph.layers) == list(range(count))
    assert len(graph.dormant) == count - 1


def test_a_loop_around_a_long_chain_is_found_without_searching_each_step() -> None:
    count = 20_000
    steps = [
        step(f"s{i}", *[f"s{i - 1}"][:i], routing=Routing(next=StepId(f"s{i + 1}"))) for i in range(count - 1)
    ]
    last = Routing(loop_target=StepId("s0"), max_iterations=3)
    graph = compiled(*steps, step(f"s{count - 1}", routing=last))

    assert graph.routers[count - 1].bodies == {0: tuple(range(count))}


# -- injected steps ----------------------------------------------------------------------------------


def test_added_steps_come_after_those_that_are_there() -> None:
    graph = compiled(step("a"), step("b", "a"))
    larger = extend(graph, [step("c", "b"), step("d", with_={"x": "${ steps.c.output }"})])

    assert larger.ids == ["a", "b", "c", "d"]
    assert larger.layers == [0, 1, 2, 3]
    assert larger.dependents == [(1,), (2,), (3,), ()]
    assert [one.id for one in larger.workflow.steps] == larger.ids
    assert graph.ids == ["a", "b"], "the graph that was extended is as it was"
    assert graph.dependents == [(1,), ()]


def test_an_added_step_waits_for_a_loop_it_depends_on() -> None:
    looping = Routing(loop_target=StepId("author"), max_iterations=3)
    graph = compiled(step("author"), step("critic", "author", routing=looping))
    larger = extend(graph, [step("extra", with_={"text": "${ steps.author.output }"})])

    assert names(larger, larger.barriers[2]) == ["critic"]


def test_added_steps_may_loop_among_themselves() -> None:
    routing = Routing(loop_target=StepId("y"), max_iterations=2, next=StepId("z"))
    graph = extend(
        compiled(step("a"), step("b", "a")), [step("y", "b"), step("r", "y", routing=routing), step("z")]
    )

    assert names(graph, graph.routers[3].bodies[2]) == ["y", "r"]
    assert graph.dormant == {4}


@pytest.mark.parametrize(
    ("added", "said"),
    [
        (step("a"), "two steps are called 'a'"),
        (step("c", "nope"), "no step is called 'nope'"),
        (step("c", when="steps.zzz.output"), "no step 'zzz'"),
        (step("c", routing=Routing(next=StepId("b"))), "'b' is part of the run already"),
        (
            step("c", routing=Routing(loop_target=StepId("a"), max_iterations=2)),
            "'a' is part of the run already",
        ),
        (step("c", "d"), "no step is called 'd'"),
        (step("c", "c"), "cannot need itself"),
        (step("c", timeout=-1.0), "more than 0"),
    ],
)
def test_a_bad_addition_is_refused(added: Step, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        extend(compiled(step("a"), step("b", "a")), [added])


# -- levels ------------------------------------------------------------------------------------------


def test_the_bottom_level_is_the_longest_way_to_the_end() -> None:
    graph = compiled(step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"))

    assert bottom_levels(graph, [1, 10, 2, 3]) == [14, 13, 5, 3]


def test_bottom_levels_follow_forward_routes() -> None:
    graph = compiled(step("a", routing=Routing(next=StepId("b"))), step("b"))

    assert bottom_levels(graph, [1, 5]) == [6, 5]


# -- properties --------------------------------------------------------------------------------------


def _reference(steps: tuple[Step, ...]) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Forward and back edges by the letter of the rule: one route after the other, searching each time."""
    graph = compiled(*(step(one.id, *one.needs, with_=one.with_, join="all_done") for one in steps))
    after: list[set[int]] = [set(dependents) for dependents in graph.dependents]
    forward: set[tuple[int, int]] = set()
    back: set[tuple[int, int]] = set()
    for i, one in enumerate(steps):
        for condition in one.routing.conditions if one.routing else ():
            if condition.target == "end":
                continue
            target = graph.index[condition.target]
            seen, todo = {target}, [target]
            while todo:
                todo.extend(new := after[todo.pop()] - seen)
                seen |= new
            if i in seen:
                back.add((i, target))
            else:
                forward.add((i, target))
                after[i].add(target)
    return forward, back


def _bounded(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps with a limit on each router that leads back."""
    routers = {i for i, _ in _reference(steps)[1]}
    return tuple(
        replace(one, routing=replace(one.routing, max_iterations=1)) if one.routing and i in routers else one
        for i, one in enumerate(steps)
    )


def _readers(steps: tuple[Step, ...]) -> st.SearchStrategy[str]:
    return st.sampled_from(["", "true", *(f"steps.{one.id}.output.{key}" for one in steps for key in "ab")])


@st.composite
def dags(draw: st.DrawFn, *, most: int = 14, routed: bool = False, prefix: str = "s") -> tuple[Step, ...]:
    """Acyclic needs, written or by reference, declared in any order; perhaps some routes."""
    count = draw(st.integers(1, most))
    names = draw(st.permutations([f"{prefix}{i}" for i in range(count)]))
    steps: list[Step] = []
    for i, name in enumerate(names):
        earlier = draw(st.lists(st.sampled_from(names[:i]), max_size=3, unique=True)) if i else []
        by_reference = draw(st.integers(0, len(earlier)))
        args = {f"x{n}": f"${{ steps.{need}.output }}" for n, need in enumerate(earlier[:by_reference])}
        routing = None
        if routed and draw(st.booleans()):
            targets = draw(st.lists(st.sampled_from([*names, "end"]), min_size=1, max_size=2, unique=True))
            conditions = [Condition(expr=f"output.k == {n}", target=StepId(t)) for n, t in enumerate(targets)]
            routing = Routing(conditions=tuple(conditions))
        steps.append(step(name, *earlier[by_reference:], with_=args, routing=routing, join="all_done"))
    return _bounded(tuple(draw(st.permutations(steps))))


@given(dags())
def test_random_acyclic_graphs_compile_and_layers_respect_needs(steps: tuple[Step, ...]) -> None:
    graph = compiled(*steps)

    for i, needs in enumerate(graph.needs):
        assert list(needs) == sorted(set(needs))
        assert graph.layers[i] == 1 + max((graph.layers[need] for need in needs), default=-1)


@given(dags())
def test_needs_and_dependents_are_each_others_inverse(steps: tuple[Step, ...]) -> None:
    graph = compiled(*steps)

    pairs = {(need, i) for i, needs in enumerate(graph.needs) for need in needs}
    assert pairs == {(i, after) for i, dependents in enumerate(graph.dependents) for after in dependents}
    assert all(list(dependents) == sorted(dependents) for dependents in graph.dependents)


@given(dags(most=10), st.data())
def test_closing_a_circle_of_needs_is_always_refused_with_a_true_path(
    steps: tuple[Step, ...], data: st.DataObject
) -> None:
    graph = compiled(*steps)
    edges = [(need, i) for i, needs in enumerate(graph.needs) for need in needs]
    if not edges:
        return
    reach = _ancestors(graph)
    low, high = data.draw(st.sampled_from([(a, b) for b in range(len(steps)) for a in reach[b]]))
    changed = list(steps)
    changed[low] = step(
        steps[low].id, *steps[low].needs, graph.ids[high], with_=steps[low].with_, join="all_done"
    )

    (problem,) = problems(*changed)

    path = problem.split("each other: ")[1].split(" (")[0].split(" -> ")
    assert path[0] == path[-1]
    assert len(path) == len(set(path)) + 1
    edges.append((high, low))
    assert all((graph.index[StepId(a)], graph.index[StepId(b)]) in edges for a, b in pairwise(path))


def _ancestors(graph: Graph) -> list[set[int]]:
    """By definition: everything before a step over needs and forward routes."""
    before: list[set[int]] = [set(needs) for needs in graph.needs]
    for i, router in graph.routers.items():
        for target in router.forward:
            before[target].add(i)
    for _ in before:
        before = [one.union(*(before[other] for other in one)) for one in before]
    return before


@settings(max_examples=200)
@given(dags(most=9, routed=True))
def test_routes_are_forward_or_back_by_the_letter_of_the_rule(steps: tuple[Step, ...]) -> None:
    forward, back = _reference(steps)
    graph, refusals = attempted(*steps)
    if graph is None:
        assert all("overlap" in one for one in refusals)
        return

    assert {(i, target) for i, router in graph.routers.items() for target in router.forward} == forward
    assert {(i, target) for i, router in graph.routers.items() for target in router.back} == back
    assert graph.dormant == {target for _, target in forward}
    assert all(graph.layers[target] > graph.layers[i] for i, target in forward)


@settings(max_examples=200)
@given(dags(most=9, routed=True))
def test_bodies_and_barriers_are_what_the_rule_says(steps: tuple[Step, ...]) -> None:
    graph, _ = attempted(*steps)
    if graph is None:
        return
    before = _ancestors(graph)
    barriers: dict[int, set[int]] = {}
    bodies: list[set[int]] = []
    for i, router in graph.routers.items():
        for target, body in router.bodies.items():
            within = {n for n in range(len(steps)) if target in before[n] and n in before[i]} | {target, i}
            assert set(body) == within
            assert list(body) == sorted(body)
            bodies.append(within)
            for n in within - {i}:
                routed = graph.routers[n].forward if n in graph.routers else ()
                for outside in {*graph.dependents[n], *routed} - within:
                    barriers.setdefault(outside, set()).add(i)
    assert graph.barriers == {n: tuple(sorted(routers)) for n, routers in barriers.items()}
    assert all(not (one & other) or one <= other or other <= one for one in bodies for other in bodies)


@settings(max_examples=200)
@given(dags(most=6, routed=True), dags(most=6, routed=True, prefix="t"), st.data())
def test_extending_keeps_indices_and_equals_compiling_the_whole(
    steps: tuple[Step, ...], more: tuple[Step, ...], data: st.DataObject
) -> None:
    known = st.lists(st.sampled_from([one.id for one in steps]), max_size=2, unique=True)
    added = [
        replace(one, needs=(*one.needs, *data.draw(known)), when=data.draw(_readers(steps))) for one in more
    ]
    graph, _ = attempted(*steps)
    whole, _ = attempted(*steps, *added)
    if graph is None or whole is None:
        return
    larger = extend(graph, added)
    cut = len(steps)

    assert larger.ids[:cut] == graph.ids
    assert larger.layers[:cut] == graph.layers
    for name in ("ids", "index", "needs", "dependents", "layers", "joins", "dormant", "barriers", "control"):
        assert getattr(larger, name) == getattr(whole, name), name
    assert larger.workflow == whole.workflow
    assert larger.args.keys() == whole.args.keys()
    assert larger.when.keys() == whole.when.keys()
    assert larger.routers.keys() == whole.routers.keys()
    for i, router in larger.routers.items():
        other = whole.routers[i]
        assert [target for _, target in router.conditions] == [target for _, target in other.conditions]
        assert (router.forward, router.back, router.bodies) == (other.forward, other.back, other.bodies)


@given(dags(most=10), st.lists(st.floats(0, 100), min_size=10, max_size=10))
def test_a_bottom_level_is_a_step_and_its_longest_dependent(
    steps: tuple[Step, ...], times: list[float]
) -> None:
    graph = compiled(*steps)
    levels = bottom_levels(graph, times[: len(steps)])

    for i, level in enumerate(levels):
        assert level == times[i] + max((levels[after] for after in graph.dependents[i]), default=0.0)
