"""The servers that a file such as `.mcp.json` names, as plain values.

Reads `mcpServers` as Claude and Cursor write it, and `servers` with `inputs` as VS Code does, also
with comments in it.
The variables it may use are given to it: it never looks at the environment. One entry that is
wrong is a problem of that entry; the others are still servers.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, get_args

from penstock.errors import Problem
from penstock.tools.mcp import jsonc
from penstock.workflow.durations import EXAMPLES, seconds
from penstock.workflow.findings import did_you_mean
from penstock.workflow.spec import Effect

OURS: Final = "x-penstock"
"""The one key under which an entry may say what only we understand."""

RESERVED: Final = frozenset({"agent", "data", "files", "http", "local", "py", "shell", "workflow"})
"""Names that stand for something else before the colon of a tool's id."""

LARGEST: Final = 5_000_000
"""Bytes of a configuration file; more than that is not one."""

SECTIONS: Final = ("mcpServers", "servers")
"""Where a file names its servers."""

_NAME: Final = re.compile(r"[^\s:/\\]+(?: [^\s:/\\]+)*")
_VARIABLE: Final = re.compile(r"\$\{(input:|env:)?([A-Za-z_][\w.-]*)(?::-([^}]*))?\}", re.ASCII)
_OURS_TO_READ: Final = ("args", "command", "cwd", "disabled", "env", "headers", "type", "url", OURS)
_OF_OTHERS: Final = frozenset(
    {
        "alwaysAllow", "autoApprove", "description", "dev", "displayName", "enabled", "gallery", "icon",
        "id", "name", "timeout", "trust", "version",
    }
)  # fmt: skip
"""Keys that are for other programs; nothing is missing when we do not read them."""
_KINDS: Final = {"stdio": "stdio", "http": "http", "streamable-http": "http", "streamableHttp": "http"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """How to reach one server, and what we think of it."""

    name: str
    command: str = ""
    """Empty for a server that is reached by `url`."""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str = ""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    effects: Mapping[str, Effect] = field(default_factory=dict)
    """Effect classes by tool; what is said here outweighs what the server says of itself."""
    start_timeout: float = 30.0
    timeout: float | None = None
    """Seconds for a call, where the caller sets no limit of its own."""
    idle: float = 600.0
    """Seconds without a call after which it is stopped; the next call starts it again."""
    max_bytes: int = 32 * 1024 * 1024
    """The largest message taken from it."""
    file: str = ""
    """Where its entry stands."""
    written: str = ""
    """Its command or address as it stands there: no variable is put in, so no secret is."""

    @property
    def fingerprint(self) -> str:
        """Changes when another program may answer. Secrets have no part in it."""
        parts = (self.command, *self.args, self.cwd, self.url, *sorted(self.env), *sorted(self.headers))
        return sha256(json.dumps(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Config:
    servers: Mapping[str, Server] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    """What is wrong with the rest, and what is only odd."""


def read_config(
    path: Path,
    variables: Mapping[str, str],
    inputs: Mapping[str, str] | None = None,
    *,
    defaults: Mapping[str, Any] | None = None,
) -> Config:
    """The servers of a file. A file that is not there names none.

    `defaults` are options of servers whose entry does not give them.
    """
    try:
        if path.stat().st_size > LARGEST:
            return Config(problems=(Problem(f"is larger than {LARGEST} bytes", file=str(path)),))
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return Config()
    except (OSError, UnicodeDecodeError) as error:
        return Config(problems=(Problem(f"cannot be read: {error}", file=str(path)),))
    return parse_config(text, variables, inputs, file=str(path), defaults=defaults)


def parse_config(
    text: str,
    variables: Mapping[str, str],
    inputs: Mapping[str, str] | None = None,
    *,
    file: str = "",
    defaults: Mapping[str, Any] | None = None,
) -> Config:
    """The servers that a text names, and everything that is wrong with it.

    `inputs` are the answers to VS Code's `${input:id}`; one without an answer takes the default
    that the file gives it.
    """
    try:
        whole = jsonc.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 0)
        column = getattr(error, "colno", 0)
        message = f"is not JSON: {getattr(error, 'msg', error)}"
        return Config(problems=(Problem(message, file=file, line=line, column=column),))
    if not isinstance(whole, dict):
        return Config(problems=(Problem("must be an object with mcpServers", file=file),))
    section = next((one for one in SECTIONS if one in whole), "")
    if not section:
        return Config(problems=_no_section(whole, file))
    entries = whole[section]
    if not isinstance(entries, dict):
        return Config(problems=(Problem("must be an object", where=section, file=file),))
    expand = _Expand(variables, {**_defaults(whole.get("inputs")), **(inputs or {})})
    servers: dict[str, Server] = {}
    problems = [*_given_twice(whole, "", file), *_given_twice(entries, f"{section}.", file)]
    for name, entry in entries.items():
        problems += _given_twice(entry, f"{section}.{name}.", file)
        found = _Entry(name, entry, f"{section}.{name}", file, expand, problems)
        server = found.server(defaults or {})
        if server is not None:
            servers[name] = server
    return Config(servers, tuple(problems))


def _no_section(whole: Mapping[str, Any], file: str) -> tuple[Problem, ...]:
    """A file with nothing in it names no servers; one with something in it was meant to."""
    if not whole:
        return ()
    meant = ((key, did_you_mean(key, [one])) for one in SECTIONS for key in whole)
    hint = next((f"{key!r}: {said}" for key, said in meant if said), "")
    return (Problem("has no mcpServers", hint, file=file),)


def _given_twice(found: Any, where: str, file: str) -> list[Problem]:
    names = found.twice if isinstance(found, jsonc.Object) else ()
    return [Problem("is given twice", "only the last one counts", f"{where}{name}", file) for name in names]


def _defaults(inputs: Any) -> dict[str, str]:
    """What VS Code would offer for an input that nobody has typed yet."""
    if not isinstance(inputs, list):
        return {}
    return {
        one["id"]: one["default"]
        for one in inputs
        if isinstance(one, dict) and isinstance(one.get("id"), str) and isinstance(one.get("default"), str)
    }


def input_variable(id: str) -> str:
    """The variable that answers VS Code's `${input:id}`: nobody is there to type it."""
    return f"PENSTOCK_INPUT_{re.sub(r'[^A-Za-z0-9]', '_', id).upper()}"


class _Expand:
    """`${VAR}` and `${VAR:-default}`; a bare `$VAR` is left alone, and so is what is not set."""

    def __init__(self, variables: Mapping[str, str], inputs: Mapping[str, str]) -> None:
        self._variables = variables
        self._inputs = inputs

    def __call__(self, text: str, missing: Callable[[str], None]) -> str:
        def value(match: re.Match[str]) -> str:
            kind, name, default = match.groups()
            if kind == "input:":
                found = self._inputs.get(name) or self._variables.get(input_variable(name))
            else:
                found = self._variables.get(name)
            if found:
                return found
            if default is not None:
                return default
            if found is None:
                missing(match.group())
                return match.group()
            return found

        return _VARIABLE.sub(value, text)


class _Entry:
    """One server of a file, taken apart."""

    def __init__(
        self, name: str, entry: Any, where: str, file: str, expand: _Expand, problems: list[Problem]
    ) -> None:
        self._name = name
        self._entry = entry if isinstance(entry, dict) else {}
        self._where = where
        self._file = file
        self._expand = expand
        self._problems = problems
        self._bad = False
        if not isinstance(entry, dict):
            self._complain("must be an object", "write {command: …} or {url: …}")

    def server(self, defaults: Mapping[str, Any]) -> Server | None:
        """The server, or None when it cannot be used."""
        entry = self._entry
        if not self._bad:
            self._check_name()
        if self._bad or entry.get("disabled") is True:
            return None
        self._check_keys()
        ours = entry.get(OURS, {})
        if not isinstance(ours, dict):
            self._complain(f"{OURS} must be an object")
            ours = {}
        kind = self._kind()
        found = Server(
            name=self._name,
            command=self._text("command") if kind == "stdio" else "",
            args=self._list("args") if kind == "stdio" else (),
            env=self._mapping("env") if kind == "stdio" else {},
            cwd=self._text("cwd") if kind == "stdio" else "",
            url=self._text("url") if kind == "http" else "",
            headers=self._mapping("headers") if kind == "http" else {},
            file=self._file,
            written=self._written(kind),
            **{**defaults, **self._options(ours)},
        )
        if kind == "http" and not self._bad and not re.match(r"https?://[^/\s]+", found.url):
            self._complain(f"{found.url!r} is not an address", "write https://host/path", key="url")
        return None if self._bad else found

    def _check_name(self) -> None:
        if not _NAME.fullmatch(self._name):
            self._complain(f"{self._name!r} is not a name", "use letters, digits, - and _")
        elif self._name in RESERVED:
            self._complain(f"{self._name!r} is the name of tools that come with Penstock", "rename it")

    def _kind(self) -> str:
        said = self._entry.get("type")
        if said == "sse":
            self._complain("the old SSE transport is not spoken", "use its streamable HTTP address")
        elif said is not None and said not in _KINDS:
            self._complain(f"{said!r} is not a type", "stdio or http", key="type")
        kind = _KINDS.get(said) if isinstance(said, str) else None
        kind = kind or ("http" if "url" in self._entry and "command" not in self._entry else "stdio")
        needed = "url" if kind == "http" else "command"
        if not self._bad and not self._entry.get(needed):
            self._complain(f"has no {needed}", "write {command: …} or {url: …}")
        return kind

    def _options(self, ours: Mapping[str, Any]) -> dict[str, Any]:
        options: dict[str, Any] = {}
        known = ("effects", "idle", "max_bytes", "start_timeout", "timeout")
        for key, value in ours.items():
            if key not in known:
                self._complain(f"unknown key {key!r}", did_you_mean(key, known), key=OURS)
            elif key == "effects":
                options[key] = self._effects(value)
            elif key == "max_bytes":
                options[key] = self._bytes(value)
            else:
                options[key] = self._seconds(key, value)
        return options

    def _bytes(self, value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1024:
            return value
        self._complain("max_bytes must be a number from 1024 on", key=OURS)
        return 0

    def _seconds(self, key: str, value: Any) -> float:
        length = seconds(value) if isinstance(value, str) else value
        if isinstance(length, int | float) and not isinstance(length, bool) and length > 0:
            return float(length)
        self._complain(f"{key}: {value!r} is not a duration", f"write {EXAMPLES}", key=OURS)
        return 0.0

    def _effects(self, value: Any) -> dict[str, Effect]:
        kinds = get_args(Effect)
        if isinstance(value, dict) and all(one in kinds for one in value.values()):
            return dict(value)
        self._complain("effects must map tools to effect classes", ", ".join(kinds), key=OURS)
        return {}

    def _text(self, key: str) -> str:
        value = self._entry.get(key, "")
        if isinstance(value, str) and "\0" not in value:
            return self._expanded(value, key)
        self._complain(f"{key} must be text", key=key)
        return ""

    def _list(self, key: str) -> tuple[str, ...]:
        value = self._entry.get(key, [])
        if isinstance(value, list) and all(isinstance(one, str) and "\0" not in one for one in value):
            return tuple(self._expanded(one, key) for one in value)
        self._complain(f"{key} must be a list of texts", key=key)
        return ()

    def _mapping(self, key: str) -> dict[str, str]:
        value = self._entry.get(key) or {}
        if isinstance(value, dict) and all(
            isinstance(one, str | int | float) and "\0" not in str(one) for one in value.values()
        ):
            return {name: self._expanded(str(one), key) for name, one in value.items()}
        self._complain(f"{key} must map names to texts", key=key)
        return {}

    def _expanded(self, text: str, key: str) -> str:
        def missing(name: str) -> None:
            hint = "it is left as it stands"
            if name.startswith("${input:"):
                hint = f"set {input_variable(name[8:-1])}; {hint}"
            self._warn(f"{name} is not set", hint, key=key)

        return self._expand(text, missing)

    def _check_keys(self) -> None:
        for key in self._entry:
            if key not in _OURS_TO_READ and key not in _OF_OTHERS:
                hint = did_you_mean(key, _OURS_TO_READ) or "it is not read"
                self._warn(f"unknown key {key!r}", hint)

    def _written(self, kind: str) -> str:
        if kind == "http":
            return str(self._entry.get("url", ""))
        args = self._entry.get("args")
        return shlex.join(
            [str(self._entry.get("command", "")), *map(str, args if isinstance(args, list) else [])]
        )

    def _complain(self, message: str, hint: str = "", *, key: str = "") -> None:
        self._bad = True
        self._warn(message, hint, key=key)

    def _warn(self, message: str, hint: str, *, key: str = "") -> None:
        where = f"{self._where}.{key}" if key else self._where
        self._problems.append(Problem(message, hint, where, self._file))
