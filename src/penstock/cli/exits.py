"""What the shell is told: the exit codes, and the one place where errors become messages.

Knows nothing of any verb. Every verb is `guarded`: an error of the user's is a message and a
code, an error of ours is said to be one, and no failure ever looks like a success.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
from collections.abc import Callable
from typing import ParamSpec

import typer

from penstock.cli.text import legible
from penstock.errors import (
    CommandRejected,
    DefinitionError,
    ExpressionError,
    Owned,
    PenstockError,
    StoreError,
    UnknownRun,
    UnknownTool,
    Unsupported,
)

OK = 0
FAILED = 1
USAGE = 2
WAITING = 3
PARTIAL = 4
BUDGET = 5
UPSTREAM = 6
TIMEOUT = 124
INTERRUPTED = 130
TERMINATED = 143

DEBUG = "PENSTOCK_DEBUG"

_BY_STATUS = {"succeeded": OK, "partial": PARTIAL, "waiting": WAITING, "paused": WAITING}


class Refused(PenstockError):
    """What was asked for cannot be done, and nothing was changed."""


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What a write comes to when it is the disk that is at fault."""

_REFUSED = (
    DefinitionError, ExpressionError, Unsupported, UnknownRun, UnknownTool, CommandRejected, Owned,
    StoreError, Refused,
)  # fmt: skip

P = ParamSpec("P")


def of_run(
    status: str, *, timed_out: bool = False, over_budget: bool = False, unavailable: bool = False
) -> int:
    """The code for how a run ended."""
    if timed_out:
        return TIMEOUT
    if over_budget:
        return BUDGET
    if unavailable and status == "failed":
        return UPSTREAM
    return _BY_STATUS.get(status, FAILED)


def of_error(error: PenstockError) -> int:
    """The code for something that was refused or went wrong before there was an outcome."""
    refused = isinstance(error, _REFUSED) or type(error) is PenstockError
    return USAGE if refused else FAILED


def say(message: str) -> None:
    """A message to the person: on stderr, and nowhere when there is no stderr."""
    if sys.stderr is not None:
        print(legible(message), file=sys.stderr, flush=True)


def guarded(verb: Callable[P, None]) -> Callable[P, None]:
    """The verb, with its errors turned into messages and exit codes."""

    @functools.wraps(verb)
    def inner(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            verb(*args, **kwargs)
            flush()
        except (typer.Exit, typer.BadParameter):
            raise
        except BrokenPipeError:
            abandon_stdout()  # whoever was reading has seen enough
        except (KeyboardInterrupt, Exception) as error:
            raise typer.Exit(report(error)) from error

    return inner


def report(error: BaseException) -> int:
    """Say what went wrong, and return its code."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, PenstockError):
        say(str(error))
        return of_error(error)
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        abandon_stdout()  # what is left of it would only fail once more
        say(f"cannot write: {error.strerror}")
        return FAILED
    _unexpected(error)
    return FAILED


def _unexpected(error: BaseException) -> None:
    """Say that Penstock itself is broken, briefly unless asked for more."""
    text = str(error)
    say(f"penstock failed: {type(error).__name__}" + (f": {text}" if text else ""))
    if os.environ.get(DEBUG):
        import traceback

        traceback.print_exception(error)
    else:
        say(f"This is a fault of Penstock. {DEBUG}=1 shows the traceback.")


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def abandon_stdout() -> None:
    """Let nothing more be written to a pipe that no one reads, not even at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
