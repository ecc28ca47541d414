"""When a candidate is left alone, and how it is taken back."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.policy.breaker import (
    CLOSED,
    IN_A_ROW,
    LEASE,
    SLOW_START,
    Breaker,
    Cause,
    Ticket,
    cooldown,
    doubted,
    enter,
    failed,
    free_at,
    hastened,
    newer,
    opened,
    probe_due,
    probed,
    probing,
    released,
    succeeded,
    suspects,
    why_not,
)

causes = st.sampled_from(["failure", "timeout", "rate_limit"])


def let_in(breaker: Breaker, call: str = "call", *, now: float = 0.0) -> tuple[Breaker, Ticket]:
    after, ticket = enter(breaker, call, now=now)
    assert ticket is not None
    return after, ticket


def down(*, now: float = 0.0) -> Breaker:
    """A breaker after as many failures as it takes."""
    breaker = CLOSED
    for _ in range(IN_A_ROW):
        breaker, ticket = let_in(breaker, now=now)
        breaker = failed(breaker, ticket, now=now)
    assert breaker.phase == "open"
    return breaker


def starting(*, now: float = 10.0) -> Breaker:
    """A breaker whose canary has just come back well."""
    breaker, ticket = let_in(probed(down(), ok=True), now=now)
    return succeeded(breaker, ticket)


# --- cooldowns ---


@pytest.mark.parametrize(("cause", "base"), [("failure", 30.0), ("rate_limit", 120.0), ("timeout", 60.0)])
def test_the_first_wait_depends_on_the_cause_and_every_repeat_makes_it_half_again_as_long(
    cause: Cause, base: float
) -> None:
    assert [cooldown(cause, repeats=n) for n in range(3)] == [base, base * 1.5, base * 2.25]


@given(causes, st.integers(0, 10_000))
def test_a_wait_of_our_own_is_never_longer_than_ten_minutes(cause: Cause, repeats: int) -> None:
    assert cooldown(cause, repeats=repeats) <= 600.0


def test_a_providers_own_word_is_obeyed_beyond_the_cap_and_below_the_base() -> None:
    assert cooldown("rate_limit", repeats=5, hint=3.0) == 3.0
    assert cooldown("rate_limit", repeats=0, hint=24_367.0) == 24_367.0
    assert cooldown("rate_limit", repeats=0, hint=411_480.0) == 86_400.0


# --- opening ---


@given(st.lists(st.booleans(), max_size=40))
def test_a_closed_breaker_never_rejects(outcomes: list[bool]) -> None:
    breaker = CLOSED
    for number, ok in enumerate(outcomes):
        if breaker.phase != "closed":
            break
        breaker, ticket = let_in(breaker, str(number), now=float(number))
        breaker = succeeded(breaker, ticket) if ok else failed(breaker, ticket, now=float(number))


def test_three_failures_in_a_row_open_it() -> None:
    assert why_not(down(), now=1.0) == "open after failures for another 29 s"


def test_a_provider_that_fails_every_other_time_is_found_too() -> None:
    breaker = CLOSED
    for number in range(20):
        breaker, ticket = let_in(breaker, now=float(number))
        breaker = failed(breaker, ticket, now=float(number)) if number % 2 else succeeded(breaker, ticket)
        if breaker.phase == "open":
            break

    assert breaker.phase == "open"


def test_now_and_then_a_failure_opens_nothing() -> None:
    breaker = CLOSED
    for number in range(100):
        breaker, ticket = let_in(breaker, now=float(number))
        breaker = succeeded(breaker, ticket) if number % 4 else failed(breaker, ticket, now=float(number))

    assert breaker.phase == "closed"


def test_fifty_calls_in_flight_when_a_provider_dies_trip_it_once() -> None:
    tickets = [let_in(CLOSED, str(number))[1] for number in range(50)]
    breaker = CLOSED
    for ticket in tickets:
        breaker = failed(breaker, ticket, now=1.0)

    assert breaker.trips == 1
    assert breaker.until == 31.0


def test_a_late_success_of_an_earlier_epoch_does_not_close_it() -> None:
    _, early = let_in(CLOSED)

    assert succeeded(down(), early) == down()


def test_a_few_overloads_in_a_crowd_do_not_open_it_and_many_do() -> None:
    breaker = CLOSED
    for _ in range(9):
        breaker, ticket = let_in(breaker)
        breaker = failed(breaker, ticket, now=0.0, crowded=True)
    assert breaker.phase == "closed"

    breaker, ticket = let_in(breaker)
    assert failed(breaker, ticket, now=0.0, crowded=True).phase == "open"


# --- probes and the canary ---


def test_probes_are_due_every_two_to_five_seconds_while_open() -> None:
    breaker, now, gaps = down(), 0.0, []
    for _ in range(30):
        assert breaker.probe_at is not None
        gaps.append(breaker.probe_at - now)
        now = breaker.probe_at
        assert probe_due(breaker, now=now)
        breaker = probing(breaker, now=now)
        assert not probe_due(breaker, now=now)

    assert gaps[0] == 2.0
    assert all(2.0 <= gap <= 5.0 for gap in gaps)


def test_a_probe_that_succeeds_lets_one_canary_in_long_before_the_cooldown_ends() -> None:
    breaker = probed(down(), ok=True)

    breaker, first = let_in(breaker, "one", now=2.0)
    _, second = enter(breaker, "two", now=2.0)

    assert first.canary
    assert second is None
    assert why_not(breaker, now=2.0) == "half open, and its one slot is taken"


def test_a_probe_that_fails_changes_nothing() -> None:
    assert probed(down(), ok=False) == down()


def test_without_probes_the_end_of_the_cooldown_lets_the_canary_in() -> None:
    assert enter(down(), "early", now=29.9)[1] is None
    assert let_in(down(), "due", now=30.0)[1].canary


def test_after_a_rate_limit_nobody_probes_because_the_deadline_is_the_signal() -> None:
    breaker = opened(CLOSED, now=0.0, cause="rate_limit", hint=3.0)

    assert not probe_due(breaker, now=2.9)
    assert enter(breaker, "early", now=2.9)[1] is None
    assert let_in(breaker, now=3.0)[1].canary


def test_a_canary_that_fails_opens_it_for_half_again_as_long() -> None:
    breaker, ticket = let_in(probed(down(), ok=True), now=2.0)
    breaker = failed(breaker, ticket, now=2.0)

    assert breaker.until == 2.0 + 45.0


def test_a_probe_that_was_wrong_is_asked_less_often() -> None:
    breaker, gaps = down(), []
    for _ in range(3):
        breaker, ticket = let_in(probed(breaker, ok=True))
        breaker = failed(breaker, ticket, now=0.0)
        gaps.append(breaker.probe_at)

    assert gaps == [4.0, 8.0, 16.0]


def test_a_neutral_outcome_releases_the_slot_and_counts_for_nothing() -> None:
    breaker, ticket = let_in(probed(down(), ok=True), "cancelled", now=2.0)
    breaker = released(breaker, ticket)

    breaker, again = let_in(breaker, "next", now=2.0)
    assert again.canary
    assert breaker.trips == 1


def test_a_canary_whose_process_died_gives_its_slot_back_after_the_lease() -> None:
    breaker, lost = let_in(probed(down(), ok=True), "lost", now=2.0)
    assert enter(breaker, "too early", now=1.0 + LEASE)[1] is None

    breaker, _ = let_in(breaker, "next", now=2.0 + LEASE)
    assert succeeded(breaker, lost) == breaker


# --- slow start ---


def test_a_canary_that_succeeds_starts_slowly_and_two_failures_are_then_enough() -> None:
    breaker = starting()
    assert breaker.phase == "slow_start"

    for _ in range(2):
        breaker, ticket = let_in(breaker, now=10.0)
        breaker = failed(breaker, ticket, now=10.0)
    assert breaker.phase == "open"
    assert breaker.until == 10.0 + 45.0


def test_after_a_slow_start_it_is_trusted_again_and_the_next_cooldown_is_a_first_one() -> None:
    breaker = starting()
    for _ in range(SLOW_START):
        breaker, ticket = let_in(breaker)
        breaker = succeeded(breaker, ticket)

    assert breaker.phase == "closed"
    assert breaker.trips == breaker.misled == 0


# --- under load: fifty calls a second, each of which takes a fiftieth ---


def wasted(fails: Callable[[float], bool], probe_fails: Callable[[float], bool]) -> tuple[int, list[float]]:
    """Calls that failed within twenty-five seconds, and when calls went well."""
    breaker, failures, fine = CLOSED, 0, []
    for tick in range(1_250):
        now = tick / 50
        if probe_due(breaker, now=now):
            breaker = probed(probing(breaker, now=now), ok=not probe_fails(now))
        breaker, ticket = enter(breaker, str(tick), now=now)
        if ticket is None:
            continue
        if fails(now):
            failures += 1
            breaker = failed(breaker, ticket, now=now)
        else:
            fine.append(now)
            breaker = succeeded(breaker, ticket)
    return failures, fine


def test_an_outage_costs_few_calls_and_its_end_is_noticed_within_two_seconds() -> None:
    failures, fine = wasted(lambda now: now < 15.0, lambda now: now < 15.0)

    assert failures <= 5
    assert fine[0] <= 17.0


@given(st.randoms(use_true_random=False))
def test_a_provider_that_fails_half_of_the_time_costs_less_than_one_call_in_ten(chance: Random) -> None:
    failures, _ = wasted(lambda _: chance.random() < 0.5, lambda _: False)

    assert failures <= 125


# --- what others are told ---


@given(st.floats(0, 100))
def test_what_a_caller_is_told_to_wait_is_until_something_can_change(now: float) -> None:
    breaker = down()
    then = free_at(breaker, now=now)

    assert then >= now
    assert then == now or then <= 30.0


def test_a_caller_who_finds_the_slot_taken_is_told_when_it_is_free_at_the_latest() -> None:
    breaker, _ = let_in(probed(down(), ok=True), now=2.0)

    assert free_at(breaker, now=3.0) == 2.0 + LEASE


def test_of_two_copies_the_one_that_has_seen_more_changes_is_right() -> None:
    assert newer(CLOSED, down()) == down()
    assert newer(down(), CLOSED) == down()


# --- failure domains ---

AZURE = {"azure": "azure", "github": "azure", "openai": "openai", "local": ""}


def test_candidates_that_share_infrastructure_are_judged_together() -> None:
    breakers = dict.fromkeys(AZURE, CLOSED) | {"azure": down()}

    assert suspects(breakers, AZURE) == {"github"}
    doubt = doubted(CLOSED)
    doubt, ticket = let_in(doubt, "one")
    assert ticket.canary
    assert enter(doubt, "two", now=0.0)[1] is None
    assert succeeded(doubt, ticket).phase == "slow_start"


def test_one_open_model_out_of_many_does_not_bring_its_neighbours_under_suspicion() -> None:
    names = ["a", "b", "c"]
    breakers = dict.fromkeys(names, CLOSED) | {"a": down()}

    assert suspects(breakers, dict.fromkeys(names, "same")) == frozenset()


def test_a_rate_limit_and_the_lack_of_a_domain_make_nobody_suspect() -> None:
    limited = opened(CLOSED, now=0.0, cause="rate_limit")

    assert suspects({"azure": limited, "github": CLOSED}, AZURE) == frozenset()
    assert suspects({"local": down(), "other": CLOSED}, AZURE) == frozenset()


def test_doubt_does_not_touch_what_is_open_already() -> None:
    assert doubted(down()) == down()


def test_a_neighbour_that_came_back_hastens_the_next_probe() -> None:
    assert probe_due(hastened(down(), now=0.5), now=0.5)
    assert hastened(CLOSED, now=0.5) == CLOSED


# --- whatever happens ---


class Traffic(RuleBasedStateMachine):
    """Calls, answers in any order, probes and time, against one breaker."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = CLOSED
        self.now = 0.0
        self.open: list[Ticket] = []
        self.number = 0

    @initialize(start=st.floats(0, 1e6))
    def begin(self, start: float) -> None:
        self.now = start

    @rule(seconds=st.floats(0, 50))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def call(self) -> None:
        self.number += 1
        rejects = why_not(self.breaker, now=self.now)
        before = self.breaker.phase
        self.breaker, ticket = enter(self.breaker, str(self.number), now=self.now, lease=1e9)
        assert (ticket is None) == bool(rejects)
        assert ticket is not None or before not in ("closed", "slow_start")
        if ticket is not None:
            self.open.append(ticket)

    @rule(
        data=st.data(),
        how=st.sampled_from(["ok", "failure", "timeout", "rate_limit", "crowded", "neutral"]),
    )
    def answer(
        self,
        data: st.DataObject,
        how: Literal["ok", "failure", "timeout", "rate_limit", "crowded", "neutral"],
    ) -> None:
        if not self.open:
            return
        ticket = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        before = self.breaker
        match how:
            case "ok":
                self.breaker = succeeded(self.breaker, ticket)
            case "neutral":
                self.breaker = released(self.breaker, ticket)
            case "crowded":
                self.breaker = failed(self.breaker, ticket, now=self.now, crowded=True)
            case _:
                self.breaker = failed(self.breaker, ticket, now=self.now, cause=how)
        if ticket.epoch != before.epoch:
            assert self.breaker == before

    @rule(ok=st.booleans())
    def probe(self, ok: bool) -> None:
        if probe_due(self.breaker, now=self.now):
            self.breaker = probed(probing(self.breaker, now=self.now), ok=ok)

    @rule()
    def doubt(self) -> None:
        self.breaker = doubted(self.breaker)

    @invariant()
    def there_are_never_two_canaries(self) -> None:
        assert sum(ticket.canary for ticket in self.open) <= 1

    @invariant()
    def nobody_is_locked_out_for_ever(self) -> None:
        if not any(ticket.canary for ticket in self.open):
            assert not why_not(self.breaker, now=self.now + 600.0)


TestTraffic = Traffic.TestCase
