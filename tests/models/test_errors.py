"""What a failed call means, for every way in which providers say it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.models.errors import ACTIONS, REJECTED, UNWELL, classify, late, refused, unreachable


def openai(code: str | None, type: str = "invalid_request_error", message: str = "no") -> dict[str, Any]:
    return {"error": {"message": message, "type": type, "param": None, "code": code}}


def anthropic(type: str, message: str = "no", **rest: Any) -> dict[str, Any]:
    return {"type": "error", "error": {"type": type, "message": message, **rest}}


def gemini(status: str, *details: dict[str, Any], code: int = 429, message: str = "no") -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "status": status, "details": list(details)}}


def quota(name: str, **rest: Any) -> dict[str, Any]:
    kind = "type.googleapis.com/google.rpc.QuotaFailure"
    return {"@type": kind, "violations": [{"quotaId": name, **rest}]}


RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}
PLAN = "You exceeded your current quota, please check your plan and billing details."
S0 = "Requests to the Operation have exceeded the token rate limit of your pricing tier. Please retry after"


@pytest.mark.parametrize(
    ("provider", "status", "body", "kind"),
    [
        # rate limits
        ("openai", 429, openai("rate_limit_exceeded", "requests"), "rate_limited"),
        ("openai", 429, openai(None, "tokens"), "rate_limited"),
        ("openai", 503, openai("slow_down"), "rate_limited"),
        ("anthropic", 429, anthropic("rate_limit_error"), "rate_limited"),
        ("gemini", 429, gemini("RESOURCE_EXHAUSTED", RETRY, message=PLAN), "rate_limited"),
        (
            "gemini",
            429,
            gemini("RESOURCE_EXHAUSTED", quota("PerMinutePerProject"), message=PLAN),
            "rate_limited",
        ),
        ("vertex", 429, [gemini("RESOURCE_EXHAUSTED", message="Resource exhausted.")], "rate_limited"),
        ("openrouter", 429, {"error": {"code": 429, "message": "Provider returned error"}}, "rate_limited"),
        ("openrouter", 200, {"error": {"code": 429, "message": "Provider returned error"}}, "rate_limited"),
        ("azure", 429, f"{S0} 45 seconds.", "rate_limited"),
        ("any", 429, "", "rate_limited"),
        # quota
        ("openai", 429, openai("insufficient_quota", "insufficient_quota", PLAN), "quota_exhausted"),
        ("openai", 429, openai("credit_balance_exhausted"), "quota_exhausted"),
        ("azure", 429, f"{S0} 86400 seconds.", "quota_exhausted"),
        (
            "openai",
            429,
            openai("rate_limit_exceeded", "tokens", "Please try again in 114h18m0s."),
            "quota_exhausted",
        ),
        (
            "anthropic",
            429,
            anthropic("rate_limit_error", details={"error_code": "enforced_spend_limit_reached"}),
            "quota_exhausted",
        ),
        (
            "anthropic",
            400,
            anthropic("invalid_request_error", "Your credit balance is too low to"),
            "quota_exhausted",
        ),
        ("gemini", 429, gemini("RESOURCE_EXHAUSTED", message=PLAN), "quota_exhausted"),
        (
            "gemini",
            429,
            gemini("RESOURCE_EXHAUSTED", quota("RequestsPerDayPerProject"), RETRY),
            "quota_exhausted",
        ),
        ("gemini", 429, gemini("RESOURCE_EXHAUSTED", quota("X", quotaValue="0")), "quota_exhausted"),
        ("openrouter", 402, {"error": {"code": 402, "message": "credits"}}, "quota_exhausted"),
        # overload
        ("anthropic", 529, anthropic("overloaded_error", "Overloaded"), "overloaded"),
        ("anthropic", 500, anthropic("api_error", "Overloaded"), "overloaded"),
        ("anthropic", 200, anthropic("overloaded_error", "Overloaded"), "overloaded"),
        ("gemini", 503, gemini("UNAVAILABLE", code=503), "overloaded"),
        (
            "ollama",
            503,
            {"error": "server busy, please try again. maximum pending requests exceeded"},
            "overloaded",
        ),
        ("groq", 498, openai("capacity_exceeded"), "overloaded"),
        # the server
        ("openai", 500, openai(None, "server_error"), "server_error"),
        ("gemini", 500, gemini("INTERNAL", code=500), "server_error"),
        ("any", 502, "<html>Bad Gateway</html>", "server_error"),
        ("any", 200, "{", "server_error"),
        ("any", 408, "", "timeout"),
        # the key
        ("openai", 401, openai("invalid_api_key"), "auth"),
        ("anthropic", 403, anthropic("permission_error"), "auth"),
        ("gemini", 400, gemini("INVALID_ARGUMENT", {"reason": "API_KEY_INVALID"}, code=400), "auth"),
        # the request
        ("openai", 400, openai("context_length_exceeded"), "context_length"),
        ("anthropic", 400, anthropic("invalid_request_error", "prompt is too long: 9 > 8"), "context_length"),
        ("anthropic", 413, anthropic("request_too_large"), "context_length"),
        (
            "openai",
            429,
            openai("rate_limit_exceeded", "tokens", "Request too large for gpt-4o"),
            "context_length",
        ),
        ("azure", 400, openai("content_filter"), "content_filter"),
        (
            "azure",
            400,
            {"error": {"code": None, "innererror": {"code": "ResponsibleAIPolicyViolation"}}},
            "content_filter",
        ),
        ("openai", 404, openai("model_not_found"), "not_found"),
        ("ollama", 404, {"error": "model 'x' not found, try pulling it first"}, "not_found"),
        ("openai", 400, openai("invalid_value"), "bad_request"),
        ("bedrock", 400, {"message": "The provided model identifier is invalid."}, "bad_request"),
        ("any", 422, {"detail": [{"loc": ["body"]}]}, "bad_request"),
    ],
)
def test_every_class_is_known_by_its_fields(provider: str, status: int, body: Any, kind: str) -> None:
    raw = body if isinstance(body, str) else json.dumps(body)
    fault = classify(provider, status, {}, raw.encode())

    assert fault.kind == kind
    assert fault.action == ACTIONS[fault.kind]


def test_a_field_wins_over_what_a_message_sounds_like() -> None:
    body = openai(
        "invalid_value", message="the text '429 rate limit, context_length_exceeded' is not allowed"
    )

    assert classify("openai", 400, {}, json.dumps(body).encode()).kind == "bad_request"


def test_an_error_encoded_inside_of_an_error_is_found() -> None:
    inner = json.dumps(gemini("RESOURCE_EXHAUSTED", RETRY))
    fault = classify("gemini", 429, {}, json.dumps({"error": {"message": inner, "code": 429}}).encode())

    assert fault.retry_after == 34.5
    assert fault.code == "resource_exhausted"

    wrapped = {"error": {"message": "Provider returned error", "code": 429, "metadata": {"raw": inner}}}
    assert classify("openrouter", 429, {}, json.dumps(wrapped).encode()).retry_after == 34.5


def test_a_provider_that_asks_for_hours_has_run_out_of_quota() -> None:
    assert classify("github", 429, {"Retry-After": "24367"}, b"").kind == "quota_exhausted"
    assert classify("github", 429, {"retry-after": "600"}, b"").kind == "rate_limited"
    assert classify("github", 429, {"x-ratelimit-type": "UserByModelByDay"}, b"").kind == "quota_exhausted"


def test_a_refusal_with_a_time_to_come_back_is_no_refusal_of_the_key() -> None:
    assert classify("github", 403, {"retry-after": "30"}, b"").kind == "rate_limited"


def test_a_model_that_does_not_exist_is_held_however_the_status_calls_it() -> None:
    fault = classify("openai", 400, {}, json.dumps(openai("model_not_found")).encode())

    assert (fault.kind, fault.action, fault.code) == ("bad_request", "hold", "model_not_found")


def test_no_answer_at_all_counts_against_the_provider() -> None:
    assert unreachable("connection reset").kind == "transport"
    assert late("no first byte in 2 s").kind == "timeout"
    assert {"transport", "timeout"} <= UNWELL
    assert late("x").retryable


@pytest.mark.parametrize("reason", ["content_filter", "refusal", "SAFETY", "PROHIBITED_CONTENT"])
def test_an_answer_that_was_cut_off_by_a_filter_is_a_fault_although_its_status_is_200(reason: str) -> None:
    fault = refused(reason)

    assert fault is not None
    assert (fault.kind, fault.action) == ("content_filter", "other_once")


@pytest.mark.parametrize("reason", ["stop", "length", "end_turn", "tool_use", "", "MAX_TOKENS"])
def test_an_ordinary_end_is_none(reason: str) -> None:
    assert refused(reason) is None


def test_only_what_comes_back_soon_is_worth_repeating_there() -> None:
    kinds = {kind for kind in ACTIONS if classify("any", _status(kind), {}, b"").retryable}

    assert kinds == {"rate_limited", "overloaded", "server_error", "timeout"}
    assert {"rate_limited", "quota_exhausted", "overloaded", "timeout"} == REJECTED


def _status(kind: str) -> int:
    codes = {
        "rate_limited": 429,
        "quota_exhausted": 402,
        "overloaded": 503,
        "server_error": 500,
        "timeout": 408,
    }
    return codes.get(kind, 400)


def test_messages_are_masked_and_short() -> None:
    key = "sk-proj-" + "a1" * 20
    fault = classify(
        "openai", 401, {}, json.dumps(openai("x", message=f"Incorrect API key {key} " * 99)).encode()
    )

    assert key not in fault.message
    assert len(fault.message) <= 500


def test_a_body_of_a_hundred_megabytes_is_not_read() -> None:
    fault = classify("any", 500, {}, b'{"error": "' + b"x" * 100_000_000)

    assert fault.kind == "server_error"
    assert len(fault.message) <= 500


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 600) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["error", "code", "message", "status", "type", "details", "metadata", "raw", "violations",
                 "quotaId", "innererror", "@type", "retryDelay", "detail"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)  # fmt: skip


@given(st.integers(-1, 700), json_values | st.just("{"), st.dictionaries(st.text(), st.text()))
def test_nothing_a_server_sends_breaks_it(status: int, body: Any, headers: dict[str, str]) -> None:
    fault = classify("any", status, headers, json.dumps(body).encode())

    assert fault.kind in ACTIONS
    assert fault.retry_after is None or fault.retry_after > 0


@given(st.binary(max_size=300))
def test_neither_do_bytes_that_are_not_json(body: bytes) -> None:
    assert classify("any", 500, {}, body).action == "fail_over"


def test_nor_a_body_that_is_nested_without_end() -> None:
    assert classify("any", 500, {}, b"[" * 100_000).kind == "server_error"
    assert classify("any", 500, {}, b'{"error":' * 20_000 + b"1" + b"}" * 20_000).kind == "server_error"
