"""What may be forgotten, and what must not be."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from penstock.ids import RunId
from penstock.policy.retention import DAY, ENDED, Limits, Plan, Remembered, in_bytes, in_time, plan

NOW = 1_000 * DAY


def run(name: str, *, days: float = 10, **rest: object) -> Remembered:
    """A run that ended some days ago."""
    then = NOW - days * DAY
    values = {
        "workflow": "flow",
        "status": "succeeded",
        "started": then - 60,
        "ended": then,
        "size": 100,
        **rest,
    }
    return Remembered(run=RunId(name), **values)  # type: ignore[arg-type]  # as the field is


def gone(made: Plan) -> set[str]:
    return {verdict.run for family in made.forget for verdict in family.runs}


def reason(made: Plan, name: str) -> str:
    return next(v.reason for family in (*made.forget, *made.keep) for v in family.runs if v.run == name)


statuses = st.sampled_from(["pending", "running", "waiting", "paused", *sorted(ENDED)])


@st.composite
def stores(draw: st.DrawFn) -> list[Remembered]:
    """Runs of which some are children or forks of earlier ones."""
    runs: list[Remembered] = []
    for number in range(draw(st.integers(0, 14))):
        tie = draw(st.sampled_from(["", "", "parent", "fork_of"])) if runs else ""
        other = draw(st.sampled_from(runs)).run if tie else None
        days = draw(st.floats(0, 100))
        status = draw(statuses)
        runs.append(
            run(
                f"r{number}",
                days=days,
                workflow=draw(st.sampled_from(["a", "b"])),
                status=status,
                ended=NOW - days * DAY if status in ENDED else None,
                owner=draw(st.sampled_from(["", "", "", "process 7 on here"])),
                size=draw(st.integers(0, 1_000)),
                **({tie: other} if tie else {}),
            )
        )
    return draw(st.permutations(runs))


all_limits = st.builds(
    Limits,
    older_than=st.none() | st.floats(0, 100 * DAY),
    keep_count=st.none() | st.integers(0, 5),
    max_bytes=st.none() | st.integers(0, 5_000),
    statuses=st.frozensets(st.sampled_from(sorted(ENDED))) | st.just(ENDED),
)


@given(stores(), all_limits)
def test_every_run_is_judged_once_and_with_a_reason(runs: list[Remembered], limits: Limits) -> None:
    made = plan(runs, limits, now=NOW)

    judged = [verdict for family in (*made.forget, *made.keep) for verdict in family.runs]
    assert sorted(v.run for v in judged) == sorted(r.run for r in runs)
    assert all(verdict.reason for verdict in judged)
    assert made.size == sum(r.size for r in runs)
    assert made.size_after == sum(r.size for r in runs if r.run not in gone(made))


@given(stores(), all_limits)
def test_what_has_not_ended_or_is_driven_or_not_asked_for_stays(
    runs: list[Remembered], limits: Limits
) -> None:
    forgotten = gone(plan(runs, limits, now=NOW))

    assert all(r.status in ENDED & limits.statuses and not r.owner for r in runs if r.run in forgotten)


@given(stores(), all_limits)
def test_nothing_that_stays_needs_anything_that_goes(runs: list[Remembered], limits: Limits) -> None:
    forgotten = gone(plan(runs, limits, now=NOW))

    for r in runs:
        for other in (r.parent, r.fork_of):
            if other is not None:
                assert (other in forgotten) == (r.run in forgotten)


@given(stores())
def test_without_limits_nothing_goes(runs: list[Remembered]) -> None:
    assert gone(plan(runs, Limits(), now=NOW)) == set()


@given(stores(), all_limits)
def test_what_stays_is_within_every_limit_or_could_not_go(runs: list[Remembered], limits: Limits) -> None:
    made = plan(runs, limits, now=NOW)
    free = [f for f in made.keep if all(v.reason == "within the limits" for v in f.runs)]

    known = {r.run: r for r in runs}
    for family in free:
        if limits.older_than is not None:
            assert NOW - max(known[v.run].last for v in family.runs) <= limits.older_than
    if limits.max_bytes is not None and any(f.size for f in free):
        assert made.size_after <= limits.max_bytes


@given(stores(), all_limits)
def test_a_second_time_there_is_nothing_left_to_forget(runs: list[Remembered], limits: Limits) -> None:
    forgotten = gone(plan(runs, limits, now=NOW))
    rest = [r for r in runs if r.run not in forgotten]

    assert gone(plan(rest, limits, now=NOW)) == set()


@given(stores(), all_limits, st.randoms(use_true_random=False))
def test_the_order_in_which_runs_are_listed_does_not_matter(
    runs: list[Remembered], limits: Limits, chance: object
) -> None:
    other = list(runs)
    chance.shuffle(other)  # type: ignore[attr-defined]  # a random.Random

    assert plan(runs, limits, now=NOW) == plan(other, limits, now=NOW)


def test_old_runs_go_and_young_ones_stay() -> None:
    made = plan([run("old", days=40), run("young", days=3)], Limits(older_than=30 * DAY), now=NOW)

    assert gone(made) == {"old"}
    assert reason(made, "old") == "ended 40 days ago, more than 30 days"
    assert reason(made, "young") == "within the limits"


def test_the_newest_runs_of_each_workflow_stay() -> None:
    runs = [run(f"a{n}", days=n, workflow="a") for n in range(4)] + [run("b9", days=9, workflow="b")]

    made = plan(runs, Limits(keep_count=2), now=NOW)

    assert gone(made) == {"a2", "a3"}
    assert reason(made, "a3") == "beyond the 2 newest of its workflow"


def test_when_all_runs_together_are_too_large_the_oldest_go() -> None:
    runs = [run(f"r{n}", days=n, size=1_000) for n in range(5)]

    made = plan(runs, Limits(max_bytes=2_500), now=NOW)

    assert gone(made) == {"r2", "r3", "r4"}
    assert reason(made, "r4") == "all runs take 5 KB, more than 2.5 KB, and it is the oldest"
    assert made.size_after == 2_000


def test_a_run_stays_for_the_sake_of_a_fork_of_it() -> None:
    runs = [run("base", days=90), run("fork", days=1, fork_of=RunId("base"), status="running", ended=None)]

    made = plan(runs, Limits(older_than=30 * DAY), now=NOW)

    assert gone(made) == set()
    assert reason(made, "base") == "it belongs with fork, which stays: it is running"


def test_children_go_with_their_parents_and_count_with_them() -> None:
    def family(name: str, days: float) -> Iterable[Remembered]:
        yield run(name, days=days)
        for n in range(3):
            yield run(f"{name}/{n}", days=days, parent=RunId(name))

    made = plan([*family("new", 1), *family("old", 5)], Limits(keep_count=1), now=NOW)

    assert gone(made) == {"old", "old/0", "old/1", "old/2"}


def test_a_run_whose_parent_is_unknown_stands_for_itself() -> None:
    assert gone(plan([run("x", parent=RunId("?"))], Limits(older_than=0), now=NOW)) == {"x"}


def test_times_and_sizes_read_well() -> None:
    assert [in_time(n) for n in (5, 90, 3 * 3_600, 40 * DAY)] == ["5 s", "2 min", "3 h", "40 days"]
    assert [in_bytes(n) for n in (0, 1_500, 12_300_000, 2 * 10**9)] == ["0 B", "1.5 KB", "12.3 MB", "2 GB"]
