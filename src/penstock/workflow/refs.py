"""What Python code holds in place of values that exist only in a run: references.

A reference is text that has not been written yet: `flow.input("folder").name` is
`${ inputs.folder.name }`. Nothing is looked up or checked here.
"""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn

from penstock.errors import DefinitionError, Problem
from penstock.ids import StepId

_FIELD: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_KEYWORDS: Final = frozenset(("true", "false", "null", "in"))
"""CEL does not take these after a dot."""


class Ref:
    """A value of the run. Attributes and indices reach into it; as text it is `${ … }`."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> Ref:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, key: str | int | Ref) -> Ref:
        if isinstance(key, Ref):
            return Ref(f"{self._path}[{key._path}]")  # noqa: SLF001 - of the same class
        if isinstance(key, str):
            plain = _FIELD.fullmatch(key) and key not in _KEYWORDS
            # Python's escapes of a text are CEL's too.
            return Ref(f"{self._path}.{key}" if plain else f"{self._path}[{key!r}]")
        if isinstance(key, int) and key >= 0:
            return Ref(f"{self._path}[{int(key)}]")
        raise DefinitionError(
            [Problem(f"{self._path} cannot be indexed with {key!r}", "use a name or 0, 1, 2 …")]
        )

    def __str__(self) -> str:
        return f"${{ {self._path} }}"

    def __repr__(self) -> str:
        return f"Ref({self._path!r})"

    def __iter__(self) -> NoReturn:
        message = f"{self._path} has no items before the run; give a step for_each"
        raise TypeError(message)

    def __bool__(self) -> NoReturn:
        message = f"{self._path} has no value before the run; give a step when='{self._path}'"
        raise TypeError(message)


class StepRef:
    """A step of a workflow that is being built. As an argument or as text it means its output."""

    __slots__ = ("id",)

    def __init__(self, id: StepId) -> None:
        self.id = id

    @property
    def output(self) -> Ref:
        return Ref(f"steps.{self.id}.output")

    @property
    def status(self) -> Ref:
        return Ref(f"steps.{self.id}.status")

    @property
    def error(self) -> Ref:
        return Ref(f"steps.{self.id}.error")

    @property
    def previous(self) -> Ref:
        """Its output in the last iteration of the loop; null the first time, and never a need."""
        return Ref(f"previous.{self.id}.output")

    def __str__(self) -> str:
        return str(self.output)

    def __repr__(self) -> str:
        return f"StepRef({self.id!r})"


def as_value(item: Any) -> Any:
    """References as the text of what they refer to, a step's output; anything else as it is."""
    return str(item) if isinstance(item, Ref | StepRef) else item


def as_name(item: Any) -> Any:
    """The same where steps are named rather than read: in routes and needs."""
    return item.id if isinstance(item, StepRef) else as_value(item)
