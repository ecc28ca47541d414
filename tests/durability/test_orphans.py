"""A task that ran when its process died: done again, failed, or asked about, and what each answer means."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import deeds
import pytest
from recording import record

import penstock as ps
from penstock.run.commands import Decide
from penstock.run.events import DecisionRequired, Event, TaskCompleted, TaskFailed, TaskStarted

PATIENCE = 10.0


@pytest.fixture
def ledger(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = folder / "ledger"
    monkeypatch.setattr(deeds.Stage, "ledger", deeds.Ledger(path))
    return path


def one(deed: Callable[..., Any] = deeds.send, **options: Any) -> ps.Workflow:
    """A step, and one that reads what it gives."""
    flow = ps.Workflow("one")
    flow.step("a", deed, n=1, **options)
    flow.step("b", deeds.look, n="${ steps.a.output }", when="steps.a.output != null")
    flow.output("b", "${ steps.b.output }")
    return flow


def several(**options: Any) -> ps.Workflow:
    """The same with a map of three."""
    flow = ps.Workflow("several")
    flow.step("a", deeds.send, for_each="${ [1, 2, 3] }", n="${ item }", **options)
    flow.step("b", deeds.look, n="${ steps.a.output }")
    flow.output("a", "${ steps.a.output }")
    return flow


class Left:
    """A run whose process died while step `a` ran."""

    def __init__(self, folder: Path, ledger: Path) -> None:
        self._folder = folder
        self.path = folder / "cut.db"
        self.ledger = ledger
        self.run = ""

    async def make(self, flow: ps.Workflow) -> None:
        path = self._folder / "whole.db"
        async with ps.open(f"sqlite:///{path}") as penstock:
            self.run = (await (await penstock.start(flow)).result()).run_id
        recording = await record(path, self.run)
        items = [step.id for step in flow.build().steps if step.for_each]
        cut = 1 + next(
            at
            for at, (_, batch) in enumerate(recording.timeline)
            if any(isinstance(e, TaskStarted) and e.step == "a" and (e.item == 2 or not items) for e in batch)
        )
        await recording.restore(self.path, cut)
        self.ledger.write_bytes(b"")

    @asynccontextmanager
    async def resumed(self) -> AsyncIterator[tuple[ps.Penstock, ps.RunHandle]]:
        async with asyncio.timeout(PATIENCE), ps.open(f"sqlite:///{self.path}") as penstock:
            yield penstock, await penstock.resume(self.run)

    async def journal(self) -> list[Event]:
        async with ps.open(f"sqlite:///{self.path}") as penstock:
            return list(await penstock.store.load(self.run))  # type: ignore[arg-type]  # a run id

    def done(self, step: str) -> list[dict[str, Any]]:
        """What the ledger says of a step since the process died."""
        lines = deeds.lines(self.ledger)
        return [line for line in lines if line["what"] == "begin" and line["step"] == step]


@pytest.fixture
def left(folder: Path, ledger: Path) -> Left:
    return Left(folder, ledger)


def go(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


async def asked(run: ps.RunHandle, number: int = 1) -> list[DecisionRequired]:
    """Wait until so many decisions are open."""
    async for _ in run.events():
        if len(run.state.decisions) >= number:
            break
    return sorted(run.state.decisions.values(), key=lambda question: question.item or 0)


async def answer(run: ps.RunHandle, question: DecisionRequired, verb: str, output: Any = None) -> None:
    args = {"output": output} if verb == "accept" else None
    await run.send(Decide(decision=question.decision, verb=verb, args=args))


@pytest.mark.parametrize("deed", [deeds.look, deeds.put, deeds.look_slowly])
def test_what_may_be_repeated_is_done_again_under_the_same_key(left: Left, deed: Callable[..., Any]) -> None:
    async def main() -> None:
        await left.make(one(deed))
        async with left.resumed() as (_, run):
            assert (await run.result()).ok
        [line] = left.done("a")
        assert line["key"] == f"{left.run}/a.1"
        assert line["attempt"] == 1

    go(main())


def test_a_write_is_asked_about_and_not_done(left: Left) -> None:
    async def main() -> None:
        await left.make(one())
        async with left.resumed() as (_, run):
            [question] = await asked(run)
            assert (question.kind, question.step) == ("orphan", "a")
            assert set(question.options) == {"retry", "accept", "skip", "reject"}
            assert run.status == "waiting"
            assert left.done("a") == []

    go(main())


@pytest.mark.parametrize(
    ("verb", "status", "step", "times", "read"),
    [
        ("retry", "succeeded", "succeeded", 1, True),
        ("accept", "succeeded", "succeeded", 0, True),
        ("skip", "succeeded", "skipped", 0, False),
        ("reject", "failed", "failed", 0, False),
    ],
)
def test_each_answer_means_what_it_says(
    left: Left, verb: str, status: str, step: str, times: int, read: bool
) -> None:
    async def main() -> None:
        await left.make(one())
        async with left.resumed() as (_, run):
            [question] = await asked(run)
            await answer(run, question, verb, 99)
            result = await run.result()
        assert (result.status, result.steps["a"].status) == (status, step)  # type: ignore[index]  # a step id
        assert len(left.done("a")) == times
        assert len(left.done("b")) == read
        if verb == "accept":
            assert result.outputs == {"b": deeds.number(99)}

    go(main())


def test_what_a_person_gives_is_used_like_what_the_step_would_have_given(left: Left) -> None:
    async def main() -> None:
        flow = one(set={"kept": "${ output.n }"})
        flow.step("c", deeds.look, when="steps.a.output.n > 3")
        # The deed gives a number, which has no fields: only what is accepted will do.
        async with asyncio.timeout(PATIENCE):
            await left.make(flow)
        async with left.resumed() as (_, run):
            [question] = await asked(run)
            await answer(run, question, "accept", {"n": 4})
            result = await run.result()
        assert result.state.context == {"kept": 4}
        assert result.steps["c"].status == "succeeded"  # type: ignore[index]  # a step id

    go(main())


def test_the_items_of_a_map_are_asked_about_one_by_one(left: Left) -> None:
    async def main() -> None:
        await left.make(several(on_item_error="keep"))
        async with left.resumed() as (_, run):
            first, second, third = await asked(run, 3)
            await answer(run, second, "accept", "given")
            await answer(run, first, "retry")
            await answer(run, third, "reject")
            result = await run.result()
        assert result.outputs == {"a": [deeds.number({"n": 1}), "given", None]}
        assert [line["item"] for line in left.done("a")] == [0]

    go(main())


def test_a_question_outlives_the_process_that_asked_it(left: Left) -> None:
    async def main() -> None:
        await left.make(one())
        async with left.resumed() as (_, run):
            [first] = await asked(run)
        async with left.resumed() as (_, run):
            [again] = await asked(run)
            assert again == first
            await answer(run, again, "retry")
            assert (await run.result()).ok
        assert sum(isinstance(event, DecisionRequired) for event in await left.journal()) == 1

    go(main())


@pytest.mark.parametrize("retry", [None, {"max_attempts": 3, "backoff": 0.001}], ids=["once", "with retries"])
def test_a_step_that_fails_as_an_orphan_is_never_done_again(left: Left, retry: Any) -> None:
    async def main() -> None:
        await left.make(one(on_orphan="fail", retry=retry))
        async with left.resumed() as (_, run):
            result = await run.result()
        assert result.status == "failed"
        assert left.done("a") == []
        failed = [event for event in await left.journal() if isinstance(event, TaskFailed)]
        assert [event.kind for event in failed] == ["orphaned"]

    go(main())


def test_a_step_that_may_be_rerun_is_done_again_unasked(left: Left) -> None:
    async def main() -> None:
        await left.make(one(on_orphan="rerun"))
        async with left.resumed() as (_, run):
            assert (await run.result()).ok
        assert [line["key"] for line in left.done("a")] == [f"{left.run}/a.1"]

    go(main())


class Watched(dict[Any, Any]):
    """The runs that are being driven. Says when there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.there = asyncio.Event()

    def __setitem__(self, run: Any, drive: Any) -> None:
        super().__setitem__(run, drive)
        self.there.set()


