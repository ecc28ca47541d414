"""The checks of a gate, made one after another on a result that is in.

What the result is to blame for has *failed*; what could not be found out is *unavailable*, and
never a pass. All checks are made, also after one that failed: the next attempt learns more. What
the verdicts mean together, and what follows from them, is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from subprocess import DEVNULL
from typing import Any, Final, Literal, NamedTuple, Self

import msgspec

from penstock.errors import PenstockError
from penstock.policy.gates import plain
from penstock.steps.base import Host, Scene, TaskFailure
from penstock.steps.call_tool import CallTool
from penstock.tools.base import Task, Tool
from penstock.workflow.expr import Expression, Failure, Lookup
from penstock.workflow.interpolate import Template
from penstock.workflow.sites import CompiledCheck

TIMEOUT: Final = 60.0
"""Seconds for a tool or command of a check that says nothing."""

DETAIL: Final = 2_048
"""Bytes of what a check has to say."""

YES: Final = ("ok", "passed", "success")
"""A tool that answers with an object says here whether the check passed; each one it has must be true."""

REASONS: Final = ("reason", "reasons", "message", "error", "errors", "detail", "details")
"""Where such an object may say why not; the first that is not empty is taken."""

NOT_RUN: Final = (126, 127)
"""Exit codes by which shells, `env` and their like say that they could not start what they were to run."""

_HEARD = 16_384
"""Bytes of output that are kept until it is masked: more than is told, so that no half of a secret is."""

_LAST_WORDS = 0.5
"""Seconds in which the output of a command that has ended must end too."""

_PARTING = 5.0
"""Seconds in which a killed process must be gone."""


class Verdict(NamedTuple):
    status: Literal["passed", "failed", "unavailable"]
    why: str = ""
    said: str = ""
    """What a command printed; its end is what matters."""


async def check_gate(
    checks: Sequence[CompiledCheck],
    look_up: Lookup,
    task: Task,
    host: Host,
    find: Callable[[str], Tool],
    clean: Callable[[str], str],
) -> tuple[dict[str, Any], ...]:
    """Make every check: `name`, `status`, `detail` and `ms` of each.

    An expression passes when it is true. A tool passes when it gives true, or an object in which
    `ok`, `passed` or `success` is true (every one of them that it has). A command passes when it
    exits with 0. `clean` masks what must not be told.
    """
    made: list[dict[str, Any]] = []
    for check in checks:
        began = time.perf_counter()
        found = await _verdict(check, look_up, Scene(task, {}, host), find)
        ms = round((time.perf_counter() - began) * 1_000, 3)
        made.append({"name": check.name, "status": found.status, "detail": _detail(found, clean), "ms": ms})
    return tuple(made)


async def _verdict(
    check: CompiledCheck, look_up: Lookup, scene: Scene, find: Callable[[str], Tool]
) -> Verdict:
    if check.expr is not None:
        return _expression(check.expr, look_up)
    if check.schema is not None:
        return _form(check.schema, look_up)
    if check.run is not None:
        argv = _argv(check.run.render(look_up))
        seconds = TIMEOUT if check.timeout is None else check.timeout
        return Verdict("failed", argv) if isinstance(argv, str) else await _command(argv, seconds)
    try:
        tool = find(check.tool)
    except PenstockError as error:
        return Verdict("unavailable", str(error))
    args = {} if check.args is None else check.args.render(look_up)
    if isinstance(args, Failure):
        return Verdict("failed", args.message)
    limit = check.timeout or tool.timeout or TIMEOUT
    return await _tool(tool, Scene(scene.task, args, scene.host), limit, check.args)


def _detail(found: Verdict, clean: Callable[[str], str]) -> str:
    why = _within(clean(plain(found.why)), DETAIL)
    if not found.said:
        return why
    said = clean(plain(found.said)).encode(errors="replace")
    room = DETAIL - len(why.encode()) - 1
    return f"{why}\n{said[-room:].decode(errors='ignore')}".strip()


def _within(text: str, most: int) -> str:
    return text.encode(errors="replace")[:most].decode(errors="ignore")


def _handed_on() -> dict[str, str]:
    """Our environment without what is meant for us alone: a check may run what a model wrote."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}


# --- expressions ---


def _expression(expression: Expression, look_up: Lookup) -> Verdict:
    value = expression.evaluate(look_up)
    if value is True:
        return Verdict("passed")
    if value is False:
        return Verdict("failed", f"{expression.source} is false")
    if isinstance(value, Failure):
        return Verdict("failed", value.message)
    return Verdict("failed", f"{expression.source} is {_spelt(value)}, which is neither true nor false")


def _form(schema: Mapping[str, Any], look_up: Lookup) -> Verdict:
    """Whether the whole output has the form that was promised."""
    from penstock.models.structured import complaints  # only agents promise a form

    wrong = complaints(schema, look_up(("output",)))
    return Verdict("failed", "; ".join(wrong)) if wrong else Verdict("passed")


