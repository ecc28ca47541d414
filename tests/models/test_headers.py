"""How long a provider asks to wait, and what it says is left, in every form there is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.models.headers import DAY, Hints, hints

NOW = 1_700_000_000.0
"""Tue, 14 Nov 2023 22:13:20 GMT."""
THEN = "Tue, 14 Nov 2023 22:13:20 GMT"
LATER = "Tue, 14 Nov 2023 22:14:20 GMT"


def of(headers: dict[str, str], body: str = "", *, provider: str = "openai", status: int = 429) -> Hints:
    return hints(provider, headers, body.encode(), NOW, status=status)


def message(text: str) -> str:
    return json.dumps({"error": {"message": text, "code": "rate_limit_exceeded"}})


def retry_info(delay: object) -> str:
    kind = "type.googleapis.com/google.rpc.RetryInfo"
    return json.dumps({"error": {"code": 429, "details": [{"@type": kind, "retryDelay": delay}]}})


@pytest.mark.parametrize(
    ("headers", "body", "wait", "source"),
    [
        ({"retry-after-ms": "1500"}, "", 1.5, "retry-after-ms"),
        ({"x-ms-retry-after-ms": "250"}, "", 0.25, "retry-after-ms"),
        ({"Retry-After": "3"}, "", 3.0, "retry-after"),
        ({"Retry-After": "0.456"}, "", 0.456, "retry-after"),
        ({"Retry-After": LATER}, "", 60.0, "retry-after"),
        ({"Retry-After": "24367"}, "", 24_367.0, "retry-after"),
        ({}, retry_info("34s"), 34.0, "body"),
        ({}, retry_info("3.25s"), 3.25, "body"),
        ({}, retry_info({"seconds": 4, "nanos": 500_000_000}), 4.5, "body"),
        ({}, message("Please try again in 6ms."), 0.006, "body"),
        ({}, message("Please try again in 5.289s. Visit"), 5.289, "body"),
        ({}, message("Please try again in 1m3.2s."), 63.2, "body"),
        ({}, message("Please retry in 10h17m5.72s."), 37_025.72, "body"),
        ({}, "Please retry after 86400 seconds.", 86_400.0, "body"),
        ({}, "Please retry after 1 minute.", 60.0, "body"),
        (
            {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"},
            "",
            360.0,
            "reset",
        ),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "55"}, "", 55.0, "reset"),
        ({"x-rate-limit-reset-tokens": "55", "policy-id": "DeploymentRatelimit-Token"}, "", 55.0, "reset"),
        (
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2023-11-14T22:13:50Z",
                "anthropic-ratelimit-input-tokens-remaining": "500",
                "anthropic-ratelimit-input-tokens-reset": "2023-11-14T23:13:50Z",
            },
            "",
            30.0,
            "reset",
        ),
        (
            {
                "anthropic-ratelimit-unified-status": "rejected",
                "anthropic-ratelimit-unified-reset": "1700000300",
            },
            "",
            300.0,
            "reset",
        ),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1700000010000"}, "", 10.0, "reset"),
        ({"x-ratelimit-type": "UserByModelByDay", "x-ratelimit-timeremaining": "900"}, "", 900.0, "reset"),
        ({"x-ratelimit-limit-requests": "120", "x-ratelimit-remaining-requests": "5"}, "", 0.5, "refill"),
        ({}, "", None, ""),
    ],
)
def test_every_form_of_a_wait_is_read(
    headers: dict[str, str], body: str, wait: float | None, source: str
) -> None:
    read = of(headers, body)

    assert read.wait == (None if wait is None else pytest.approx(wait))
    assert read.source == source


def test_the_most_exact_form_is_trusted_first() -> None:
    headers = {
        "retry-after-ms": "1200",
        "retry-after": "2",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "4s",
        "x-ratelimit-limit-requests": "10",
    }
    waits = []
    for gone in ("retry-after-ms", "retry-after", "", "x-ratelimit-reset-requests"):
        waits.append(of(headers, message("Please try again in 3s.") if len(waits) < 3 else "").wait)
        headers.pop(gone, None)

    assert waits == [1.2, 2.0, 3.0, 4.0]
    assert of(headers).wait == 6.0


@pytest.mark.parametrize(
    "headers",
    [
        {"retry-after": "0"},
        {"retry-after": "-1"},
        {"retry-after": "nan"},
        {"retry-after": "1_0"},
        {"retry-after": "٣"},
        {"retry-after": "soon"},
        {"retry-after": "9" * 40},
        {"retry-after": "Mon, 13 Nov 2023 22:13:20 GMT"},
        {"retry-after-ms": "0"},
        {
            "x-ratelimit-limit-tokens": "-1",
            "x-ratelimit-remaining-tokens": "-1",
            "x-ratelimit-reset-tokens": "0",
        },
        {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "0"},
    ],
)
def test_zero_and_nonsense_mean_unknown_and_never_free_now(headers: dict[str, str]) -> None:
    assert of(headers).wait is None


def test_a_reset_beside_a_remainder_is_when_the_bucket_is_full_and_nothing_to_wait_for() -> None:
    read = of({"x-ratelimit-remaining-tokens": "400", "x-ratelimit-reset-tokens": "40s"})

    assert read.wait is None
    assert read.limits[0].reset == 40.0


def test_an_answer_that_went_well_asks_for_no_wait_whatever_it_says() -> None:
    read = of({"retry-after": "25", "x-ratelimit-limit-requests": "60"}, status=200)

    assert read.wait is None
    assert read.limits[0].limit == 60.0


@given(st.floats(-1e6, 1e6))
def test_a_wrong_clock_here_changes_nothing_where_the_response_has_a_date(skew: float) -> None:
    read = hints("any", {"Date": THEN, "Retry-After": LATER}, b"", NOW + skew, status=429)

    assert read.wait == 60.0


def test_without_any_clock_a_date_is_not_guessed_at() -> None:
    assert hints("any", {"Retry-After": LATER}, b"", None).wait is None


# --- limits ---


def test_limits_are_read_from_every_family() -> None:
    read = of(
        {
            "x-ratelimit-limit-requests": "5000",
            "x-ratelimit-remaining-requests": "4999",
            "x-ratelimit-reset-requests": "12ms",
            "anthropic-ratelimit-output-tokens-limit": "8000",
            "anthropic-ratelimit-output-tokens-remaining": "7000",
        },
        status=200,
    )

    requests, output = read.limits
    assert (requests.dimension, requests.limit, requests.remaining) == ("requests", 5_000.0, 4_999.0)
    assert requests.reset == pytest.approx(0.012)
    assert (output.dimension, output.limit, output.remaining) == ("output_tokens", 8_000.0, 7_000.0)


def test_groq_counts_requests_by_the_day_and_tokens_by_the_minute() -> None:
    headers = {"x-ratelimit-limit-requests": "14400", "x-ratelimit-limit-tokens": "18000"}
    windows = {limit.dimension: limit.window for limit in of(headers, provider="groq").limits}

    assert windows == {"requests": DAY, "tokens": 60.0}
    assert of(headers).limits[0].window == 60.0


def test_a_window_in_the_name_of_a_header_is_believed() -> None:
    (limit,) = of({"x-ratelimit-limit-requests-day": "1000"}).limits

    assert limit.window == DAY


def test_githubs_daily_limit_is_of_the_model_and_its_concurrency_limit_is_no_request_limit() -> None:
    daily = of({"x-ratelimit-type": "UserByModelByDay", "x-ratelimit-limit": "50"})
    at_once = of({"x-ratelimit-type": "UserConcurrentRequests", "x-ratelimit-limit": "5"})

    assert daily.daily
    assert daily.limits[0].window == DAY
    assert at_once.limits[0].dimension == "concurrent"


@pytest.mark.parametrize(
    "headers",
    [
        {"x-ratelimit-limit-tokens": "-1", "x-ratelimit-remaining-tokens": "-1"},
        {"x-ratelimit-limit-tokens": "0", "x-ratelimit-remaining-tokens": "0"},
        {"x-ratelimit-limit-tokens": "many"},
        {"x-ratelimit-colour-tokens": "3"},
    ],
)
def test_limits_that_cannot_be_true_are_not_there(headers: dict[str, str]) -> None:
    assert of(headers).limits == ()


def test_more_left_than_there_is_means_that_nobody_knows_what_is_left() -> None:
    (limit,) = of({"x-ratelimit-limit-tokens": "10", "x-ratelimit-remaining-tokens": "11"}).limits

    assert (limit.limit, limit.remaining) == (10.0, None)


names = st.sampled_from(
    [
        "retry-after", "retry-after-ms", "date", "x-ratelimit-reset-requests", "x-ratelimit-limit-requests",
        "x-ratelimit-remaining-requests", "anthropic-ratelimit-tokens-reset", "x-ratelimit-reset",
        "anthropic-ratelimit-unified-status", "x-ratelimit-type", "x-rate-limit-reset-tokens",
    ]
)  # fmt: skip
values = st.one_of(
    st.text(max_size=30),
    st.integers(-5, 2**70).map(str),
    st.floats().map(str),
    st.sampled_from([LATER, THEN, "2023-11-14T22:13:50Z", "1m3s", "rejected", "9999-99-99T99:99:99Z"]),
)


@given(st.dictionaries(names, values), st.none() | st.floats(0, 1e10))
def test_whatever_headers_say_a_wait_is_positive_and_figures_are_not_negative(
    headers: dict[str, str], now: float | None
) -> None:
    read = hints("any", headers, b"", now)

    assert read.wait is None or 0 < read.wait < float("inf")
    for limit in read.limits:
        assert limit.limit is None or limit.limit > 0
        assert limit.remaining is None or limit.remaining >= 0
        assert limit.reset is None or limit.reset > 0


def test_a_date_that_was_cut_to_seconds_is_not_taken_for_an_earlier_one() -> None:
    headers = {"retry-after": "Mon, 16 Nov 2026 00:00:03 GMT"}
    midnight = 1_794_787_200.0

    assert hints("openai", headers, b"", midnight + 0.7, status=429).wait == 3.0


@pytest.mark.parametrize(
    ("headers", "soon"),
    [
        ({"retry-after": "0"}, True),
        ({"retry-after": "0.0"}, True),
        ({"retry-after-ms": "0"}, True),
        ({"date": "Mon, 16 Nov 2026 00:00:09 GMT", "retry-after": "Mon, 16 Nov 2026 00:00:03 GMT"}, True),
        ({"retry-after": "-1"}, False),
        ({"retry-after": "3"}, False),
        ({"x-ratelimit-reset-requests": "0"}, False),
        ({}, False),
    ],
)
def test_a_wait_of_nothing_is_not_long_though_nobody_knows_how_long(
    headers: dict[str, str], soon: bool
) -> None:
    found = hints("openai", headers, b"", None, status=429)

    assert found.soon == soon
    assert not (soon and found.wait)
