# ruff: noqa: INP001 - a script, not part of a package
"""Writes the parts of the documentation that the code already says: the reference, tables, the picture.

    python docs/generate.py            write them
    python docs/generate.py --check    name the stale ones, and fail if there are any

Whole files come from `FILES`. In pages written by hand, what stands between
`<!-- generated: NAME -->` and `<!-- end -->` comes from `REGIONS`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from generator import file_format
from generator.markdown import NOTE, code, fenced, paragraphs, table, wrapped
from generator.source import Shape, attributes, mentioned, shape

import penstock
from penstock import errors as all_errors
from penstock.cli import exits
from penstock.run import commands, events
from penstock.workflow import draw, sites
from penstock.workflow.read import load, loads

DOCS = Path(__file__).resolve().parent
STARTED_FOR_YOU = ("Penstock", "RunHandle")
"""Classes that nobody makes by calling them."""

CONCLUDING = tuple(f"run.{name}" for name in ("decide", "accept", "asking", "choosing", "gating", "points"))
"""Modules that make events."""


# --- the Python API -----------------------------------------------------------------------------


def api() -> str:
    intro = (
        "Everything that `import penstock as ps` offers. Names that are not listed here may change without "
        "notice. The exception is `penstock.testing`: see [Test a workflow](../howto/test-a-workflow.md)."
    )
    homes: dict[str, str] = vars(penstock)["_HOMES"]
    parts = [_entry(name, *homes[name].partition(":")[::2]) for name in sorted(penstock.__all__)]
    return paragraphs(NOTE, "# Python API", wrapped(intro), *parts)


def _entry(name: str, module: str, original: str) -> str:
    one = shape(module, original or name, name)
    signature = one.signature.replace(original, name) if original else one.signature
    call = fenced(signature) if signature and name not in STARTED_FOR_YOU else ""
    rows = [(code(f.name), code(f.type), code(f.default), f.about) for f in one.fields]
    fields = table("field | type | default | meaning", rows) if rows else ""
    also = "Also `id` and `by`, as in [every command](commands.md)." if module == "run.commands" else ""
    members = [_member(name, method) for method in one.methods]
    return paragraphs(f"## `{name}`", call, one.about, fields, also, _properties(one), *members)


def _properties(one: Shape) -> str:
    rows = [
        (code(p.name), code(p.signature.partition(" -> ")[2]), " ".join(p.about.split()))
        for p in one.properties
    ]
    return table("property | type | meaning", rows) if rows else ""


def _member(owner: str, method: Shape) -> str:
    return paragraphs(f"### `{owner}.{method.name}`", fenced(method.signature), method.about)


# --- events and commands ------------------------------------------------------------------------


def _structs(union: Any, module: str) -> dict[str, tuple[Any, Shape]]:
    """By wire name."""
    return {str(kind.__struct_config__.tag): (kind, shape(module, kind.__name__)) for kind in union.__args__}


def _emitted(kind: type) -> bool:
    return kind.__name__ in mentioned(*CONCLUDING)


def event_list() -> str:
    """One line for each event, with the names of its fields."""
    rows = []
    for wire, (kind, one) in _structs(events.Event, "run.events").items():
        fields = ", ".join(code(f.name) for f in one.fields) or "–"
        link = f"[`{wire}`](../reference/events.md#{wire})"
        rows.append((link, kind.level, fields, "" if _emitted(kind) else "later"))
    return table("event | level | fields | today", rows)


def event_reference() -> str:
    intro = (
        "Each event has `seq`, its number within the run, and `at`, seconds since the epoch. On the wire "
        "(`penstock run --json`) it also has `type`, `run_id` and `level`, `at` is a time in ISO 8601, and "
        "a field that has its default is left out. What events are for: [Event](../concepts/event.md). "
        "In Python the classes are in `penstock.run.events`."
    )
    parts = []
    for wire, (kind, one) in _structs(events.Event, "run.events").items():
        head = f"`{kind.__name__}`, level {kind.level}."
        later = "" if _emitted(kind) else "Not emitted by this version."
        parts.append(paragraphs(f"## `{wire}`", f"{head} {later}".strip(), one.about, _rows(one)))
    return paragraphs(NOTE, "# Events", wrapped(intro), *parts)


def command_reference() -> str:
    intro = (
        "Each command may have `id` (the same id sent twice is one command; without one the engine gives "
        "it one) and `by` (who asks, for the record). How to send them: "
        "[Steer a live run](../howto/steer-a-live-run.md)."
    )
    parts = []
    for wire, (kind, one) in _structs(commands.Command, "run.commands").items():
        package = "ps" if kind.__name__ in penstock.__all__ else "penstock.run.commands"
        head = f"`{package}.{kind.__name__}`"
        parts.append(paragraphs(f"## `{wire}`", head, one.about, _rows(one)))
    return paragraphs(NOTE, "# Commands", wrapped(intro), *parts)


def _rows(one: Shape) -> str:
    rows = [(code(f.name), code(f.type), code(f.default) or "required", f.about) for f in one.fields]
    return table("field | type | default | meaning", rows) if rows else "No fields of its own."


# --- errors and names ---------------------------------------------------------------------------


def errors() -> str:
    intro = (
        "Every exception that Penstock raises on purpose. Those of the public API are marked *ps*; the "
        "others are in `penstock.errors`. A failed step is not an exception, and neither is a failed run: "
        "`Result.check()` makes one of it when you want that."
    )
    drawn, _, rest = str(all_errors.__doc__).partition("\n\n")[2].partition("\n\n")
    names = re.findall(r"^\W*([A-Z]\w+)", drawn, re.MULTILINE)
    problem = shape("errors", "Problem")
    rows = [(code(f.name), code(f.type), f.about) for f in problem.fields]
    last = paragraphs("## `Problem`", problem.about, table("field | type | meaning", rows))
    parts = [_error(name, getattr(all_errors, name)) for name in names]
    return paragraphs(NOTE, "# Errors", wrapped(intro), fenced(drawn), rest.strip(), *parts, last)


def _error(name: str, kind: type) -> str:
    public = " *ps*" if name in penstock.__all__ else ""
    carried = ", ".join(map(code, attributes("errors", name)))
    refused = issubclass(kind, exits._REFUSED)  # noqa: SLF001 - the one list of them
    told = f"On the command line: exit code {exits.USAGE if refused else exits.FAILED}."
    return paragraphs(
        f"## `{name}`{public}", shape("errors", name).about, f"Carries {carried}." if carried else "", told
    )


def names_in_scope() -> str:
    """Which names an expression may use, by the place where it stands."""
    places = {
        "`when`, `for_each`": sites.BEFORE,
        "`with`": sites.ARGS | {"item"},
        "`set`, gates": sites.AFTER,
        "routing": sites.ROUTING,
        "`outputs`, rules": sites.ENDED,
    }
    known = sorted(frozenset[str]().union(*places.values()))
    rows = [(code(name), *("yes" if name in names else "" for names in places.values())) for name in known]
    return table("name | " + " | ".join(places), rows)


# --- putting it where it belongs ----------------------------------------------------------------


def picture() -> str:
    graph = load(DOCS.parent / "examples" / "newsroom" / "newsroom.yaml").graph
    return draw.svg(graph).rstrip("\n") + "\n"


def drawn(page: str, name: str) -> str:
    """The picture of a workflow that stands in a page."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(
        rf"<!-- file: {re.escape(name)} -->\n```yaml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE
    )
    if found is None:
        raise SystemExit(f"{page} has no file {name}")
    return draw.svg(loads(found[1], page).graph)


FILES: dict[str, Callable[[], str]] = {
    "reference/api.md": api,
    "reference/file-format.md": file_format.page,
    "reference/events.md": event_reference,
    "reference/commands.md": command_reference,
    "reference/errors.md": errors,
    "images/newsroom.svg": picture,
    "images/paper.svg": partial(drawn, "concepts/route.md", "paper.yaml"),
}
REGIONS: dict[str, Callable[[], str]] = {
    "events": event_list,
    "names": names_in_scope,
}

_REGION = re.compile(r"(<!-- generated: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def wanted() -> dict[Path, str]:
    """Every file that this script has a say in, as it should be."""
    files = {DOCS / name: make().rstrip("\n") + "\n" for name, make in FILES.items()}
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if page not in files and _REGION.search(text):
            files[page] = _REGION.sub(lambda found: f"{found[1]}{REGIONS[found[2]]()}\n{found[4]}", text)
    return files


def main(arguments: list[str]) -> int:
    stale = False
    for path, text in wanted().items():
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale = True
        sys.stdout.write(f"{path.relative_to(DOCS.parent)}\n")
        if "--check" not in arguments:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
