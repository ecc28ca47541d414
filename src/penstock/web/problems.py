"""What is wrong with a request, as an answer: one table from errors to statuses, one shape."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from penstock.errors import (
    CommandRejected,
    Conflict,
    DefinitionError,
    ExpressionError,
    NoAnswer,
    Owned,
    PenstockError,
    RunFailed,
    ServerDown,
    StoreError,
    ToolError,
    Unfinished,
    UnknownDecision,
    UnknownRun,
    UnknownTool,
    UnknownWorkflow,
    Unsupported,
)
from penstock.listening import problem

Clean = Callable[[str], str]
"""Takes out of a text what nobody should read there."""

STATUSES: Final[dict[type[PenstockError], int]] = {
    UnknownRun: 404,
    UnknownDecision: 404,
    UnknownWorkflow: 404,
    UnknownTool: 422,
    DefinitionError: 422,
    ExpressionError: 422,
    Unsupported: 422,
    NoAnswer: 422,
    CommandRejected: 409,
    Conflict: 409,
    Owned: 409,
    RunFailed: 409,
    Unfinished: 503,
    ServerDown: 503,
    StoreError: 503,
    ToolError: 502,
    PenstockError: 400,
}
"""The nearest one counts: that of the error itself, or of what it is a kind of."""

SHOWN: Final = 5
"""Complaints about one request that are told."""


def status_of(error: PenstockError) -> int:
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def answer_every_error(app: FastAPI, clean: Clean) -> None:
    """Every failure of a request is answered in the same shape, without a trace of our insides."""

    def answer(status: int, type: str, message: str, hint: str = "") -> JSONResponse:
        body = problem(type, clean(message), clean(hint))
        return JSONResponse({"error": body}, status)

    async def ours(_request: Request, error: Any) -> JSONResponse:
        return answer(status_of(error), _words(type(error).__name__), str(error), _hint(error))

    async def invalid(_request: Request, error: Any) -> JSONResponse:
        return answer(422, "invalid_request", "; ".join(map(_said, error.errors()[:SHOWN])))

    async def http(_request: Request, error: Any) -> JSONResponse:
        hint = "/openapi.json says what there is" if error.status_code in (404, 405) else ""
        return answer(error.status_code, _words(_TYPES.get(error.status_code, "")), str(error.detail), hint)

    async def fault(_request: Request, _error: Exception) -> JSONResponse:
        return answer(500, "fault", "Penstock failed; this is a fault of its own")

    app.add_exception_handler(PenstockError, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, fault)


_TYPES: Final = {404: "UnknownPath", 405: "WrongMethod", 400: "BadRequest"}


def _words(name: str) -> str:
    """`UnknownRun` as `unknown_run`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() or "error"


def _hint(error: PenstockError) -> str:
    problems = getattr(error, "problems", ())
    return getattr(error, "hint", "") or next((one.hint for one in problems if one.hint), "")


def _said(wrong: dict[str, Any]) -> str:
    place = ".".join(str(part) for part in wrong["loc"] if part != "body")
    return f"{place}: {wrong['msg']}" if place else str(wrong["msg"])
