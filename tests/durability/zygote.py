"""Where victims come from, and the parent's end of each.

An interpreter start costs ten times what a victim does. So a zygote imports Penstock once and
forks: what it forks has loaded modules and nothing else, no thread, no loop, no open file of
a store. `Fresh` starts an interpreter for each victim instead, when nothing at all may be shared.

Nobody is left behind: a zygote ends when whoever made it is gone, and takes its victims along.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, Self

HERE = Path(__file__).parent
PATIENCE = 30.0
"""Seconds without a word after which a victim is taken to hang."""


_PDEATHSIG = 1


class Hang(Exception):
    """A victim that says nothing any more."""


class Victim:
    """One process that will be killed."""

    def __init__(self, pid: int, out: int, errors: Path) -> None:
        self.pid = pid
        self.said: list[dict[str, Any]] = []
        self._out = out
        self._errors = errors
        self._rest = b""
        try:
            self._handle = os.pidfd_open(pid)
        except ProcessLookupError:
            self._handle = -1  # dead already

    def listen(self, within: float | None = None) -> Iterator[dict[str, Any]]:
        """What it says, until it is dead; `Hang` when it has said nothing for a while."""
        while True:
            if not select.select([self._out], [], [], PATIENCE if within is None else within)[0]:
                raise Hang
            more = os.read(self._out, 1 << 16)
            if not more:
                self.bury()
                return
            *lines, self._rest = (self._rest + more).split(b"\n")
            for line in lines:
                self.said.append(json.loads(line))
                yield self.said[-1]

    def hear(self, key: str) -> dict[str, Any]:
        """Wait until it says something with this key."""
        for line in self.listen():
            if key in line:
                return line
        raise Hang(f"never said {key}; {self.said[-3:]} {self.errors()}")

    def survives(self, seconds: float) -> bool:
        """Let it go on for this long. False when it ended by itself."""
        deadline = time.monotonic() + seconds
        with contextlib.suppress(Hang):
            while (left := deadline - time.monotonic()) > 0:
                for _ in self.listen(left):
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return True
                    break
                else:
                    return False
        return True

    def kill(self) -> None:
        """SIGKILL, and wait until nothing is left of it."""
        self.signal(signal.SIGKILL)
        for _ in self.listen():
            pass

    def signal(self, number: int) -> None:
        if self._handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def bury(self) -> None:
        """Wait for the death of every thread of it."""
        if self._handle >= 0:
            select.select([self._handle], [], [])
            os.close(self._handle)
            self._handle = -1
        if self._out >= 0:
            os.close(self._out)
            self._out = -1

    def confess(self) -> str:
        """Where a victim that hangs is: what each of its tasks waits for, and what it said on stderr."""
        self.signal(signal.SIGUSR1)
        with contextlib.suppress(Hang):
            for line in self.listen(2.0):
                if "tasks" in line:
                    return f"{self.errors()}\n{line['tasks']}"
        return self.errors()

    def errors(self) -> str:
        return self._errors.read_text("utf-8", "replace")[-3000:] if self._errors.exists() else ""


class Nursery(Protocol):
    def victim(self, order: dict[str, Any]) -> Victim: ...


class Fresh:
    """A new interpreter for each victim."""

    def victim(self, order: dict[str, Any]) -> Victim:
        out, theirs = os.pipe()
        errors = Path(order["folder"]) / "stderr"
        program = HERE / f"{order.get('program', 'victim')}.py"
        command = [sys.executable, str(program), json.dumps(order)]
        with errors.open("ab") as log:
            process = subprocess.Popen(command, stdout=theirs, stderr=log)
        os.close(theirs)
        return _Reaped(process, out, errors)


class _Reaped(Victim):
    """A child of our own, which has to be waited for."""

    def __init__(self, process: subprocess.Popen[bytes], out: int, errors: Path) -> None:
        super().__init__(process.pid, out, errors)
        self._process = process

    def bury(self) -> None:
        super().bury()
        self._process.wait()


class Zygote:
    """Forks victims. Use it as `with Zygote() as nursery`."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        command = [sys.executable, str(HERE / "zygote.py"), str(theirs.fileno())]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._ours.close()
        self._process.wait()

    def victim(self, order: dict[str, Any]) -> Victim:
        out, theirs = os.pipe()
        errors = Path(order["folder"]) / "stderr"
        with errors.open("ab") as log:
            socket.send_fds(self._ours, [json.dumps(order).encode()], [theirs, log.fileno()])
        os.close(theirs)
        return Victim(int(self._ours.recv(64)), out, errors)


def serve(door: socket.socket) -> None:
    """Fork a victim for every order that comes."""
    import_module("victim").warm_up()
    import_module("racer")
    gc.freeze()  # what is there is theirs as well, and stays
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps them
    zygote = os.getpid()
    while True:
        order, files, _, _ = socket.recv_fds(door, 1 << 16, 2)
        if not order:
            return
        pid = os.fork()
        if not pid:
            become(door, order, files, zygote)
        for file in files:
            os.close(file)
        door.send(str(pid).encode())


def become(door: socket.socket, order: bytes, files: list[int], zygote: int) -> None:
    """Be the victim. Never returns."""
    try:
        die_with(zygote)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        door.close()
        for file, place in zip(files, (1, 2), strict=True):
            os.dup2(file, place)
            os.close(file)
        import_module(json.loads(order).get("program", "victim")).main(order.decode())
    except BaseException:  # noqa: BLE001 - a forked process must not return to its parent's code
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(0)


def die_with(parent: int) -> None:
    """Be killed when the parent ends: a victim that blocks would stay for ever."""
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was quicker
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    serve(socket.socket(fileno=int(sys.argv[1])))
