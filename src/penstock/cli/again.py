"""What `resume`, `fork` and `decide` share: a run that exists already, driven here from now on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from penstock.cli import exits, stores
from penstock.errors import Owned

if TYPE_CHECKING:
    from penstock.app import Penstock, RunHandle
    from penstock.cli.follow import Begun
    from penstock.store.base import RunRecord


def refuse_if_running(found: RunRecord, url: str) -> None:
    """A fork of a run that goes on would begin while nobody knows where the run is."""
    if found.owner and found.status == "running":
        pause = stores.line("send", found.run, url, "pause")
        abort = stores.line("abort", found.run, url)
        force = stores.line("fork", found.run, url, "--force")
        raise exits.Refused(
            f"run {found.run} is running, driven by {found.owner}; "
            f"pause it ({pause}) or stop it ({abort}) first, or fork it all the same ({force})"
        )


def owned(error: Owned, url: str) -> exits.Refused:
    """Somebody else drives it: there is still something that can be done from here."""
    watch, send = (stores.line(verb, error.run, url) for verb in ("watch", "send"))
    return exits.Refused(f"{error}; {watch} follows it, {send} … steers it")


async def branched(penstock: Penstock, run: RunHandle) -> Begun:
    """A fork, told from its own first event on."""
    from penstock.cli.follow import Begun

    new = (await penstock.store.runs(run=run.id))[0]
    exits.say(f"run {run.id}, forked from run {new.fork_of} at event {new.fork_at:,}")
    return Begun(run, new.fork_at or 0)


def has_ended(found: RunRecord, status: str) -> NoReturn:
    raise exits.Refused(f"run {found.run} has ended ({status})")
