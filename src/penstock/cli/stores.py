"""Which store is meant, and which run in it.

Verbs that look at runs never make a store: where there is none, there are no runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from penstock.cli.exits import Refused

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.store.base import RunRecord

T = TypeVar("T")

Url = Annotated[
    str,
    typer.Option("--store", help="Where runs are remembered; else PENSTOCK_STORE.", metavar="URL"),
]
"""The option that every verb about runs has."""

NoInput = Annotated[
    bool, typer.Option("--no-input", help="Ask nothing, even on a terminal; say what waits instead.")
]
"""The option of every verb that drives a run."""

RunName = Annotated[
    str, typer.Argument(help="The id of a run, its first characters, or `last`.", metavar="RUN")
]

LAST: Final = "last"
"""Stands for the newest run. No id is spelled with an l."""

NAMED: Final = 5
"""Runs listed when a name fits several."""


class NoStore(Refused):
    """Nothing has been remembered there yet."""


def opened(url: str, *, new: bool = False) -> Penstock:
    """Penstock with the store that is meant. Only with `new` may the store be made."""
    import logging

    from penstock import app, settings

    configuration = settings.read(store=url or None)
    if not new:
        check_there(configuration.store)
    # What a lost connection means for a run is said in its own words; the driver's would only puzzle.
    logging.getLogger("psycopg").addHandler(logging.NullHandler())
    return app.Penstock(configuration)


def asked(url: str, work: Callable[[Penstock], Awaitable[T]]) -> T:
    """What `work` finds out in the store that is meant."""
    import asyncio

    async def go() -> T:
        penstock = opened(url)
        try:
            return await work(penstock)
        finally:
            await penstock.close()

    return asyncio.run(go())


def lasting(penstock: Penstock) -> bool:
    """Whether anyone can come back to a run of this store."""
    return not penstock.settings.store.startswith("memory:")


def check_there(url: str) -> None:
    """Refuse a store that nobody has made yet, or that does not last."""
    if url.startswith("memory:"):
        raise Refused(
            "memory: remembers runs only for as long as a command lasts; "
            "name another store with --store or PENSTOCK_STORE"
        )
    path = url.removeprefix("sqlite:///")
    if path != url and not Path(path).exists():
        raise NoStore(f"there is no store at {path} yet: nothing has been run here")


async def find(penstock: Penstock, name: str) -> RunRecord:
    """The run that a name means: its id, the first characters of it, or `last`."""
    from penstock.errors import UnknownRun
    from penstock.store.listing import EVERY

    if name == LAST:
        newest = await penstock.store.runs(limit=1, parent=None)
        if not newest:
            raise Refused("there is no run in this store yet")
        return newest[0]
    exact = await penstock.store.runs(run=name)
    if exact:
        return exact[0]
    every = await penstock.store.runs(limit=EVERY) if name else ()
    fitting = [one for one in every if one.run.startswith(name) and one.run.count("/") == name.count("/")]
    if not fitting:
        raise UnknownRun(name)
    if len(fitting) > 1:
        some = ", ".join(one.run for one in fitting[:NAMED])
        more = f" and {len(fitting) - NAMED:,} more" if len(fitting) > NAMED else ""
        raise Refused(f"{name!r} could be {some}{more}; give more of the id")
    return fitting[0]


def line(verb: str, run: str, url: str, *more: str) -> str:
    """A command line to type next: the same store, whatever the shell makes of the id."""
    import shlex

    store = ["--store", url if "@" not in url else "URL"] if url else []  # never repeat a password
    return shlex.join(["penstock", verb, run, *more, *store])
