"""`penstock gc`: what goes, what stays, and what is only said."""

from __future__ import annotations

from pathlib import Path

import pytest

FLOW = '{id: a, uses: "py:tools:look", with: {value: 1}}'


@pytest.fixture
def three(cli, write) -> list[str]:
    """Three runs of one workflow, the oldest first."""
    flow = write(FLOW)
    return [cli("run", flow, "--json").lines[-1]["run_id"] for _ in range(3)]


def left(cli) -> list[str]:
    return [one["run_id"] for one in reversed(cli("runs", "--json").lines)]


def test_a_dry_run_says_what_would_go_and_forgets_nothing(cli, three: list[str]) -> None:
    done = cli("gc", "--keep", 1, "--dry-run", "--json")
    words = cli("gc", "--keep", 1, "--dry-run")

    *runs, sums = done.lines
    assert done.code == 0
    assert {one["run_id"]: one["forgotten"] for one in runs} == dict(
        zip(three, [True, True, False], strict=True)
    )
    assert (sums["dry_run"], sums["forgotten"], sums["kept"]) == (True, 2, 1)
    assert "Nothing was changed" in words.stderr
    assert [line.split()[0] for line in words.stdout.splitlines()] == three[:2]
    assert left(cli) == three


def test_runs_beyond_a_limit_are_forgotten(cli, three: list[str]) -> None:
    done = cli("gc", "--keep", 1)

    assert done.code == 0
    assert left(cli) == three[2:]
    assert cli("show", three[0]).messages == [f"no run '{three[0]}' in this store"]


@pytest.mark.parametrize(
    ("args", "stay"), [(["--older-than", "0s"], 0), (["--older-than", "1d"], 3), (["--max-size", "0KB"], 0)]
)
def test_age_and_size_are_limits_too(cli, three: list[str], args: list[str], stay: int) -> None:
    assert cli("gc", *args).code == 0

    assert left(cli) == three[3 - stay :]


def test_without_a_limit_everything_stays(cli, three: list[str]) -> None:
    done = cli("gc")

    assert done.code == 0
    assert "there is no limit" in done.stderr
    assert left(cli) == three


def test_what_has_not_ended_stays(cli, write, killed) -> None:
    slow = '{id: slow, uses: "py:tools:held", needs: [a]}'
    run = killed(write(f"{FLOW}\n{slow}"), "slow", noted="held")

    done = cli("gc", "--older-than", "0s", "--json")

    assert done.lines[-1]["forgotten"] == 0
    assert left(cli) == [run]


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["--older-than", "soon"], "'soon' is not a length of time"),
        (["--max-size", "huge"], "'huge' is not a size"),
        (["--keep", "-1"], "--keep"),
        (["--status", "running"], "no run ends 'running'"),
    ],
)
def test_a_limit_that_is_none_is_refused(cli, args: list[str], part: str, folder: Path) -> None:
    done = cli("gc", *args)

    assert done.code == 2
    assert part in done.stderr
    assert not (folder / ".penstock").exists()
