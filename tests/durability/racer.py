"""A process that wants to drive a run, perhaps while others do. It says what became of that."""

from __future__ import annotations

import asyncio
import socket
import sys

import deeds
import msgspec
import penstock as ps
from penstock.errors import Owned
from penstock.store import owner
from penstock.store.sqlite import store as sqlite_store
from penstock.store.sqlite import writer
from victim import say


class Order(msgspec.Struct, kw_only=True):
    program: str = "racer"
    folder: str
    store: str
    run: str = ""
    """The run to take up; empty: start one whose only step waits at the door."""
    door: str
    gate: str = ""
    """A file: where someone holds it shut, the process waits before it reaches for the run."""
    host: str = ""
    """The machine it believes to be on."""
    lease: float = 10.0
    beat: float = 2.0


def flow(door: str) -> ps.Workflow:
    flow = ps.Workflow("waiting")
    flow.step("wait", deeds.wait_at_door, door=door, timeout="1h")
    flow.step("after", deeds.look, n="${ steps.wait.output }")
    flow.output("n", "${ steps.after.output }")
    return flow


async def perform(order: Order) -> None:
    async with ps.open(order.store) as penstock:
        say(ready=str(owner.me()))
        if order.gate:
            deeds.wait_at_door(order.gate)
        try:
            run = await (penstock.resume(order.run) if order.run else penstock.start(flow(order.door)))
        except Owned as error:
            say(owned=error.owner, run=error.run)
            return
        say(driving=str(owner.me()), run=run.id)
        try:
            result = await run.result()
        except Owned as error:
            say(lost=error.owner, run=error.run)
        else:
            say(ended=result.status, outputs=result.outputs)


def main(text: str) -> None:
    order = msgspec.json.decode(text, type=Order)
    if order.host:
        socket.gethostname = lambda: order.host
    sqlite_store.LEASE, writer.BEAT = order.lease, order.beat
    try:
        asyncio.run(perform(order))
    except ps.PenstockError as error:
        say(error=type(error).__name__, message=str(error))


if __name__ == "__main__":
    main(sys.argv[1])
