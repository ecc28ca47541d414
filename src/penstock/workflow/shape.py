"""Whether a definition is made of the types it claims.

What comes from a file has been read key by key; what comes from Python has not, and a
`timeout="30s"` must be a message rather than a crash ten modules later. Meaning is not
looked at here: that is `validate`.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from penstock.workflow.findings import Findings, Place, below
from penstock.workflow.spec import (
    Ail,
    Budget,
    Config,
    Gate,
    Input,
    Retry,
    Routing,
    Step,
    Workflow,
)

_AT: Final = re.compile(r"(.*?) - at `(?:key in )?\$\.?(.*)`", re.DOTALL)
_WORDS: Final = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a map",
    "null": "nothing",
}
_STEP_PARTS: Final[dict[str, Any]] = {"retry": Retry, "gate": Gate, "routing": Routing, "budget": Budget}
_CONFIG_PARTS: Final[dict[str, Any]] = {"ail": Ail, "budget": Budget, "gate": Gate, "retry": Retry}


def check_step(step: Step, place: Place, findings: Findings) -> bool:
    """Whether every field of a step is of its declared type."""
    if type(step) is not Step:
        findings.add(place, f"a step is expected, not {type(step).__name__}")
        return False
    return _check(step, Step, place, findings) and _check_parts(step, _STEP_PARTS, place, findings)


def check_rest(workflow: Workflow, findings: Findings) -> bool:
    """The same for everything in a workflow but its steps."""
    if not isinstance(workflow.steps, tuple):
        findings.add(("steps",), "the steps are not a tuple")
        return False
    before = len(findings)
    _check(msgspec.structs.replace(workflow, steps=()), Workflow, (), findings)
    _check_parts(workflow, {"config": Config}, (), findings)
    if len(findings) == before:
        _check_parts(workflow.config, _CONFIG_PARTS, ("config",), findings)
        for name, one in workflow.inputs.items():
            if not isinstance(one, Input):
                findings.add(("inputs", name), f"an input is expected, not {type(one).__name__}")
    return len(findings) == before


def _check(value: Any, kind: type, place: Place, findings: Findings) -> bool:
    try:
        msgspec.convert(msgspec.to_builtins(value), kind)
    except msgspec.ValidationError as error:
        message, inner = _parts(str(error))
        findings.add(below(place, inner), message)
    except RecursionError:
        findings.add(place, "nested too deep")
    except (TypeError, ValueError, NotImplementedError) as error:
        findings.add(place, f"holds something that is not JSON: {error}")
    else:
        return True
    return False


def _check_parts(value: Any, parts: dict[str, Any], place: Place, findings: Findings) -> bool:
    """A dict converts as well as the part it stands for, but has none of its attributes."""
    good = True
    for name, kind in parts.items():
        part = getattr(value, name)
        if part is not None and type(part) is not kind:
            findings.add((*place, name), f"{kind.__name__} is expected, not {type(part).__name__}")
            good = False
    return good


def _parts(error: str) -> tuple[str, str]:
    """``Expected `int`, got `str` - at `$.retry.backoff` `` as a sentence and `retry.backoff`."""
    found = _AT.fullmatch(error)
    message, inner = found.groups() if found else (error, "")
    message = re.sub(r"`([^`]*)`", lambda match: _in_words(match[1]), message)
    return message[:1].lower() + message[1:], inner.replace("[...]", "")


def _in_words(types: str) -> str:
    return " or ".join(_WORDS.get(one, one) for one in types.split(" | "))
