"""What is wrong with a definition, gathered before anyone is told.

A finding knows its place as a path into the definition (`("steps", 3, "retry")`); whoever
read the definition from a text knows which line that is. Nothing here finds anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Final, NamedTuple

from penstock.errors import DefinitionError, Problem
from penstock.workflow.spec import Step, Workflow

Place = tuple[str | int, ...]
Locate = Callable[[Place], tuple[str, int, int]]
"""A path into the definition to its file, line and column; line 0 when it has none."""

SHOWN: Final = 50
"""Problems listed; the rest are counted."""

COMPARED: Final = 2_000
LIKE: Final = 3
"""A nearest name is looked for among this many, this close in length: comparing is slow."""

_SECTIONS: Final = {"name": 0, "inputs": 1, "config": 2, "reducers": 3, "steps": 4, "outputs": 5}
_PLAIN: Final = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)
_PART: Final = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


class Finding(NamedTuple):
    path: Place
    message: str
    hint: str = ""


class Findings:
    """Everything found so far, and the one exception made of it."""

    def __init__(self, steps: Callable[[int], Step]) -> None:
        self._steps = steps
        self._found: list[Finding] = []

    @classmethod
    def of(cls, workflow: Workflow) -> Findings:
        return cls(workflow.steps.__getitem__)

    def __len__(self) -> int:
        return len(self._found)

    def add(self, path: Place, message: str, hint: str = "") -> None:
        self._found.append(Finding(path, message, hint))

    def take(self, other: Findings, first: int, place: Place) -> None:
        """Add the findings of `other` about its steps from `first` on, which stand at `place` here."""
        for path, message, hint in other._found:
            if len(path) > 1 and isinstance(path[1], int):
                self.add((*place, path[1] - first, *path[2:]), message, hint)

    def near(self, word: str, known: Iterable[str]) -> str:
        """A hint that names the nearest known word, or nothing. Silent once no one will read it."""
        return "" if len(self._found) >= SHOWN else did_you_mean(word, known)

    def problems(self, locate: Locate | None = None) -> list[Problem]:
        """In the order of the definition, at most `SHOWN`, with a place where one is known."""
        found = sorted(self._found, key=_position)
        shown = [self._problem(finding, locate) for finding in found[:SHOWN]]
        shown.sort(key=lambda problem: (problem.line, problem.column))
        if more := len(found) - len(shown):
            shown.append(Problem(f"and {more:,} more problem{'s' if more > 1 else ''}"))
        return shown

    def check(self, locate: Locate | None = None) -> None:
        """Raise if anything was found."""
        if self._found:
            raise DefinitionError(self.problems(locate))

    def _problem(self, finding: Finding, locate: Locate | None) -> Problem:
        file, line, column = locate(finding.path) if locate else ("", 0, 0)
        where = self._where(finding.path)
        return Problem(finding.message, finding.hint, where=where, file=file, line=line, column=column)

    def _where(self, path: Place) -> str:
        """`("steps", 3, "with", "notes", 0)` as `steps.fetch.with.notes[0]`."""
        text = ""
        for depth, part in enumerate(path):
            if depth == 1 and path[0] == "steps" and isinstance(part, int):
                name = str(getattr(self._steps(part), "id", ""))
                text += f".{name}" if _PLAIN.fullmatch(name) else f"[{part}]"
            elif isinstance(part, int):
                text += f"[{part}]"
            else:
                text += f".{part}" if text else part
        return text


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint that names the nearest known word, or nothing."""
    alike = (name for name in known if abs(len(name) - len(word)) <= LIKE)
    found = get_close_matches(word, islice(alike, COMPARED), n=1)
    return f"did you mean {found[0]!r}?" if found else ""


def below(path: Place, inner: str) -> Place:
    """The path with `notes[0].text` added to it."""
    return path + tuple(int(n) if n else name for n, name in _PART.findall(inner))


def _position(finding: Finding) -> tuple[int, int]:
    path = finding.path
    section = _SECTIONS.get(str(path[0]), 6) if path else -1
    second = path[1] if len(path) > 1 else 0
    return section, second if isinstance(second, int) else 0
