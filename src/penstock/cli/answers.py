"""Answers on their way to the run that asked.

An answer is checked against the run as it stands, so that nothing is taken up for one that the
run would refuse. Whoever drives the run is given it; a run that nobody drives goes on here.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import msgspec
import typer

from penstock.app import Penstock
from penstock.cli import exits, stores
from penstock.cli.ask import asker, whoever
from penstock.cli.follow import Begin, Begun, leave
from penstock.cli.perform import Stage, Wishes, how_to_answer, perform, played
from penstock.cli.question import Question, described, risk
from penstock.cli.signals import Interrupts
from penstock.cli.text import headline
from penstock.engines.pickup import until_driven
from penstock.engines.questions import of_family
from penstock.errors import CommandRejected, UnknownRun
from penstock.ids import RunId
from penstock.run import asking
from penstock.run.commands import Decide
from penstock.run.events import DecisionRequired
from penstock.run.state import Run
from penstock.store.base import RunRecord
from penstock.store.listing import FINAL, root_of


class Answer(NamedTuple):
    """An answer as it was typed."""

    decision: str
    verb: str
    args: str
    message: str


class _Checked(NamedTuple):
    command: Decide
    run: RunId
    """The run that asks."""
    root: RunRecord
    """The run that somebody drives: the one that asks, or the one that started it all."""


def give(answer: Answer, store: str, *, json: bool, quiet: bool, no_input: bool) -> None:
    """Hand an answer to whoever drives the run, or go on with the run here.

    Without a verb it is a look at the question.
    """
    args = _args(answer.args)
    if not answer.verb:
        if answer.args or answer.message:
            raise typer.BadParameter("which answer is this? Give a VERB, too", param_hint="VERB")
        _show(answer.decision, store, json=json)
        return
    checked = stores.asked(store, lambda penstock: _check(penstock, answer, args))
    if checked.root.owner:
        stores.asked(store, lambda penstock: _hand_over(penstock, checked))
        _say_accepted(checked, json=json)
        return
    penstock = stores.opened(store)

    async def begin() -> Begun:
        return await _taken_up(penstock, checked)

    perform(penstock, Wishes(json, quiet, store=store, no_input=no_input), lambda _stage: begin)


def _show(name: str, store: str, *, json: bool) -> None:
    """One question as it is: the call word for word, which the summary only masks, and how to answer."""
    record, question = stores.asked(store, lambda penstock: _looked_up(penstock, name))
    if json:
        from penstock.cli.outlets import json_line
        from penstock.engines.plain import question as plain

        sys.stdout.buffer.write(json_line(plain(record, question.asked)))
        return
    print(described(question, time.time(), whole=True))
    print(how_to_answer(question.asked, store))


async def _looked_up(penstock: Penstock, name: str) -> tuple[RunRecord, Question]:
    asked, _ = await _find(penstock, name)
    run = RunId(asked.decision.rpartition(":")[0])
    return (await penstock.store.runs(run=run))[0], await _question(penstock, run, asked)


async def _find(penstock: Penstock, name: str) -> tuple[DecisionRequired, RunRecord]:
    """The open decision that a name means, and the run that somebody drives for it."""
    run_name, _, number = name.rpartition(":")
    found = await stores.find(penstock, run_name or name)
    root = await root_of(penstock.store, found)
    if root.status in FINAL:
        raise exits.Refused(f"run {root.run} has ended ({root.status})")
    return _meant(found, await of_family(penstock, found), number if run_name else ""), root


async def _check(penstock: Penstock, answer: Answer, args: dict[str, Any] | None) -> _Checked:
    """An answer that the run will take."""
    asked, root = await _find(penstock, answer.decision)
    command = Decide(
        decision=asked.decision, verb=answer.verb, args=args, message=answer.message, by=whoever()
    )
    run = RunId(asked.decision.rpartition(":")[0])
    if wrong := asking.refusal(await penstock.at(run), command):
        raise exits.Refused(wrong)
    if asked.kind == "input" and not root.owner:
        again = stores.line("resume", root.run, "")
        raise exits.Refused(f"the process that asked has gone, and its call with it: {again} asks anew")
    return _Checked(command, run, root)


def _meant(found: RunRecord, asked: list[DecisionRequired], number: str) -> DecisionRequired:
    fitting = [one for one in asked if not number or one.decision == f"{found.run}:{number}"]
    if len(fitting) == 1:
        return fitting[0]
    if number:
        raise exits.Refused(f"no open decision {found.run}:{number}; `penstock decide --list` shows them all")
    if not fitting:
        raise exits.Refused(f"run {found.run} waits for no decision")
    each = "\n".join(f"  {one.decision}  {one.kind}  {headline(one.summary)}" for one in fitting)
    raise exits.Refused(f"run {found.run} asks {len(fitting)} things; choose one:\n{each}")


async def _hand_over(penstock: Penstock, checked: _Checked) -> None:
    from penstock.cli.send import sent

    await sent(penstock, checked.run, checked.command)


def _say_accepted(checked: _Checked, *, json: bool) -> None:
    command = checked.command
    if json:
        from penstock.cli.outlets import json_line

        data = {"id": command.decision, "run_id": checked.run, "verb": command.verb, "accepted": True}
        sys.stdout.buffer.write(json_line(data))
    else:
        exits.say(f"{command.decision}: {command.verb} accepted by {checked.root.owner}")


async def _taken_up(penstock: Penstock, checked: _Checked) -> Begun:
    """Drive the run from here on, beginning with the answer."""
    handle = await penstock.resume(checked.root.run)
    await until_driven(penstock, handle, checked.run)
    await penstock.send(checked.run, checked.command)
    return Begun(handle, checked.root.events, rests=handle.state.paused)


def _args(text: str) -> dict[str, Any] | None:
    if not text:
        return None
    try:
        args = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise typer.BadParameter(f"not a JSON object: {error}", param_hint="--args") from None
    return args


# --- one by one, at a terminal ---


def ask_all(asking_runs: Sequence[RunRecord], store: str) -> NoReturn:
    """Go through every run that asks. One that nobody drives is taken up, and goes on as it is answered."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    names = dict.fromkeys(one.run.partition("/")[0] for one in asking_runs)
    codes = [_ask_one(loop, RunId(name), store) for name in names]
    leave(next((code for code in codes if code), exits.OK), loop)


