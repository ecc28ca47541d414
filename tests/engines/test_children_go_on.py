"""Another attempt at a child run that failed goes on where it failed: what has finished is not done again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.run.commands import RetryStep


class Ledger:
    """What was done, and how often a step still has to fail."""

    def __init__(self, failures: int) -> None:
        self.done: list[str] = []
        self.failures = failures

    def child(self) -> ps.Workflow:
        @ps.tool(effect="write", id="acts:pay")
        async def pay(who: str) -> str:
            self.done.append(f"pay {who}")
            return f"{who} was paid"

        @ps.tool(effect="read", id="acts:check")
        async def check(said: str) -> str:
            self.done.append("check")
            if self.failures:
                self.failures -= 1
                raise ValueError("not yet")
            return f"checked: {said}"

        child = ps.Workflow("child")
        child.input("who", type="string")
        child.step("pay", pay, who="${ inputs.who }")
        child.step("check", check, said="${ steps.pay.output }", needs=["pay"])
        child.output("said", "${ steps.check.output }")
        return child

    def parent(self, **parts: Any) -> ps.Workflow:
        parent = ps.Workflow("parent")
        parent.step("call", self.child(), who="Ada", **parts)
        parent.output("said", "${ steps.call.output.said }")
        return parent


@pytest.fixture(params=["memory:", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory:" else f"sqlite:///{tmp_path}/runs.db"


async def test_a_retry_of_a_child_repeats_only_what_failed(url: str) -> None:
    ledger = Ledger(failures=2)
    async with ps.open(url) as penstock:
        run = await penstock.start(ledger.parent(retry={"max_attempts": 3, "backoff": 0}))
        result = await run.result()

    assert result.outputs == {"said": "checked: Ada was paid"}
    assert ledger.done == ["pay Ada", "check", "check", "check"]


async def test_a_run_resumed_from_its_failed_steps_repeats_nothing_of_a_child_that_finished(url: str) -> None:
    ledger = Ledger(failures=1)
    async with ps.open(url) as penstock:
        run = await penstock.start(ledger.parent())
        assert (await run.result()).status == "failed"
        again = await penstock.resume(run.id, failed=True)
        result = await again.result()
        children = [one async for one in _children(penstock, run.id)]

    assert result.outputs == {"said": "checked: Ada was paid"}
    assert ledger.done == ["pay Ada", "check", "check"]
    assert children == [(f"{run.id}/call.1.1", None), (f"{run.id}/call.1.2", f"{run.id}/call.1.1")]


async def test_a_child_within_a_child_goes_on_as_well(url: str) -> None:
    ledger = Ledger(failures=1)
    grandparent = ps.Workflow("grandparent")
    grandparent.step("call", ledger.parent())
    async with ps.open(url) as penstock:
        run = await penstock.start(grandparent)
        assert (await run.result()).status == "failed"
        again = await penstock.resume(run.id, failed=True)
        assert (await again.result()).status == "succeeded"

    assert ledger.done == ["pay Ada", "check", "check"]


async def test_a_child_that_is_given_something_else_begins_anew(url: str) -> None:
    ledger = Ledger(failures=1)
    names = iter(["Ada", "Bo"])

    @ps.tool(effect="read", id="acts:name")
    async def name() -> str:
        return next(names)

    parent = ps.Workflow("parent")
    parent.step("name", name)
    parent.step("call", ledger.child(), who="${ steps.name.output }", needs=["name"])
    async with ps.open(url) as penstock:
        run = await penstock.start(parent)
        assert (await run.result()).status == "failed"
        again = await penstock.resume(run.id, failed=True)
        assert (await again.result()).status == "succeeded"
        assert ledger.done == ["pay Ada", "check", "check"]  # the same as before: it goes on

        ledger.failures = 1
        fork = await penstock.fork(run.id, step="name")
        assert (await fork.result()).status == "failed"

    assert ledger.done == ["pay Ada", "check", "check", "pay Bo", "check"]


async def test_a_step_that_is_retried_by_command_goes_on_with_its_child(url: str) -> None:
    ledger = Ledger(failures=1)
    parent = ledger.parent(on_error="continue")

    @ps.tool(effect="read", id="acts:wait")
    async def wait() -> str:
        await penstock.send(run.id, RetryStep(step="call"))
        return "sent"

    parent.step("wait", wait, needs=["call"])
    async with ps.open(url) as penstock:
        run = await penstock.start(parent)
        result = await run.result()

    assert result.outputs == {"said": "checked: Ada was paid"}
    assert ledger.done == ["pay Ada", "check", "check"]


async def _children(penstock: ps.Penstock, run: str) -> Any:
    for one in sorted(await penstock.store.runs(), key=lambda each: each.run):
        if one.run.startswith(f"{run}/"):
            yield one.run, one.fork_of
