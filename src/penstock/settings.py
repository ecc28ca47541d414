"""The only reader of the environment and of configuration files. Read once, into a frozen value.

Flags win over `PENSTOCK_*`, which win over `penstock.toml` (or `[tool.penstock]` in
`pyproject.toml`) in the working directory, which wins over the user's configuration.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import DefinitionError, Problem
from penstock.policy.masking import secrets_in
from penstock.workflow.findings import did_you_mean

if TYPE_CHECKING:
    from penstock.models.catalog import Catalog
    from penstock.models.tiers import ModelsTable
    from penstock.tools.table import ToolsTable


BEHIND = "penstock.mcp.json"
"""The file that servers are in once Penstock has taken their place in a client's own."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    store: str = "sqlite:///.penstock/penstock.db"
    """`memory:`, `sqlite:///path` or `postgresql://…`."""
    engine: str = "native"
    synchronous: str = "FULL"
    """For SQLite. `NORMAL` is faster; a power cut may then lose the last moments, a crash never does."""
    key: str = ""
    """Seals what is stored: a key, several (the first seals), or `file:/path`."""
    gate_attempts: str = "3"
    """How often a step may try before its gate calls a person, where a workflow does not say."""
    models: ModelsTable | None = None
    """`[models]`: tiers, prices and what else the router is told."""
    mcp: str = ".mcp.json"
    """The file that names the MCP servers; where `penstock mcp install` has moved them to
    `penstock.mcp.json`, that one."""
    token: str = field(default="", repr=False)
    """What clients of `penstock serve` must send; empty: a new one at each start."""
    embedding: str = "embedded"
    """How tools are found by meaning: `embedded`, `minilm`, or `openai-compatible:URL#MODEL`."""
    embedding_key: str = field(default="", repr=False)
    """What a server of embeddings is shown, if it wants a key."""
    tools: ToolsTable | None = None
    """`[tools]`: what may be called, and what the built-in tools may touch."""
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The environment, for those who are started by us or refer to it; nobody else reads it."""
    secrets: frozenset[str] = frozenset()
    """Values of variables whose names say they are secret: never to be seen in a message or a trace."""


def read(environment: Mapping[str, str] | None = None, **given: str | None) -> Settings:
    """The settings in force here."""
    env = os.environ if environment is None else environment
    found: dict[str, Any] = {}
    layers: list[Mapping[str, Any]] = [_user(env), _project(), _variables(env), given]
    for layer in layers:
        found.update({name: value for name, value in layer.items() if value is not None})
    if "mcp" not in found and Path(BEHIND).is_file():
        found["mcp"] = BEHIND
    if "tools" in found:
        from penstock.tools.table import combined

        found["tools"] = combined([layer["tools"] for layer in layers if "tools" in layer])
    return Settings(**found, variables=dict(env), secrets=secrets_in(env))


def catalog(environment: Mapping[str, str] | None = None) -> Catalog:
    """The providers of language models that the environment names."""
    from penstock.models.catalog import configured

    return configured(os.environ if environment is None else environment)


def models_file(configuration: Settings) -> Path | None:
    """Where processes share what they know about models: beside the store; nowhere for `memory:`."""
    kind, _, rest = configuration.store.partition(":")
    if kind == "memory":
        return None
    return (Path(rest.removeprefix("///")).parent if kind == "sqlite" else Path(".penstock")) / "models.db"


def _variables(env: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name in _names()
        if name not in _TABLES and (value := env.get(f"PENSTOCK_{name.upper()}"))
    }


_TABLES = ("models", "tools")
"""Settings that are tables, and so have no variable."""


def _names() -> list[str]:
    """What may be set; the variables and the secrets among them are found, not set."""
    return [one.name for one in fields(Settings) if one.name not in ("secrets", "variables")]


def _project() -> dict[str, Any]:
    own = Path("penstock.toml")
    if own.is_file():
        return _checked(own)
    shared = Path("pyproject.toml")
    return _checked(shared, "tool", "penstock") if shared.is_file() else {}


def _user(env: Mapping[str, str]) -> dict[str, Any]:
    base = env.get("XDG_CONFIG_HOME") or (f"{env['HOME']}/.config" if env.get("HOME") else "")
    path = Path(base) / "penstock" / "config.toml"
    try:
        there = bool(base) and path.is_file()
    except OSError:
        there = False  # someone else's home
    return _checked(path) if there else {}


def _toml(path: Path) -> tuple[dict[str, Any], str]:
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text), text
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DefinitionError([Problem(f"cannot be read: {error}", file=str(path))]) from None


def _checked(path: Path, *within: str) -> dict[str, Any]:
    """What a file says in one of its tables, or one error that says all that is wrong with it."""
    values, text = _toml(path)
    for part in within:
        values = values.get(part, {})
    known = _names()
    found = dict(values)
    problems = [
        Problem("unknown setting", did_you_mean(name, known), where=name, file=str(path))
        for name in values
        if name not in known
    ]
    problems += [
        Problem("must be text", where=name, file=str(path))
        for name, value in values.items()
        if name in known and name not in _TABLES and not isinstance(value, str)
    ]
    if "models" in values:
        from penstock.models.tiers import read_table

        found["models"], wrong = read_table(values["models"], file=str(path))
        problems += wrong
    if "tools" in values:
        from penstock.tools.table import read_table as read_tools

        found["tools"], wrong = read_tools(values["tools"], file=str(path))
        problems += wrong
    if problems:
        lines = _lines(text)
        prefix = "".join(f"{part}." for part in within)
        raise DefinitionError([replace(one, line=_nearest(prefix + one.where, lines)) for one in problems])
    return found


_HEADER = re.compile(r"\s*\[\[?\s*(.+?)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[\w.\s-])+?)\s*=""")
_PART = re.compile(r""""([^"]*)"|'([^']*)'|([\w-]+)""")


def _lines(text: str) -> dict[str, int]:
    """Where the tables and keys of a TOML text stand; its reader does not say."""
    found: dict[str, int] = {}
    table = ""
    for n, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.fullmatch(line):
            table = _path(header[1])
            found.setdefault(table, n)
        elif key := _KEY.match(line):
            found.setdefault(f"{table}.{_path(key[1])}".lstrip("."), n)
    return found


def _path(dotted: str) -> str:
    return ".".join("".join(part) for part in _PART.findall(dotted))


def _nearest(place: str, lines: Mapping[str, int]) -> int:
    """The line of a place, or of what it is part of; 0 when it is not to be found."""
    while place and place not in lines:
        place = place.rpartition(".")[0]  # an inline table, perhaps
    return lines.get(place, 0)
