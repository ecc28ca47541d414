"""`shell:run`: a program with its arguments, in an allowed folder. No shell reads them; off by default."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, Final

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
            out, err = process.communicate(stdin.encode(), timeout=timeout)
        except subprocess.TimeoutExpired:
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
            "stdout": out[-LARGEST:].decode(errors="replace"),
            "stderr": err[-LARGEST:].decode(errors="replace"),
        }
