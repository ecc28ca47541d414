"""Stands above one server, and ends when nothing of it is left: `python guard.py PARENT MARK DROPPED LINE…`.

A program of its own, for Linux. Whatever the server starts is below this process, and becomes its
child when its own parent ends, however it hides: in another session, with another environment,
forked twice. When the server has ended, or when it is told that it is enough, everything is killed
that is below it. It ends as its server did.

One is started for every server: it imports as little as it can.
"""

from __future__ import annotations

import os
import signal
import sys
import time

ENOUGH = signal.SIGUSR1
"""Kill everything, now. SIGTERM is passed on to the server, which may take its time."""

GIVEN_UP = 10.0
"""Seconds after which one that cannot be killed, because it is another user's, is left alone."""

_SUBREAPER = 36
_DUMPABLE = 4
_HEARD = (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, ENOUGH)


def main(parent: str, mark: str, dropped: str, *line: str) -> int:
    """Takes the pid of who starts it, a variable to set, one to leave out, and the program. A wait status."""
    _prctl(_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    name, _, value = mark.partition("=")
    env = {key: one for key, one in os.environ.items() if key != dropped} | {name: value}
    if os.getppid() != int(parent):
        return 0  # it died while we were started
    try:
        plain = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them, and its children would
        server = os.posix_spawn(line[0], line, env, setsid=True, setsigmask=(), setsigdef=plain)
    except OSError as error:
        os.write(2, f"it cannot be started: {error.strerror}\n".encode())
        return 126 << 8
    _let_go_of_pipes()
    status = _watch(server)
    return _end(server, status)


def _let_go_of_pipes() -> None:
    """They are the server's: who reads from it has to see that it closes them."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for pipe in range(3):
        os.dup2(nothing, pipe)
    os.chdir("/")


def _watch(server: int) -> int | None:
    """How the server ended; None when it has not, and is to."""
    while (heard := signal.sigwait(_HEARD)) != ENOUGH:
        if heard == signal.SIGTERM:
            _kill(-server, signal.SIGTERM)
        ended = _reap()
        if server in ended:
            return ended[server]
    return None


def _end(server: int, status: int | None) -> int:
    """Kill what is left. The children of one that was killed are ours: until there are none."""
    until = time.monotonic() + GIVEN_UP
    if status is None:
        _kill(-server, signal.SIGKILL)
    while not _alone() and time.monotonic() < until:
        for child in _children():
            _kill(child, signal.SIGKILL)
        time.sleep(0.002)
        status = _reap().get(server, status)
    return signal.SIGKILL if status is None else status


def _reap() -> dict[int, int]:
    """Children that have ended, and how."""
    ended: dict[int, int] = {}
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = found[1]
    except ChildProcessError:
        pass
    return ended


def _alone() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def _children() -> list[int]:
    """Perhaps not all of them, where some are ending: whoever asks asks again."""
    me = os.getpid()
    try:
        return [int(one) for one in _read(f"/proc/self/task/{me}/children").split()]
    except OSError:  # not every kernel has it
        names = os.listdir("/proc")  # noqa: PTH208 - as little as it can
        return [int(one) for one in names if one.isdigit() and _parent(one) == me]


def _parent(pid: str) -> int:
    try:
        return int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123 - as little as it can
        return file.read()


def _kill(pid: int, number: signal.Signals) -> None:
    try:  # noqa: SIM105 - as little as it can
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _prctl(option: int, value: int) -> None:
    try:
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        return  # then only those are found that stay in the server's group or below it


def _leave(status: int) -> None:
    """End as the server did, for whoever asks how."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        _prctl(_DUMPABLE, 0)  # it has left its core already
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    _leave(main(*sys.argv[1:]))
