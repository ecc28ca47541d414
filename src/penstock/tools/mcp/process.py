"""A server that runs beside us: a process group, and two pipes to talk through.

Knows how to start one, how to speak and listen in messages, and how to end one so that nothing of
it is left. What the messages mean is the session's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NoReturn, cast

import anyio
from mcp.shared.message import SessionMessage

from penstock.tools.mcp.base import Unreached
from penstock.tools.mcp.config import Server
from penstock.tools.mcp.lines import Lines, Oversized, message
from penstock.tools.mcp.streams import Incoming, Outgoing
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

_BUFFERED: Final = 1 << 20
"""Bytes that may wait to be read before the pipe is left to fill."""

_FAREWELL: Final = 1.0
"""Seconds to go after its input was closed; then it is asked by signal, then killed."""

_PARTING: Final = 2.0

_LAST_WORDS: Final = 0.5
"""Seconds in which the output of a server that has ended must end too; a child may hold it open."""

Streams = tuple[Incoming, Outgoing]


class Process(asyncio.SubprocessProtocol):
    """The end of a server that we hold."""

    def __init__(self) -> None:
        self.transport: asyncio.SubprocessTransport
        self.exited = asyncio.Event()
        self.silent = asyncio.Event()
        """Set when nothing more will be heard from it."""
        self.why = ""
        """Why we gave up on it, if we did."""
        self._news = asyncio.Event()
        self._chunks: deque[bytes] = deque()
        self._waiting = 0
        self._ended = False
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
        self._chunks.append(data)
        self._waiting += len(data)
        self._news.set()
        if self._waiting > _BUFFERED:
            cast("asyncio.ReadTransport", self.transport.get_pipe_transport(1)).pause_reading()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if fd == 0:
            self._flows.set()
        elif fd == 1:
            self._ended = True
            self._news.set()

    def process_exited(self) -> None:
        self.exited.set()
        self._flows.set()
        asyncio.get_running_loop().call_later(_LAST_WORDS, self.pipe_connection_lost, 1, None)

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

    async def read(self) -> bytes:
        """Some bytes, or none when there will be no more."""
        while not self._chunks and not self._ended:
            self._news.clear()
            await self._news.wait()
        if not self._chunks:
            return b""
        chunk = self._chunks.popleft()
        self._waiting -= len(chunk)
        pipe = cast("asyncio.ReadTransport", self.transport.get_pipe_transport(1))
        if self._waiting <= _BUFFERED and not self._ended and not pipe.is_closing() and not pipe.is_reading():
            pipe.resume_reading()
        return chunk

    async def write(self, data: bytes) -> None:
        pipe = self.transport.get_pipe_transport(0)
        if self.exited.is_set() or pipe is None or pipe.is_closing():
            raise BrokenPipeError
        cast("asyncio.WriteTransport", pipe).write(data)
        await self._flows.wait()

    async def end(self) -> None:
        """Let it go, then make it go. Afterwards nothing of its group is alive."""
        pid = self.transport.get_pid()
        try:
            pipe = self.transport.get_pipe_transport(0)
            if pipe is not None and not pipe.is_closing():
                cast("asyncio.WriteTransport", pipe).abort()
            if not await self.gone(_FAREWELL):
                kill_group(pid, signal.SIGTERM)
                await self.gone(_FAREWELL)
        finally:
            kill_group(pid, signal.SIGKILL)  # also when it went by itself: its children may have stayed
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
    program = _program(server, env)
    watchdog.start()
    try:
        _, process = await asyncio.get_running_loop().subprocess_exec(
            Process, program, *server.args, cwd=server.cwd or None, start_new_session=True,
            env={**env, MARK: watchdog.mark},
        )  # fmt: skip
    except OSError as error:
        raise Unreached(f"{server.command} cannot be started: {error.strerror or error}") from None
    watchdog.add(process.transport.get_pid())
    return process


@asynccontextmanager
async def run_process(
    server: Server, variables: Mapping[str, str], watchdog: Watchdog
) -> AsyncIterator[tuple[Process, Streams]]:
    """A server while it runs, and the streams of messages from and to it."""
    start = asyncio.ensure_future(_spawn(server, variables, watchdog))  # half-started, nobody could kill it
    try:
        process = await asyncio.shield(start)
    except asyncio.CancelledError:
        with contextlib.suppress(Unreached):
            await _bury(await start, watchdog)
        raise
    try:
        yield process, (_Heard(process, Lines(server.max_bytes)), _Said(process))
    finally:
        process.silent.set()
        await asyncio.shield(asyncio.ensure_future(_bury(process, watchdog)))


async def _bury(process: Process, watchdog: Watchdog) -> None:
    await process.end()
    watchdog.remove(process.transport.get_pid())


class _Heard(Incoming):
    """What a server says, cut into messages."""

    def __init__(self, process: Process, lines: Lines) -> None:
        self._process = process
        self._lines = lines
        self._messages: deque[SessionMessage] = deque()

    async def receive(self) -> SessionMessage:
        process = self._process
        while not self._messages:
            chunk = await process.read()
            if not chunk:
                self._end()
            try:
                for line in self._lines.feed(chunk):
                    heard = line if isinstance(line, SessionMessage) else message(line)
                    if heard is not None:
                        self._messages.append(heard)
                    else:
                        process.note(cast("bytes", line)[-_TAIL:] + b"\n")
            except Oversized as error:
                process.why = str(error)
                self._end()
        return self._messages.popleft()

    def _end(self) -> NoReturn:
        self._process.silent.set()
        raise anyio.EndOfStream


class _Said(Outgoing):
    """What is said to it."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def write(self, line: bytes) -> None:
        await self._process.write(line)


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
