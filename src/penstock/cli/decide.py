"""`penstock decide`: the questions that runs ask, and the answers to them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from penstock.cli import exits, stores

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.cli.follow import Begun
    from penstock.ids import RunId
    from penstock.run.commands import Decide
    from penstock.run.events import DecisionRequired
    from penstock.store.base import RunRecord

OPEN = ("waiting", "running", "paused")
"""How a run may stand that asks something."""


@exits.guarded
def decide(
    decision: Annotated[
        str,
        typer.Argument(
            help="The id of a decision, or a run that asks only one.", metavar="ID", show_default=False
        ),
    ] = "",
    verb: Annotated[
        str, typer.Argument(help="One of the answers that it offers.", metavar="VERB", show_default=False)
    ] = "",
    args: Annotated[
        str, typer.Option(help="What the answer takes, e.g. '{\"output\": 3}'.", metavar="JSON")
    ] = "",
    message: Annotated[str, typer.Option(help="Why, for the record.", metavar="TEXT")] = "",
    list: Annotated[bool, typer.Option("--list", help="List the open decisions.")] = False,
    json: Annotated[bool, typer.Option("--json", help="JSON Lines.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the outputs.")] = False,
    store: stores.Url = "",
) -> None:
    """Answer an open decision, or list them.

    If a process drives the run, it is given the answer. If nobody does, the run goes on here, until
    it ends or asks again.
    """
    if list or not decision:
        _list(store, json=json)
        return
    from penstock.cli.perform import Wishes, perform

    given = _args(args)
    answer = stores.asked(store, lambda penstock: _checked(penstock, decision, verb, given, message))
    if answer.root.owner:
        stores.asked(store, lambda penstock: _hand_over(penstock, answer))
        _say_accepted(answer, json=json)
        return
    penstock = stores.opened(store)

    async def begin() -> Begun:
        return await _taken_up(penstock, answer)

    perform(penstock, Wishes(json, quiet, store=store), lambda _stage: begin)


class _Answer(NamedTuple):
    command: Decide
    run: RunId
    """The run that asks."""
    root: RunRecord
    """The run that somebody drives: the one that asks, or the one that started it all."""


async def _checked(
    penstock: Penstock, name: str, verb: str, args: dict[str, Any] | None, message: str
) -> _Answer:
    """An answer that the run will take. Nothing is resumed for one that it would refuse."""
    from penstock.cli.ask import whoever
    from penstock.ids import RunId
    from penstock.run import orphans
    from penstock.run.commands import Decide

    run_name, _, number = name.rpartition("?")
    found = await stores.find(penstock, run_name or name)
    root = await _root(penstock, found)
    if root.status in stores.FINAL:
        raise exits.Refused(f"run {root.run} has ended ({root.status})")
    asked = _meant(found, await _open(penstock, found, root), number if run_name else "")
    if not verb:
        raise exits.Refused(f"{asked.summary}\nanswer with one of {', '.join(asked.options)}")
    command = Decide(decision=asked.decision, verb=verb, args=args, message=message, by=whoever())
    run = RunId(asked.decision.rpartition("?")[0])
    if asked.kind == "orphan" and (wrong := orphans.refusal(await penstock.at(run), command)):
        raise exits.Refused(wrong)
    return _Answer(command, run, root)


def _meant(found: RunRecord, asked: list[DecisionRequired], number: str) -> DecisionRequired:
    fitting = [one for one in asked if not number or one.decision == f"{found.run}?{number}"]
    if len(fitting) == 1:
        return fitting[0]
    if number:
        raise exits.Refused(f"no open decision {found.run}?{number}; `penstock decide --list` shows them all")
    if not fitting:
        raise exits.Refused(f"run {found.run} waits for no decision")
    ids = ", ".join(one.decision for one in fitting)
    raise exits.Refused(f"run {found.run} asks {len(fitting)} things; choose one of {ids}")


async def _root(penstock: Penstock, found: RunRecord) -> RunRecord:
    return await stores.find(penstock, found.run.partition("/")[0]) if found.parent else found


async def _open(penstock: Penstock, found: RunRecord, root: RunRecord) -> list[DecisionRequired]:
    """What a run asks, and what its children ask."""
    asked: list[DecisionRequired] = []
    for one in [found, *await stores.descendants(penstock, found.run)]:
        if one.status in OPEN and root.status not in stores.FINAL:
            asked += (await penstock.at(one.run)).decisions.values()
    return asked


async def _hand_over(penstock: Penstock, answer: _Answer) -> None:
    from penstock.cli.send import sent

    await sent(penstock, answer.run, answer.command)


def _say_accepted(answer: _Answer, *, json: bool) -> None:
    command = answer.command
    if json:
        from penstock.cli.outlets import json_line

        data = {"id": command.decision, "run_id": answer.run, "verb": command.verb, "accepted": True}
        sys.stdout.buffer.write(json_line(data))
    else:
        exits.say(f"{command.decision}: {command.verb} accepted by {answer.root.owner}")


async def _taken_up(penstock: Penstock, answer: _Answer) -> Begun:
    """Drive the run from here on, beginning with the answer."""
    from penstock.cli import waiting
    from penstock.cli.follow import Begun

    handle = await penstock.resume(answer.root.run)
    live = penstock.engine.live
    # A child is taken up by its parent, in its own time.
    await waiting.until(lambda: answer.run in live or handle.state.ended, glance=0.005)
    await penstock.send(answer.run, answer.command)
    return Begun(handle, answer.root.events, rests=handle.state.paused)


def _args(text: str) -> dict[str, Any] | None:
    import msgspec

    if not text:
        return None
    try:
        args = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise typer.BadParameter(f"not a JSON object: {error}", param_hint="--args") from None
    return args


# --- the list ---


def _list(store: str, *, json: bool) -> None:
    try:
        found = stores.asked(store, _every)
    except stores.NoStore as error:
        exits.say(str(error))
        return
    for record, asked in found:
        if json:
            from penstock.cli.outlets import json_line

            sys.stdout.buffer.write(json_line(_plain(record, asked)))
        else:
            from penstock.cli.text import one_line

            print(f"{asked.decision}  {record.workflow}  {asked.kind}  {one_line(asked.summary)}")
    if not found and not json:
        exits.say("no run waits for a decision")


async def _every(penstock: Penstock) -> list[tuple[RunRecord, DecisionRequired]]:
    """Every open decision there is, of the oldest run first."""
    asked: list[tuple[RunRecord, DecisionRequired]] = []
    for status in OPEN:
        for one in await stores.listed(penstock, children=True, status=status):
            if (await _root(penstock, one)).status not in stores.FINAL:
                asked += [(one, each) for each in (await penstock.at(one.run)).decisions.values()]
    return sorted(asked, key=lambda pair: (pair[0].run, pair[1].seq))


def _plain(record: RunRecord, asked: DecisionRequired) -> dict[str, Any]:
    from penstock.cli.text import moment
    from penstock.cli.view import pending

    return {
        **pending(asked),
        "run_id": record.run,
        "workflow": record.workflow,
        "iteration": asked.iteration,
        "item": asked.item,
        "options": asked.options,
        "call": asked.call,
        "asked": moment(asked.at),
    }
