"""A process that drives a run whose first step waits at a door, perhaps while others want to as well.

It says what it is told: that it drives the run, that another does, every event when it is
published, and how the run stands whenever that changes.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import deeds
import msgspec
from victim import say

import penstock as ps
from penstock.errors import Owned
from penstock.store import owner
from penstock.store.sqlite import store as sqlite_store
from penstock.store.sqlite import writer

LOOK = 0.002
"""Seconds between looks at how the run stands."""


class Order(msgspec.Struct, kw_only=True):
    program: str = "racer"
    folder: str
    store: str
    run: str = ""
    """The run to take up; empty: start one."""
    door: str
    gate: str = ""
    """A file: where someone holds it shut, the process waits before it reaches for the run."""
    gate_before_opening: bool = False
    """Wait at the gate even before the store is opened."""
    short: bool = False
    """Start a run that ends behind the door."""
    host: str = ""
    """The machine it believes to be on."""
    lease: float = 10.0
    beat: float = 2.0
    user: int = 0
    """The user to become."""


def flow(door: str, *, short: bool) -> ps.Workflow:
    flow = ps.Workflow("waiting")
    flow.step("wait", deeds.wait_at_door, door=door, timeout="1h")
    if short:
        flow.output("n", "${ steps.wait.output }")
        return flow
    flow.step("send", deeds.send, n="${ steps.wait.output }")
    for i in range(4):
        flow.step(f"much{i}", deeds.read_much, n=["${ steps.send.output }", i])
    flow.step("last", deeds.send, n=[f"${{ steps.much{i}.output }}" for i in range(4)])
    flow.output("n", "${ steps.last.output }")
    return flow


async def perform(order: Order) -> None:
    if order.gate and order.gate_before_opening:
        say(ready=str(owner.me()))
        deeds.wait_at_door(order.gate)
    async with ps.open(order.store) as penstock:
        if order.gate and not order.gate_before_opening:
            say(ready=str(owner.me()))
            deeds.wait_at_door(order.gate)
        try:
            if order.run:
                run = await penstock.resume(order.run)
            else:
                run = await penstock.start(flow(order.door, short=order.short))
        except Owned as error:
            say(owned=error.owner, run=error.run)
            return
        say(driving=str(owner.me()), run=run.id)
        run.observe(lambda event: say(event=event, run=run.id))
        watch = asyncio.create_task(_watch(run))
        try:
            result = await run.result()
        except Owned as error:
            say(lost=error.owner, run=error.run)
        else:
            state = deeds.digest(result.state.encoded())
            say(ended=result.status, run=run.id, state=state, outputs=result.outputs)
        watch.cancel()


async def _watch(run: ps.RunHandle) -> None:
    status = ""
    while True:
        if run.status != status:
            status = run.status
            say(status=status, reason=run.state.reason)
        await asyncio.sleep(LOOK)


def main(text: str) -> None:
    order = msgspec.json.decode(text, type=Order)
    deeds.Stage.ledger = deeds.Ledger(Path(order.folder) / "ledger")
    if order.host:
        socket.gethostname = lambda: order.host
    if order.user:
        os.setuid(order.user)
        os.environ["HOME"] = order.folder
    sqlite_store.LEASE, writer.BEAT = order.lease, order.beat
    try:
        asyncio.run(perform(order))
    except ps.PenstockError as error:
        say(error=type(error).__name__, message=str(error))


if __name__ == "__main__":
    main(sys.argv[1])