def _ask_one(loop: asyncio.AbstractEventLoop, run: RunId, store: str) -> int:
    penstock = stores.opened(store)
    found = loop.run_until_complete(stores.find(penstock, run))
    if found.owner:
        return loop.run_until_complete(_ask_elsewhere(penstock, found))

    def begin(_stage: Stage) -> Begin:
        async def taken_up() -> Begun:
            handle = await penstock.resume(run)
            return Begun(handle, found.events, rests=handle.state.paused)

        return taken_up

    return played(loop, penstock, Wishes(store=store), begin)


async def _ask_elsewhere(penstock: Penstock, root: RunRecord) -> int:
    """Questions of a run that another process drives."""
    left = 0
    try:
        with Interrupts() as interrupts:
            ask = asker(interrupts)
            for one in await of_family(penstock, root) if ask is not None else ():
                run = RunId(one.decision.rpartition(":")[0])
                decided = await ask.decide(await _question(penstock, run, one)) if ask is not None else None
                if decided is None:
                    left += 1
                    continue
                try:
                    await penstock.send(run, decided)
                    exits.say(f"{one.decision}: {decided.verb} accepted by {root.owner}")
                except (CommandRejected, UnknownRun) as error:
                    exits.say(str(error))
    finally:
        await penstock.close()
    return exits.WAITING if left else exits.OK


async def _question(penstock: Penstock, run: RunId, asked: DecisionRequired) -> Question:
    state: Run = await penstock.at(run)
    return Question(
        asked,
        lambda decided: asking.refusal(state, decided),
        lambda: True,  # the process that drives the run has the last word
        risk(state, asked),
    )
