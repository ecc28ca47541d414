"""`penstock mcp`: Penstock as an MCP server; `penstock mcp install` puts it into a client's configuration."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from penstock.cli import exits, install, offered, stores

if TYPE_CHECKING:
    import asyncio

    from penstock.app import Penstock
    from penstock.cli.signals import Interrupts
    from penstock.planner.context import Budget, Exposure, Mode
    from penstock.planner.finder import ToolFinder
    from penstock.tools.mcp.base import Progress

MODES: Final = ("auto", "always", "never")
STARTING: Final = 8.0
"""Seconds that a search waits for servers of which nobody knows yet what they offer."""

LATER: Final = 5.0
"""Seconds after which servers that are remembered are asked again: the first answers come from memory,
and a processor that starts twenty runtimes has no time for them."""

mcp = typer.Typer(rich_markup_mode=None, no_args_is_help=False, add_completion=False)
mcp.command("install")(install.install)


@mcp.callback(invoke_without_command=True)
@exits.guarded
def serve(
    context: typer.Context,
    http: Annotated[
        str, typer.Option("--http", help="Serve over HTTP there, for this machine only.", metavar="HOST:PORT")
    ] = "",
    folder: Annotated[
        str, typer.Option("--folder", help="Work in this folder; clients start us anywhere.", metavar="DIR")
    ] = "",
    servers: offered.Servers = "",
    tools: offered.Functions = "",
    expose: Annotated[
        str, typer.Option("--expose", help="Show tools directly, too: auto, always or never.", metavar="MODE")
    ] = "never",
    pin: Annotated[
        list[str] | None, typer.Option("--pin", help="A tool that is always shown directly.", metavar="TOOL")
    ] = None,
    window: offered.Window = offered.WINDOW,
    share: offered.Share = offered.SHARE,
    store: stores.Url = "",
) -> None:
    """Serve every tool behind a few meta-tools, over stdin and stdout or over HTTP.

    Runs go on when a client leaves. Over stdin the process ends with its client; what was unfinished then
    is taken up by the next one that is started here.
    """
    if context.invoked_subcommand is not None:
        return
    if expose not in MODES:
        raise typer.BadParameter(f"{expose!r} is not one of {', '.join(MODES)}", param_hint="--expose")
    if folder:
        _enter(folder)
    gc.disable()  # what is made from here on stays: looking through it again and again finds nothing to free
    penstock = offered.opened(store, servers, tools)
    spend = offered.budget(window, share)
    from penstock.planner.context import Exposure

    shown = Exposure(penstock.tools, mode=cast("Mode", expose), pinned=pin or (), budget=spend)
    direct = shown if pin or expose != "never" else None
    _run(penstock, spend, direct, http)


def _enter(folder: str) -> None:
    if not Path(folder).is_dir():
        raise exits.Refused(f"there is no folder {folder}")
    os.chdir(folder)


def _run(penstock: Penstock, spend: Budget, direct: Exposure | None, http: str) -> None:
    import asyncio

    from penstock.cli.follow import leave
    from penstock.cli.signals import Interrupts

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        with Interrupts() as interrupts:
            loop.run_until_complete(_serve(penstock, spend, direct, http, interrupts))
            interrupts.nothing_to_stop()
        code = exits.OK
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 - the edge, as in `guarded`
        code = exits.report(error)
    leave(code, loop)


async def _serve(
    penstock: Penstock, spend: Budget, direct: Exposure | None, http: str, interrupts: Interrupts
) -> None:
    import asyncio

    from penstock.engines.waiting import let_go

    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def heard() -> None:
        loop.call_soon_threadsafe(stop.set)

    interrupts.stop = heard
    starting = loop.create_task(_start(penstock), name="penstock-servers")
    asking = loop.create_task(_ask_again(penstock, starting), name="penstock-servers-again")

    async def before() -> list[str]:
        if starting.done():
            return []
        await asyncio.wait([starting], timeout=STARTING)
        return [] if starting.done() else penstock.tools.unasked()

    finder = offered.finder(penstock, spend, before=before)
    serving = loop.create_task(_served(penstock, finder, direct, http, stop), name="penstock-gateway")
    stopping = loop.create_task(stop.wait(), name="penstock-stop")
    try:
        await asyncio.wait([serving] if http else [serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
    finally:
        for task in (stopping, starting, asking):
            task.cancel()
        await let_go(penstock.engine)
        await penstock.close()


async def _start(penstock: Penstock) -> None:
    """Ask those servers that never were, all at once; what cannot be started is said, and the rest works."""
    for problem in penstock.tools.servers.problems:
        exits.say(str(problem))
    if unasked := penstock.tools.unasked():
        await penstock.tools.start(unasked, watch=_told)


async def _ask_again(penstock: Penstock, starting: asyncio.Task[None]) -> None:
    """Learn what the others offer now, one after the other, behind whoever is being served meanwhile."""
    import asyncio

    asked = set(penstock.tools.unasked())
    await asyncio.wait([starting])
    await asyncio.sleep(LATER)
    for name in penstock.tools.servers.known:
        if name not in asked:
            await penstock.tools.start([name], watch=_told)


def _told(one: Progress) -> None:
    if one.state != "starting":
        count = "1 tool" if one.tools == 1 else f"{one.tools} tools"
        exits.say(f"{one.server}: {one.error or f'{count} in {one.seconds:.1f} s'}")


async def _asked(penstock: Penstock, direct: Exposure) -> None:
    """Clients ask once which tools there are: what is to be shown to them has to be known by then."""
    import asyncio
    from contextlib import suppress

    with suppress(TimeoutError):
        async with asyncio.timeout(STARTING):
            await penstock.tools.ready(direct.wanted)
    for id, why in direct.missing().items():
        exits.say(f"--pin {id}: {why}")


async def _served(
    penstock: Penstock, finder: ToolFinder, direct: Exposure | None, http: str, stop: asyncio.Event
) -> None:
    from functools import partial

    from penstock import __version__
    from penstock.gateway.flows import Flows
    from penstock.gateway.handles import kept
    from penstock.gateway.server import Gateway, serve_stdio
    from penstock.gateway.troubles import troubles

    own = offered.own_folder(penstock)
    if direct is not None:
        await _asked(penstock, direct)
    gateway = Gateway(
        penstock,
        finder,
        kept(own / "gateway.key"),
        version=__version__,
        direct=direct,
        flows=Flows(Path()),
        troubles=partial(troubles, penstock.tools),
    )
    gc.freeze()
    gc.enable()
    if not http:
        await serve_stdio(gateway)
        return
    from penstock.gateway.http import PATH, serve_http
    from penstock.listening import address_of, bound, kept_token, url_of

    host, port = address_of(http)
    token = kept_token(own / "gateway.token")
    place = bound(host, port)
    exits.say(f"serving {url_of(host, place)}{PATH}")
    exits.say(f"clients send: Authorization: Bearer {token}")
    await serve_http(gateway, at=place, token=token, stop=stop)
