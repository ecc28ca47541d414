"""What a failed call to a provider means, and what to do about it.

One kind out of a closed list, from status, code and body fields, in that order of being specific.
A message is only looked at where a provider says the thing nowhere else. Whose fault it was
decides what happens: the caller's request, the key, the budget, or the provider's health.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from penstock.models.bodies import ErrorBody, read
from penstock.models.headers import Hints, hints
from penstock.policy.masking import mask

FaultKind = Literal[
    "rate_limited", "quota_exhausted", "overloaded", "server_error", "transport", "timeout",
    "auth", "context_length", "content_filter", "not_found", "bad_request",
]  # fmt: skip

Action = Literal["wait", "hold", "fail_over", "refresh_auth", "shrink", "other_once", "fail"]
"""What follows, for the candidate and for the call:

`wait`          this model is free again after `retry_after`; meanwhile another one may answer
`hold`          asking again soon changes nothing, for hours or until the configuration changes; another may
`fail_over`     the provider is unwell: it counts against its health, and another one answers
`refresh_auth`  the key is refused: no more calls with it until it changes; another provider may answer
`shrink`        too long for this model: one with a larger window, or a shorter request
`other_once`    the content was refused: at most one other provider, never a loop
`fail`          the request is wrong wherever it is sent
"""

ACTIONS: Final[Mapping[FaultKind, Action]] = {
    "rate_limited": "wait",
    "quota_exhausted": "hold",
    "overloaded": "fail_over",
    "server_error": "fail_over",
    "transport": "fail_over",
    "timeout": "fail_over",
    "auth": "refresh_auth",
    "context_length": "shrink",
    "content_filter": "other_once",
    "not_found": "hold",
    "bad_request": "fail",
}

UNWELL: Final[frozenset[FaultKind]] = frozenset({"overloaded", "server_error", "transport", "timeout"})
"""Kinds that a breaker counts as failures. The others say nothing about a provider's health."""

REJECTED: Final[frozenset[FaultKind]] = frozenset(
    {"rate_limited", "quota_exhausted", "overloaded", "timeout"}
)
"""Kinds that the adaptive throttle does not count as accepted."""

SOON: Final = 600.0
"""Seconds. A provider that asks for a longer wait than this has run out of quota, whatever it calls it."""

NAME_ANOTHER: Final = "name another in [models.tiers]; `penstock models test` shows what is offered"
"""What to do about a model that is not there."""

LONGEST: Final = 500
"""Characters of a message that are kept."""


class Fault(Struct, frozen=True, kw_only=True):
    """Why a call failed."""

    kind: FaultKind
    action: Action
    retry_after: float | None = None
    """Seconds, where the provider gave them. Never a guess of ours."""
    message: str = ""
    """The provider's words, masked and shortened."""
    code: str = ""
    """The most specific code there was."""
    status: int = 0
    """0 when there was no answer."""

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed at the same place before long."""
        return self.kind in UNWELL or self.kind == "rate_limited"


def classify(
    provider: str, status: int, headers: Mapping[str, str], body: bytes, *, now: float | None = None
) -> Fault:
    """The fault in a response. For calls that failed: also those with a 200 whose body is an error.

    `now` is the wall clock, for dates in responses that have no `Date` of their own.
    """
    told = read(body)
    if status < 400 and told.status:
        status = told.status
    hinted = hints(provider, headers, body, now, status=max(status, 400), told=told)
    kind = _kind(status, told, hinted)
    known = (code for code in told.codes if _keyed(code) <= _CODES)
    code = next(known, told.codes[0] if told.codes else "")
    return Fault(
        kind=kind,
        action="hold" if _keyed(code) <= _ABSENT else ACTIONS[kind],
        retry_after=hinted.wait,
        message=_masked(told.message),
        code=code,
        status=status,
    )


def unreachable(message: str) -> Fault:
    """No answer: refused, reset, not resolved, cut off."""
    return Fault(kind="transport", action="fail_over", message=_masked(message))


def late(message: str) -> Fault:
    """No answer in time. Counts against the provider also when the deadline was the caller's."""
    return Fault(kind="timeout", action="fail_over", message=_masked(message))


