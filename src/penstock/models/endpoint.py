"""Where a provider is reached, and in which respects it is not like the others. Data only.

What OpenAI, Azure and the many who speak like OpenAI do differently is a handful of fields here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from penstock.policy.masking import GONE

Speech = Literal["responses", "openai", "gemini", "anthropic", "ollama"]
"""`openai` is chat completions, as many speak them."""


class Secret:
    """A key that can be used and not be seen: nobody prints, logs or serialises it by accident."""

    __slots__ = ("_value",)

    def __init__(self, value: str = "") -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return f"Secret({GONE if self._value else ''})"

    __str__ = __repr__

    def __reduce__(self) -> str:
        msg = "a secret is not to be written down"
        raise TypeError(msg)


NO_KEY = Secret()


class Endpoint(Struct, frozen=True, kw_only=True):
    name: str
    """What it is called here: two endpoints of one kind have two names."""
    kind: str
    """Whose habits it has in errors and headers: `openai`, `azure`, `github`, `groq` …"""
    speech: Speech
    base: str
    """Everything before the paths below, without a slash at the end."""
    key: Secret = NO_KEY
    auth: str = "authorization"
    """The header that carries the key."""
    scheme: str = "Bearer "
    """What stands before the key in it."""
    headers: Mapping[str, str] = {}
    query: Mapping[str, str] = {}
    chat: str = "/chat/completions"
    """`{model}` stands for the model."""
    embed: str = "/embeddings"
    """Empty where none are offered."""
    probe: str = "/models"
    output: Literal["schema", "object", "prompt"] = "schema"
    """How far the provider itself sees to structured output: the schema, any JSON, or not at all."""
    max_tokens: str = "max_tokens"
    """The name of that field."""
    counts: bool = True
    """Streams have to be asked for their account of tokens."""
    local: bool = False
    """Runs on this machine or network: costs nothing, and not much runs at once."""
    proxy: Secret = NO_KEY
    """The HTTP proxy by which it is reached, if any: there may be a password in it."""

    def credentials(self) -> dict[str, str]:
        """The headers that only the provider may see."""
        return {self.auth: self.scheme + self.key.reveal()} if self.key else {}


OPENAI = Endpoint(
    name="openai",
    kind="openai",
    speech="responses",
    base="https://api.openai.com/v1",
    chat="/responses",
    max_tokens="max_completion_tokens",
)
AZURE = Endpoint(
    name="azure",
    kind="azure",
    speech="responses",
    base="",
    auth="api-key",
    scheme="",
    chat="/openai/v1/responses",
    embed="/openai/v1/embeddings",
    probe="/openai/v1/models",
    max_tokens="max_completion_tokens",
)
GITHUB = Endpoint(
    name="github",
    kind="github",
    speech="openai",
    base="https://models.github.ai",
    headers={"accept": "application/vnd.github+json"},
    chat="/inference/chat/completions",
    embed="/inference/embeddings",
    probe="/catalog/models",
)
GEMINI = Endpoint(
    name="gemini",
    kind="gemini",
    speech="gemini",
    base="https://generativelanguage.googleapis.com/v1beta",
    auth="x-goog-api-key",
    scheme="",
    chat="/models/{model}:generateContent",
    embed="/models/{model}:batchEmbedContents",
)
ANTHROPIC = Endpoint(
    name="anthropic",
    kind="anthropic",
    speech="anthropic",
    base="https://api.anthropic.com",
    auth="x-api-key",
    scheme="",
    headers={"anthropic-version": "2023-06-01"},
    chat="/v1/messages",
    embed="",
    probe="/v1/models",
)
OLLAMA = Endpoint(
    name="ollama",
    kind="ollama",
    speech="ollama",
    base="http://127.0.0.1:11434",
    chat="/api/chat",
    embed="/api/embed",
    probe="/api/tags",
    local=True,
)
COMPLETIONS = replace(OPENAI, speech="openai", chat="/chat/completions")
"""OpenAI as it was before, and as its likes are now."""

GROQ = replace(COMPLETIONS, name="groq", kind="groq", base="https://api.groq.com/openai/v1", embed="")
OPENROUTER = replace(COMPLETIONS, name="openrouter", kind="openrouter", base="https://openrouter.ai/api/v1")
DEEPSEEK = replace(
    COMPLETIONS,
    name="deepseek",
    kind="deepseek",
    base="https://api.deepseek.com",
    embed="",
    output="object",
    max_tokens="max_tokens",
)
MISTRAL = replace(
    COMPLETIONS,
    name="mistral",
    kind="mistral",
    base="https://api.mistral.ai/v1",
    max_tokens="max_tokens",
    counts=False,
)

KNOWN: Mapping[str, Endpoint] = {
    each.kind: each
    for each in (OPENAI, AZURE, GITHUB, GEMINI, ANTHROPIC, OLLAMA, GROQ, OPENROUTER, DEEPSEEK, MISTRAL)
}


def compatible(name: str, base: str, key: str = "", *, local: bool = False) -> Endpoint:
    """Anyone else who speaks like OpenAI."""
    return Endpoint(
        name=name, kind="openai", speech="openai", base=base.rstrip("/"), key=Secret(key), local=local
    )


def dated(endpoint: Endpoint, version: str) -> Endpoint:
    """Azure the older way: chat completions, a deployment in the path and an API version in the query."""
    return replace(
        endpoint,
        speech="openai",
        chat="/openai/deployments/{model}/chat/completions",
        embed="/openai/deployments/{model}/embeddings",
        probe="/openai/models",
        query={"api-version": version},
    )
