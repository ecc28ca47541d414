"""Sees to it that no server outlives us, however we end.

A small shell waits at the end of a pipe. While we live it is told which process groups are ours;
when the pipe closes, because we closed it or because we were killed, it ends what is left. On Linux
the group is that of a `guard`, which knows all that its server started. Elsewhere it is the server's
own, and what has left that is not found. Every server also carries a mark in its environment, by
which those are found, on Linux again, that lost their guard or were started in the very moment
of our death.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
from pathlib import Path
from typing import Final

MARK: Final = "PENSTOCK_POOL"
"""The variable that carries the mark."""

_SCRIPT: Final = r"""
trap '' HUP INT TERM
groups=
while read -r sign group; do
  case $sign in
    +) groups="$groups $group" ;;
    -) left=
       for each in $groups; do [ "$each" = "$group" ] || left="$left $each"; done
       groups=$left ;;
  esac
done
for each in $groups; do kill -s "${each%:*}" -- "-${each#*:}"; done
for again in 1 2; do
  for each in $(grep -las "$1" /proc/[0-9]*/environ); do
    each=${each#/proc/}
    kill -9 "${each%/environ}"
  done
  [ "$again" = 2 ] || sleep 0.2
done
"""


class Watchdog:
    """Starts with the first server, and ends with us."""

    def __init__(self) -> None:
        self.mark = secrets.token_hex(12)
        self._shell: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._groups: dict[int, signal.Signals] = {}

    def start(self) -> None:
        """Be on guard from now on; a watchdog that someone killed is replaced."""
        if self._shell is not None and self._shell.poll() is None:
            return
        self._leave()
        ear, self._pipe = os.pipe()
        try:
            self._shell = subprocess.Popen(  # noqa: S603 - a fixed text and a mark of our own
                ["/bin/sh", "-c", _SCRIPT, "watchdog", f"{MARK}={self.mark}"],
                stdin=ear, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True, cwd="/",
            )  # fmt: skip
        finally:
            os.close(ear)
        for group, end in self._groups.items():
            self._tell("+", group, end)

    def add(self, group: int, end: signal.Signals) -> None:
        """`end` is the signal by which nothing is left of the group."""
        self._groups[group] = end
        self._tell("+", group, end)

    def remove(self, group: int) -> None:
        end = self._groups.pop(group, None)
        if end is not None:
            self._tell("-", group, end)

    def close(self) -> None:
        """Kill whatever is left of ours, and let the watchdog go. Blocks for a moment."""
        for group, end in self._groups.items():
            kill_group(group, end)
        self._groups.clear()
        for stray in marked(self.mark):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(stray, signal.SIGKILL)
        self._leave()

    def _leave(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        if self._shell is not None:
            self._shell.kill()  # nothing is left for it to do
            self._shell.wait()
            self._shell = None

    def _tell(self, sign: str, group: int, end: signal.Signals) -> None:
        if self._pipe >= 0:
            with contextlib.suppress(BrokenPipeError):  # the next start brings a new one
                os.write(self._pipe, f"{sign} {end.name.removeprefix('SIG')}:{group}\n".encode())


def kill_group(group: int, number: signal.Signals) -> None:
    """Signal a process and everything it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def marked(mark: str) -> list[int]:
    """The processes that carry a mark. Nowhere but on Linux can one tell."""
    sought = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if sought in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found
