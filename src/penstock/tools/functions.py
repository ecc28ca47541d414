"""Python functions as tools: the signature is the schema.

`@tool` only notes what cannot be seen in the signature; the function stays an ordinary
function. Coroutine functions are awaited, plain ones run in a thread.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, TypeVar, overload

import msgspec

from penstock.errors import UnknownTool
from penstock.ids import ToolId
from penstock.tools.base import Sketch, Task, Tool
from penstock.workflow.findings import did_you_mean
from penstock.workflow.spec import Effect

F = TypeVar("F", bound=Callable[..., Any])
LOCAL = "local"
"""The server name of functions that are registered without one."""

_NOTE = "__penstock_tool__"


@dataclass(frozen=True, slots=True)
class Note:
    """What `@tool` remembers on a function."""

    id: str = ""
    effect: Effect = "write"
    duration: float | None = None


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(*, id: str = ..., effect: Effect = ..., duration: float | None = ...) -> Callable[[F], F]: ...
def tool(
    function: F | None = None, /, *, id: str = "", effect: Effect = "write", duration: float | None = None
) -> F | Callable[[F], F]:
    """Say what a function's signature cannot: its id, its effect class, how long it usually takes.

    Effect classes: `read` changes nothing; `idempotent` may be repeated; `write` must not be
    repeated blindly (the default); `destructive` should be approved by a person.
    """

    def note(fn: F) -> F:
        setattr(fn, _NOTE, Note(id, effect, duration))
        return fn

    return note if function is None else note(function)


def tool_of(function: Callable[..., Any], *, id: str = "") -> Tool:
    """The tool that a function is."""
    note: Note = getattr(function, _NOTE, None) or Note()
    name = getattr(function, "__name__", type(function).__name__)
    own = id or note.id or f"{LOCAL}:{name}"
    parameters, wants = _parameters(function)
    return Tool(
        id=ToolId(own if ":" in own else f"{LOCAL}:{own}"),
        call=function,
        effect=note.effect,
        blocking=not inspect.iscoroutinefunction(function),
        description=(inspect.getdoc(function) or "").partition("\n\n")[0],
        input_schema=_schema(parameters),
        wants_task=wants,
        duration=note.duration,
        convert=_converter(parameters),
    )


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    hint: Any
    required: bool
    rest: bool = False
    """`**kwargs`: takes any name."""


def _parameters(function: Callable[..., Any]) -> tuple[list[Parameter], str]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return [Parameter("kwargs", Any, required=False, rest=True)], ""
    hints = _hints(function) if signature.parameters else {}
    found, wants = [], ""
    for p in signature.parameters.values():
        hint = hints.get(p.name, Any)
        if hint is Task:
            wants = p.name
        elif p.kind is p.VAR_KEYWORD:
            found.append(Parameter(p.name, Any, required=False, rest=True))
        elif p.kind is not p.VAR_POSITIONAL:
            found.append(Parameter(p.name, hint, required=p.default is p.empty))
    return found, wants


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return inspect.get_annotations(inspect.unwrap(function), eval_str=True)
    except Exception:  # noqa: BLE001 - a hint that cannot be evaluated is a hint we do without
        return {}


def _schema(parameters: Sequence[Parameter]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    for p in parameters:
        if not p.rest:
            one = _hint_schema(p.hint)
            defined = one.pop("$defs", {})  # references are to the root of what they stand in
            clash = any(shared.get(name, kind) != kind for name, kind in defined.items())
            properties[p.name] = {} if clash else one
            shared |= {} if clash else defined
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if shared:
        schema["$defs"] = shared
    required = [p.name for p in parameters if p.required]
    if required:
        schema["required"] = required
    if not any(p.rest for p in parameters):
        schema["additionalProperties"] = False
    return schema


def _hint_schema(hint: Any) -> dict[str, Any]:
    if hint is Any:
        return {}
    try:
        return msgspec.json.schema(hint)
    except Exception:  # noqa: BLE001 - any type msgspec does not know takes any value
        return {}


def _converter(parameters: Sequence[Parameter]) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
    """Turn JSON arguments into what the hints ask for, or None when there is nothing to turn."""
    hints = {p.name: p.hint for p in parameters if p.hint is not Any and _convertible(p.hint)}
    if not hints:
        return None

    def convert(args: dict[str, Any]) -> dict[str, Any]:
        for name, hint in hints.items():
            if name in args:
                try:
                    args[name] = msgspec.convert(args[name], hint, dec_hook=_make)
                except msgspec.ValidationError as error:
                    msg = f"argument {name}: {error}"
                    raise ValueError(msg) from None
        return args

    return convert


def _convertible(hint: Any) -> bool:
    """Whether JSON can be made into what the hint asks for; otherwise the value is passed as it is."""
    try:
        found = msgspec.inspect.type_info(hint)
    except Exception:  # noqa: BLE001 - any complaint means the same: not a type that can be made
        return False
    parts = found.types if isinstance(found, msgspec.inspect.UnionType) else (found,)
    return all(not isinstance(part, msgspec.inspect.CustomType) or _is_path(part.cls) for part in parts)


def _is_path(kind: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, PurePath)


def _make(kind: type, value: Any) -> Any:
    """The one type that is not JSON's and that everyone expects: a path."""
    if _is_path(kind) and isinstance(value, str):
        return kind(value)
    return value


