"""Commands to a run: looked over by those who know the tools, brought to the core, answered."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import CommandRejected, DefinitionError, Problem, UnknownTool
from penstock.ids import CommandId, StepId
from penstock.run.accept import refusal
from penstock.run.commands import (
    OVERTAKING,
    Abort,
    Command,
    Decide,
    InjectTasks,
    Message,
    ModifyArgs,
    ReplanDag,
)
from penstock.run.events import CommandAccepted, CommandRefused, Event
from penstock.run.facts import CommandReceived
from penstock.run.state import SUCCEEDED, place
from penstock.workflow.graph import extend, guards
from penstock.workflow.spec import Step

if TYPE_CHECKING:
    from penstock.engines.drive import Drive

Findings = tuple[tuple[Problem, ...], tuple[StepId, ...]]
"""What is wrong with new steps, and which of them a person must approve."""


class Commands:
    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        self._run = drive.run
        self.answers: dict[CommandId, asyncio.Future[Event]] = {}
        """What everyone who sent a command waits for."""
        self._began = drive.run.seq
        self._sent = 0
        self._turn = asyncio.Lock()

    async def send(self, command: Command) -> Event:
        """Hand a command to the run; returns the event that accepted it."""
        command = self._named(command)
        if self._run.ended:
            raise CommandRejected(f"the run has ended ({self._run.status})")
        answer = self.answers.get(command.id)
        if answer is None:
            answer = self.answers[command.id] = self._drive.loop.create_future()
            if isinstance(command, OVERTAKING):
                self._drive.tell(CommandReceived(command))
            else:
                async with self._turn:  # an injection may have to look things up; the next waits its turn
                    outputs = await self._outputs_for(command)
                    problems, guarded = await self._problems(command)
                    if not answer.done():  # done already: the run was let go of meanwhile
                        self._drive.tell(CommandReceived(command, problems, outputs, guarded))
        event = await asyncio.shield(answer)
        if isinstance(event, CommandRefused):
            raise CommandRejected(event.reason)
        if not isinstance(command, OVERTAKING) and self._drive.journal.durable < event.seq:
            await self._drive.journal.sync()  # whoever is told yes will not say it again
        return event

    def abort(self, reason: str) -> None:
        """Stop the run from within the engine, whatever ids its users gave to commands."""
        id = CommandId(f"{self._run.id}!stop")
        while id in self._run.commands:
            id = CommandId(f"{id}!")
        self._drive.tell(CommandReceived(Abort(id=id, reason=reason)))

    def answer(self, command: Command, batch: list[Event]) -> None:
        """Tell whoever sent a command what came of it."""
        answer = self.answers.get(command.id)
        if answer is None or answer.done():
            return
        run = self._run
        event: Event
        if batch and isinstance(batch[0], CommandAccepted | CommandRefused):
            event = batch[0]
        elif run.ended:
            event = CommandRefused(run.seq, run.at, command.id, "", f"the run has ended ({run.status})")
        elif run.commands.get(command.id):  # seen before: the same answer again
            event = CommandRefused(run.seq, run.at, command.id, "", run.commands[command.id])
        else:
            event = CommandAccepted(run.seq, run.at, command)
        answer.set_result(event)

    # --- new steps ---

    async def look_over(self, steps: Sequence[Step]) -> Findings:
        """What only someone who knows the tools can see."""
        flow = self._drive.flow
        if flow.work_for is None:
            return (), ()
        if flow.ready is not None:
            await flow.ready(steps)
        problems: list[Problem] = []
        guarded: list[StepId] = []
        config = self._run.graph.workflow.config
        for step in steps:
            try:
                work = flow.work_for(step)
                critical = work.effect == "destructive"
                if work.ruled or guards(step.approval or config.approval, critical=critical):
                    guarded.append(step.id)
            except UnknownTool as error:
                problems.append(Problem(str(error), where=str(step.id)))
            except DefinitionError as error:
                problems.extend(error.problems)
        return tuple(problems), tuple(guarded)

    async def late_outputs(self, steps: Sequence[Step]) -> Mapping[int, Any]:
        """Outputs of ended steps that the control expressions of new ones would read."""
        run, outputs = self._run, self._drive.outputs
        try:
            graph = extend(run.graph, steps)
        except DefinitionError:
            return {}  # it will be refused
        before, phase = run.graph.control, run.phase
        read = [
            i
            for i, paths in graph.control.items()
            if i < len(phase) and before.get(i) != paths and phase[i] == SUCCEEDED
        ]
        absent = outputs.absent(("steps", graph.ids[i], "output") for i in read)
        fetched = await outputs.fetch(absent)
        return {i: fetched[i] if i in fetched else outputs.value(i) for i in read}

    # --- inside ---

    def _named(self, command: Command) -> Command:
        """With an id, and without secrets."""
        clean, replace = self._drive.engine.clean, msgspec.structs.replace
        if not command.id:
            self._sent += 1
            command = replace(command, id=CommandId(f"{self._run.id}!{self._began}.{self._sent}"))
        if isinstance(command, Message):
            return replace(command, text=clean(command.text))
        if isinstance(command, Decide):
            return replace(command, message=clean(command.message))
        return command

    async def _problems(self, command: Command) -> Findings:
        """What is wrong with a command that the core cannot know, and what needs approval."""
        if isinstance(command, ReplanDag) and self._drive.engine.planner is None:
            return (Problem("there is no planner to ask", "add the steps with inject_tasks"),), ()
        if isinstance(command, ModifyArgs) and not refusal(self._run, command):
            work = self._drive.tasks.work(self._run.graph.index[command.step])
            said = work.misgiven(command.args)
            return ((Problem(said, where=str(command.step)),) if said else ()), ()
        return await self.look_over(command.steps) if isinstance(command, InjectTasks) else ((), ())

    async def _outputs_for(self, command: Command) -> Mapping[int, Any]:
        """Outputs that the core needs to carry out a command."""
        if isinstance(command, Decide) and command.verb == "accept":
            return await self._accepted(command)
        return await self.late_outputs(command.steps) if isinstance(command, InjectTasks) else {}

    async def _accepted(self, command: Decide) -> Mapping[int, Any]:
        """The result that someone accepts although its gate did not."""
        run = self._run
        asked = run.decisions.get(command.decision)
        if asked is None or asked.kind != "gate" or asked.step is None:
            return {}
        i = run.graph.index[asked.step]
        found = run.checking.get(place(i, asked.item))
        if found is None:
            return {}
        return {i: await self._drive.outputs.checked(i, asked.item, found[0])}