def test_an_abort_that_comes_while_a_run_is_taken_up_ends_it(left: Left) -> None:
    async def main() -> None:
        await left.make(one())
        async with asyncio.timeout(PATIENCE), ps.open(f"sqlite:///{left.path}") as penstock:
            penstock.engine.live = live = Watched()
            taking = asyncio.ensure_future(penstock.resume(left.run))
            await live.there.wait()
            await penstock.get(left.run).send(ps.Abort())
            assert (await (await taking).result()).status == "aborted"
        assert left.done("a") == []

    go(main())


def test_an_abort_ends_a_run_that_asks(left: Left) -> None:
    async def main() -> None:
        await left.make(one())
        async with left.resumed() as (_, run):
            await asked(run)
            await run.send(ps.Abort())
            assert (await run.result()).status == "aborted"

    go(main())


def test_a_run_that_was_taken_up_many_times_has_each_output_once(left: Left) -> None:
    async def main() -> None:
        await left.make(several())
        for _ in range(3):
            async with left.resumed() as (_, run):
                await asked(run, 3)
        async with left.resumed() as (_, run):
            for question in await asked(run, 3):
                await answer(run, question, "retry")
            assert (await run.result()).ok
        completed = [event.item for event in await left.journal() if isinstance(event, TaskCompleted)]
        assert sorted(completed[:3]) == [0, 1, 2]  # type: ignore[type-var]  # numbers, all three
        assert len(left.done("a")) == 3

    go(main())


def test_the_question_says_which_call_may_have_happened(left: Left) -> None:
    async def main() -> None:
        flow = ps.Workflow("charging")
        flow.step("look", deeds.look, n=2)
        flow.step("a", deeds.send, n="${ steps.look.output }", needs=["look"])
        await left.make(flow)
        async with left.resumed() as (_, run):
            [question] = await asked(run)
        read = deeds.number(2)
        assert question.call == {"uses": "py:deeds:send", "args": {"n": read}}
        assert f'a called py:deeds:send {{"n":{read}}} when the process died' in question.summary

    go(main())


def test_and_which_item_of_a_map_with_what(left: Left) -> None:
    async def main() -> None:
        await left.make(several())
        async with left.resumed() as (_, run):
            questions = await asked(run, 3)
        assert [(one.item, one.call["args"]) for one in questions] == [(n, {"n": n + 1}) for n in range(3)]

    go(main())
