"""Every exception Penstock raises on purpose.

PenstockError
├── DefinitionError      a workflow, input or command cannot be accepted; carries every `Problem` found
│   └── InputError       the workflow is fine, the values given to it are not
├── ExpressionError      one expression cannot be compiled; `validate` makes a `Problem` of it
├── Unsupported          understood, but this build or engine does not carry it out
├── UnknownRun           no run of that id in this store
├── UnknownDecision      no run has ever asked that
├── UnknownWorkflow      no workflow file of that name where one was looked for
├── UnknownTool          nothing callable has that id
│   └── ToolRefused      something has, but a rule or a changed definition stands in the way
├── UpstreamUnavailable  what a step depends on does not answer now; no model answers, say
├── ToolError            a tool could not be called, or did not do what it was called for
│   ├── ServerDown       its server cannot be started or reached; it is an `UpstreamUnavailable`, too
│   ├── ToolFailed       it was called, and reports an error
│   └── LostCall         it was called and nobody heard back: it may have happened
├── CommandRejected      a command was refused; the run is as it was
│   └── NoAnswer         what was said does not answer the question, which stays open
├── RunFailed            a run ended without success, and the caller asked for an exception
├── Conflict             someone else appended to this run first
├── Owned                another process is driving this run
├── Unfinished           this process let go of a run before its end; another can go on
└── StoreError           the store cannot be read, or is not what it should be
    └── WrongKey         its payloads were sealed with another key

A runtime error inside an expression is not an exception: it is a value (`workflow.expr.Failure`).
A failed step is not an exception either: it is an event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.ids import RunId


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a definition: where it is, what it is, what to do about it."""

    message: str
    hint: str = ""
    where: str = ""
    """The place in words, e.g. `steps.fetch.retry`; helps where there is no file."""
    file: str = ""
    line: int = 0
    """1-based; 0 when the definition did not come from a text."""
    column: int = 0

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        head = f"{place}: " if place else ""
        spot = f"{self.where}: " if self.where else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{head}{spot}{self.message}{hint}"


class PenstockError(Exception):
    """The root: catch this to catch everything Penstock raises on purpose."""


class DefinitionError(PenstockError):
    """A definition cannot be accepted. Nothing was executed; `problems` lists all that is wrong."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


class InputError(DefinitionError):
    """The inputs of a run are missing, unknown or of the wrong type."""


class ExpressionError(PenstockError):
    """An expression was refused before anything ran: its syntax, a name in it, or a type."""

    def __init__(self, message: str, hint: str = "", *, column: int = 0, where: str = "") -> None:
        super().__init__(message + (f" ({hint})" if hint else ""))
        self.message = message
        self.hint = hint
        self.column = column
        """1-based, in characters from the start of the text; 0 when it has no one place."""
        self.where = where
        """For an expression inside a value: where in it, e.g. `notes[0].text`."""


class Unsupported(PenstockError):
    """The definition asks for something that this version does not carry out yet."""

    def __init__(self, features: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, features)))
        self.problems = tuple(features)


class UnknownRun(PenstockError):
    """No such run. `penstock runs` lists the ones that exist."""

    def __init__(self, run: str) -> None:
        super().__init__(f"no run {run!r} in this store")
        self.run = run


class UnknownDecision(PenstockError):
    """Nobody asked that. `penstock decide --list` shows what is asked."""

    def __init__(self, decision: str) -> None:
        super().__init__(f"no decision {decision!r} in this store")
        self.decision = decision


class UnknownWorkflow(PenstockError):
    """There is no such workflow file in the folder that is served."""

    def __init__(self, name: str, hint: str = "") -> None:
        super().__init__(f"no workflow file {name!r}" + (f" ({hint})" if hint else ""))
        self.name = name
        self.hint = hint


class UnknownTool(PenstockError):
    """Nothing callable has this id."""

    def __init__(self, tool: str, hint: str = "") -> None:
        super().__init__(f"unknown tool {tool!r}" + (f" ({hint})" if hint else ""))
        self.tool = tool
        self.hint = hint


class ToolRefused(UnknownTool):
    """The tool is there and may not be called; `hint` says why, and what to do about it."""

    def __init__(self, tool: str, hint: str = "") -> None:
        super().__init__(tool, hint)
        self.args = (f"{tool} may not be called" + (f" ({hint})" if hint else ""),)


class ToolError(PenstockError):
    """A call of a tool did not come to a result."""

    def __init__(self, tool: str, message: str) -> None:
        super().__init__(f"{tool}: {message}")
        self.tool = tool
        self.message = message


class UpstreamUnavailable(PenstockError):
    """What the work depends on does not answer now, and nothing was done.

    Functions may raise it, too. A step's `retry` waits for `retry_after` seconds at least.
    """

    def __init__(self, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """0: nobody knows when. Infinity: waiting will change nothing."""


class ServerDown(ToolError, UpstreamUnavailable):
    """A server of tools cannot be started or reached. Nothing was called."""

    def __init__(self, tool: str, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(tool, message)
        self.retry_after = retry_after


class ToolFailed(ToolError):
    """The tool was called and says that it failed, or answered with something it must not."""


class LostCall(ToolError):
    """The call was sent and no answer came back. Look before you repeat it."""


class CommandRejected(PenstockError):
    """The command was refused and nothing changed."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NoAnswer(CommandRejected):
    """This does not answer the question; it stays open. `reason` says what would."""


class RunFailed(PenstockError):
    """A run did not succeed. Raised only by calls that promise a result."""

    def __init__(self, run: RunId, status: str, reason: str) -> None:
        super().__init__(f"run {run} ended {status}" + (f": {reason}" if reason else ""))
        self.run = run
        self.status = status
        self.reason = reason


class Conflict(PenstockError):
    """Someone else appended to this run first. Reload and decide again."""

    def __init__(self, run: RunId, after: int) -> None:
        super().__init__(f"run {run} moved past event {after}")
        self.run = run
        self.after = after


class Owned(PenstockError):
    """Another process drives this run. Send it commands, or wait until it has ended."""

    def __init__(self, run: RunId, owner: str) -> None:
        super().__init__(f"run {run} is being driven by {owner}")
        self.run = run
        self.owner = owner


class Unfinished(PenstockError):
    """This process let go of the run before its end. `resume` goes on where it stopped."""

    def __init__(self, run: RunId, reason: str) -> None:
        super().__init__(f"run {run} is not finished: {reason}; resume it to go on")
        self.run = run
        self.reason = reason


class StoreError(PenstockError):
    """The store cannot be read, or holds something unexpected. Nothing was changed."""


class WrongKey(StoreError):
    """The store is sealed, and not with this key."""

    def __init__(self, *, given: bool = True) -> None:
        sealed = "sealed with another key" if given else "sealed, and there is no key"
        super().__init__(f"the store is {sealed}; set PENSTOCK_KEY to the one it was sealed with")
