"""`shell:run`: a program with its arguments, in an allowed folder. No shell reads them; off by default."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any, Final, cast

from penstock.tools.builtin.places import Places
from penstock.tools.functions import tool

LARGEST: Final = 1024 * 1024
"""Bytes of output that are kept: the last ones."""

TIMEOUT: Final = 25.0


class Shell:
    """Its method is the tool."""

    def __init__(
        self, places: Places, variables: Mapping[str, str], commands: Sequence[str] = ("*",)
    ) -> None:
        self._places = places
        self._commands = commands
        """The programs, as `argv[0]` names them; `*` for any."""
        self._variables = {
            name: variables[name] for name in ("HOME", "LANG", "PATH", "TMPDIR") if name in variables
        }

    @tool(effect="destructive")
    def run(
        self, argv: list[str], cwd: str = ".", stdin: str = "", timeout: float = TIMEOUT
    ) -> dict[str, Any]:
        """Run a program: its exit code and output."""
        if not argv:
            raise ValueError("argv is empty")
        if "*" not in self._commands and argv[0] not in self._commands:
            allowed = ", ".join(self._commands)
            raise ValueError(f"{argv[0]!r} is not among the programs of [tools.shell] commands ({allowed})")
        process = subprocess.Popen(  # noqa: S603 - this is what the tool is for; whoever turned it on knows
            argv, cwd=self._places.resolve(cwd), env=self._variables, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            out, err = _talk(process, stdin.encode(), time.monotonic() + timeout)
        except TimeoutError:
            raise ValueError(f"{argv[0]} did not end within {timeout:g} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
        return {
            "code": process.returncode,
            "stdout": out.decode(errors="replace"),
            "stderr": err.decode(errors="replace"),
        }


def _talk(process: subprocess.Popen[bytes], said: bytes, until: float) -> tuple[bytes, bytes]:
    """What a program says until it ends; of more than may be kept never more than twice that is held."""
    assert process.stdin is not None  # noqa: S101 - all three are pipes
    heard = {pipe: bytearray() for pipe in (process.stdout, process.stderr) if pipe is not None}
    with selectors.DefaultSelector() as ready:
        for pipe in heard:
            ready.register(pipe, selectors.EVENT_READ)
        os.set_blocking(process.stdin.fileno(), False)
        ready.register(process.stdin, selectors.EVENT_WRITE)
        while ready.get_map():
            for key, _ in ready.select(_left(until)):
                if key.fileobj is process.stdin:
                    said = _told(process.stdin.fileno(), said)
                    done = not said
                else:
                    chunk = os.read(key.fd, 64 * 1024)
                    kept = heard[cast("IO[bytes]", key.fileobj)]
                    kept += chunk
                    if len(kept) > 2 * LARGEST:
                        del kept[:-LARGEST]
                    done = not chunk
                if done:
                    ready.unregister(key.fileobj)
                    cast("IO[bytes]", key.fileobj).close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_left(until))
        out, err = heard.values()
        return bytes(out[-LARGEST:]), bytes(err[-LARGEST:])
    raise TimeoutError


def _told(pipe: int, said: bytes) -> bytes:
    """What is left to say; nothing when nobody listens any more."""
    try:
        return said[os.write(pipe, said[: 64 * 1024]) :] if said else b""
    except BrokenPipeError:
        return b""


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