def _spelt(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return _within(msgspec.json.encode(value).decode(), DETAIL)
    except (TypeError, ValueError, RecursionError):
        return f"a value of type {type(value).__name__}"


# --- tools ---


async def _tool(tool: Tool, scene: Scene, seconds: float, args: Template | None) -> Verdict:
    try:
        async with asyncio.timeout(seconds) as limit:
            answer = await CallTool(tool)(scene)
    except TaskFailure as error:
        fixed = args is None or args.constant
        return Verdict("unavailable" if fixed else "failed", str(error))  # the result is to blame, or nobody
    except asyncio.CancelledError:
        if (current := asyncio.current_task()) is not None and current.cancelling():
            raise
        return Verdict("unavailable", f"{tool.id} cancelled itself")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a tool does, it is no verdict
        late = f"{tool.id} did not answer within {seconds:g} s" if limit.expired() else ""
        return Verdict("unavailable", late or f"{type(error).__name__}: {error}")
    return _answered(tool.id, answer)


def _answered(name: str, answer: Any) -> Verdict:
    if answer is True:
        return Verdict("passed")
    if answer is False:
        return Verdict("failed", f"{name} says no")
    with contextlib.suppress(TypeError, ValueError, RecursionError):
        answer = msgspec.to_builtins(answer)
    if not isinstance(answer, Mapping):
        return Verdict("failed", f"{name} gave {_spelt(answer)}, which is neither true nor false")
    said = [answer[key] for key in YES if key in answer]
    if said and all(one is True for one in said):
        return Verdict("passed")
    why = next((_reason(answer[key]) for key in REASONS if answer.get(key)), "")
    otherwise = f"{name} says no" if said else f"the answer of {name} has none of {', '.join(YES)}"
    return Verdict("failed", why or otherwise)


def _reason(value: Any) -> str:
    return "\n".join(map(_spelt, value)) if isinstance(value, list) else _spelt(value)


# --- commands ---


def _argv(rendered: Any) -> list[str] | str:
    """The argument vector, or what is wrong with it. Nothing here goes through a shell."""
    if isinstance(rendered, Failure):
        return rendered.message
    argv: list[str] = []
    for n, one in enumerate(rendered):
        if isinstance(one, bool) or not isinstance(one, str | int | float):
            return f"argument {n} of the command is not a text but {_spelt(one)}"
        text = str(one)
        try:
            fine = b"\0" not in os.fsencode(text)
        except UnicodeEncodeError:
            fine = False
        if not fine:
            return f"argument {n} of the command has characters that no argument may have"
        argv.append(text)
    return argv


async def _command(argv: Sequence[str], seconds: float) -> Verdict:
    try:
        code, said = await _run(argv, seconds)
    except FileNotFoundError:
        return Verdict("unavailable", f"{argv[0]} was not found")
    except OSError as error:
        too_long = error.errno == errno.E2BIG
        return Verdict("failed" if too_long else "unavailable", f"{argv[0]}: {error.strerror or error}")
    if code is None:
        return Verdict("unavailable", f"it did not end within {seconds:g} s", said)
    if code < 0:
        return Verdict("unavailable", f"it was ended by {_signal(-code)}", said)
    if code == 0:
        return Verdict("passed")
    return Verdict("unavailable" if code in NOT_RUN else "failed", f"exit code {code}", said)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


async def _run(argv: Sequence[str], seconds: float) -> tuple[int | None, str]:
    """The exit code, None when time was up, and the end of the output. Nothing it started is left."""
    with _Ear() as ear:
        start = asyncio.ensure_future(  # a task of its own: one cancelled half-way could not be killed
            asyncio.create_subprocess_exec(
                *argv, stdin=DEVNULL, stdout=ear.end, stderr=ear.end, start_new_session=True, env=_handed_on()
            )
        )
        code = None
        try:
            async with asyncio.timeout(seconds) as limit:
                code = await (await asyncio.shield(start)).wait()
        except TimeoutError:
            if not limit.expired():
                raise
        finally:
            await _end(start)
        return code, await ear.heard()


async def _end(start: asyncio.Future[asyncio.subprocess.Process]) -> None:
    """Kill what was started, with everything that it started itself."""
    with contextlib.suppress(OSError):  # it never began, or it will not go: nothing is left to be done
        process = await start
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        async with asyncio.timeout(_PARTING):
            await process.wait()


class _Ear:
    """Listens to a pipe, and keeps the end of what it hears."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._bytes = b""
        self._pipe, self.end = os.pipe()
        """One to listen to, and one to speak into."""

    def __enter__(self) -> Self:
        os.set_blocking(self._pipe, False)
        self._loop.add_reader(self._pipe, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.remove_reader(self._pipe)
        os.close(self._pipe)
        if self.end >= 0:
            os.close(self.end)

    async def heard(self) -> str:
        """All there is, once nobody can say more. Who moved to a group of his own is not waited for."""
        os.close(self.end)
        self.end = -1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                await self._over.wait()
        return self._bytes.decode(errors="replace")

    def _hear(self) -> None:
        try:
            data = os.read(self._pipe, 65_536)
        except BlockingIOError:
            return
        self._bytes = (self._bytes + data)[-_HEARD:]
        if not data:
            self._loop.remove_reader(self._pipe)
            self._over.set()
