"""Checks are made for real: expressions, tools and commands."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import UnknownTool
from penstock.ids import RunId, StepId
from penstock.policy.masking import mask
from penstock.steps.check_gate import DETAIL, check_gate
from penstock.tools.base import Task, Tool
from penstock.tools.functions import tool_of
from penstock.workflow import expr
from penstock.workflow.expr import MISSING, Scope
from penstock.workflow.interpolate import compile_value
from penstock.workflow.sites import AFTER, CompiledCheck

SCOPE = Scope(names=AFTER, inputs={}, steps=())
TASK = Task(RunId("r"), StepId("s"), 1, None, 2)
PYTHON = sys.executable


class Threaded:
    """A host with threads and no children."""

    async def in_thread(self, call: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(call)

    async def child(self, *_: Any) -> Any:
        raise NotImplementedError


def by_expr(source: str) -> CompiledCheck:
    return CompiledCheck(source, expr.compile(source, SCOPE, "bool"))


def by_tool(name: str, timeout: float | None = None, **args: Any) -> CompiledCheck:
    return CompiledCheck(name, tool=name, args=compile_value(args, SCOPE) if args else None, timeout=timeout)


def by_run(*argv: str, timeout: float | None = None) -> CompiledCheck:
    return CompiledCheck("run", run=compile_value(list(argv), SCOPE), timeout=timeout)


def by_code(code: str, *args: str, timeout: float | None = None) -> CompiledCheck:
    return by_run(PYTHON, "-c", code, *args, timeout=timeout)


async def making(
    *checks: CompiledCheck,
    output: Any = None,
    tools: tuple[Callable[..., Any], ...] = (),
    clean: Callable[[str], str] = mask,
) -> tuple[dict[str, Any], ...]:
    known = {tool.id: tool for tool in map(tool_of, tools)}

    def find(name: str) -> Tool:
        try:
            return known[name]  # type: ignore[index]  # the same text
        except KeyError:
            raise UnknownTool(name) from None

    def look_up(path: tuple[str, ...]) -> Any:
        value: Any = {"output": output, "status": "succeeded"}
        for key in path:
            if not isinstance(value, dict) or key not in value:
                return MISSING
            value = value[key]
        return value

    return await check_gate(checks, look_up, TASK, Threaded(), find, clean)


def made(*checks: CompiledCheck, **more: Any) -> list[tuple[str, str]]:
    """Status and detail of each."""
    found = asyncio.run(making(*checks, **more))
    assert [one["name"] for one in found] == [check.name for check in checks]
    assert all(set(one) == {"name", "status", "detail", "ms"} and one["ms"] >= 0 for one in found)
    assert all(len(one["detail"].encode()) <= DETAIL for one in found)
    return [(one["status"], one["detail"]) for one in found]


def one(check: CompiledCheck, **more: Any) -> tuple[str, str]:
    return made(check, **more)[0]


# --- expressions ---


@pytest.mark.parametrize(
    ("source", "status", "detail"),
    [
        ("output.score >= 5", "passed", ""),
        ("output.score >= 9", "failed", "output.score >= 9 is false"),
        ("output.flag", "passed", ""),
        ("output.name", "failed", "output.name is someone, which is neither true nor false"),
        ("output.nothing", "failed", "output.nothing: no such value"),
    ],
)
def test_an_expression_passes_when_it_is_true(source: str, status: str, detail: str) -> None:
    output = {"score": 7, "flag": True, "name": "someone"}

    assert one(by_expr(source), output=output) == (status, detail)


@pytest.mark.parametrize("source", ["output.a.b > 1", "output.name > 1", "output.items.size() > 0"])
def test_an_output_that_an_expression_cannot_be_evaluated_on_has_failed(source: str) -> None:
    status, detail = one(by_expr(source), output={"name": "x"})

    assert status == "failed"
    assert detail


def test_all_checks_are_made_also_after_one_that_failed() -> None:
    checks = [by_expr("false"), by_expr("output"), by_tool("local:unknown"), by_expr("!output")]

    statuses = [status for status, _ in made(*checks, output=True)]

    assert statuses == ["failed", "passed", "unavailable", "failed"]
    assert made() == []


# --- tools ---


@dataclass
class Answer:
    ok: bool
    reason: str = ""


@pytest.mark.parametrize(
    ("answer", "status", "detail"),
    [
        (True, "passed", ""),
        (False, "failed", "local:check says no"),
        (1, "failed", "local:check gave 1, which is neither true nor false"),
        (None, "failed", "local:check gave null, which is neither true nor false"),
        ("yes", "failed", "local:check gave yes, which is neither true nor false"),
        ({"ok": True}, "passed", ""),
        ({"passed": True, "reason": "fine"}, "passed", ""),
        ({"success": True}, "passed", ""),
        ({"ok": True, "passed": False}, "failed", "local:check says no"),
        ({"ok": 1}, "failed", "local:check says no"),
        ({"ok": False, "reason": "too long"}, "failed", "too long"),
        ({"ok": False, "errors": ["a", {"line": 3}]}, "failed", 'a\n{"line":3}'),
        ({"ok": False, "reason": "", "message": "m"}, "failed", "m"),
        ({}, "failed", "the answer of local:check has none of ok, passed, success"),
        ({"error": "no such page"}, "failed", "no such page"),
        (Answer(ok=True), "passed", ""),
        (Answer(ok=False, reason="nope"), "failed", "nope"),
        (object(), "failed", "local:check gave a value of type object, which is neither true nor false"),
    ],
)
def test_a_tool_passes_when_it_says_so(answer: Any, status: str, detail: str) -> None:
    async def check() -> Any:
        return answer

    assert one(by_tool("local:check"), tools=(check,)) == (status, detail)


def test_a_tool_is_called_as_a_step_would_call_it() -> None:
    def plain(path: Path, n: int, task: ps.Task) -> bool:
        return (
            path == Path("a.txt")
            and n == 3
            and task.attempt == 2
            and threading.current_thread() is not threading.main_thread()
        )

    check = by_tool("local:plain", path="${ output.path }", n="${ output.n }")

    assert one(check, output={"path": "a.txt", "n": 3}, tools=(plain,)) == ("passed", "")


def test_a_result_that_does_not_fit_the_tool_has_failed_and_a_gate_that_does_not_is_unavailable() -> None:
    async def check(n: int) -> bool:
        return n > 0

    def status(value: Any) -> str:
        return one(by_tool("local:check", n=value), output={"n": "many"}, tools=(check,))[0]

    assert status("${ output.n }") == "failed"
    assert status("${ output.missing }") == "failed"
    assert status("many") == "unavailable"


async def broken() -> bool:
    raise ValueError("the parser is not installed")


async def leaving() -> bool:
    sys.exit(3)


async def slow() -> bool:
    raise TimeoutError("the server is slow")


async def giving_up() -> bool:
    raise asyncio.CancelledError


async def hanging() -> bool:
    await asyncio.Event().wait()
    return True


@pytest.mark.parametrize(
    ("tool", "detail"),
    [
        (broken, "ValueError: the parser is not installed"),
        (leaving, "SystemExit: 3"),
        (slow, "TimeoutError: the server is slow"),
        (giving_up, "local:giving_up cancelled itself"),
        (hanging, "local:hanging did not answer within 0.01 s"),
    ],
)
def test_a_tool_that_gives_no_answer_is_unavailable(tool: Callable[..., Any], detail: str) -> None:
    check = by_tool(f"local:{tool.__name__}", timeout=0.01)

    assert one(check, tools=(tool,)) == ("unavailable", detail)


def test_a_tool_that_is_not_there_is_unavailable() -> None:
    status, detail = one(by_tool("web:nothing"))

    assert status == "unavailable"
    assert "web:nothing" in detail


def test_cancelling_reaches_the_tool() -> None:
    ended: list[str] = []

    async def main() -> None:
        began = asyncio.Event()

        async def check() -> bool:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("tool")
            return True

        task = asyncio.ensure_future(making(by_tool("local:check"), by_expr("true"), tools=(check,)))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ended == ["tool"]


# --- commands ---


def test_a_command_passes_when_it_exits_with_zero() -> None:
    assert one(by_code("print('fine')")) == ("passed", "")
    assert one(by_code("import sys; sys.exit(1)")) == ("failed", "exit code 1")


def test_a_command_that_fails_tells_what_it_printed() -> None:
    code = "import sys; print('out', flush=True); print('err', file=sys.stderr, flush=True); sys.exit(2)"

    assert one(by_code(code)) == ("failed", "exit code 2\nout\nerr")


def test_of_much_output_the_end_is_told() -> None:
    status, detail = one(by_code("print('x' * 1_000_000); print('the end'); raise SystemExit(1)"))

    assert status == "failed"
    assert detail.startswith("exit code 1\n")
    assert detail.endswith("xxx\nthe end")
    assert len(detail.encode()) == DETAIL


def test_arguments_are_texts_and_no_shell_reads_them(tmp_path: Path) -> None:
    nasty = f"'; touch {tmp_path}/owned; echo $(touch {tmp_path}/owned) `x` * \n\"é"
    code = f"import sys; sys.exit(sys.argv[1:] != [sys.stdin.read() + '--', '3', '1.5', {nasty!r}])"

    output = {"n": 3, "x": 1.5, "text": nasty}

    check = by_code(code, "--", "${ output.n }", "${ output.x }", "${ output.text }")
    assert one(check, output=output) == ("passed", "")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("value", [None, True, ["a"], {"a": 1}, "nul\0", "half \ud800"])
def test_an_output_that_cannot_be_an_argument_has_failed(value: Any) -> None:
    status, detail = one(by_code("pass", "${ output.value }"), output={"value": value})

    assert status == "failed"
    assert "argument 3" in detail


def test_an_output_that_lacks_an_argument_has_failed() -> None:
    assert one(by_code("pass", "${ output.value }"), output={})[0] == "failed"


def test_an_output_too_long_for_an_argument_has_failed() -> None:
    status, detail = one(by_code("pass", "${ output }"), output="x" * 10_000_000)

    assert status == "failed"
    assert "too long" in detail


def test_a_command_that_cannot_be_run_is_unavailable(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no program", encoding="utf-8")
    garbled = tmp_path / "garbled"
    garbled.write_bytes(b"\0\1\2")
    garbled.chmod(0o755)

    assert one(by_run("surely-no-such-command")) == ("unavailable", "surely-no-such-command was not found")
    assert one(by_run(str(text)))[0] == "unavailable"
    assert one(by_run(str(garbled)))[0] == "unavailable"
    assert one(by_run("sh", "-c", "surely-no-such-command"))[0] == "unavailable"


def test_a_command_that_is_killed_is_unavailable() -> None:
    code = "import os, signal; print('so far', flush=True); os.kill(os.getpid(), signal.SIGTERM)"

    assert one(by_code(code)) == ("unavailable", "it was ended by SIGTERM\nso far")


def test_details_are_masked_and_hold_nothing_invisible() -> None:
    code = "print('\\x1b[31mtoken=abcdef1234567890 and \\x00 hunter2-hunter2'); raise SystemExit(1)"

    async def check() -> Any:
        return {"ok": False, "reason": "the password is hunter2-hunter2"}

    def clean(text: str) -> str:
        return mask(text, {"hunter2-hunter2"})

    assert made(by_code(code), by_tool("local:check"), tools=(check,), clean=clean) == [
        ("failed", "exit code 1\ntoken=*** and  ***"),
        ("failed", "the password is ***"),
    ]


def test_no_half_of_a_secret_is_told() -> None:
    secret = "".join(chr(ord("a") + n % 26) for n in range(40))
    code = f"print({secret!r} + 'x' * {DETAIL - len('exit code 1') - 1 - 20}, end=''); raise SystemExit(1)"

    _, detail = one(by_code(code), clean=lambda text: mask(text, {secret}))

    assert secret[-15:] not in detail


# --- nothing is left behind ---


@dataclass
class Line:
    """A named pipe that processes hold open for as long as they live."""

    path: Path

    def listen(self) -> tuple[asyncio.Future[str], asyncio.Future[str]]:
        """What is said first, and what is said until the last of them is gone."""
        loop = asyncio.get_running_loop()
        first: asyncio.Future[str] = loop.create_future()

        def hear() -> str:
            with self.path.open(encoding="utf-8") as file:
                loop.call_soon_threadsafe(first.set_result, file.readline())
                return file.read()

        return first, asyncio.ensure_future(asyncio.to_thread(hear))


@pytest.fixture
def line(tmp_path: Path) -> Line:
    os.mkfifo(tmp_path / "line")
    return Line(tmp_path / "line")


def family(line: Line, rest: str = "wait") -> tuple[str, ...]:
    """A command whose child holds the line as well, and its output."""
    return "sh", "-c", f"exec 3>{line.path}; sleep 1000 & echo $! >&3; {rest}"


def test_time_out_kills_the_command_and_what_it_started(line: Line) -> None:
    async def main() -> None:
        first, last = line.listen()
        found = await making(by_run(*family(line, "echo started; wait"), timeout=1.5))
        assert (found[0]["status"], found[0]["detail"]) == (
            "unavailable",
            "it did not end within 1.5 s\nstarted",
        )
        assert await first
        assert await last == ""

    asyncio.run(main())


def test_what_a_command_leaves_running_is_killed_when_it_ends(line: Line) -> None:
    async def main() -> None:
        first, last = line.listen()
        found = await making(by_run(*family(line, "echo done; exit 1")))
        assert (found[0]["status"], found[0]["detail"]) == ("failed", "exit code 1\ndone")
        assert await first
        assert await last == ""

    asyncio.run(main())


def test_cancelling_kills_the_command_and_what_it_started(line: Line) -> None:
    async def main() -> None:
        first, last = line.listen()
        task = asyncio.ensure_future(making(by_run(*family(line))))
        assert await first
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await last == ""

    asyncio.run(main())


def open_files() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def children() -> bool:
    """Whether this process has any, dead ones included."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


async def cancel_after(steps: int) -> None:
    before = open_files()
    task = asyncio.ensure_future(making(by_run("sleep", "1000")))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not children()
    assert len(asyncio.all_tasks()) == 1
    assert open_files() <= before + 2  # the loop may have opened a pair of its own, once


def test_cancelling_at_any_moment_leaves_nothing() -> None:
    here = Path(__file__)
    program = (
        f"import asyncio, sys; sys.path.insert(0, {str(here.parent)!r})\n"
        f"from {here.stem} import cancel_after\n"
        "for steps in range(10): asyncio.run(cancel_after(steps))"
    )

    done = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_who_moved_to_a_session_of_his_own_does_not_hold_the_check_up() -> None:
    code = (
        "import os, sys, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    time.sleep(3)\n"
        "    os._exit(0)\n"
        "sys.exit(4)\n"
    )

    assert one(by_code(code)) == ("failed", "exit code 4")
