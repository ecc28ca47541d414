"""Questions to the person at the terminal. Asked on stderr, answered on stdin."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any

from penstock.cli.exits import say
from penstock.cli.text import one_line

if TYPE_CHECKING:
    from penstock.cli.signals import Interrupts
    from penstock.run.commands import Decide
    from penstock.run.events import DecisionRequired


def asker(interrupts: Interrupts) -> Asker | None:
    """Somebody to ask, if there is a terminal with somebody before it."""
    there = sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()
    return Asker(interrupts) if there else None


class Asker:
    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts

    async def sure(self, question: str) -> bool:
        """Yes or no; no when nothing is said."""
        return (await self._line(f"{question} [y/N] ")).lower() in ("y", "yes")

    async def decide(self, asked: DecisionRequired) -> Decide | None:
        """An answer to an open decision; None leaves it open."""
        from penstock.run.commands import Decide

        say(f"\n{asked.decision}: {one_line(asked.summary)}")
        choices = ", ".join(asked.options)
        while verb := await self._line(f"{choices} (or nothing, to leave it open): "):
            if verb not in asked.options:
                say(f"{verb!r} is not one of {choices}")
                continue
            args = await self._output() if verb == "accept" else None
            return Decide(decision=asked.decision, verb=verb, args=args, by=whoever())
        return None

    async def _output(self) -> dict[str, Any]:
        from penstock.cli.text import value

        return {"output": value(await self._line("its output, as JSON: "))}

    async def _line(self, prompt: str) -> str:
        sys.stderr.write(prompt)
        sys.stderr.flush()
        with self._interrupts.leaving_at_once():
            text: str = await asyncio.to_thread(sys.stdin.readline)
        return text.strip()


def whoever() -> str:
    """The name of whoever types, for the record."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
