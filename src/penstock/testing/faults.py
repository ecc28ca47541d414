"""The ways in which providers fail, each in its provider's own form.

Statuses, headers and bodies as they are documented or were seen; what to conclude from them is
someone else's business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

DATE = "Mon, 16 Nov 2026 00:00:00 GMT"
"""When responses with a date in them are sent."""

HintForm = Literal["seconds", "ms", "azure-ms", "date", "body", "reset", "none"]


@dataclass(frozen=True, kw_only=True)
class Replies:
    """A response as it stands, whatever was asked."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Hangs:
    """The request is read, and nothing ever comes."""


@dataclass(frozen=True)
class Drops:
    """The connection is closed without a word."""


@dataclass(frozen=True)
class Stalls:
    """So many pieces of an answer come, and then nothing more."""

    after: int = 2
    status: int = 200


@dataclass(frozen=True)
class Cuts:
    """So many pieces of an answer come, and then the connection breaks."""

    after: int = 2


@dataclass(frozen=True)
class Ends:
    """So many pieces of a stream come, and it ends in good order, too early."""

    after: int = 2


@dataclass(frozen=True)
class Errs:
    """So many pieces of a stream come, and then an error in the place of the next."""

    reply: Replies
    after: int = 2


@dataclass(frozen=True)
class Floods:
    """A body of so many bytes."""

    size: int
    announced: bool = True


@dataclass(frozen=True)
class Drips:
    """A byte now and then, without end: never silent for long, and never done."""

    every: float = 0.01
    """Seconds between two of them."""


Fails = Replies | Hangs | Drops | Stalls | Cuts | Ends | Errs | Floods | Drips


def replies(status: int, body: Any, **headers: str) -> Replies:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Replies(status=status, body=raw, headers=named)


def in_band(reply: Replies) -> Replies:
    """The same error with status 200."""
    return Replies(status=200, body=reply.body)


NOT_JSON = Replies(status=200, body=b"<html>It works!</html>", headers={"content-type": "application/json"})
HALF_JSON = Replies(status=200, body=b'{"choices": [{"mess', headers={"content-type": "application/json"})
NOT_AN_ANSWER = replies(200, {"object": "list", "data": []})


def error(kind: str, status: int, code: str, message: str, **headers: str) -> Replies:
    """An error in the form of a provider: OpenAI's, unless it has one of its own."""
    match kind:
        case "anthropic":
            return replies(status, {"type": "error", "error": {"type": code, "message": message}}, **headers)
        case "gemini":
            return replies(status, {"error": {"code": status, "status": code, "message": message}}, **headers)
        case "ollama":
            return replies(status, {"error": message}, **headers)
        case _:
            told = {"message": message, "type": code, "param": None, "code": code}
            return replies(status, {"error": told}, **headers)


def rate_limited(kind: str, form: HintForm = "seconds", wait: float = 3.0) -> Replies:
    """A 429 that hints at its end in one of the known ways, or not at all."""
    code = {"anthropic": "rate_limit_error", "gemini": "RESOURCE_EXHAUSTED"}.get(kind, "rate_limit_exceeded")
    message = "Rate limit reached for requests."
    headers: dict[str, str] = {}
    match form:
        case "seconds":
            headers = {"retry-after": f"{wait:g}"}
        case "ms":
            headers = {"retry-after-ms": f"{wait * 1000:.0f}", "retry-after": "60"}
        case "azure-ms":
            headers = {"x-ms-retry-after-ms": f"{wait * 1000:.0f}"}
        case "date":
            headers = {"date": DATE, "retry-after": f"Mon, 16 Nov 2026 00:00:{wait:02.0f} GMT"}
        case "body" if kind == "gemini":
            return _gemini_limited({"retryDelay": f"{wait:g}s"}, "RetryInfo")
        case "body":
            message += f" Please try again in {wait:g}s."
        case "reset" if kind == "anthropic":
            headers = {
                "date": DATE,
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": f"2026-11-16T00:00:{wait:02.0f}Z",
            }
        case "reset":
            headers = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": f"{wait:g}s"}
        case "none":
            pass
    return error(kind, 429, code, message, **headers)


