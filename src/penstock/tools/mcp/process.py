"""A server that runs beside us: processes of its own, and two pipes to talk through.

Knows how to start one, how to speak and listen in messages, and how to end one so that nothing of
it is left. What the messages mean is the session's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, cast

from penstock.tools.mcp import guard
from penstock.tools.mcp.base import Unreached
from penstock.tools.mcp.config import Server
from penstock.tools.mcp.lines import Cut, Lines, Oversized, message, too_large
from penstock.tools.mcp.peer import Peer
from penstock.tools.mcp.watchdog import MARK, Watchdog, kill_group

_WORDS: Final = (
    "ALL_PROXY HOME HTTPS_PROXY HTTP_PROXY LANG LC_ALL LC_CTYPE LOGNAME NODE_EXTRA_CA_CERTS NO_PROXY PATH "
    "REQUESTS_CA_BUNDLE SHELL SSL_CERT_DIR SSL_CERT_FILE TERM TMPDIR TZ USER XDG_CACHE_HOME XDG_CONFIG_HOME "
    "XDG_DATA_HOME all_proxy http_proxy https_proxy no_proxy"
)
PASSED_ON: Final = frozenset(_WORDS.split())
"""Variables that a server is given although its entry does not name them. No key or token is among them."""

_TAIL: Final = 4_096
"""Bytes kept of what it said on the side."""

_FAREWELL: Final = 1.0
"""Seconds to go after its input was closed; then it is asked by signal, then killed."""

_PARTING: Final = 2.0

_LAST_WORDS: Final = 0.5
"""Seconds in which the output of a server that has ended must end too; a child may hold it open."""


_LIBRARIES: Final = "LD_LIBRARY_PATH"
"""What our own interpreter may need where a server is not to see it."""


class Process(asyncio.SubprocessProtocol):
    """The end of a server that we hold."""

    def __init__(self, largest: int, last: signal.Signals) -> None:
        """`largest` is how many bytes of one message are taken; after the signal `last` nothing is left."""
        self.last = last
        self.transport: asyncio.SubprocessTransport
        self.peer = Peer(self)
        self.exited = asyncio.Event()
        self.silent = asyncio.Event()
        """Set when nothing more will be heard from it."""
        self.why = ""
        """Why we gave up on it, if we did."""
        self._lines = Lines(largest)
        self._flows = asyncio.Event()
        self._flows.set()
        self._said = b""

    # --- what asyncio tells us ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.note(data)
            return
        if self.silent.is_set():
            return
        try:
            for line in self._lines.feed(data):
                heard = too_large(line, self._lines.largest) if isinstance(line, Cut) else message(line)
                if heard is not None:
                    self.peer.hear(heard)
                elif isinstance(line, bytes):
                    self.note(line[-_TAIL:] + b"\n")
        except Oversized as error:
            self.why = str(error)
            self.end_talk()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if fd == 0:
            self._flows.set()
        elif fd == 1:
            self.end_talk()

    def process_exited(self) -> None:
        self.exited.set()
        self._flows.set()
        asyncio.get_running_loop().call_later(_LAST_WORDS, self.end_talk)

    def pause_writing(self) -> None:
        self._flows.clear()

    def resume_writing(self) -> None:
        self._flows.set()

    # --- talking ---

    def note(self, said: bytes) -> None:
        """Remember the end of what it says outside the protocol."""
        self._said = (self._said + said)[-_TAIL:]

    @property
    def last_words(self) -> str:
        return self._said.decode(errors="replace").strip()

    @property
    def code(self) -> int | None:
        return self.transport.get_returncode()

    def end_talk(self) -> None:
        """Nothing more is heard from it."""
        self.silent.set()
        self.peer.end()

    def write(self, line: bytes) -> None:
        pipe = self.transport.get_pipe_transport(0)
        if self.exited.is_set() or pipe is None or pipe.is_closing():
            raise BrokenPipeError
        cast("asyncio.WriteTransport", pipe).write(line)

    async def drained(self) -> None:
        await self._flows.wait()

    async def end(self) -> None:
        """Let it go, then make it go. Afterwards nothing of it is alive."""
        pid = self.transport.get_pid()
        try:
            pipe = self.transport.get_pipe_transport(0)
            if pipe is not None and not pipe.is_closing():
                cast("asyncio.WriteTransport", pipe).abort()
            if not await self.gone(_FAREWELL):
                kill_group(pid, signal.SIGTERM)
                await self.gone(_FAREWELL)
        finally:
            kill_group(pid, self.last)  # also when it went by itself: its children may have stayed
        if not await self.gone(_PARTING):
            kill_group(pid, signal.SIGKILL)
            await self.gone(_PARTING)
        self.transport.close()

    async def gone(self, within: float) -> bool:
        """Wait for its end, but not for ever."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self.exited.wait()
        return self.exited.is_set()