def refused(reason: str, message: str = "") -> Fault | None:
    """The fault in an answer that arrived well but ended for this reason; None when it is none.

    Takes `finish_reason`, `stop_reason`, `finishReason` and `promptFeedback.blockReason` alike.
    """
    if reason.lower() not in _REFUSALS:
        return None
    return Fault(
        kind="content_filter", action="other_once", message=_masked(message), code=reason.lower(), status=200
    )


def _masked(message: str) -> str:
    return mask(message[:LONGEST])


# --- from fields ---


def _keyed(*codes: str) -> frozenset[str]:
    """Codes as they are compared: `rate_limit_exceeded`, `RateLimitExceeded` and `rate-limit-…` are one."""
    return frozenset(_ODD.sub("", code.lower()) for code in codes)


_ODD: Final = re.compile(r"[^a-z0-9]")

_ABSENT: Final = _keyed(
    "model_not_found", "not_found_error", "deployment_not_found", "not_found", "unknown_model"
)
_QUOTA: Final = _keyed(
    "insufficient_quota", "credit_balance_exhausted", "enforced_spend_limit_reached", "billing_error",
    "billing_hard_limit_reached", "billing_not_active", "insufficient_credits", "insufficient_balance",
    "payment_required", "quota_exceeded", "spend_limit_reached", "usage_limit_reached",
    "project_spend_limit_reached", "organization_spend_limit_reached", "access_terminated",
    "openrouter_key_limit", "openrouter_guardrail_budget", "openrouter_workspace_budget",
    "openrouter_free_tier_daily",
)  # fmt: skip
_BRIEFLY: Final = _keyed("openrouter_in_flight_budget", "in_flight_budget_exhausted")
"""Money that is only tied up in calls under way: a 402 that ends by itself."""

_LIMITED: Final = _keyed(
    "rate_limit_exceeded", "rate_limit_error", "requests", "tokens", "slow_down", "rate_limit_reached",
    "throttling_exception", "ramp_limit_exceeded",
)  # fmt: skip
_VAGUE: Final = _keyed("resource_exhausted", "too_many_requests")
"""Said of a rate and of a quota alike."""

_OVERLOADED: Final = _keyed(
    "overloaded_error", "overloaded", "unavailable", "engine_overloaded", "server_overloaded",
    "engine_overloaded_error", "model_overloaded", "capacity_exceeded", "model_not_ready_exception",
    "service_unavailable_exception", "service_unavailable",
)  # fmt: skip
_AUTH: Final = _keyed(
    "authentication_error", "invalid_api_key", "api_key_invalid", "permission_error", "permission_denied",
    "unauthenticated", "unauthorized", "access_denied_exception", "expired_token",
    "unrecognized_client_exception", "invalid_authentication", "incorrect_api_key", "account_deactivated",
)  # fmt: skip
_TOO_LONG: Final = _keyed(
    "context_length_exceeded", "request_too_large", "tokens_limit_reached", "exceed_context_size_error",
    "context_window_exceeded", "model_context_window_exceeded", "string_too_long",
    "request_body_too_large_after_decoding",
)  # fmt: skip
_FILTERED: Final = _keyed(
    "content_filter", "responsible_ai_policy_violation", "content_policy_violation", "content_filtered",
    "moderation_blocked", "prompt_blocked", "flagged_input", "bio_policy", "misalignment_policy_violation",
)  # fmt: skip
_CODES: Final = _ABSENT | _QUOTA | _BRIEFLY | _LIMITED | _VAGUE | _OVERLOADED | _AUTH | _TOO_LONG | _FILTERED

_REFUSALS: Final = frozenset(
    {
        "content_filter", "refusal", "safety", "recitation", "prohibited_content", "blocklist", "spii",
        "image_safety", "content_filtered", "guardrail_intervened",
    }
)  # fmt: skip


