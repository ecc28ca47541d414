"""Who drives a run: one process on one boot of one machine.

A process id alone is not enough: ids are used again. With the boot and the moment the
process began it is, and anyone on the same machine can tell whether it still lives.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Container
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

from penstock.ids import RunId


class Owner(Struct, frozen=True):
    host: str
    boot: str
    pid: int
    began: str
    """When the process started, in the kernel's own ticks."""
    space: str = ""
    """The namespace that the process id belongs to: containers of one machine count their own."""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def encoded(self) -> str:
        return msgspec.json.encode(self).decode()

    def dead(self) -> bool | None:
        """Whether the owner is certainly gone; None when only its lease can tell (another machine)."""
        here = me()
        if self.host != here.host or (self.boot == here.boot and self.space != here.space):
            return None
        return self.boot != here.boot or _began(self.pid) != self.began


def decode(text: str) -> Owner:
    return msgspec.json.decode(text, type=Owner)


def me() -> Owner:
    """This process. Asked anew after a fork of the process."""
    return _me(os.getpid())


@cache
def _me(pid: int) -> Owner:
    return Owner(socket.gethostname(), _boot(), pid, _began(pid), _space())


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _began(pid: int) -> str:
    """The start time of a process; empty when there is none (or no /proc to ask)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return "" if not _exists(pid) else "?"
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def in_family(run: RunId | None, driven: Container[RunId]) -> bool:
    """Whether a run is driven here, or is a child of one that is and waits for storage as that one does."""
    while run:
        if run in driven:
            return True
        run = RunId(run.rpartition("/")[0])  # as `child_id` names them
    return False
