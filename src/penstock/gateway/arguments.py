"""Arguments of meta-tools, checked by the very schemas that clients are shown."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from penstock.gateway.definitions import DEFINITIONS
from penstock.workflow.findings import did_you_mean

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

MOST_COMPLAINTS = 5


def complaint(name: str, args: Mapping[str, Any]) -> str:
    """What is wrong with a call; empty when nothing is."""
    if name == "execute" and _one_call(args):
        return ""
    check = _checks().get(name)
    if check is None:
        known = [definition.name for definition in DEFINITIONS]
        return f"there is no tool {name!r}; {did_you_mean(name, known) or 'there are ' + ', '.join(known)}"
    errors = sorted(check.iter_errors(dict(args)), key=lambda error: list(map(str, error.absolute_path)))
    return "; ".join(_worded(error) for error in errors[:MOST_COMPLAINTS])


def _one_call(args: Mapping[str, Any]) -> bool:
    """Whether it is a tool and its arguments, which is what most calls are, and nothing else.

    Seen at a glance, while the schema takes longer than the rest of the gateway.
    """
    return (
        set(args) <= {"tool", "args"} and type(args.get("tool")) is str and type(args.get("args", {})) is dict
    )


def _worded(error: Any) -> str:
    place = ".".join(map(str, error.absolute_path))
    return f"{place}: {error.message}" if place else str(error.message)


@cache
def _checks() -> dict[str, Draft202012Validator]:
    from jsonschema import Draft202012Validator

    return {one.name: Draft202012Validator(dict(one.input)) for one in DEFINITIONS}