def _gemini_limited(detail: Mapping[str, Any], kind: str) -> Replies:
    details = [{"@type": f"type.googleapis.com/google.rpc.{kind}", **detail}]
    told = {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota exceeded.", "details": details}
    return replies(429, {"error": told})


def quota(kind: str) -> Replies:
    """The money or the day's share is gone."""
    match kind:
        case "anthropic":
            told = {
                "type": "rate_limit_error",
                "message": "Spend limit reached.",
                "details": {"error_code": "enforced_spend_limit_reached"},
            }
            return replies(429, {"type": "error", "error": told})
        case "gemini":
            violation = {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "quotaValue": "50"}
            return _gemini_limited({"violations": [violation]}, "QuotaFailure")
        case "github":
            limited = {"x_ratelimit_type": "UserByModelByDay", "retry_after": "24367"}
            return error(kind, 429, "RateLimitReached", "Rate limit of 50 per 86400s exceeded.", **limited)
        case "ollama":
            return error(kind, 402, "", "payment required")
        case _:
            return error(kind, 429, "insufficient_quota", "You exceeded your current quota.")


def overloaded(kind: str) -> Replies:
    match kind:
        case "anthropic":
            return error(kind, 529, "overloaded_error", "Overloaded")
        case "gemini":
            return error(kind, 503, "UNAVAILABLE", "The model is overloaded. Please try again later.")
        case "ollama":
            return error(kind, 503, "", "server busy, please try again.  maximum pending requests exceeded")
        case _:
            return error(kind, 503, "server_error", "The engine is currently overloaded.")


def failing(kind: str) -> Replies:
    code = {"anthropic": "api_error", "gemini": "INTERNAL"}.get(kind, "server_error")
    return error(kind, 500, code, "Something went wrong.")


def unauthorised(kind: str, echo: str = "") -> Replies:
    """A refused key; some providers repeat it in their message."""
    code = {"anthropic": "authentication_error", "gemini": "UNAUTHENTICATED"}.get(kind, "invalid_api_key")
    return error(kind, 401, code, f"Incorrect API key provided: {echo}.")


def too_long(kind: str) -> Replies:
    match kind:
        case "anthropic":
            message = "prompt is too long: 209000 tokens > 200000 maximum"
            return error(kind, 400, "invalid_request_error", message)
        case "gemini":
            message = "The input token count (1200000) exceeds the maximum number of tokens (1048576)."
            return error(kind, 400, "INVALID_ARGUMENT", message)
        case "ollama":
            return error(kind, 413, "", "input length exceeds maximum context length")
        case _:
            message = "This model's maximum context length is 128000 tokens."
            return error(kind, 400, "context_length_exceeded", message)


def filtered(kind: str) -> Replies | None:
    """A request that is refused for its content; None where that only shows in an answer."""
    match kind:
        case "azure" | "github":
            inner = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {}}
            told = {"message": "Filtered.", "code": "content_filter", "status": 400, "innererror": inner}
            return replies(400, {"error": told})
        case "gemini":
            return replies(200, {"promptFeedback": {"blockReason": "SAFETY"}, "modelVersion": "m"})
        case "openai":
            return error(kind, 400, "content_policy_violation", "Filtered.")
        case _:
            return None


def unknown_model(kind: str) -> Replies:
    code = {"anthropic": "not_found_error", "gemini": "NOT_FOUND"}.get(kind, "model_not_found")
    return error(kind, 404, code, "The model does not exist.")


def wrong(kind: str) -> Replies:
    code = {"anthropic": "invalid_request_error", "gemini": "INVALID_ARGUMENT"}
    return error(kind, 400, code.get(kind, "invalid_request_error"), "temperature: must be at most 2")
