"""`penstock serve`: the HTTP API of this folder, and a worker for its runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli import exits, stores

if TYPE_CHECKING:
    from socket import socket

    from penstock.app import Penstock
    from penstock.cli.signals import Interrupts
    from penstock.engines.pickup import Left
    from penstock.store.base import RunRecord
    from penstock.web.desk import Desk

HOST: Final = "127.0.0.1"
PORT: Final = 8320
MOST: Final = 64
"""Runs that are taken up at the same time; those that are started or answered here come on top."""


@exits.guarded
def serve(
    host: Annotated[str, typer.Option(help="The address to listen at.", metavar="HOST")] = HOST,
    port: Annotated[
        int, typer.Option(help="The port; 0 is any that is free.", metavar="PORT", min=0, max=65_535)
    ] = PORT,
    remote: Annotated[
        bool, typer.Option("--remote", help="Allow a HOST that other machines can reach.")
    ] = False,
    token: Annotated[
        str, typer.Option(help="What clients must send; else PENSTOCK_TOKEN, else a new one.", metavar="TEXT")
    ] = "",
    no_pickup: Annotated[
        bool, typer.Option("--no-pickup", help="Leave unfinished runs alone until somebody steers them.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One line: the url and the token.")] = False,
    store: stores.Url = "",
) -> None:
    """Serve the HTTP API: runs, events, commands, decisions.

    Workflow files of this folder can be started. Unfinished runs that nobody drives are taken up, as
    by `penstock worker`. SIGTERM or Ctrl-C: running tasks finish, nothing new starts, and another
    process may go on with the runs. The second time it leaves at once.
    """
    import asyncio

    from penstock.cli.follow import leave
    from penstock.cli.signals import Interrupts
    from penstock.listening import LOOPBACK, bound, new_token, url_of

    if host not in LOOPBACK and not remote:
        raise exits.Refused(f"{host} can be reached from other machines; add --remote if that is meant")
    place = bound(host, port)
    penstock = stores.opened(store, new=True)
    if not stores.lasting(penstock):
        raise exits.Refused("memory: cannot keep a run that waits; name another store with --store")
    secret = token or penstock.settings.token or new_token()
    if not secret.isascii() or not secret.isprintable() or " " in secret:
        raise exits.Refused("the token must be of letters, digits and signs, without spaces")
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        with Interrupts() as interrupts:
            serving = _Serving(penstock, interrupts, looks=not no_pickup)
            _say_where(url_of(host, place), secret, json=json, warn=host not in LOOPBACK)
            loop.run_until_complete(serving.until_stopped(place, token=secret, host=host))
        code = exits.OK
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 - the edge, as in `guarded`
        code = exits.report(error)
    leave(code, loop)


def _say_where(url: str, token: str, *, json: bool, warn: bool) -> None:
    """Where, and with which token; from now on stdout is nobody's."""
    from penstock.cli.outlets import claim_stdout, json_line, write

    data = claim_stdout()
    if json:
        write(data, json_line({"url": url, "token": token}))
    os.close(data)
    exits.say(f"serving {url}")
    exits.say(f"clients send: Authorization: Bearer {token}")
    if warn:
        exits.say("warning: other machines can reach it, and what is sent is not encrypted")


class _Serving:
    def __init__(self, penstock: Penstock, interrupts: Interrupts, *, looks: bool) -> None:
        self._penstock = penstock
        self._interrupts = interrupts
        self._looks = looks

    async def until_stopped(self, place: socket, *, token: str, host: str) -> None:
        """Serve, and drive runs, until a signal comes; then let go of them."""
        import asyncio

        from penstock.web.server import serve_api

        desk = self._desk()
        if self._interrupts.code is not None:  # it came before there was anything to stop
            desk.stop.set()
            desk.pick_up.stop()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(desk.pick_up.work(looks=self._looks), name="penstock-pick-up")
                await serve_api(desk, at=place, token=token, host=host, fault=self._fault)
        except* Exception as errors:  # noqa: BLE001 - only taken out of its group
            raise errors.exceptions[0] from None
        finally:
            await self._penstock.close()

    def _desk(self) -> Desk:
        import asyncio
        from pathlib import Path

        from penstock import __version__
        from penstock.engines.pickup import PickUp
        from penstock.web.desk import Desk
        from penstock.web.library import Library

        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        pick_up = PickUp(self._penstock, most=MOST, taken=_taken, left=_left, refused=_refused)

        def heard() -> None:
            exits.say("stopping: running tasks finish first")
            loop.call_soon_threadsafe(stop.set)
            loop.call_soon_threadsafe(pick_up.stop)

        self._interrupts.stop = heard
        library = Library(Path.cwd())
        return Desk(runs=self._penstock, pick_up=pick_up, library=library, stop=stop, version=__version__)

    def _fault(self, error: Exception) -> None:
        exits.say(f"penstock failed: {self._penstock.engine.clean(f'{type(error).__name__}: {error}')}")


def _taken(record: RunRecord) -> None:
    exits.say(f"run {record.run} ({record.workflow}) taken up after event {record.events:,}")


def _left(left: Left) -> None:
    more = f": {left.result.reason}" if left.result.reason else ""
    exits.say(f"run {left.result.run_id} ({left.record.workflow}) {left.result.status}{more}")


def _refused(record: RunRecord, error: Exception) -> None:
    exits.say(f"run {record.run} ({record.workflow}) was not taken up: {error}")
