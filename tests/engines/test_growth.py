"""A process that grows while a run goes on says so once, and says what helps."""

from __future__ import annotations

import logging

import pytest

from penstock.engines.growth import MUCH, Growth, resident
from penstock.ids import RunId

RUN = RunId("1m7gk06d")


class Process:
    """As large as we say."""

    def __init__(self, size: int = 50_000_000) -> None:
        self.size = size
        self.looks = 0

    def __call__(self) -> int:
        self.looks += 1
        return self.size


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == logging.WARNING]


def test_growth_by_more_than_a_hundred_megabytes_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    process = Process()
    growth = Growth(RUN, 10.0, lasting=False, size=process)

    for now, size in ((11.0, MUCH), (12.0, MUCH + 50_000_000), (13.0, 50_000_001 + MUCH), (14.0, 9 * MUCH)):
        process.size = size
        if now >= growth.due:
            growth.look(now)

    (text,) = warnings(caplog)
    assert text.startswith("the process has grown by 100 MB since run 1m7gk06d began, to 150 MB")
    assert caplog.records[0].name == "penstock.engine"


@pytest.mark.parametrize("hint", ["retention.messages", "retention.tasks", "references", "sqlite:///"])
def test_the_warning_says_what_to_do(caplog: pytest.LogCaptureFixture, hint: str) -> None:
    process = Process()
    growth = Growth(RUN, 0.0, lasting=False, size=process)
    process.size += 2 * MUCH

    growth.look(1.0)

    assert hint in warnings(caplog)[0]


def test_a_run_with_a_durable_store_is_not_advised_to_get_one(caplog: pytest.LogCaptureFixture) -> None:
    process = Process()
    growth = Growth(RUN, 0.0, lasting=True, size=process)
    process.size += 2 * MUCH

    growth.look(1.0)

    assert "sqlite" not in warnings(caplog)[0]


def test_a_process_that_was_large_before_the_run_is_none_of_its_business(
    caplog: pytest.LogCaptureFixture,
) -> None:
    growth = Growth(RUN, 0.0, lasting=False, size=Process(20 * MUCH))

    growth.look(1.0)

    assert warnings(caplog) == []


def test_the_size_is_asked_for_once_a_second_at_most() -> None:
    process = Process()
    growth = Growth(RUN, 0.0, lasting=False, size=process)

    for tenth in range(100):
        if tenth / 10 >= growth.due:
            growth.look(tenth / 10)

    assert process.looks == 1 + 9


def test_the_size_of_this_process_is_found_out() -> None:
    assert 1_000_000 < resident() < 100_000_000_000
