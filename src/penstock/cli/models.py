"""`penstock models`: which models there are and how they stand; `penstock models test` asks each of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import exits, stores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, RenderableType

    from penstock.models.assemble import Assembled
    from penstock.models.catalog import Catalog
    from penstock.models.report import ModelReport
    from penstock.settings import Settings

models = typer.Typer(rich_markup_mode=None, no_args_is_help=False, add_completion=False)

Json = Annotated[bool, typer.Option("--json", help="One JSON object for each model.")]

COLOURS = {"well": "green", "busy": "yellow", "limited": "yellow", "recovering": "yellow", "open": "red"}
WIDE = 1_000
"""Columns where nobody looks at a screen: a line is whole."""

PERIOD = 0.5
"""Seconds between two looks."""


@models.callback(invoke_without_command=True)
@exits.guarded
def show(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="Go on looking until Ctrl-C.")] = False,
    json: Json = False,
    store: stores.Url = "",
) -> None:
    """Show the models, how well they do, and which providers the environment names.

    What is found out about a model is shared by all processes that use the same store. Keys are never
    shown: only the names of the variables that they come from.
    """
    if context.invoked_subcommand is not None:
        return
    configuration, catalog = _configured(store)
    router = _router(configuration, catalog)
    try:
        if watch:
            _watch(router, json=json)
        elif json:
            _write(_all(router, catalog))
        else:
            _print(router)
            _print_found(router, catalog)
            if router.trouble:
                exits.say(f"nothing is shared with other processes: {router.trouble}")
    finally:
        _close(router)


@models.command("test")
@exits.guarded
def ask_each(
    model: Annotated[
        str,
        typer.Argument(
            help="Only this one, as provider/model; also one that no tier names.", metavar="MODEL"
        ),
    ] = "",
    within: Annotated[float, typer.Option(help="Seconds that each may take.", min=0.1)] = 30.0,
    json: Json = False,
    store: stores.Url = "",
) -> None:
    """Ask every model one small question, and say what came of it.

    A model whose key had been refused is used again once it answers here.
    """
    import asyncio

    configuration, catalog = _configured(store)
    router = _router(configuration, catalog)
    if model and (why := router.unknown(model=model)):
        _close(router)
        raise exits.Refused(why)
    names = [model] if model else [one.name for one in router.report()]

    async def go() -> list[dict[str, Any]]:
        try:
            asked = [router.test(name, within=within) for name in names]
            return [one.plain() for one in await asyncio.gather(*asked)]
        finally:
            await router.close()

    outcomes = asyncio.run(go())
    if json:
        _write(outcomes)
    else:
        for one in outcomes:
            print(_line(one))
    if any(not one["ok"] for one in outcomes):
        raise typer.Exit(exits.UPSTREAM)


def _configured(store: str) -> tuple[Settings, Catalog]:
    from penstock import settings

    return settings.read(store=store or None), settings.catalog()


def _router(configuration: Settings, catalog: Catalog) -> Assembled:
    from penstock.models.assemble import assemble
    from penstock.settings import models_file

    path = models_file(configuration)
    return assemble(configuration.models, catalog, path=path if path and path.parent.is_dir() else None)


def _close(router: Assembled) -> None:
    import asyncio

    asyncio.run(router.close())


# --- for programs ---


def _all(router: Assembled, catalog: Catalog) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{"type": "model", **one.plain()} for one in router.report()]
    rows += [{"type": "provider", **found.shown()} for found in catalog.found]
    rows += [{"type": "problem", "message": str(one)} for one in catalog.problems]
    return [*rows, {"type": "system", "system_health": router.system_health()}]


def _write(rows: list[dict[str, Any]]) -> None:
    from penstock.cli.outlets import json_line

    sys.stdout.buffer.writelines(map(json_line, rows))
    sys.stdout.flush()


# --- for people ---


def _screen(router: Assembled, console: Console) -> RenderableType:
    """All models in a table. On a narrow screen, what there is to say of each stands below it."""
    from rich.console import Group
    from rich.text import Text

    found = router.report()
    health = Text(f"system health {router.system_health():.0%}")
    wide = _table(found, notes=True)
    if console.measure(wide, options=console.options.update(width=WIDE)).maximum <= console.width:
        return Group(wide, health)
    told = [(one.name, ", ".join(filter(None, (_left(one), _note(one))))) for one in found]
    notes = [Text(f"{name}: {said}", "dim") for name, said in told if said]
    return Group(_table(found, notes=False), *notes, health)


def _table(found: Sequence[ModelReport], *, notes: bool) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    figures = ("success", "p50", "p95", "p99")
    for name in ("model", "tier", "status", *figures, *(("left", "note") if notes else ())):
        table.add_column(name, justify="right" if name in figures else "left", no_wrap=True)
    for one in found:
        table.add_row(
            one.name,
            ", ".join(one.tiers),
            Text(one.status, COLOURS.get(one.status, "dim")),
            f"{one.success:.0%}" if one.calls else "–",
            *(_seconds(figure) for figure in (one.p50, one.p95, one.p99)),
            *((_left(one), Text(_note(one), "dim")) if notes else ()),
        )
    return table


def _left(one: ModelReport) -> str:
    return ", ".join(f"{left:,.0f} of {limit:,.0f} {name}" for name, (left, limit) in one.left.items())


def _note(one: ModelReport) -> str:
    from penstock.cli.text import one_line

    parts = [one.why]
    if one.probe_in is not None:
        soon = f"in {one.probe_in:.0f} s" if one.probe_in >= 1 else "with the next call"
        parts.append(f"next look {soon}")
    if one.throttled:
        parts.append(f"{one.throttled:.0%} of calls kept back")
    return one_line(", ".join(filter(None, parts)))


def _seconds(figure: float | None) -> str:
    from penstock.cli.text import span

    return "–" if figure is None else span(figure)


def _print(router: Assembled) -> None:
    from penstock.cli.paper import Paper

    paper = Paper()
    if not paper.is_terminal:
        paper.width = WIDE
    paper.print(_screen(router, paper))


def _print_found(router: Assembled, catalog: Catalog) -> None:
    for found in catalog.found:
        shown = found.shown()
        key = "" if shown["key"] else ", no key"
        exits.say(f"{shown['provider']}: {shown['url']}{key} (from {', '.join(shown['from'])})")
    for problem in catalog.problems:
        exits.say(str(problem))
    named = {one.name.partition("/")[0] for one in router.report()}
    origins = {one.origin for one in router.report() if one.origin}
    if not catalog.found:
        exits.say("no provider is named in the environment: answers come from the given text alone")
    for origin in origins:
        exits.say(f"these models are the {origin}: [models.tiers] of penstock.toml names others")
    for found in catalog.found:
        if found.endpoint.name not in named:
            exits.say(f"no model of {found.endpoint.name} is named: do so in [models.tiers], or pin one")


def _watch(router: Assembled, *, json: bool) -> None:
    import time

    if json or not sys.stdout.isatty():
        while True:
            _write([{"type": "model", **one.plain()} for one in router.report()])
            time.sleep(PERIOD)
    from rich.live import Live

    with Live(auto_refresh=False, transient=False) as live:
        while True:
            live.update(_screen(router, live.console), refresh=True)
            time.sleep(PERIOD)


def _line(one: dict[str, Any]) -> str:
    from penstock.cli.text import one_line, span

    if not one["ok"]:
        return one_line(f"{one['name']}: {one['kind'] or 'off'}: {one['message']}".rstrip(": "))
    cost = "" if one["cost"] is None else f", ${one['cost']:.6f}"
    label = f" [{one['label']}]" if one["label"] else ""
    return one_line(f"{one['name']}: answered in {span(one['seconds'])}{cost}{label}")
