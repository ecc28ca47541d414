"""`penstock resume`: go on with a run that stopped, or again from a point in it."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import exits, stores
from penstock.errors import Owned

if TYPE_CHECKING:
    from penstock.app import Penstock, RunHandle
    from penstock.cli.follow import Begin, Begun
    from penstock.cli.perform import Stage
    from penstock.engines.history import Difference
    from penstock.store.base import RunRecord
    from penstock.workflow.read import Source

FAILED = "failed"
CHECKPOINT = "checkpoint:"


class Definition(enum.StrEnum):
    PINNED = "pinned"
    CURRENT = "current"


@exits.guarded
def resume(
    run: stores.RunName,
    point: Annotated[
        str,
        typer.Option(
            "--from",
            help="`failed`: try again what did not succeed. A step or checkpoint:ID: a new run that "
            "goes on from there.",
            metavar="failed|STEP|checkpoint:ID",
        ),
    ] = "",
    definition: Annotated[
        Definition,
        typer.Option(help="The version the run is pinned to, or the file as it is now (a new run)."),
    ] = Definition.PINNED,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask about a changed definition.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="New events as JSON Lines, then one line with the result.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the outputs.")] = False,
    no_input: stores.NoInput = False,
    store: stores.Url = "",
) -> None:
    """Go on with a run. What has finished is never done again.

    A run that stopped before its end goes on in place. One that has ended goes on from its failed
    steps, or as a new run that shares its history up to a step, a checkpoint or a changed definition.
    """
    from penstock.cli.perform import Wishes, perform

    penstock = stores.opened(store)
    wish = _Wish(penstock, run, point, definition, yes=yes, url=store)
    perform(penstock, Wishes(json, quiet, store=store, no_input=no_input), wish.on)


class _Wish:
    def __init__(
        self, penstock: Penstock, name: str, point: str, definition: Definition, *, yes: bool, url: str
    ) -> None:
        self._penstock = penstock
        self._name = name
        self._point = point
        self._definition = definition
        self._yes = yes
        self._url = url

    def on(self, stage: Stage) -> Begin:
        async def begin() -> Begun:
            from penstock.cli import again

            found = await stores.find(self._penstock, self._name)
            try:
                if self._definition is Definition.CURRENT:
                    return await self._with_current(found, stage)
                return await self._with_pinned(found)
            except Owned as error:
                raise again.owned(error, self._url) from None

        return begin

    async def _with_pinned(self, found: RunRecord) -> Begun:
        from penstock.cli import again
        from penstock.cli.follow import Begun
        from penstock.store.listing import FINAL

        if not self._point and found.status in FINAL:
            raise exits.Refused(f"run {found.run} has ended ({found.status}); {_instead(found, self._url)}")
        if self._point in ("", FAILED):
            run = await self._penstock.resume(found.run, failed=self._point == FAILED)
            await _unpause(run)
            return Begun(run, found.events)
        again.refuse_if_running(found, self._url)
        if self._point.startswith(CHECKPOINT):
            seq = await _checkpoint(self._penstock, found, self._point.removeprefix(CHECKPOINT))
            return await again.branched(self._penstock, await self._penstock.fork(found.run, at=seq))
        return await again.branched(self._penstock, await self._penstock.fork(found.run, step=self._point))

    async def _with_current(self, found: RunRecord, stage: Stage) -> Begun:
        from penstock.cli import again

        if found.owner:
            raise Owned(found.run, found.owner)
        source = _current(found)
        at = step = None
        if self._point.startswith(CHECKPOINT):
            at = await _checkpoint(self._penstock, found, self._point.removeprefix(CHECKPOINT))
        elif self._point not in ("", FAILED):
            step = self._point
        difference = await self._penstock.compare(found.run, source, at=at, step=step)
        if difference.same:
            exits.say(f"{found.source} has not changed since run {found.run} was started")
            return await self._with_pinned(found)
        _tell(found, difference)
        if not self._yes:
            ask = stage.asker
            if ask is None:
                raise exits.Refused("nothing was run; --yes goes on without asking")
            if not await ask.sure(f"Go on as a new run? Run {found.run} stays as it is."):
                raise exits.Refused("nothing was run")
        return await again.branched(
            self._penstock, await self._penstock.fork(found.run, at=at, step=step, flow=source)
        )


def _instead(found: RunRecord, url: str) -> str:
    """What may be done with a run that has ended."""
    if found.status == "succeeded":
        return f"{stores.line('fork', found.run, url, '--at', 'N')} runs on from event N, as a new run"
    again = stores.line("resume", found.run, url, "--from", FAILED)
    return f"{again} tries again what did not succeed"


async def _unpause(run: RunHandle) -> None:
    """Whoever resumes a run means it to go on, whatever it was paused for."""
    from penstock.run.commands import Resume

    if "command" in run.state.pauses:
        await run.send(Resume(by="resume"))


def _current(found: RunRecord) -> Source:
    from penstock.workflow.read import load

    if not found.source:
        raise exits.Refused(f"run {found.run} was not started from a file; there is no current definition")
    source = load(found.source)
    if source.workflow.name != found.workflow:
        raise exits.Refused(
            f"{found.source} is the workflow {source.workflow.name!r} now; "
            f"run {found.run} is one of {found.workflow!r}"
        )
    return source


async def _checkpoint(penstock: Penstock, found: RunRecord, name: str) -> int:
    """The event that a checkpoint of this run was taken at."""
    from penstock.errors import StoreError

    try:
        kept, _ = await penstock.store.checkpoints.get(name)
    except StoreError:
        hint = stores.line("show", found.run, "", "--checkpoints")
        raise exits.Refused(f"there is no checkpoint {name!r}; {hint} lists those of this run") from None
    line: RunRecord | None = found
    shared = found.events
    while line is not None:
        if kept.run == line.run and kept.seq <= shared:
            return kept.seq
        shared = min(shared, line.fork_at or 0)
        line = next(iter(await penstock.store.runs(run=line.fork_of)), None) if line.fork_of else None
    owner = next(iter(await penstock.store.runs(run=kept.run)), None)
    of = f" ({owner.workflow})" if owner is not None and owner.workflow != found.workflow else ""
    raise exits.Refused(f"checkpoint {name} is one of run {kept.run}{of}, not of run {found.run}")


def _tell(found: RunRecord, difference: Difference) -> None:
    """What a changed definition keeps of the run, and what it does again."""
    exits.say(f"{found.source} has changed since run {found.run} was started:")
    for word, steps, meaning in (
        ("changed", difference.changed, ""),
        ("added", difference.added, ""),
        ("removed", difference.removed, ""),
        ("besides", difference.other, "changes nothing that is finished"),
        ("kept", difference.kept, "finished, and taken over"),
        ("to run", difference.again, "again, or for the first time"),
    ):
        if steps:
            note = f"   ({meaning})" if meaning else ""
            exits.say(f"  {word:<8} {', '.join(steps)}{note}")
