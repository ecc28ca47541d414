"""Everything a workflow calls is found and checked before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.testing import clock
from penstock.testing.rig import Rig


def prepared(flow: ps.Workflow, *tools: Any) -> Any:
    async def main() -> Any:
        async with Rig(*tools) as rig:
            return rig.penstock.prepare(flow)

    return clock.run(main())


def test_an_unknown_tool_is_an_error_before_anything_runs() -> None:
    called: list[int] = []

    async def first() -> None:
        called.append(1)

    flow = ps.Workflow("w")
    flow.step("a", first)
    flow.step("b", "web:nothing")
    flow.step("c", "web:neither")

    with pytest.raises(ps.DefinitionError) as caught:
        ps.run(flow)
    assert [problem.message for problem in caught.value.problems] == [
        "unknown tool 'web:nothing'", "unknown tool 'web:neither'",
    ]  # fmt: skip
    assert not called


def test_a_misspelt_argument_is_an_error_before_anything_runs() -> None:
    async def greet(name: str) -> str:
        return name

    flow = ps.Workflow("w")
    flow.step("a", greet, nmae="x")

    with pytest.raises(ps.DefinitionError, match="did you mean 'name'"):
        prepared(flow)


def test_what_is_wrong_with_a_child_is_found_before_the_parent_runs() -> None:
    child = ps.Workflow("child")
    child.step("a", "web:nothing")
    flow = ps.Workflow("parent")
    flow.step("call", child)

    with pytest.raises(ps.DefinitionError, match="web:nothing"):
        prepared(flow)


def test_what_this_version_does_not_carry_out_is_refused_by_name() -> None:
    async def step() -> None: ...

    flow = ps.Workflow("w", speculation=True)
    flow.step("a", step)

    with pytest.raises(ps.PenstockError, match="speculation is not carried out"):
        prepared(flow)


def test_a_destructive_tool_is_not_run_without_asking() -> None:
    @ps.tool(effect="destructive")
    async def wipe() -> None: ...

    flow = ps.Workflow("w")
    flow.step("a", wipe)
    flow.step("b", wipe, approval="never")

    assert prepared(flow).graph.guarded == {0}


def test_a_step_with_approval_is_not_run_without_asking() -> None:
    async def step() -> None: ...

    flow = ps.Workflow("w")
    flow.step("a", step)
    flow.step("b", step, approval=True)
    flow.step("c", step, critical=True)

    assert prepared(flow).graph.guarded == {1, 2}


def test_a_workflow_that_calls_itself_can_be_prepared() -> None:
    flow = ps.Workflow("w")
    flow.step("again", "workflow:w")

    assert prepared(flow)


def test_an_unknown_child_is_said_to_be_unknown() -> None:
    flow = ps.Workflow("w")
    flow.step("call", "workflow:nobody")

    with pytest.raises(ps.DefinitionError, match="workflow:nobody"):
        prepared(flow)


def test_a_workflow_is_prepared_once_and_run_often() -> None:
    async def step() -> None: ...

    flow = ps.Workflow("w")
    flow.step("a", step)

    async def main() -> None:
        async with Rig() as rig:
            assert rig.penstock.prepare(flow) is rig.penstock.prepare(flow)
            for n in range(3):
                assert (await rig.run(flow, id=f"r{n}")).ok

    clock.run(main())


def test_a_builder_that_has_grown_is_prepared_again() -> None:
    async def step() -> None: ...

    flow = ps.Workflow("w")
    flow.step("a", step)

    async def main() -> None:
        async with Rig() as rig:
            assert (await rig.run(flow, id="r1")).counts == {"succeeded": 1}
            flow.step("b", step)
            assert (await rig.run(flow, id="r2")).counts == {"succeeded": 2}

    clock.run(main())


def test_missing_and_unknown_inputs_are_errors_before_anything_runs() -> None:
    async def step() -> None: ...

    flow = ps.Workflow("w")
    flow.input("folder", str)
    flow.step("a", step)

    with pytest.raises(ps.InputError, match="folder"):
        ps.run(flow)
    with pytest.raises(ps.InputError, match="foldr"):
        ps.run(flow, folder="x", foldr="y")


@pytest.mark.parametrize("name", ["nope", "nope.yaml"])
def test_an_unknown_child_is_looked_for_under_the_name_it_would_have(name: str) -> None:
    flow = ps.Workflow("w")
    flow.step("call", f"workflow:{name}")

    with pytest.raises(ps.DefinitionError, match=r"there is no nope\.yaml beside"):
        prepared(flow)
