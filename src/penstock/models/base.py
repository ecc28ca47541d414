"""The port between whoever asks a language model and whoever answers.

A `Request` says what is wanted and knows no provider; an `Answer` says what came, who gave it and
what it cost. A provider that cannot answer raises a `ModelError`, and the `Fault` in it is all that
anyone needs in order to decide what to do next.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec
from msgspec import Struct

from penstock.errors import PenstockError
from penstock.models.errors import Fault
from penstock.models.headers import Hints

Role = Literal["system", "user", "assistant", "tool"]
Finish = Literal["stop", "length", "tool_calls"]
ToolChoice = Literal["auto", "required", "none"]


class ToolSpec(Struct, frozen=True):
    """A tool as a model sees it."""

    name: str
    """Letters, digits, `_` and `-`, at most 64: what every provider takes."""
    description: str = ""
    parameters: Mapping[str, Any] = msgspec.field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )


class ToolCall(Struct, frozen=True):
    """A model's wish to call a tool."""

    id: str
    name: str
    arguments: Mapping[str, Any] = {}
    problem: str = ""
    """Why the arguments could not be read; the model can be told."""
    raw: str = ""
    """What it wrote instead of arguments."""
    signature: str = ""
    """Opaque. Some providers want it back with the call in the next turn."""


class Message(Struct, frozen=True):
    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    """Of an assistant's message."""
    tool_call: str = ""
    """Of a tool's message: the id of the call that it answers."""
    name: str = ""
    """Of a tool's message: which tool this is."""


class Request(Struct, frozen=True, kw_only=True):
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    output: Mapping[str, Any] | None = None
    """A JSON Schema that the answer's `parsed` will satisfy."""
    max_tokens: int | None = None
    temperature: float | None = None
    stream: bool = False
    """Ask for a stream even where the whole answer is wanted: a stall is then noticed early."""
    timeout: float = 60.0
    """Seconds for everything, a repair of the output included."""
    first_byte: float | None = None
    """Seconds until the provider must have begun to answer."""
    idle: float = 30.0
    """Seconds a stream may be silent."""


class Usage(Struct, frozen=True):
    """Tokens. `cached` of the `input` were read from a provider's cache."""

    input: int = 0
    output: int = 0
    cached: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.input + other.input, self.output + other.output, self.cached + other.cached)


class Answer(Struct, frozen=True, kw_only=True):
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    parsed: Any = None
    """The text as data, where the request had an output schema."""
    usage: Usage = Usage()
    cost: float | None = None
    """US dollars; None where no price is known, which is not the same as free."""
    finish: Finish = "stop"
    served_by: str = ""
    """`provider/model`, as it was addressed."""
    model: str = ""
    """The model's name in the provider's own words."""
    requested: str = ""
    """What was asked for. The router changes it where it substitutes."""
    degraded: bool = False
    attempts: int = 1
    repaired: bool = False
    """The first output did not satisfy the schema; this is the second."""
    label: str = ""
    """`extractive`, `scripted` or `replayed`; empty where a model wrote it just now."""
    missing: tuple[str, ...] = ()
    """Parts of the output schema that an extractive answer found nothing for."""
    took: float = 0.0
    first_byte: float = 0.0
    hints: Hints | None = None
    """What the response said about limits."""


class Chunk(Struct, frozen=True):
    """A piece of an answer. The last one carries the answer as a whole."""

    text: str = ""
    tool_call: ToolCall | None = None
    """Complete: a call is passed on once its arguments are."""
    answer: Answer | None = None


class Embedding(Struct, frozen=True, kw_only=True):
    vectors: tuple[tuple[float, ...], ...]
    """One for each text, in the order of the texts."""
    usage: Usage = Usage()
    cost: float | None = None
    served_by: str = ""


class Provider(Protocol):
    """Someone who can be asked, and raises `ModelError` where nothing comes of it. Times are in seconds."""

    @property
    def name(self) -> str: ...

    async def chat(self, model: str, request: Request) -> Answer:
        """The whole answer; `BadOutput` where it does not satisfy the schema even when asked again."""
        ...

    def stream(self, model: str, request: Request) -> AsyncGenerator[Chunk, None]:
        """The answer as it comes. Close it to stop listening; a stream that breaks raises."""
        ...

    async def embed(self, model: str, texts: Sequence[str], *, within: float = 60.0) -> Embedding: ...

    async def probe(self, *, within: float = 5.0) -> None:
        """Ask for something cheap, to see whether anyone is there. Says nothing about quota."""
        ...


@runtime_checkable
class Listing(Protocol):
    """A provider that can say which models it has."""

    async def offered(self, *, within: float = 10.0) -> Sequence[str]: ...


class ModelError(PenstockError):
    """A provider did not answer. `fault` says what that means and what to do."""

    def __init__(
        self,
        fault: Fault,
        *,
        provider: str,
        model: str = "",
        status: int = 0,
        hints: Hints | None = None,
        partial: str = "",
    ) -> None:
        who = f"{provider}/{model}" if model else provider
        what = fault.kind.replace("_", " ")
        super().__init__(f"{who}: {what}: {fault.message}" if fault.message else f"{who}: {what}")
        self.fault = fault
        self.provider = provider
        self.model = model
        self.status = status
        """Of the HTTP response; 0 when there was none."""
        self.hints = hints
        self.partial = partial
        """What a stream had said before it broke."""
        self.spent: Answer | None = None
        """Paid for all the same: an answer refused half-way, or one that a repair was tried on."""


class BadOutput(PenstockError):
    """The model answered, twice, and not in the form that was asked for. The provider is well."""

    def __init__(self, problems: Sequence[str], answer: Answer) -> None:
        super().__init__(f"{answer.served_by}: the output does not satisfy the schema: {'; '.join(problems)}")
        self.problems = tuple(problems)
        self.answer = answer
        """With the text as it came, and what it all cost."""


def user(text: str) -> Message:
    return Message("user", text)


def system(text: str) -> Message:
    return Message("system", text)


def reply(answer: Answer) -> Message:
    """The answer as a message of the conversation that it belongs to."""
    return Message("assistant", answer.text, answer.tool_calls)


def result(call: ToolCall, content: str) -> Message:
    """What a tool answered, as the message that the model is waiting for."""
    return Message("tool", content, tool_call=call.id, name=call.name)


def read_arguments(id: str, name: str, written: str | Mapping[str, Any] | None) -> ToolCall:
    """A tool call, also where what the model wrote is not the JSON object that it should be."""
    if isinstance(written, Mapping):
        return ToolCall(id, name, dict(written))
    if not written:
        return ToolCall(id, name)
    try:
        found = msgspec.json.decode(written)
    except msgspec.DecodeError as error:
        return ToolCall(id, name, problem=f"the arguments are not JSON: {error}", raw=written)
    if not isinstance(found, dict):
        return ToolCall(id, name, problem="the arguments are not an object", raw=written)
    return ToolCall(id, name, found)
