"""The only reader of the environment and of configuration files. Read once, into a frozen value.

Flags win over `PENSTOCK_*`, which win over `penstock.toml` (or `[tool.penstock]` in
`pyproject.toml`) in the working directory, which wins over the user's configuration.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import DefinitionError, Problem
from penstock.policy.masking import secrets_in
from penstock.workflow.findings import did_you_mean

if TYPE_CHECKING:
    from penstock.models.catalog import Catalog
    from penstock.models.tiers import ModelsTable


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
    """The file that names the MCP servers."""
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The environment, for those who are started by us or refer to it; nobody else reads it."""
    secrets: frozenset[str] = frozenset()
    """Values of variables whose names say they are secret: never to be seen in a message or a trace."""


def read(environment: Mapping[str, str] | None = None, **given: str | None) -> Settings:
    """The settings in force here."""
    env = os.environ if environment is None else environment
    found: dict[str, Any] = {}
    for layer in (_user(env), _project(), _variables(env), given):
        found.update({name: value for name, value in layer.items() if value is not None})
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


_TABLES = ("models",)
"""Settings that are tables, and so have no variable."""


def _names() -> list[str]:
    """What may be set; the variables and the secrets among them are found, not set."""
    return [one.name for one in fields(Settings) if one.name not in ("secrets", "variables")]


def _project() -> dict[str, Any]:
    own = Path("penstock.toml")
    if own.is_file():
        return _checked(own, _toml(own))
    shared = Path("pyproject.toml")
    if shared.is_file():
        return _checked(shared, _toml(shared).get("tool", {}).get("penstock", {}))
    return {}


def _user(env: Mapping[str, str]) -> dict[str, Any]:
    base = env.get("XDG_CONFIG_HOME") or (f"{env['HOME']}/.config" if env.get("HOME") else "")
    path = Path(base) / "penstock" / "config.toml"
    try:
        there = bool(base) and path.is_file()
    except OSError:
        there = False  # someone else's home
    return _checked(path, _toml(path)) if there else {}


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DefinitionError([Problem(f"cannot be read: {error}", file=str(path))]) from None


def _checked(path: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    known = _names()
    found = dict(values)
    problems = [
        Problem(f"unknown setting {name!r}", did_you_mean(name, known), file=str(path))
        for name in values
        if name not in known
    ]
    problems += [
        Problem(f"{name} must be text", file=str(path))
        for name, value in values.items()
        if name in known and name not in _TABLES and not isinstance(value, str)
    ]
    if "models" in values:
        from penstock.models.tiers import read_table

        found["models"], wrong = read_table(values["models"], file=str(path))
        problems += wrong
    if problems:
        raise DefinitionError(problems)
    return found
