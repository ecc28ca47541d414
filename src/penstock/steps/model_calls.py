"""Asking models, and what a `model_call` event says of it: of each call, whatever came of it."""

from __future__ import annotations

from typing import Any, Protocol

from penstock.errors import PenstockError, UpstreamUnavailable
from penstock.models.base import Answer, BadOutput, Request
from penstock.models.calls import UnknownModel
from penstock.steps.base import TaskFailure


class Models(Protocol):
    """Whoever asks a model, whichever it is."""

    async def chat(self, request: Request, *, tier: str = "", model: str = "") -> Answer: ...


async def asked(models: Models, request: Request, *, tier: str = "", model: str = "") -> Answer:
    """An answer, `BadOutput` with one that does not fit, or a `TaskFailure` with what was paid for it."""
    try:
        return await models.chat(request, tier=tier, model=model)
    except BadOutput:
        raise
    except UpstreamUnavailable as error:
        known: dict[str, Any] = {"name": type(error).__name__, "retry_after": error.retry_after}
        raise TaskFailure("unavailable", str(error), **known, calls=_failed(error, model or tier)) from None
    except UnknownModel as error:  # it was refused before anyone was asked
        raise TaskFailure("model", str(error)) from None
    except PenstockError as error:
        raise TaskFailure("model", str(error), calls=_failed(error, model or tier)) from None


def record(answer: Answer) -> dict[str, Any]:
    """What a `model_call` event says of an answer."""
    return {
        "served_by": answer.served_by,
        "requested": answer.requested,
        "degraded": answer.degraded,
        "attempts": answer.attempts,
        "cost": answer.cost,
        "tokens": answer.usage.input + answer.usage.output,
        "input_tokens": answer.usage.input,
        "output_tokens": answer.usage.output,
        "ms": round(answer.took * 1000, 3),
        "label": answer.label,
    }


def _failed(error: PenstockError, requested: str) -> tuple[dict[str, Any]]:
    """The same of a call that nobody answered, as far as whoever was asked says what it took."""
    spent = getattr(error, "spent", None) or Answer(requested=requested)
    return ({**record(spent), "error": str(error)},)
