"""`[tools]` of a configuration file: what may be called, and what the built-in tools may touch.

Values and their check only: nothing here looks at a disk or a network. Several files may say
something; then what is denied or asked about in any of them is, and of the rest the last one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_network
from typing import Any, Final, Literal, get_args

from msgspec import Struct

from penstock.errors import Problem
from penstock.tools.rules import Rules
from penstock.workflow.durations import EXAMPLES, seconds
from penstock.workflow.findings import did_you_mean
from penstock.workflow.spec import Effect

Pinning = Literal["ask", "refuse", "off"]
"""What becomes of a tool that is not what was approved: a person is asked about its next call, it is
refused until it is approved, or it is taken as it is."""

Given = dict[str, Any]
"""What one file says, checked: keys such as `deny` and `http.private`."""


class ToolsTable(Struct, frozen=True, kw_only=True):
    """`[tools]`, read and checked."""

    rules: Rules = Rules()
    pinning: Pinning = "ask"
    roots: tuple[str, ...] = (".",)
    """Folders of `files:*`, `data:*` and `shell:run`; `~` is the user's own."""
    hosts: tuple[str, ...] = ("*",)
    """Patterns of hosts that `http:get` may ask for; a port may follow."""
    no_hosts: tuple[str, ...] = ()
    """Patterns of those it may not."""
    private: tuple[str, ...] = ()
    """`host`, `host:port` or a network such as `10.0.0.0/8` that it may reach although it is not public."""
    commands: tuple[str, ...] = ()
    """Programs of `shell:run`; `*` for any. None: there is no `shell:run`."""
    servers: Mapping[str, Any] = {}
    """`idle`, `start_timeout`, `timeout` and `max_bytes` of servers whose own entry does not say."""
    files: Mapping[str, str] = {}
    """Which file says it, by rule: `deny git:push` to `penstock.toml`."""

    def said_in(self, what: str, pattern: str) -> str:
        """The file and table that a pattern stands in."""
        file = self.files.get(f"{what} {pattern}", "")
        return f"{file} [tools.effects]" if what == "effects" else f"{file} [tools]"


_TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "files": ("roots",),
    "http": ("allow", "deny", "private"),
    "servers": ("idle", "max_bytes", "start_timeout", "timeout"),
    "shell": ("commands",),
}
_LISTS: Final = ("allow", "ask", "deny")
_KEYS: Final = (*_LISTS, "effects", "pinning", "timeouts", *_TABLES)
_ADDED_UP: Final = ("ask", "deny", "http.deny")
"""What is said in one file is not taken back by another."""

Wrong = Callable[[str, str, str], None]


def read_table(raw: Any, *, file: str = "") -> tuple[Given, list[Problem]]:
    """What the table says, and everything that is wrong with it."""
    problems: list[Problem] = []

    def wrong(where: str, message: str, hint: str = "") -> None:
        place = f"tools.{where}" if where else "tools"
        problems.append(Problem(message, hint, where=place, file=file))

    given: Given = {}
    if not isinstance(raw, Mapping):
        wrong("", "must be a table")
        return given, problems
    for name, value in raw.items():
        if name not in _KEYS:
            wrong(name, "unknown setting", did_you_mean(name, _KEYS) or f"known are {', '.join(_KEYS)}")
        elif name in _LISTS:
            given[name] = _texts(value, name, wrong)
        elif name == "pinning":
            given[name] = _one_of(value, get_args(Pinning), name, wrong)
        elif not isinstance(value, Mapping):
            wrong(name, "must be a table")
        elif name == "effects":
            kinds = get_args(Effect)
            given[name] = {one: _one_of(said, kinds, f"{name}.{one}", wrong) for one, said in value.items()}
        elif name == "timeouts":
            given[name] = {one: _seconds(said, f"{name}.{one}", wrong) for one, said in value.items()}
        else:
            _read_inner(name, value, given, wrong)
    for key in (*_LISTS, "effects", "timeouts"):
        for one in given.get(key, ()):
            _check_pattern(one, key, wrong)
    ruled = [(key, one) for key in (*_LISTS, "effects") for one in given.get(key, ())]
    given["sources"] = {f"{key} {one}": file for key, one in ruled}
    return given, problems


def _read_inner(table: str, values: Mapping[str, Any], given: Given, wrong: Wrong) -> None:
    known = _TABLES[table]
    for name, value in values.items():
        key = f"{table}.{name}"
        if name not in known:
            wrong(key, "unknown setting", did_you_mean(name, known) or f"known are {', '.join(known)}")
        elif name == "max_bytes":
            if not isinstance(value, int) or isinstance(value, bool) or value < 1024:
                wrong(key, "must be a number from 1024 on", "")
            given[key] = value
        elif table == "servers":
            given[key] = _seconds(value, key, wrong)
        else:
            given[key] = _texts(value, key, wrong)
            if key == "http.private":
                _check_networks(given[key], key, wrong)


def _check_pattern(pattern: str, key: str, wrong: Wrong) -> None:
    """Every id has a colon: a pattern that can have none fits nothing, and a `deny` would deny nothing."""
    if not set(":*?[") & set(pattern):
        server, _, tool = pattern.partition("__")
        wrong(key, f"{pattern!r} fits no tool", f"write SERVER:TOOL, such as {server}:{tool or '*'}")


def _check_networks(entries: Sequence[str], key: str, wrong: Wrong) -> None:
    for one in entries:
        if "/" in one:
            try:
                ip_network(one)
            except ValueError as error:
                wrong(key, f"{one!r} is not a network: {error}", "write host, host:port or 10.0.0.0/8")


def _texts(value: Any, where: str, wrong: Wrong) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(one, str) and one for one in value):
        return tuple(value)
    wrong(where, "must be a list of texts", 'write ["git:*", "files:read"]' if "." not in where else "")
    return ()


def _one_of(value: Any, known: Sequence[str], where: str, wrong: Wrong) -> Any:
    if value not in known:
        hint = did_you_mean(value, known) if isinstance(value, str) else ""
        wrong(where, f"{value!r} is none of {', '.join(known)}", hint)
    return value


def _seconds(value: Any, where: str, wrong: Wrong) -> float:
    length = seconds(value) if isinstance(value, str) else value
    if isinstance(length, int | float) and not isinstance(length, bool) and length > 0:
        return float(length)
    wrong(where, f"{value!r} is not a duration", f"write {EXAMPLES}")
    return 0.0


def combined(layers: Sequence[Given]) -> ToolsTable:
    """What several files say together, the one that counts most last."""
    found: Given = {}
    for layer in layers:
        for key, value in layer.items():
            if key in _ADDED_UP:
                found[key] = tuple(dict.fromkeys((*found.get(key, ()), *value)))
            elif isinstance(value, dict):
                found[key] = {**found.get(key, {}), **value}
            else:
                found[key] = value
    rules = {key: found[key] for key in (*_LISTS, "effects", "timeouts") if key in found}
    named = {
        "pinning": "pinning", "files.roots": "roots", "http.allow": "hosts", "http.deny": "no_hosts",
        "http.private": "private", "shell.commands": "commands", "sources": "files",
    }  # fmt: skip
    rest = {name: found[key] for key, name in named.items() if key in found}
    servers = {key.removeprefix("servers."): found[key] for key in found if key.startswith("servers.")}
    return ToolsTable(rules=Rules(**rules), servers=servers, **rest)
