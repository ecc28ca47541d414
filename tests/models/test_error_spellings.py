"""The same error in other spellings: other wrappings, other letters, other forms of a number.

Nothing here was recorded. What happened is drawn first, then how it is said; what is concluded must be
the first and not depend on the second.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.models.errors import classify

TRUTHS: tuple[tuple[str, tuple[int, ...], tuple[str, ...]], ...] = (
    ("rate_limited", (429,), ("rate_limit_exceeded", "rate_limit_error", "too_many_requests", "slow_down")),
    ("quota_exhausted", (429, 402, 403), ("insufficient_quota", "billing_hard_limit_reached")),
    ("overloaded", (503, 529, 500), ("overloaded_error", "engine_overloaded", "service_unavailable")),
    ("auth", (401, 403), ("invalid_api_key", "authentication_error", "permission_denied")),
    ("context_length", (400,), ("context_length_exceeded", "context_window_exceeded")),
    ("content_filter", (400,), ("content_filter", "content_policy_violation", "moderation_blocked")),
    ("not_found", (404,), ("model_not_found", "not_found_error")),
    ("server_error", (500, 502), ("server_error", "internal_error", "api_error")),
    ("bad_request", (400, 422), ("invalid_request_error", "invalid_value", "unsupported_parameter")),
)
"""What happened, the statuses that go with it, and the words that providers have for it."""

SOUNDS = (
    "Rate limit reached, please slow down", "You exceeded your current quota", "The server is overloaded",
    "Incorrect API key provided", "maximum context", "This was filtered", "The model does not exist",
    "Internal error", "429", "401 Unauthorized", "", "Kontingent erschöpft",
)  # fmt: skip
"""Messages that sound like something, mostly like something else."""

Wrap = Callable[[str, str, int], Any]

WRAPPINGS: dict[str, Wrap] = {
    "openai": lambda code, text, _: {"error": {"message": text, "type": "x", "code": code}},
    "openai, as a type": lambda code, text, _: {"error": {"message": text, "type": code, "code": None}},
    "anthropic": lambda code, text, _: {
        "type": "error", "error": {"type": code, "message": text}, "request_id": "req_1",
    },
    "gemini": lambda code, text, status: {"error": {"code": status, "message": text, "status": code}},
    "in an array": lambda code, text, status: [{"error": {"code": status, "message": text, "status": code}}],
    "details": lambda code, text, status: {
        "error": {"code": status, "message": text, "status": "X", "details": [{"reason": code}]}
    },
    "azure, inside": lambda code, text, status: {
        "error": {"code": str(status), "message": text, "inner_error": {"code": code}}
    },
    "errors in a list": lambda code, text, _: {"errors": [{"code": code, "message": text}]},
    "an error that is a list": lambda code, text, _: {"error": [{"code": code, "message": text}]},
    "detail is an object": lambda code, text, _: {"detail": {"code": code, "message": text}},
    "flat": lambda code, text, status: {"code": code, "message": text, "status": status},
    "aws": lambda code, text, _: {"__type": f"com.example.errors#{code}", "message": text},
    "openrouter, raw text": lambda code, text, status: {
        "error": {
            "message": "Provider returned error", "code": status,
            "metadata": {"provider_name": "P", "raw": json.dumps({"error": {"code": code, "message": text}})},
        }
    },
    "openrouter, raw object": lambda code, text, status: {
        "error": {
            "message": "Provider returned error", "code": status,
            "metadata": {"provider_name": "P", "raw": {"error": {"type": code, "message": text}}},
        }
    },
    "openrouter, named": lambda code, text, status: {
        "error": {"message": text, "code": status, "metadata": {"error_type": code}}
    },
    "an error as a message": lambda code, text, status: {
        "error": {"code": status, "message": json.dumps({"error": {"status": code, "message": text}})}
    },
}  # fmt: skip


def respelled(code: str, how: str) -> str:
    words = code.split("_")
    match how:
        case "upper":
            return code.upper()
        case "camel":
            return words[0] + "".join(word.title() for word in words[1:])
        case "title":
            return "".join(word.title() for word in words)
        case "dashes":
            return "-".join(words)
        case "spaces":
            return " ".join(words)
        case _:
            return code


@st.composite
def errors(draw: st.DrawFn) -> tuple[str, int, bytes]:
    kind, statuses, codes = draw(st.sampled_from(TRUTHS))
    status = draw(st.sampled_from(statuses))
    spelling = draw(st.sampled_from(("as it is", "upper", "camel", "title", "dashes", "spaces")))
    code = respelled(draw(st.sampled_from(codes)), spelling)
    wrap = WRAPPINGS[draw(st.sampled_from(sorted(WRAPPINGS)))]
    body = wrap(code, draw(st.sampled_from(SOUNDS)), status)
    return kind, status, json.dumps(body, indent=draw(st.sampled_from((None, 2)))).encode()


@given(errors(), st.sampled_from(("openai", "azure", "gemini", "anthropic", "openrouter", "someone else")))
def test_a_code_means_the_same_however_it_is_spelled_and_wrapped(
    error: tuple[str, int, bytes], provider: str
) -> None:
    kind, status, body = error

    assert classify(provider, status, {}, body).kind == kind


@given(errors())
def test_an_error_inside_of_a_success_is_the_same_error_where_it_has_a_code(
    error: tuple[str, int, bytes],
) -> None:
    kind, _, body = error
    if kind not in ("server_error", "bad_request", "not_found"):  # these are told apart by their status
        assert classify("openrouter", 200, {}, body).kind == kind


# --- how long to wait ---

TODAY = datetime(2026, 11, 16, 12, tzinfo=UTC)


def cased(name: str, how: int) -> str:
    return (name, name.upper(), name.title())[how]


HEADERS: dict[str, Callable[[int], dict[str, str]]] = {
    "seconds": lambda s: {"retry-after": str(s)},
    "with a fraction": lambda s: {"retry-after": f"{s}.0"},
    "with spaces": lambda s: {"retry-after": f"  {s} "},
    "with a unit": lambda s: {"retry-after": f"{s}s"},
    "milliseconds": lambda s: {"retry-after-ms": str(s * 1000), "retry-after": "9999"},
    "azure's milliseconds": lambda s: {"x-ms-retry-after-ms": f"{s * 1000}.0"},
    "a date": lambda s: {"retry-after": format_datetime(TODAY + timedelta(seconds=s), usegmt=True)},
    "openai's reset": lambda s: {
        "x-ratelimit-limit-tokens": "100", "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": f"{s // 60}m{s % 60}s",
    },
    "azure's other reset": lambda s: {"x-rate-limit-reset-tokens": str(s)},
    "anthropic's reset": lambda s: {
        "anthropic-ratelimit-input-tokens-limit": "100", "anthropic-ratelimit-input-tokens-remaining": "0",
        "anthropic-ratelimit-input-tokens-reset": (TODAY + timedelta(seconds=s)).isoformat(),
    },
    "openrouter's reset": lambda s: {
        "x-ratelimit-limit": "20", "x-ratelimit-remaining": "0",
        "x-ratelimit-reset": str(int((TODAY + timedelta(seconds=s)).timestamp() * 1000)),
    },
}  # fmt: skip

RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"
BODIES: dict[str, Callable[[int], Any]] = {
    "google's text": lambda s: {"details": [{"@type": RETRY_INFO, "retryDelay": f"{s}s"}]},
    "google's decimals": lambda s: {"details": [{"@type": RETRY_INFO, "retryDelay": f"{s}.000000000s"}]},
    "google's object": lambda s: {"details": [{"@type": RETRY_INFO, "retryDelay": {"seconds": str(s)}}]},
    "google's other case": lambda s: {"details": [{"@type": RETRY_INFO, "retry_delay": {"seconds": s}}]},
    "a field": lambda s: {"retry_after": s},
    "a field as text": lambda s: {"retry_after": f"{s}"},
    "a field in camels": lambda s: {"retryAfter": s},
    "a field of milliseconds": lambda s: {"retry_after_ms": s * 1000},
    "in words": lambda s: {"message": f"Rate limit reached. Please try again in {s}s. Thank you."},
    "in long words": lambda s: {"message": f"Please retry after {s} seconds."},
    "in other long words": lambda s: {"message": f"Try again in {s} second(s)"},
    "openrouter's headers": lambda s: {
        "metadata": {
            "headers": {
                "X-RateLimit-Limit": "20", "X-RateLimit-Remaining": "0",
                "X-RateLimit-Reset": str(int((TODAY + timedelta(seconds=s)).timestamp() * 1000)),
            }
        }
    },
}  # fmt: skip


@given(st.sampled_from(sorted(HEADERS)), st.integers(1, 599), st.integers(0, 2))
def test_a_wait_in_headers_is_read_in_every_form_and_case(form: str, seconds: int, case: int) -> None:
    given_headers = {cased(name, case): value for name, value in HEADERS[form](seconds).items()}
    headers = {**given_headers, cased("date", case): format_datetime(TODAY, usegmt=True)}

    fault = classify("any", 429, headers, b"{}")

    assert fault.kind == "rate_limited"
    assert fault.retry_after == pytest.approx(seconds, abs=0.001)


@given(st.sampled_from(sorted(BODIES)), st.integers(1, 599), st.sampled_from(("plain", "array", "raw")))
def test_a_wait_in_a_body_is_read_in_every_form_and_wrapping(form: str, seconds: int, wrapped: str) -> None:
    told = {"error": {"code": "rate_limit_exceeded", "message": "Slow down.", **BODIES[form](seconds)}}
    body: Any = {
        "plain": told,
        "array": [told],
        "raw": {"error": {"message": "Provider returned error", "metadata": {"raw": json.dumps(told)}}},
    }[wrapped]

    fault = classify("any", 429, {"Date": format_datetime(TODAY, usegmt=True)}, json.dumps(body).encode())

    assert fault.kind == "rate_limited"
    assert fault.retry_after == pytest.approx(seconds, abs=0.001)


# --- what OpenRouter documents about itself ---


def openrouter(status: int, message: str = "no", **metadata: Any) -> tuple[int, bytes]:
    told = {"error": {"code": status, "message": message, "metadata": metadata}}
    return status, json.dumps(told).encode()


@pytest.mark.parametrize(
    ("answer", "headers", "kind"),
    [
        (openrouter(403, reasons=["violence"], flagged_input="…", provider_name="P"), {}, "content_filter"),
        (openrouter(403, limit_source="openrouter_key_limit"), {}, "quota_exhausted"),
        (openrouter(429, limit_source="openrouter_free_tier_daily"), {}, "quota_exhausted"),
        (openrouter(402), {}, "quota_exhausted"),
        (
            openrouter(402, limit_source="openrouter_in_flight_budget"),
            {"Retry-After": "5"},
            "rate_limited",
        ),
        (openrouter(403), {}, "auth"),
    ],
)
def test_a_gateways_metadata_says_what_its_status_does_not(
    answer: tuple[int, bytes], headers: dict[str, str], kind: str
) -> None:
    status, body = answer

    assert classify("openrouter", status, headers, body).kind == kind
