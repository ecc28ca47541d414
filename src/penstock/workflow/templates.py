"""Templates: groups of steps that are copied once for each value of a variable, before anything is read.

    templates:
      round:
        - {id: draft, uses: agent:writer, with: {notes: "${ steps.audit[n-1].output }", round: "${ n }"}}
        - {id: audit, uses: agent:critic, with: {text: "${ steps.draft.output }"}}
    steps:
      - expand: round
        for: {n: [1, 2, 3]}
    outputs: {verdict: "${ steps.audit[3].output }"}

The rules:

1. `expand: NAME` stands for the template's steps, once for each combination of the values under
   `for` (the first variable changes slowest); without `for`, once. Values are text, numbers,
   true or false. Templates do not nest.
2. The copy of `draft` for n = 2 is `draft_2`. The id may also be written out, `draft_${ n }`, with
   every variable in it. Characters of a value that an id cannot have become `_`.
3. A variable in an expression is replaced by its value. `${ n }`, `${ n-1 }` and `${ n+1 }` alone
   are replaced as a whole: a text that is nothing else takes the value's type.
4. Inside a template, a step of the same template (`steps.draft`, `previous.draft`, in `needs`, as
   a route's target) is the one of the same copy. `draft[n-1]`, `draft[2]` or `draft[n, 'x']` (an
   index for each variable) is the one of another copy, or else the step that is so called
   (`draft_0`) elsewhere in the file.
5. Outside, `steps.draft[2]` and `draft[2]` work too, with constants; so does the id, `draft_2`.
6. Beyond the first or last copy, `n-1` and `n+1` give `null` in expressions and nothing in `needs`.
   A reference that has no step in any copy is an error, as is one by constants that has none.

Only nodes are copied; what their keys mean is known just as far as these rules say.
"""

from __future__ import annotations

import itertools
import math
import re
from typing import Final, NamedTuple

from penstock.workflow.copies import Copy, Parts, Scalar, Steps, part_of
from penstock.workflow.names import ROOTS, did_you_mean
from penstock.workflow.nodes import Node, describe
from penstock.workflow.problems import Problems

MAX_STEPS: Final = 100_000
"""Steps of a workflow in which templates are used, all copies counted."""

_VARIABLE: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PLACEHOLDER: Final = re.compile(r"\$\{\s*([^}]*?)\s*\}")
_TAKEN: Final = frozenset((*ROOTS, "true", "false", "null", "in", "has", "coalesce", "size"))
"""Names that already mean something in expressions."""


class _Use(NamedTuple):
    """One `expand`: the template's steps and the values to copy them for."""

    steps: list[Node]
    variables: tuple[str, ...]
    values: tuple[tuple[Scalar, ...], ...]

    @property
    def size(self) -> int:
        return len(self.steps) * math.prod(map(len, self.values))


def expand(root: Node, problems: Problems) -> Node:
    """The document with every `expand` replaced by its steps; the same node when there is none."""
    steps = root.value.get("steps") if root.kind == "map" else None
    if steps is None or steps.kind != "list":
        return root
    expands = [step.kind == "map" and "expand" in step.value for step in steps.value]
    if "templates" not in root.value and not any(expands):
        return root
    templates = _templates(root.value.get("templates"), problems)
    plan = [
        _use(step, templates, problems) if uses else step
        for step, uses in zip(steps.value, expands, strict=True)
    ]
    size = sum(part.size if isinstance(part, _Use) else 1 for part in plan if part is not None)
    if size > MAX_STEPS:
        problems.add(steps, f"templates unroll to {size:,} steps", f"the most is {MAX_STEPS:,}")
        plan = [part for part in plan if isinstance(part, Node)]
    unrolled = Node("list", [], steps.line, steps.column)
    fields = {key: part for key, part in root.value.items() if key != "templates"} | {"steps": unrolled}
    rest = _unroll(plan, unrolled.value, problems)
    fields |= {key: rest.node(fields[key], key) for key in ("config", "outputs") if key in fields}
    return Node("map", fields, root.line, root.column, root.keys)


def _unroll(plan: list[_Use | Node | None], into: list[Node], problems: Problems) -> Copy:
    """Put the steps into the list; returns the copy that stands for the rest of the file."""
    written = {_text(part, "id") for part in plan if isinstance(part, Node)}
    steps = Steps(written, problems)
    copies = [_copies(part, steps, problems) if isinstance(part, _Use) else [] for part in plan]
    rest = Copy({}, {}, steps, problems)
    for part, made in zip(plan, copies, strict=True):
        if isinstance(part, Node):
            into.append(rest.node(part))
        elif part is not None:
            for variables, names in made:
                copy = Copy(variables, names, steps, problems)
                into.extend(_step(step, copy, names) for step in part.steps)
    steps.complain()
    return rest


