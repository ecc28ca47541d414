"""Output in a given form: read out of what a model wrote, checked against the schema, asked for once more.

Providers that promise a schema are checked like those that don't: a promise may be broken by a
length limit, a proxy or an old version.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from penstock.models.base import Answer, BadOutput, Message, ModelError, Request, reply, user
from penstock.models.errors import Fault

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

SHOWN = 5
"""Complaints that a model is told about; more would not help it."""

Once = Callable[[Request], Awaitable[Answer]]

INSTRUCTION = (
    "Answer with one JSON value and nothing else: no explanation, no code fence. "
    "It must satisfy this JSON Schema:\n"
)


async def ask(once: Once, request: Request, *, provider: str, model: str) -> Answer:
    """An answer whose `parsed` satisfies the request's schema; one repair is tried, then `BadOutput`."""
    if request.output is None:
        return await once(request)
    check_schema(request.output, provider=provider, model=model)
    deadline = asyncio.get_running_loop().time() + request.timeout
    return await settle(await once(request), once, request, deadline=deadline)


async def settle(first: Answer, once: Once, request: Request, *, deadline: float) -> Answer:
    """The answer with its output read, or the one that comes when it is asked for again."""
    if request.output is None or first.tool_calls:
        return first  # with tools to call, it is not the end of the conversation
    value, problems = read(first.text, request.output)
    if not problems:
        return replace(first, parsed=value)
    if first.finish == "length":
        raise BadOutput([f"it was cut off at the length limit; {problems[0]}"], first)
    left = max(0.001, deadline - asyncio.get_running_loop().time())
    try:
        second = await once(replace(repair(request, first, problems), timeout=left))
    except ModelError as error:
        error.spent = first if error.spent is None else _both(first, error.spent)
        raise
    answer = _both(first, second)
    if answer.tool_calls:
        return answer
    value, problems = read(answer.text, request.output)
    if problems:
        raise BadOutput(problems, answer)
    return replace(answer, parsed=value)


def _both(first: Answer, second: Answer) -> Answer:
    cost = None if first.cost is None or second.cost is None else first.cost + second.cost
    usage, took = first.usage + second.usage, first.took + second.took
    return replace(second, usage=usage, cost=cost, took=took, repaired=True)


def repair(request: Request, answer: Answer, problems: list[str]) -> Request:
    """The same request once more, with what was wrong with the answer to it."""
    listed = "\n".join(f"- {problem}" for problem in problems)
    told = f"That does not satisfy the schema:\n{listed}\nAnswer again: the corrected JSON, and nothing else."
    said = reply(answer) if answer.text else Message("assistant", "(empty)")
    return replace(request, messages=(*request.messages, said, user(told)))


def instruct(request: Request) -> Request:
    """The same request with its schema in words, for providers that do not see to it themselves."""
    if request.output is None:
        return request
    told = Message("system", INSTRUCTION + compact(request.output))
    return replace(request, messages=(told, *request.messages))


def compact(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def read(text: str, schema: Mapping[str, Any]) -> tuple[Any, list[str]]:
    """The value in a text, and what is wrong with it."""
    try:
        value = parse(text)
    except ValueError as error:
        return None, [f"no JSON in it: {error}"]
    return value, complaints(schema, value)


def parse(text: str) -> Any:
    """The JSON in a text: all of it, or the first value after a fence or some words."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        complaint = str(error)
    for start, letter in enumerate(text):
        if letter in "{[":
            try:
                return json.JSONDecoder().raw_decode(text, start)[0]
            except (ValueError, RecursionError) as error:
                raise ValueError(str(error)) from None
    raise ValueError(complaint)


def complaints(schema: Mapping[str, Any], value: Any) -> list[str]:
    """What in a value does not satisfy a schema, in words and with places; nothing when all does."""
    from referencing.exceptions import Unresolvable

    try:
        errors = list(islice(_validator(compact(schema)).iter_errors(value), SHOWN))
    except (Unresolvable, RecursionError) as error:
        return [f"the schema leads nowhere: {error}"]
    return [f"{_place(error.absolute_path)}: {error.message[:200]}" for error in errors]


def _place(path: Iterable[str | int]) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return place.lstrip(".") or "the value"


def check_schema(schema: Mapping[str, Any], *, provider: str, model: str) -> None:
    """Refuse a schema that is none before anyone is asked."""
    try:
        _validator(compact(schema))
    except (TypeError, ValueError) as error:
        fault = Fault(kind="bad_request", action="fail", message=f"the output schema is not one: {error}")
        raise ModelError(fault, provider=provider, model=model) from None


@lru_cache(maxsize=256)
def _validator(schema: str) -> Validator:
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry

    decoded = json.loads(schema)
    if away := next(_references_away(decoded), ""):
        raise ValueError(f"it refers to {away[:100]}, and only what is given is read")
    kind = validator_for(decoded)
    try:
        kind.check_schema(decoded)
    except SchemaError as error:
        raise ValueError(error.message[:200]) from None
    return kind(decoded, registry=Registry())  # an empty registry: no schema is ever fetched


def _references_away(schema: Any) -> Iterator[str]:
    """References to other documents."""
    left = [schema]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            left += part.values()
            yield from (
                to
                for name in ("$ref", "$dynamicRef")
                if isinstance(to := part.get(name), str) and to[:1] != "#"
            )
        elif isinstance(part, list):
            left += part
