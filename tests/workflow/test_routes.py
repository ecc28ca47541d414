"""Routes: which lead on, which lead back, what a loop re-opens, and which are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.errors import DefinitionError, Problem
from penstock.ids import StepId
from penstock.workflow.graph import END, HUMAN, Graph, compile_graph
from penstock.workflow.spec import Condition, Routing, Step, TieBreaker, Workflow


def step(name: str, *needs: str, **parts: Any) -> Step:
    return Step(id=StepId(name), uses="py:flow:work", needs=tuple(map(StepId, needs)), **parts)


def compiled(*steps: Step) -> Graph:
    return compile_graph(Workflow(name="flow", steps=steps))


def problems(*steps: Step) -> list[Problem]:
    with pytest.raises(DefinitionError) as caught:
        compiled(*steps)
    return list(caught.value.problems)


def only(*steps: Step) -> Problem:
    (problem,) = problems(*steps)
    return problem


def names(graph: Graph, indices: Sequence[int]) -> list[str]:
    return [graph.ids[i] for i in indices]


def goes_to(target: str, expr: str = "output.ok") -> Condition:
    return Condition(expr=expr, target=StepId(target))


# -- routes ------------------------------------------------------------------------------------------


def critic_loop(**routing: Any) -> Graph:
    """The author and critic of the design, with a mail step beside the loop."""
    parts: dict[str, Any] = {
        "conditions": (Condition(expr="output.verdict == 'VERIFIED'", target=StepId("publish")),),
        "loop_target": StepId("author"),
        "max_iterations": 3,
        "next": StepId("publish"),
        "kind": "loop",
    }
    return compiled(
        step("list"),
        step("author", "list", with_={"critique": "${ previous.critic.output }"}),
        step("critic", with_={"draft": "${ steps.author.output }"}, routing=Routing(**(parts | routing))),
        step("mail", with_={"text": "${ steps.author.output }"}),
        step("publish", with_={"text": "${ steps.author.output }"}),
        step("log", "publish"),
    )


def test_a_forward_target_is_dormant_and_a_back_target_is_not() -> None:
    graph = critic_loop()
    router = graph.routers[2]

    assert names(graph, router.forward) == ["publish"]
    assert names(graph, router.back) == ["author"]
    assert names(graph, sorted(graph.dormant)) == ["publish"]
    assert router.max_iterations == 3
    assert router.conditions[0][1] == router.next == graph.index[StepId("publish")]


def test_a_loop_re_opens_what_lies_between_its_target_and_its_router() -> None:
    graph = compiled(
        step("a"),
        step("b", "a"),
        step("left", "b"),
        step("right", "b"),
        step("aside", "left"),
        step("r", "left", "right", routing=Routing(loop_target=StepId("b"), max_iterations=2)),
    )

    assert names(graph, graph.routers[5].bodies[1]) == ["b", "left", "right", "r"]


def test_what_depends_on_a_body_from_outside_waits_for_the_router() -> None:
    graph = critic_loop()

    assert {graph.ids[i]: names(graph, routers) for i, routers in graph.barriers.items()} == {
        "mail": ["critic"],
        "publish": ["critic"],
    }


def test_what_depends_on_the_router_alone_needs_no_barrier() -> None:
    routing = Routing(loop_target=StepId("a"), max_iterations=2, next=StepId("c"))
    graph = compiled(step("a"), step("b", "a", routing=routing), step("c"), step("d", "b"))

    assert graph.barriers == {}


def test_a_router_may_go_back_to_itself() -> None:
    graph = compiled(step("a", routing=Routing(loop_target=StepId("a"), max_iterations=4)))

    assert graph.routers[0].back == (0,)
    assert graph.routers[0].bodies == {0: (0,)}
    assert graph.dormant == frozenset()


def test_end_and_human_are_targets_without_a_step() -> None:
    routing = Routing(branches={"done": StepId("end"), "odd": StepId("human")}, next=StepId("end"))
    graph = compiled(step("a", routing=routing))
    router = graph.routers[0]

    assert router.branches == {"done": END, "odd": HUMAN}
    assert router.next == END
    assert router.forward == router.back == ()


def test_branches_look_at_output_status_unless_told_otherwise() -> None:
    default = compiled(step("a", routing=Routing(branches={"x": StepId("end")})))
    other = compiled(step("a", routing=Routing(on="output.kind", branches={"x": StepId("end")})))
    none = compiled(step("a", routing=Routing(next=StepId("end"))))

    assert default.routers[0].on is not None
    assert default.routers[0].on.source == "output.status"
    assert default.control == {0: (("status",),)}
    assert other.routers[0].on is not None
    assert other.routers[0].on.source == "output.kind"
    assert none.routers[0].on is None


def test_layers_follow_forward_routes_as_well_as_needs() -> None:
    graph = compiled(step("a", routing=Routing(next=StepId("b"))), step("b"), step("c", "b"))

    assert graph.layers == [0, 1, 2]


def test_an_edge_to_an_ancestor_over_edges_declared_earlier_is_a_back_edge() -> None:
    a = step("a", routing=Routing(next=StepId("b")))
    b = step(
        "b",
        routing=Routing(conditions=(Condition(expr="output.again", target=StepId("a")),), max_iterations=2),
    )
    graph = compiled(a, b)

    assert names(graph, graph.routers[0].forward) == ["b"]
    assert names(graph, graph.routers[1].back) == ["a"]
    assert graph.dormant == {1}


def test_the_targets_of_a_tie_breaker_count_only_when_it_is_enabled() -> None:
    def routed(*, enabled: bool) -> Graph:
        tie = TieBreaker(enabled=enabled, valid_targets=(StepId("b"), StepId("c")))
        return compiled(step("a", routing=Routing(tie_breaker=tie, next=StepId("b"))), step("b"), step("c"))

    assert routed(enabled=True).routers[0].tie_targets == (1, 2)
    assert routed(enabled=True).dormant == {1, 2}
    assert routed(enabled=False).routers[0].tie_targets == ()
    assert routed(enabled=False).dormant == {1}


def test_a_detour_is_dormant_like_any_forward_target() -> None:
    graph = compiled(
        step("a", routing=Routing(next=StepId("b"), detour=StepId("fix"))), step("b"), step("fix")
    )

    assert graph.routers[0].detour == 2
    assert graph.dormant == {1, 2}


def test_loops_within_loops_have_bodies_within_bodies() -> None:
    graph = compiled(
        step("plan"),
        step("write", "plan"),
        step(
            "check",
            "write",
            routing=Routing(loop_target=StepId("write"), max_iterations=2, next=StepId("review")),
        ),
        step(
            "review",
            "plan",
            routing=Routing(loop_target=StepId("plan"), max_iterations=2, next=StepId("send")),
        ),
        step("send", with_={"text": "${ steps.write.output }"}),
    )

    inner, outer = graph.routers[2].bodies[1], graph.routers[3].bodies[0]
    assert names(graph, inner) == ["write", "check"]
    assert names(graph, outer) == ["plan", "write", "check", "review"]
    assert names(graph, graph.barriers[4]) == ["check", "review"]


def test_a_route_out_of_the_middle_of_a_loop_waits_for_its_router() -> None:
    graph = compiled(
        step("a"),
        step(
            "b",
            "a",
            routing=Routing(conditions=(Condition(expr="output.bad", target=StepId("x")),), next=StepId("r")),
        ),
        step("r", routing=Routing(loop_target=StepId("a"), max_iterations=2)),
        step("x"),
    )

    assert names(graph, graph.routers[2].bodies[0]) == ["a", "b", "r"]
    assert names(graph, graph.barriers[3]) == ["r"]


# -- what is refused --------------------------------------------------------------------------------


def routed(routing: Routing) -> tuple[Step, ...]:
    return (step("a"), step("b", "a", routing=routing), step("c"), step("d"))


@pytest.mark.parametrize(
    ("routing", "where"),
    [
        (Routing(next=StepId("cc")), "next"),
        (Routing(conditions=(goes_to("cc"),)), "conditions[0].target"),
        (Routing(branches={"x": StepId("cc")}), "branches.x"),
        (Routing(loop_target=StepId("cc"), max_iterations=2), "loop_target"),
        (Routing(next=StepId("c"), detour=StepId("cc")), "detour"),
        (
            Routing(next=StepId("c"), tie_breaker=TieBreaker(valid_targets=(StepId("cc"),))),
            "tie_breaker.valid_targets[0]",
        ),
    ],
)
def test_an_unknown_target_suggests_the_nearest(routing: Routing, where: str) -> None:
    problem = only(*routed(routing))

    assert problem.where == f"steps.b.routing.{where}"
    assert problem.hint == "did you mean 'c'?"


@pytest.mark.parametrize(
    ("routing", "said"),
    [
        (Routing(), "names no target"),
        (Routing(kind="branch", next=StepId("c")), "kind: branch has no branches"),
        (Routing(kind="conditional", next=StepId("c")), "kind: conditional has no conditions"),
        (Routing(kind="loop", next=StepId("c")), "kind: loop leads back to no step"),
        (Routing(on="output.kind", next=StepId("c")), "is read by branches only"),
        (Routing(loop_target=StepId("c"), max_iterations=2), "'c' does not run before this step"),
        (Routing(loop_target=StepId("end"), max_iterations=2), "must be a step, not 'end'"),
        (Routing(loop_target=StepId("a")), "leads back without a limit"),
        (Routing(next=StepId("a")), "leads back without a limit"),
        (Routing(conditions=(goes_to("b"),)), "leads to itself without a limit"),
        (Routing(next=StepId("c"), max_iterations=3), "limits nothing"),
        (Routing(next=StepId("c"), detour=StepId("a"), max_iterations=2), "'a' runs before this step"),
        (
            Routing(conditions=(goes_to("c"),), tie_breaker=TieBreaker(enabled=True)),
            "no way out without an answer",
        ),
        (Routing(conditions=(goes_to("c"), goes_to("d"))), "can never be reached: condition 1 asks the same"),
        (
            Routing(conditions=(goes_to("c", "true"), goes_to("d"))),
            "can never be reached: condition 1 is always true",
        ),
        (Routing(conditions=(goes_to("c", "1 < 2"),), next=StepId("d")), "is always true, so that"),
        (Routing(conditions=(goes_to("c", "false"),), next=StepId("d")), "can never be true"),
        (Routing(next=StepId("c"), tie_breaker=TieBreaker(confidence=7)), "between 0 and 1"),
    ],
)
def test_a_routing_that_cannot_work_is_refused(routing: Routing, said: str) -> None:
    assert said in only(*routed(routing)).message


def test_overlapping_loops_are_refused_by_name() -> None:
    overlapping = (
        step("a"),
        step("b", "a"),
        step("c", "b", routing=Routing(loop_target=StepId("a"), max_iterations=2)),
        step("d", "c", routing=Routing(loop_target=StepId("b"), max_iterations=2)),
    )

    assert "the loops c -> a and d -> b overlap in 'b'" in only(*overlapping).message


def test_loops_that_could_blow_the_fuse_are_refused() -> None:
    def looping(times: int) -> tuple[Step, ...]:
        return (step("a"), step("b", "a", routing=Routing(loop_target=StepId("a"), max_iterations=times)))

    compiled(*looping(10))
    problem = only(*looping(11))

    assert problem.message == "the loops could open steps 22 times; 2 steps allow 20"
    assert problem.where == "steps.b.routing.max_iterations"


def test_the_caps_of_nested_loops_multiply() -> None:
    def nested(inner: int, outer: int) -> tuple[Step, ...]:
        first = Routing(loop_target=StepId("a"), max_iterations=inner, next=StepId("c"))
        return (
            step("a"),
            step("b", "a", routing=first),
            step("c", routing=Routing(loop_target=StepId("a"), max_iterations=outer)),
        )

    compiled(*nested(4, 3))  # 12 times a and b, 3 times c
    assert "could open steps 35 times; 3 steps allow 30" in only(*nested(3, 5)).message


def test_a_step_that_waits_for_two_alternatives_could_never_run() -> None:
    def joined(join: Any) -> tuple[Step, ...]:
        branches = {"x": StepId("left"), "y": StepId("right")}
        return (
            step("a", routing=Routing(branches=branches)),
            step("left"),
            step("right"),
            step("z", "left", "right", join=join),
        )

    problem = only(*joined("all_success"))
    assert (
        problem.message
        == "never runs: it needs 'left' and 'right', only one of which runs ('a' routes to one)"
    )
    assert problem.hint == "add `join: none_failed` or `join: any_success`"
    compiled(*joined("none_failed"))
    compiled(*joined("any_success"))


def test_a_target_that_waits_for_its_own_alternative_could_never_run() -> None:
    branches = {"x": StepId("left"), "y": StepId("right")}
    problem = only(*(step("a", routing=Routing(branches=branches)), step("left"), step("right", "left")))

    assert "which does not run when this step does" in problem.message


def test_routes_declared_hopelessly_against_the_flow_are_refused_in_bounded_time() -> None:
    count = 6_000
    steps = [step(f"s{i}", routing=Routing(next=StepId(f"s{i + 1}"))) for i in range(count - 1)]
    last = step(f"s{count - 1}", routing=Routing(conditions=(goes_to("s0"),), max_iterations=2))

    assert "too tangled" in problems(last, *reversed(steps))[0].message


# -- detours that could never return -------------------------------------------------------------------


@pytest.mark.parametrize(
    "steps",
    [
        (step("x"), step("after", "ask"), step("gather", "after")),
        (step("x"), step("gather", "x")),
        (step("x"), step("y", "x"), step("gather", "y")),
    ],
)
def test_a_detour_that_waits_for_what_waits_for_its_caller_is_refused(steps: tuple[Step, ...]) -> None:
    ask = step("ask", routing=Routing(next=StepId("x"), detour=StepId("gather")))
    problem = only(ask, *steps)

    assert "never returns" in problem.message
    assert "waits for 'ask', which waits for it" in problem.message
    assert problem.where.startswith("steps")


def test_a_detour_within_a_detour_may_not_wait_for_what_waits_for_the_first_caller() -> None:
    problem = only(
        step("ask", routing=Routing(next=StepId("x"), detour=StepId("one"))),
        step("one", routing=Routing(next=StepId("y"), detour=StepId("two"))),
        step("after", "ask"),
        step("two", "after"),
        step("x"),
        step("y"),
    )

    assert "'two'" in str(problem) or "never returns" in problem.message


def test_a_detour_may_need_its_callers_and_what_ran_before_them() -> None:
    graph = compiled(
        step("first"),
        step("ask", "first", routing=Routing(next=StepId("x"), detour=StepId("one"))),
        step("one", "ask", "first", routing=Routing(next=StepId("y"), detour=StepId("two"))),
        step("two", "ask", "one"),
        step("x", "two"),
        step("y"),
    )

    assert names(graph, graph.routers[1].forward) == ["one", "x"]


def test_a_detour_may_not_loop_over_what_waits_for_its_caller() -> None:
    problem = only(
        step("ask", routing=Routing(next=StepId("x"), detour=StepId("gather"))),
        step("x", "ask", routing=Routing(next=StepId("gather"))),
        step("gather", routing=Routing(loop_target=StepId("x"), max_iterations=2, next=StepId("end"))),
    )

    assert "'x', which waits for 'ask'" in problem.message
