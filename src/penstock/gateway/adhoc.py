"""Workflows that come from a caller: checked like a file, without what only files may do.

One call of a tool is a workflow too. Its arguments are the inputs of the run, so that all calls
of a tool share one definition, which is read and prepared once, and so that a text which happens
to hold `${` is a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.errors import DefinitionError, PenstockError
from penstock.tools.base import Catalog, Tool
from penstock.workflow import read
from penstock.workflow.foreign import barred, barred_steps
from penstock.workflow.read import Source
from penstock.workflow.spec import Step

NAME: Final = "ad-hoc"
"""The name of workflows that come from a caller."""

CALL: Final = "call"
"""The step of a workflow that is one call."""

ARGS: Final = "args"
"""Its input."""

KEPT: Final = 512
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Calls:
    """Workflows that are one call, ready to be run again."""

    def __init__(self, tools: Catalog) -> None:
        self._tools = tools
        self._known: dict[tuple[str, ...], tuple[Tool, Source]] = {}

    def flow(self, uses: str, names: Sequence[str], *, asked: bool = False) -> Source:
        """The workflow that calls a tool with arguments of these names, `asked` about first."""
        try:
            tool = self._tools.find(uses)
        except PenstockError:
            return _call(uses, names, asked)  # its server may not have been asked yet; else it is said later
        key = ("asked" if asked else "", uses, *names)
        known = self._known.get(key)
        if known is None or known[0] is not tool:  # a tool that changed is another one
            known = self._known[key] = (tool, _call(uses, names, asked))
            if len(self._known) > KEPT:
                del self._known[next(iter(self._known))]
        return known[1]


def _call(uses: str, names: Sequence[str], asked: bool) -> Source:
    step: dict[str, Any] = {"id": CALL, "uses": uses}
    if asked:
        step["approval"] = True
    if names:
        step["with"] = {name: f"${{ inputs.{ARGS}{_key(name)} }}" for name in names}
    return workflow([step], inputs={ARGS: {"type": "object"}})


def _key(name: str) -> str:
    return f".{name}" if _WORD.fullmatch(name) else f"[{json.dumps(name)}]"


def workflow(
    steps: Sequence[Any], *, per_layer: bool = False, inputs: Mapping[str, Any] | None = None
) -> Source:
    data: dict[str, Any] = {"name": NAME, "steps": list(steps)}
    if inputs:
        data["inputs"] = dict(inputs)
    if per_layer:
        data["config"] = {"ail": {"at": "per_layer", "decider": "external", "on_timeout": "wait"}}
    source = read.from_plain(data)
    if wrong := barred(source.workflow):
        raise DefinitionError(wrong)
    return source


def added(steps: Sequence[Any]) -> tuple[Step, ...]:
    """Steps for a run that exists: whether they fit it is for the run to say."""
    found = read.steps_from(list(steps), "replan")
    if wrong := barred_steps(found):
        raise DefinitionError(wrong)
    return found