def environment(server: Server, variables: Mapping[str, str]) -> dict[str, str]:
    """What a server sees of ours: the little that programs need, and what its entry gives it."""
    return {name: value for name, value in variables.items() if name in PASSED_ON} | dict(server.env)


def _program(server: Server, env: Mapping[str, str]) -> str:
    """The file to run, or a clear word about why there is none."""
    if server.cwd and not Path(server.cwd).is_dir():
        raise Unreached(f"its folder {server.cwd} does not exist")
    command = server.command
    if os.sep in command and not Path(command).is_absolute() and server.cwd:
        command = str(Path(server.cwd, command))
    found = shutil.which(command, path=env.get("PATH", os.defpath))
    if found is None:
        there = os.sep in command and Path(command).exists()
        why = "is not a program" if there else "was not found; is it installed?"
        raise Unreached(f"{server.command} {why}")
    return str(Path(found).absolute())


async def _spawn(server: Server, variables: Mapping[str, str], watchdog: Watchdog) -> Process:
    env = environment(server, variables)
    line = [_program(server, env), *server.args]
    last = signal.SIGKILL
    if _guarded():
        line, env = _below_guard(line, env, variables, f"{MARK}={watchdog.mark}")
        last = guard.ENOUGH
    else:
        env[MARK] = watchdog.mark
    watchdog.start()
    try:
        _, process = await asyncio.get_running_loop().subprocess_exec(
            partial(Process, server.max_bytes, last), *line, cwd=server.cwd or None,
            start_new_session=True, env=env,
        )  # fmt: skip
    except OSError as error:
        raise Unreached(f"{server.command} cannot be started: {error.strerror or error}") from None
    watchdog.add(process.transport.get_pid(), last)
    return process


def _guarded() -> bool:
    """Where there is no Linux, or no Python to run it with, a server is a process group and nothing above it.

    What embeds Python, or freezes a program, names itself as the interpreter.
    """
    known = "py" in Path(sys.executable or "").name and not getattr(sys, "frozen", False)
    return sys.platform == "linux" and known and Path(guard.__file__).is_file()


def _below_guard(
    line: list[str], env: dict[str, str], variables: Mapping[str, str], mark: str
) -> tuple[list[str], dict[str, str]]:
    dropped = ""
    if _LIBRARIES in variables and _LIBRARIES not in env:
        dropped = _LIBRARIES
        env = {**env, dropped: variables[dropped]}
    python = (sys.executable, "-I", "-S", guard.__file__)
    return [*python, str(os.getpid()), mark, dropped, *line], env


@asynccontextmanager
async def run_process(
    server: Server, variables: Mapping[str, str], watchdog: Watchdog
) -> AsyncIterator[Process]:
    """A server while it runs."""
    start = asyncio.ensure_future(_spawn(server, variables, watchdog))  # half-started, nobody could kill it
    try:
        process = await asyncio.shield(start)
    except asyncio.CancelledError:
        with contextlib.suppress(Unreached):
            await _bury(await start, watchdog)
        raise
    try:
        yield process
    finally:
        process.end_talk()
        await asyncio.shield(asyncio.ensure_future(_bury(process, watchdog)))


async def _bury(process: Process, watchdog: Watchdog) -> None:
    await process.end()
    watchdog.remove(process.transport.get_pid())


def ending(process: Process) -> str:
    """How a server ended, for whoever waited for an answer."""
    if process.why:
        return process.why
    code = process.code
    if code is None:
        how = "it closed its output"
    elif code < 0:
        how = f"it was ended by {_signal(-code)}"
    else:
        how = f"it ended with exit code {code}"
    words = process.last_words.splitlines()[-3:]
    return f"{how}; it last said: {' | '.join(words)[-600:]}" if words else how


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
