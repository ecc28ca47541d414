"""Steps whose models do not answer now: how they fail, and when they are tried again. Virtual time."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.models.base import Answer, Request
from penstock.models.calls import Shed, UnknownModel
from penstock.run.events import TaskFailed
from penstock.testing import clock

RETRY = {"max_attempts": 2, "backoff": 1, "jitter": 0}


class Busy:
    """Turns the first calls away, then answers."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)

    async def chat(self, _request: Request, *, tier: str = "", model: str = "") -> Answer:
        if self._errors:
            raise self._errors.pop(0)
        return Answer(text=f"{tier}{model}yes")


def shed(seconds: float) -> Shed:
    return Shed("any", retry_after=seconds, why="there was no room")


def asking(**step: Any) -> ps.Workflow:
    flow = ps.Workflow("asking", agents={"critic": {"prompt": "You judge."}})
    flow.step("judge", "agent:critic", text="is the sky blue?", **step)
    return flow


def failures(flow: ps.Workflow, *errors: Exception) -> list[TaskFailed]:
    """What went wrong in the run itself, child runs aside."""

    async def drive() -> list[TaskFailed]:
        async with ps.open("memory:", models=Busy(*errors)) as penstock:
            run = await penstock.start(flow)
            return [event async for event in run.events() if isinstance(event, TaskFailed)]

    return clock.run(drive())


def test_an_agent_that_no_model_answers_is_unavailable_and_a_child_by_another_name() -> None:
    (failed,) = failures(asking(), shed(7))

    assert (failed.kind, failed.name) == ("unavailable", "child")
    assert "there was no room" in failed.error


def test_an_agent_whose_request_is_at_fault_is_not_unavailable() -> None:
    (failed,) = failures(asking(), UnknownModel("no model 'gpt-0'"))

    assert failed.kind == "child"


def test_a_retry_waits_for_as_long_as_was_asked_for_inside_the_agent() -> None:
    (failed,) = failures(asking(retry=RETRY), shed(7))

    assert failed.retry_in == 7


def test_a_wait_shorter_than_the_backoff_changes_nothing() -> None:
    (failed,) = failures(asking(retry=RETRY), shed(0.2))

    assert failed.retry_in == 1


@pytest.mark.parametrize("on", ["unavailable", "child"])
def test_retry_on_knows_it_by_both_names(on: str) -> None:
    (failed,) = failures(asking(retry={**RETRY, "on": [on]}), shed(7))

    assert failed.retry_in == 7


def test_what_a_child_workflow_was_asked_to_wait_for_its_parent_waits_for() -> None:
    outer = ps.Workflow("outer")
    outer.step("inner", asking(), retry=RETRY)

    (failed,) = failures(outer, shed(7))

    assert (failed.kind, failed.retry_in) == ("unavailable", 7)
