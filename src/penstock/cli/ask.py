"""Questions to the person at the terminal. Asked on stderr, answered on stdin.

Nothing waits in a thread: a question that somebody else answers, or whose time is up, is dropped
in the middle of the line.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.exits import say

if TYPE_CHECKING:
    from penstock.cli.question import Key, Question
    from penstock.cli.signals import Interrupts
    from penstock.run.commands import Decide
    from penstock.run.events import DecisionRequired

GLANCE: Final = 0.1
"""Seconds between looks at whether a question is still open."""

REASONS: Final = ("reject", "abort")
"""Answers that are asked why."""


def asker(interrupts: Interrupts) -> Asker | None:
    """Somebody to ask, if there is a terminal with somebody before it."""
    there = sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()
    return Asker(interrupts) if there else None


class Asker:
    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self._open: Callable[[], bool] = lambda: True

    async def sure(self, question: str) -> bool:
        """Yes or no; no when nothing is said."""
        return (await self._line(f"{question} [y/N] ") or "").lower() in ("y", "yes")

    async def decide(self, question: Question) -> Decide | None:
        """An answer that counts; None leaves the decision open, or finds it closed."""
        from penstock.cli.question import described, explained, prompt
        from penstock.cli.text import folded

        asked, self._open = question.asked, question.open
        wide = shutil.get_terminal_size().columns
        say(f"\n{folded(described(question, time.time()), wide)}")
        while typed := await self._line(f"{folded(prompt(asked), wide)} "):
            if typed == "?":
                say(folded(explained(asked), wide))
                continue
            key = _chosen(question, typed)
            if key is None:
                say(f"{typed!r} is no answer here; ? shows what is")
                continue
            if not key.verb:
                return None
            decided = await self._filled(question, key)
            if decided is not None and not (wrong := question.refusal(decided)):
                return decided
            if decided is not None and self._open():
                say(wrong)
            if not self._open():
                break
        if not self._open():
            say(f"{asked.decision} waits no longer")
        return None

    async def _filled(self, question: Question, key: Key) -> Decide | None:
        """The answer with everything that it takes; None when the person thought better of it."""
        from penstock.run.commands import Decide

        asked, verb, message = question.asked, key.verb, ""
        args: Mapping[str, Any] | None = key.args
        if verb == "edit":
            args = await self._edited(asked.call.get("args") or {})
        elif verb == "accept" and asked.kind == "orphan":
            from penstock.cli.text import value

            args = {"output": value(await self._line("its output, as JSON: ") or "")}
        elif verb == "raise":
            args = await self._more(asked.call)
        elif verb == "respond" and args is None and asked.kind == "input":
            args = await self._form(asked)
        elif verb == "respond" and args is None:
            message = await self._line("message: ") or ""
            args = {} if message else None
        elif verb in REASONS:
            message = await self._line("why (may be left empty): ") or ""
            args = {}
        else:
            args = args or {}
        if args is None or not self._open():
            return None
        return Decide(decision=asked.decision, verb=verb, args=args or None, message=message, by=whoever())

    async def _form(self, asked: DecisionRequired) -> Mapping[str, Any] | None:
        """What somebody asks for, one by one; a line left empty leaves one out."""
        from penstock.cli.question import fields
        from penstock.cli.text import one_line, value

        given: dict[str, Any] = {}
        for name, field in fields(asked, "respond").items():
            about = ", ".join(one_line(str(field[key])) for key in ("description", "enum") if field.get(key))
            typed = await self._line(f"{one_line(name)}{f' ({about})' if about else ''}: ")
            if typed is None:
                return None
            if typed:
                given[name] = typed if field.get("type") == "string" else value(typed)
        return given

    async def _more(self, call: Mapping[str, Any]) -> Mapping[str, Any] | None:
        from penstock.cli.text import value
        from penstock.run.usage import figure

        name = call["budget"].rpartition("/")[2]
        typed = await self._line(f"new limit of {name} (Enter: {figure(2 * call['limit'])}): ")
        if typed is None:
            return None
        return {name: value(typed)} if typed else {}

    async def _edited(self, args: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The arguments that a person changed; None when nothing was."""
        import msgspec

        editor = os.environ.get("EDITOR", "")
        if editor:
            text = await self._in_editor(editor, args)
        else:
            text = await self._line("arguments to change, as one line of JSON: ") or ""
        if not text:
            return None
        try:
            given = msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError) as error:
            say(f"that is not a JSON object: {error}")
            return None
        changed = {name: value for name, value in given.items() if name not in args or args[name] != value}
        gone = [name for name in args if name not in given] if editor else []
        if gone:
            say(f"an argument cannot be left out: {', '.join(gone)}")
            return None
        if not changed:
            say("nothing was changed")
        return changed or None

    async def _in_editor(self, editor: str, args: Mapping[str, Any]) -> str:
        import shlex
        import tempfile
        from pathlib import Path

        from penstock.cli.text import pretty

        with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
            file = Path(folder, "arguments.json")
            file.write_text(pretty(args) + "\n", encoding="utf-8")  # noqa: ASYNC240 - small, and nobody waits
            try:
                with self._interrupts.left_alone():
                    process = await asyncio.create_subprocess_exec(*shlex.split(editor), str(file))
                    code = await process.wait()
            except (OSError, ValueError) as error:
                say(f"cannot start {editor!r}: {error}")
                return ""
            if code:
                say(f"{editor!r} ended with code {code}; nothing was changed")
                return ""
            return file.read_text(encoding="utf-8", errors="replace")  # noqa: ASYNC240 - the same

    async def _line(self, prompt: str) -> str | None:
        """What is typed; None when there is no more to come, or the question is closed meanwhile."""
        with self._interrupts.leaving_at_once():  # from the moment that the prompt is there
            sys.stderr.write(prompt)
            sys.stderr.flush()
            return await self._typed()

    async def _typed(self) -> str | None:
        loop, fd = asyncio.get_running_loop(), sys.stdin.fileno()
        typed: asyncio.Future[bytes] = loop.create_future()

        def read() -> None:
            loop.remove_reader(fd)  # one line at a time: the rest may be for someone else
            if not typed.done():
                typed.set_result(_read(fd))

        loop.add_reader(fd, read)
        try:
            while not typed.done() and self._open():
                await asyncio.wait([typed], timeout=GLANCE)
        finally:
            loop.remove_reader(fd)
        if not typed.done():
            say("")
            return None
        text = typed.result().decode(errors="replace")
        if not text:
            say("")
        return text.strip() if text else None


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 65_536)
    except OSError:  # the terminal has gone
        return b""


def _chosen(question: Question, typed: str) -> Key | None:
    """The key that was meant: itself, or the name of a verb."""
    from penstock.cli.question import Key, keys

    for key in keys(question.asked):
        if typed.lower() == key.key or (typed.lower() == key.verb and key.args is None):
            return key
    if typed.lower() == "yes":
        return _chosen(question, "y")
    if typed.lower() == "no":
        return _chosen(question, "n")
    verb = typed.lower()
    if verb not in question.asked.options or question.asked.kind == "route":
        return None
    return Key(verb, verb, verb)


def whoever() -> str:
    """The name of whoever types, for the record."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
