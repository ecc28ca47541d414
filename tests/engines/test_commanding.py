"""Commands on a live run: who is answered what, in which order, and that a run obeys."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import penstock as ps
from penstock.ids import CommandId, StepId
from penstock.run.commands import Command
from penstock.run.events import CommandAccepted, CommandRefused, Event, TaskStarted
from penstock.run.facts import CommandReceived
from penstock.testing import clock
from penstock.testing.history import violations
from penstock.testing.rig import Rig


@ps.tool(id="test:echo", effect="read")
async def echo(value: Any = None) -> Any:
    return value


async def sleeps(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


def three() -> ps.Workflow:
    flow = ps.Workflow("three")
    flow.step("a", sleeps, seconds=10)
    flow.step("b", sleeps, seconds=10, needs="a")
    flow.step("c", sleeps, seconds=10, needs="b")
    return flow


def test_an_accepted_command_is_answered_with_its_event_at_once() -> None:
    async def main() -> None:
        async with Rig() as rig:
            handle = await rig.start(three())
            event = await handle.send(ps.Message(text="hello"))
            assert isinstance(event, CommandAccepted)
            assert event in rig.events()
            assert asyncio.get_running_loop().time() == 0

    clock.run(main())


def test_a_refused_command_raises_with_the_reason_and_is_on_record() -> None:
    async def main() -> None:
        async with Rig() as rig:
            handle = await rig.start(three())
            with pytest.raises(ps.CommandRejected, match="too late: a is running") as caught:
                await handle.send(ps.SkipStep(step=StepId("a")))
            refused = [event for event in rig.events() if isinstance(event, CommandRefused)]
            assert [event.reason for event in refused] == [caught.value.reason]

    clock.run(main())


def test_the_same_id_sent_again_gets_the_same_answer_and_happens_once() -> None:
    async def main() -> None:
        async with Rig() as rig:
            handle = await rig.start(three())
            message = ps.Message(id=CommandId("m1"), text="hello")
            answers = await asyncio.gather(*(handle.send(message) for _ in range(3)))
            again = await handle.send(message)
            assert {answer.seq for answer in (*answers, again)} == {again.seq}
            assert len(handle.state.messages) == 1
            for _ in range(2):
                with pytest.raises(ps.CommandRejected, match="not paused"):
                    await handle.send(ps.Resume(id=CommandId("r1")))

    clock.run(main())


def test_commands_are_taken_in_order_but_abort_and_pause_overtake() -> None:
    """Commands that come while a fact is being handled wait; those two go to the front."""
    order: list[str] = []

    async def main() -> None:
        async with Rig() as rig:
            handle = await rig.start(three())
            drive = rig.penstock.engine.live[handle.id]
            sent: list[Command] = [
                ps.Message(id=CommandId("m1"), text="1"),
                ps.Message(id=CommandId("m2"), text="2"),
                ps.Pause(id=CommandId("p")),
                ps.Message(id=CommandId("m3"), text="3"),
            ]

            def observer(event: Event) -> None:
                if isinstance(event, CommandAccepted):
                    order.append(event.command.id)
                    if event.command.id == "go":
                        for command in sent:
                            drive.tell(CommandReceived(command))

            handle.observe(observer)
            await handle.send(ps.Message(id=CommandId("go"), text="go"))

    clock.run(main())

    assert order[:5] == ["go", "p", "m1", "m2", "m3"]


def test_pause_holds_new_work_back_and_resume_lets_it_go() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with Rig() as rig:
            handle = await rig.start(three())
            await handle.send(ps.Pause())
            await asyncio.sleep(100)
            assert handle.status == "paused"
            assert handle.steps[StepId("a")].status == "succeeded"
            await handle.send(ps.Resume())
            assert (await handle.result()).ok
            assert loop.time() == 120
            assert violations(three().build(), rig.batches()) == []

    clock.run(main())


def test_changed_arguments_are_the_ones_a_step_gets() -> None:
    async def main() -> None:
        flow = ps.Workflow("w")
        flow.step("a", sleeps, seconds=1)
        flow.output("x", flow.step("b", echo, value="${ steps.a.output }"))
        async with Rig() as rig:
            handle = await rig.start(flow)
            await handle.send(ps.ModifyArgs(step=StepId("b"), args={"value": "${ steps.a.output + 1.0 }"}))
            assert (await handle.result()).outputs == {"x": 2}

    clock.run(main())


def test_changed_arguments_of_one_run_are_not_those_of_another() -> None:
    async def main() -> None:
        flow = ps.Workflow("w")
        flow.step("a", sleeps, seconds=1)
        flow.output("x", flow.step("b", echo, value=1, needs="a"))
        async with Rig() as rig:
            one, two = [await rig.start(flow, id=id) for id in ("one", "two")]
            await one.send(ps.ModifyArgs(step=StepId("b"), args={"value": 2}))
            assert (await one.result()).outputs == {"x": 2}
            assert (await two.result()).outputs == {"x": 1}

    clock.run(main())


def test_injected_steps_run_with_what_the_run_knows() -> None:
    async def main() -> None:
        async with Rig(echo) as rig:
            handle = await rig.start(three())
            await asyncio.sleep(11)
            extra = ps.Step(
                id=StepId("extra"),
                uses="test:echo",
                with_={"value": "${ steps.a.output }"},
                when="steps.a.output == 10.0",
            )
            await handle.send(ps.InjectTasks(steps=(extra,)))
            result = await handle.result()
            assert result.steps[StepId("extra")].status == "succeeded"
            assert violations(three().build(), rig.batches()) == []
            assert rig.replayed().encoded() == handle.state.encoded()

    clock.run(main())


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (ps.Step(id=StepId("x"), uses="test:nobody"), "unknown tool 'test:nobody'"),
        (ps.Step(id=StepId("x"), uses="py:os:getcwd"), "`py:` steps are allowed only in workflow files"),
        (ps.Step(id=StepId("x"), uses="workflow:nobody"), "nobody"),
        (ps.Step(id=StepId("x"), uses="test:echo", with_={"valu": 1}), "valu"),
    ],
)
def test_an_injection_that_cannot_run_is_refused(step: ps.Step, reason: str) -> None:
    async def main() -> None:
        async with Rig(echo) as rig:
            handle = await rig.start(three())
            with pytest.raises(ps.CommandRejected, match=reason):
                await handle.send(ps.InjectTasks(steps=(step,)))
            assert (await handle.result()).ok

    clock.run(main())


def test_retry_step_on_a_live_run() -> None:
    calls: list[int] = []

    async def fails_once() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("first")
        return "second"

    async def main() -> None:
        flow = ps.Workflow("w")
        flow.step("busy", sleeps, seconds=20)
        flow.output("x", flow.step("b", echo, value=flow.step("a", fails_once)))
        async with Rig() as rig:
            handle = await rig.start(flow)
            await asyncio.sleep(1)
            assert handle.steps[StepId("b")].status == "skipped"
            await handle.send(ps.RetryStep(step=StepId("a")))
            result = await handle.result()
            assert (result.status, result.outputs) == ("succeeded", {"x": "second"})
            assert violations(flow.build(), rig.batches()) == []

    clock.run(main())


def test_a_command_during_backoff_changes_the_next_attempt() -> None:
    async def picky(value: int) -> int:
        if value < 3:
            raise ValueError(f"{value} is too small")
        return value

    async def main() -> None:
        flow = ps.Workflow("w")
        flow.output("x", flow.step("a", picky, value=1, retry={"max_attempts": 2, "backoff": "10s"}))
        async with Rig() as rig:
            handle = await rig.start(flow)
            await asyncio.sleep(1)
            await handle.send(ps.ModifyArgs(step=StepId("a"), args={"value": 5}))
            assert (await handle.result()).outputs == {"x": 5}

    clock.run(main())


def test_skip_layer_on_a_live_run() -> None:
    async def main() -> None:
        async with Rig() as rig:
            handle = await rig.start(three())
            await handle.send(ps.SkipLayer(layer=1, reason="no time"))
            result = await handle.result()
            assert [step.status for step in result.steps.values()] == ["succeeded", "skipped", "skipped"]
            assert not [e for e in rig.events() if isinstance(e, TaskStarted) and e.step != "a"]

    clock.run(main())


def test_a_sender_may_be_cancelled_and_the_command_still_counts() -> None:
    async def main() -> None:
        async with Rig() as rig:
            handle = await rig.start(three())
            sender = asyncio.create_task(handle.send(ps.Message(text="hello")))
            await asyncio.sleep(0)
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)
            assert [message["text"] for message in handle.state.messages] == ["hello"]

    clock.run(main())


def test_commands_from_many_senders_each_get_their_own_answer() -> None:
    async def main() -> None:
        async with Rig() as rig:
            handle = await rig.start(three())
            answers = await asyncio.gather(*(handle.send(ps.Message(text=str(n))) for n in range(50)))
            assert [message["text"] for message in handle.state.messages] == [str(n) for n in range(50)]
            assert len({answer.seq for answer in answers}) == 50

    clock.run(main())
