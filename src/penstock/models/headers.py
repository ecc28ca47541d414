"""What a response says about waiting, and about what is left.

Reads every form the providers use and says where each figure comes from. Lengths of time only:
a moment (an HTTP date, RFC 3339, seconds since 1970) is compared with the response's own `Date`,
so that a wrong clock here changes nothing. What is zero or negative is a figure that the provider
does not know; it is never "free now".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, Literal

from msgspec import Struct

from penstock.models.bodies import ErrorBody, read
from penstock.policy.buckets import Dimension, Limit

Source = Literal["", "retry-after-ms", "retry-after", "body", "reset", "refill"]

DAY: Final = 86_400.0
_EXACT: Final = ("retry-after-ms", "x-ms-retry-after-ms")


class Hints(Struct, frozen=True, kw_only=True):
    wait: float | None = None
    """Seconds from the arrival of the response, of the most trusted form there was."""
    source: Source = ""
    limits: tuple[Limit, ...] = ()
    """Also on success: buckets are fed from these."""
    daily: bool = False
    """What ran out is counted by the day, and for this model only."""
    soon: bool = False
    """It asked for a wait of nothing at all: how long is not known, but it is not long."""


def hints(
    provider: str,
    headers: Mapping[str, str],
    body: bytes,
    now: float | None,
    *,
    status: int | None = None,
    told: ErrorBody | None = None,
) -> Hints:
    """Everything a response hints at.

    `now` is the wall clock, used only where a response has no `Date`; None is "do not guess".
    With a `status` of success there is no wait, whatever the headers say: some providers send
    `retry-after` with every answer. `told` is the body where it has been read already.
    """
    given = {name.lower(): value.strip() for name, value in headers.items() if len(value) <= 200}
    failed = status is None or status >= 400
    if failed:
        told = read(body) if told is None else told
        if told.headers:  # of the provider behind a gateway; the gateway's own come first
            given = {**{name: one.strip() for name, one in told.headers.items() if len(one) <= 200}, **given}
    today = _moment(given.get("date", ""))
    if today is None and now is not None:
        today = float(int(now))  # as a `Date` would say it: dates are cut to seconds, and so is this
    kind = given.get("x-ratelimit-type", "").lower()
    limits = tuple(_limits(provider, given, today, kind))
    daily = kind.endswith("byday")
    if told is None or not failed:
        return Hints(limits=limits, daily=daily)
    for source, wait in _waits(given, told, limits, today):
        if wait is not None:
            return Hints(wait=wait, source=source, limits=limits, daily=daily)
    return Hints(limits=limits, daily=daily, soon=_at_once(given, today))


def _at_once(given: Mapping[str, str], today: float | None) -> bool:
    """Whether the wait that was asked for is zero, or a moment that has just passed."""
    if any(_number(given.get(name, "")) == 0.0 for name in _EXACT):
        return True
    after = given.get("retry-after", "")
    if _number(after) is not None:
        return float(after) == 0.0
    then = _moment(after)
    return then is not None and today is not None and then <= today


def _waits(
    given: Mapping[str, str], told: ErrorBody, limits: tuple[Limit, ...], today: float | None
) -> Iterator[tuple[Source, float | None]]:
    """Every wait there is a word about, the most trusted first."""
    for name in _EXACT:
        exact = _number(given.get(name, ""))
        yield "retry-after-ms", exact / 1_000 if exact else None
    yield "retry-after", _length(given.get("retry-after", ""), today)
    yield "body", _in_details(told) or told.wait or _in_message(told.message)
    spent = [limit.reset for limit in limits if limit.remaining is not None and limit.remaining <= 0]
    yield "reset", max((reset for reset in spent if reset), default=None)
    yield "reset", _unexplained(given, limits)
    slots = [limit.window / limit.limit for limit in limits if limit.dimension == "requests" and limit.limit]
    yield "refill", max(slots, default=None)


def _unexplained(given: Mapping[str, str], limits: tuple[Limit, ...]) -> float | None:
    """A reset without a word about what remains: Azure's other spelling, GitHub's `timeremaining`.

    These come with refusals only. A reset beside a positive remainder says when a bucket is full
    again, which is nothing to wait for.
    """
    alone = [limit.reset for limit in limits if limit.remaining is None and limit.limit is None]
    left = _number(given.get("x-ratelimit-timeremaining", ""))
    return max((reset for reset in (*alone, left) if reset), default=None)


# --- in the body ---


def _in_details(told: ErrorBody) -> float | None:
    """`google.rpc.RetryInfo`, as text or as an object of seconds and nanoseconds."""
    for part in told.details:
        if not str(part.get("@type", "")).endswith("google.rpc.RetryInfo"):
            continue
        delay = part.get("retryDelay", part.get("retry_delay"))
        if isinstance(delay, str) and (wait := _duration(delay)):
            return wait
        if isinstance(delay, dict):
            seconds, nanos = (_number(str(delay.get(name, 0))) for name in ("seconds", "nanos"))
            return (seconds or 0.0) + (nanos or 0.0) / 1e9 or None
    return None


_AGAIN = re.compile(
    r"(?ai:try again|retry)\s{1,4}(?ai:in|after)\s{1,4}"
    r"(?:(?P<short>(?:\d{1,9}(?:\.\d{1,9})?(?:ms|h|m|s)){1,4})(?![a-z])"
    r"|(?P<count>\d{1,9}(?:\.\d{1,9})?)\s{0,4}(?P<unit>(?ai:millisecond|second|minute|hour|day))(?ai:s|\(s\))?(?!\w))"
)
_UNITS: Final = {
    "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0,
    "millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3_600.0, "day": DAY,
}  # fmt: skip


def _in_message(message: str) -> float | None:
    found = _AGAIN.search(message)
    if found is None:
        return None
    if found["short"]:
        return _duration(found["short"])
    return float(found["count"]) * _UNITS[found["unit"].lower()] or None


# --- limits ---

_OPENAI = re.compile(
    r"x-rate-?limit-(?P<what>limit|remaining|reset)"
    r"(?:-(?P<of>requests|tokens|input-tokens|output-tokens))?(?:-(?P<per>minute|hour|day))?"
)
_ANTHROPIC = re.compile(
    r"anthropic-ratelimit-(?P<of>requests|tokens|input-tokens|output-tokens|unified)"
    r"-(?P<what>limit|remaining|reset)(?P<per>)"
)
_PER: Final = {"minute": 60.0, "hour": 3_600.0, "day": DAY}


def _limits(provider: str, given: Mapping[str, str], today: float | None, kind: str) -> Iterator[Limit]:
    found: dict[tuple[Dimension, float], dict[str, float | None]] = {}
    for name, value in given.items():
        if "ratelimit-" not in name and "rate-limit-" not in name:
            continue
        match = _OPENAI.fullmatch(name) or _ANTHROPIC.fullmatch(name)
        if match is None:
            continue
        of = _dimension(match["of"], kind)
        window = _PER.get(match["per"] or "") or _window(provider, of, kind)
        what = match["what"]
        figure = _length(value, today) if what == "reset" else _number(value)
        found.setdefault((of, window), {})[what] = figure
    if given.get("anthropic-ratelimit-unified-status") == "rejected":
        found.setdefault(("unified", 60.0), {})["remaining"] = 0.0
    for (of, window), figures in found.items():
        limit = _credible(of, window, figures)
        if limit is not None:
            yield limit


def _credible(of: Dimension, window: float, figures: Mapping[str, float | None]) -> Limit | None:
    """The figures that can be true together; nothing when none can.

    A limit of -1, or of 0, goes with a remainder that means nothing either.
    """
    limit, remaining, reset = (figures.get(name) for name in ("limit", "remaining", "reset"))
    if "limit" in figures and not limit:
        limit = remaining = None
        if not reset:
            return None
    if limit is not None and remaining is not None and remaining > limit:
        remaining = None
    if limit is None and remaining is None and not reset:
        return None
    return Limit(dimension=of, limit=limit, remaining=remaining, reset=reset or None, window=window)


def _dimension(of: str | None, kind: str) -> Dimension:
    match of:
        case "tokens":
            return "tokens"
        case "input-tokens":
            return "input_tokens"
        case "output-tokens":
            return "output_tokens"
        case "unified":
            return "unified"
        case _:
            return "concurrent" if "concurrent" in kind else "requests"


def _window(provider: str, of: Dimension, kind: str) -> float:
    """Seconds. Groq counts requests by the day and tokens by the minute, in headers of one name."""
    if of == "requests" and (provider == "groq" or kind.endswith("byday")):
        return DAY
    return 60.0


# --- figures ---

_DECIMAL = re.compile(r"\d{1,15}(?:\.\d{1,15})?", re.ASCII)
_GO = re.compile(r"(?:\d{1,9}(?:\.\d{1,9})?(?:ms|us|µs|h|m|s)){1,5}", re.ASCII)
_GO_PART = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|us|µs|h|m|s)", re.ASCII)


def _number(text: str) -> float | None:
    """A figure that is not negative. Everything else, `-1` and `nan` included, is none."""
    return float(text) if _DECIMAL.fullmatch(text) else None


def _duration(text: str) -> float | None:
    """`12ms`, `1m30.951s`, `34s`: positive, or nothing."""
    if not _GO.fullmatch(text):
        return None
    return sum(float(count) * _UNITS.get(unit, 1e-6) for count, unit in _GO_PART.findall(text)) or None


def _length(text: str, today: float | None) -> float | None:
    """A length of time in whichever form: seconds, a duration, or a moment. Positive, or nothing."""
    number = _number(text)
    if number is not None and number < 1e9:
        return number or None
    duration = _duration(text)
    if duration is not None:
        return duration
    then = number / 1_000 if number is not None and number > 1e11 else number
    then = _moment(text) if then is None else then
    if then is None or today is None:
        return None
    return max(0.0, then - today) or None


def _moment(text: str) -> float | None:
    """An HTTP date or RFC 3339 as seconds since 1970."""
    if not text or not text.isascii():
        return None
    try:
        then = datetime.fromisoformat(text) if text[0].isdecimal() else parsedate_to_datetime(text)
        return (then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