def _copies(use: _Use, steps: Steps, problems: Problems) -> list[tuple[dict[str, Scalar], dict[str, str]]]:
    """For each copy: its variables, and the id that each of the template's names has in it."""
    for step in use.steps:
        _check_id(step.value["id"], use.variables, problems)
    made = []
    for values in itertools.product(*use.values):
        parts = tuple(map(part_of, values))
        variables = dict(zip(use.variables, values, strict=True))
        names: dict[str, str] = {}
        for step in use.steps:
            name = _local_name(step)
            names[name] = _id(_text(step, "id"), variables, parts)
            steps.add(name, parts, names[name])
        made.append((variables, names))
    return made


def _check_id(node: Node, variables: tuple[str, ...], problems: Problems) -> None:
    placed = _PLACEHOLDER.findall(node.value)
    for name in placed:
        if name not in variables:
            known = did_you_mean(name, variables) or f"the variables are {', '.join(variables) or 'none'}"
            problems.add(node, f"{name!r} is not a variable of this template's 'for'", known)
    missing = [name for name in variables if name not in placed]
    if placed and missing:
        hint = f"put ${{ {missing[0]} }} into it, or leave all variables out"
        problems.add(node, f"copies would share the id: it does not contain {missing[0]!r}", hint)


def _id(text: str, variables: dict[str, Scalar], parts: Parts) -> str:
    if not _PLACEHOLDER.search(text):
        return "_".join((text, *parts))
    return _PLACEHOLDER.sub(lambda match: part_of(variables.get(match[1], "")), text)


def _local_name(step: Node) -> str:
    """What a step is called in its template: its id without the variables."""
    return re.sub(r"_?\$\{[^}]*\}", "", _text(step, "id"))


def _step(step: Node, copy: Copy, names: dict[str, str]) -> Node:
    copied = copy.node(step)
    old: Node = step.value["id"]
    copied.value["id"] = Node("scalar", names[_local_name(step)], old.line, old.column)
    return copied


def _templates(node: Node | None, problems: Problems) -> dict[str, list[Node] | None]:
    """The steps of each template; None for one that is not usable, its problems being known."""
    if node is None:
        return {}
    if node.kind != "map":
        problems.add(node, f"expected a map, found {describe(node)}", "write {name: [steps]}")
        return {}
    return {name: _template(part, problems) for name, part in node.value.items()}


def _template(node: Node, problems: Problems) -> list[Node] | None:
    steps = node
    if node.kind == "map":
        for key in node.value:
            if key != "steps":
                problems.add(node, f"unknown key {key!r}", "a template has only 'steps'", key=key)
        steps = node.value.get("steps", node)
    if steps.kind != "list" or not steps.value:
        problems.add(steps, f"expected a list of steps, found {describe(steps)}", "write {steps: [...]}")
        return None
    good = [_template_step(step, problems) for step in steps.value]
    return steps.value if all(good) else None


def _template_step(step: Node, problems: Problems) -> bool:
    if step.kind == "map" and "expand" in step.value:
        problems.add(step, "a template cannot use a template", "write its steps here", key="expand")
    elif not _text(step, "id"):
        problems.add(step, "a step of a template needs an 'id'", "write {id: name, uses: server:tool}")
    else:
        return True
    return False


def _use(step: Node, templates: dict[str, list[Node] | None], problems: Problems) -> _Use | None:
    for key in step.value:
        if key not in ("expand", "for"):
            problems.add(
                step, f"{key!r} cannot stand beside 'expand'", "put it into the template's steps", key=key
            )
    name, node = _text(step, "expand"), step.value["expand"]
    if name not in templates:
        hint = did_you_mean(name, templates) or f"the templates are: {', '.join(templates) or 'none'}"
        problems.add(node, f"there is no template {name!r}" if name else "expected a template's name", hint)
        return None
    loop = step.value.get("for")
    if loop is None:
        variables: dict[str, tuple[Scalar, ...]] = {}
    elif loop.kind != "map" or not loop.value:
        problems.add(
            loop, f"expected a map of variables, found {describe(loop)}", "write for: {n: [1, 2, 3]}"
        )
        return None
    else:
        variables = {name: _values(name, part, problems) for name, part in loop.value.items()}
    steps = templates[name]
    if steps is None or not all(variables.values()):
        return None
    return _Use(steps, tuple(variables), tuple(variables.values()))


def _values(name: str, node: Node, problems: Problems) -> tuple[Scalar, ...]:
    """The values of one variable; empty when there is something wrong with it."""
    if not _VARIABLE.fullmatch(name) or name in _TAKEN:
        why = "already means something in expressions" if name in _TAKEN else "is not a name"
        problems.add(node, f"the variable {name!r} {why}", "choose another name, e.g. 'n'")
        return ()
    if node.kind != "list" or not node.value:
        problems.add(
            node, f"expected a list of values, found {describe(node)}", f"write {{{name}: [1, 2, 3]}}"
        )
        return ()
    for part in node.value:
        if part.kind != "scalar" or part.value is None or "${" in str(part.value):
            problems.add(
                part, f"expected a constant, found {describe(part)}", "use text, numbers, true or false"
            )
            return ()
    return tuple(part.value for part in node.value)


def _text(node: Node, key: str) -> str:
    """The text at a key, or nothing."""
    part = node.value.get(key) if node.kind == "map" else None
    return part.value if part is not None and isinstance(part.value, str) else ""