def _kind(status: int, told: ErrorBody, hinted: Hints) -> FaultKind:
    codes = _keyed(*told.codes)
    if (status == 402 or codes & _QUOTA) and not (codes & _BRIEFLY and hinted.wait):
        return "quota_exhausted"
    if status in (402, 429) or (codes & (_LIMITED | _VAGUE) and status not in (401, 404)):
        return _limited(codes, told, hinted)
    if 500 <= status < 600 or status == 498:  # 498: Groq has no capacity for this service tier
        busy = status in (498, 503, 529) or codes & _OVERLOADED or told.message in _BUSY
        return "overloaded" if busy else "server_error"
    if status == 408:
        return "timeout"
    return _refused(status, codes, told, hinted)


def _refused(status: int, codes: frozenset[str], told: ErrorBody, hinted: Hints) -> FaultKind:
    """What in the request, or in its key, was not taken."""
    if codes & _FILTERED:
        return "content_filter"
    if status == 413 or codes & _TOO_LONG:
        return "context_length"
    if status in (401, 403) or codes & _AUTH:
        return "rate_limited" if status == 403 and hinted.source in _ASKED else "auth"
    if status in (404, 410):
        return "not_found"
    if 400 <= status < 500:
        return _worded(told.message)
    return "overloaded" if codes & _OVERLOADED else "server_error"


_ASKED: Final = frozenset({"retry-after-ms", "retry-after"})
"""A refusal with a time to come back is no refusal of the key: GitHub's secondary limits are a 403."""

_BUSY: Final = frozenset({"Overloaded", "overloaded"})
"""Anthropic's 500 `api_error` with this and nothing else for a message."""


def _limited(codes: frozenset[str], told: ErrorBody, hinted: Hints) -> FaultKind:
    """Whether what ran out comes back soon."""
    if hinted.wait is not None and hinted.wait > SOON:
        return "quota_exhausted"
    names = [str(name).lower() for name in _blamed(told, "quota_limit", "quotaId")]
    sizes = [str(size) for size in _blamed(told, "quota_limit_value", "quotaValue")]
    if "0" in sizes or any("perday" in name for name in names):  # zero: the model is not in this tier
        return "quota_exhausted"
    if names or hinted.source in ("retry-after-ms", "retry-after", "body"):
        return "rate_limited"
    if _TOO_LARGE.search(told.message):
        return "context_length"
    unsaid = not codes & _LIMITED
    return "quota_exhausted" if hinted.daily or (unsaid and _PLAN.search(told.message)) else "rate_limited"


def _blamed(told: ErrorBody, in_metadata: str, in_violation: str) -> Iterator[Any]:
    """What `google.rpc.ErrorInfo` and `QuotaFailure` say of the quotas that ran out."""
    for part in told.details:
        metadata, violations = part.get("metadata"), part.get("violations")
        if isinstance(metadata, dict) and in_metadata in metadata:
            yield metadata[in_metadata]
        for violation in violations if isinstance(violations, list) else []:
            if isinstance(violation, dict) and in_violation in violation:
                yield violation[in_violation]


# --- from words, where there is no field ---

_PLAN = re.compile(r"(?ai:check your plan and billing details|\blimit: 0\b)")
_TOO_LARGE = re.compile(r"(?ai:^request too large for\b)")
"""OpenAI's 429 for one request that is more than a minute allows: no wait makes it smaller."""

_WORDS: Final[tuple[tuple[re.Pattern[str], FaultKind], ...]] = (
    (re.compile(r"(?ai:^prompt is too long\b)"), "context_length"),  # Anthropic
    (re.compile(r"(?ai:^the input token count\b.{0,80}\bexceeds the maximum)"), "context_length"),  # Gemini
    (re.compile(r"(?ai:\bmaximum context length (?:is|of)\b)"), "context_length"),  # vLLM and its likes
    (re.compile(r"(?ai:^your credit balance is too low\b)"), "quota_exhausted"),  # Anthropic
    (
        re.compile(r"(?ai:^you have reached your specified api usage limits\b)"),
        "quota_exhausted",
    ),  # Anthropic
)


def _worded(message: str) -> FaultKind:
    """A 4xx whose code says no more than "invalid"."""
    return next((kind for words, kind in _WORDS if words.search(message)), "bad_request")
