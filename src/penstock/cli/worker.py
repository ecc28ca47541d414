"""`penstock worker`: drives the runs that nobody drives."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exits, stores

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.cli.signals import Interrupts
    from penstock.engines.pickup import Left
    from penstock.store.base import RunRecord


@exits.guarded
def worker(
    once: Annotated[bool, typer.Option("--once", help="Drive what there is to its end, then leave.")] = False,
    most: Annotated[int, typer.Option("--most", help="Runs at the same time.", metavar="N", min=1)] = 16,
    json: Annotated[bool, typer.Option("--json", help="One line for each run that was driven.")] = False,
    store: stores.Url = "",
) -> None:
    """Take up unfinished runs that nobody drives, until told to stop.

    SIGTERM or Ctrl-C: running tasks finish, nothing new starts, and another process may go on with
    the runs. The second time it leaves at once.
    """
    import asyncio

    from penstock.cli.follow import leave
    from penstock.cli.signals import Interrupts

    penstock = stores.opened(store, new=True)
    if not stores.lasting(penstock):
        raise exits.Refused("memory: has no runs to take up; name another store with --store")
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        with Interrupts() as interrupts:
            work = _work(penstock, interrupts, _Log(json=json, url=store), once=once, most=most)
            loop.run_until_complete(work)
        code = exits.OK
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 - the edge, as in `guarded`
        code = exits.report(error)
    leave(code, loop)


async def _work(penstock: Penstock, interrupts: Interrupts, log: _Log, *, once: bool, most: int) -> None:
    import asyncio

    from penstock.engines.pickup import PickUp

    loop = asyncio.get_running_loop()
    pick_up = PickUp(penstock, most=most, taken=log.taken, left=log.left, refused=log.refused)

    def stop() -> None:
        exits.say("stopping: running tasks finish first")
        loop.call_soon_threadsafe(pick_up.stop)

    interrupts.stop = stop
    if not once:
        exits.say(f"worker {os.getpid()} looks for unfinished runs in {log.store(penstock)}")
    await pick_up.work(once=once)
    await penstock.close()


class _Log:
    """What the worker says: messages, and a line of data for each run with --json."""

    def __init__(self, *, json: bool, url: str) -> None:
        self._json = json
        self._url = url

    def store(self, penstock: Penstock) -> str:
        """The store, without what nobody should read in a log."""
        return penstock.settings.store.rpartition("@")[2]

    def taken(self, record: RunRecord) -> None:
        exits.say(f"run {record.run} ({record.workflow}) taken up after event {record.events:,}")

    def left(self, left: Left) -> None:
        from penstock.engines.plain import summary_of

        result = left.result
        waits = result.status == "waiting"
        more = f": {result.reason}" if result.reason else ""
        exits.say(f"run {result.run_id} ({left.record.workflow}) {result.status}{more}")
        if waits:
            exits.say(f"  {stores.line('decide', result.run_id, self._url)}")
        if self._json:
            from penstock.cli.outlets import json_line

            asked = list(result.state.decisions.values()) if waits else []
            sys.stdout.buffer.write(json_line(summary_of(result, asked)))
            sys.stdout.flush()

    def refused(self, record: RunRecord, error: Exception) -> None:
        exits.say(f"run {record.run} ({record.workflow}) was not taken up: {error}")