def complaints(tool: Tool, given: Iterable[str]) -> list[tuple[str, str, str]]:
    """What is wrong with the names of these arguments: (argument, message, hint)."""
    properties: Mapping[str, Any] = tool.input_schema.get("properties", {})
    given = set(given)
    wrong = []
    if tool.input_schema.get("additionalProperties") is False:
        wrong += [
            (name, f"{tool.id} takes no argument {name!r}", did_you_mean(name, properties))
            for name in sorted(given - set(properties))
        ]
    wrong += [
        ("", f"{tool.id} needs the argument {name!r}", "")
        for name in tool.input_schema.get("required", ())
        if name not in given
    ]
    return wrong


class Functions:
    """A catalog of Python functions: registered ones by id, the rest by `py:module:function`."""

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self.version = 0
        """Counts what was added: functions do not change."""
        self._given: weakref.WeakKeyDictionary[Callable[..., Any], Tool] = weakref.WeakKeyDictionary()
        for each in tools:
            self.add(each)

    def add(self, function: Tool | Callable[..., Any]) -> Tool:
        found = function if isinstance(function, Tool) else tool_of(function)
        self._tools[found.id] = found
        self.version += 1
        return found

    def ids(self) -> Sequence[str]:
        return list(self._tools)

    def sketches(self) -> Sequence[Sketch]:
        return [Sketch(one.id, one.description, one.input_schema) for one in list(self._tools.values())]

    def of(self, function: Callable[..., Any], uses: str) -> Tool:
        """The tool that a function given in Python is; the same function is the same tool."""
        try:
            found = self._given.get(function)
        except TypeError:  # not hashable
            return tool_of(function, id=uses)
        if found is None:
            found = tool_of(function, id=uses)
            with contextlib.suppress(TypeError):  # not every callable can be referred to weakly
                self._given[function] = found
        return found

    def find(self, uses: str, *, folder: str | None = None, changed: bool = False) -> Tool:  # noqa: ARG002 - the port's; a function is always what it was
        if uses.startswith("py:"):
            return tool_of(_import(uses, folder), id=uses)
        try:
            return self._tools[uses]
        except KeyError:
            raise UnknownTool(uses, did_you_mean(uses, self._tools)) from None


def _import(uses: str, folder: str | None) -> Callable[..., Any]:
    """Find `py:module:function`. The workflow file's folder is importable, and looked in first."""
    module_name, _, qualname = uses.removeprefix("py:").partition(":")
    module = _module(uses, module_name, folder)
    found: Any = module
    for part in qualname.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            names = [name for name in vars(module) if not name.startswith("_")]
            hint = did_you_mean(part, names) or f"{module_name} has no {part!r}"
            raise UnknownTool(uses, hint) from None
    if not callable(found):
        raise UnknownTool(uses, f"{qualname!r} is not a function")
    result: Callable[..., Any] = found
    return result


def _module(uses: str, name: str, folder: str | None) -> types.ModuleType:
    try:
        return _beside(name, Path(folder)) if folder else importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            hint = f"no module {error.name!r} beside the workflow or installed"
            raise UnknownTool(uses, hint) from None
        raise UnknownTool(uses, f"importing {name} failed: {error}") from error
    except Exception as error:
        raise UnknownTool(uses, f"importing {name} failed: {type(error).__name__}: {error}") from error


def _beside(name: str, folder: Path) -> types.ModuleType:
    """Import a module with a folder first on the path.

    Two workflows in different folders may each have a `steps.py`: the second one is loaded
    under a name of its own.
    """
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    known = sys.modules.get(name)
    file = folder / f"{name}.py"
    if known is None or not file.is_file() or Path(known.__file__ or "") == file:
        importlib.invalidate_caches()
        return importlib.import_module(name)
    alias = f"{name}@{folder}"
    if alias not in sys.modules:
        spec = importlib.util.spec_from_file_location(alias, file)
        assert spec is not None  # noqa: S101 - a .py file always has one
        assert spec.loader is not None  # noqa: S101
        module = sys.modules[alias] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[alias]
            raise
    return sys.modules[alias]
