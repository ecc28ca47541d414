"""Questions at a real pseudo-terminal: in the middle of a run, and one by one with `decide`."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

MORE = "? more] "


class Talk:
    """What is typed after each thing that is said."""

    def __init__(self, screen) -> None:
        self.screen = screen
        self._from = 0

    def after(self, mark: str, typed: str) -> Talk:
        while mark not in self.screen.text[self._from :]:
            assert self.screen._more(), f"it never said {mark!r}: {self.screen.text[self._from :]}"
        self._from = self.screen.text.index(mark, self._from) + len(mark)
        self.screen.type(f"{typed}\n")
        return self

    def end(self) -> tuple[int, str]:
        code, text = self.screen.finish()
        return code, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


@pytest.fixture
def talk(terminal):
    return lambda *args, **env: Talk(terminal(*args, **{"EDITOR": "", **env}))


def test_a_run_asks_at_once_and_goes_on_after_yes(talk, flow, deployed) -> None:
    code, text = talk("run", flow("ship")).after(MORE, "y").end()

    assert code == 0
    assert "approval: deploy" in text
    assert "call   py:acts:deploy" in text
    assert re.search(r'env +"prod"', text)
    assert re.search(r"risk   destructive, critical, digest [0-9a-f]{12}", text)
    assert text.rstrip().endswith("share: 100")
    assert deployed() == ["prod 100"]


def test_the_cursor_is_there_while_a_question_is_asked(talk, flow) -> None:
    conversation = talk("run", flow("ship")).after(MORE, "y")
    asked = conversation.screen.text
    conversation.end()

    assert asked.rindex("\x1b[?25h") > asked.rindex("\x1b[?25l")


def test_arguments_are_edited_on_one_line_and_mistakes_are_asked_about_again(talk, flow, deployed) -> None:
    code, text = (
        talk("run", flow("ship"))
        .after(MORE, "e")
        .after("JSON: ", "{oops")
        .after(MORE, "e")
        .after("JSON: ", '{"nope": 1}')
        .after(MORE, "e")
        .after("JSON: ", '{"share": 10}')
        .end()
    )

    assert code == 0
    assert "that is not a JSON object" in text
    assert "the call has no argument 'nope'" in text
    assert deployed() == ["prod 10"]


def test_arguments_are_edited_in_the_editor(talk, flow, folder: Path, deployed) -> None:
    editor = folder / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/prod/stage/' \"$1\"\n")
    editor.chmod(0o755)

    code, _ = talk("run", flow("ship"), EDITOR=str(editor)).after(MORE, "e").end()

    assert code == 0
    assert deployed() == ["stage 100"]


def test_an_editor_that_fails_or_changes_nothing_leaves_the_question_open(talk, flow, deployed) -> None:
    failed = talk("run", flow("ship"), EDITOR="false").after(MORE, "e").after(MORE, "").end()
    unchanged = talk("run", flow("ship"), EDITOR="true").after(MORE, "e").after(MORE, "").end()

    assert failed[0] == unchanged[0] == 3
    assert "'false' ended with code 1" in failed[1]
    assert "nothing was changed" in unchanged[1]
    assert deployed() == []


def test_no_asks_why_and_fails_the_step(talk, flow, deployed, cli) -> None:
    code, _ = talk("run", flow("ship")).after(MORE, "n").after("empty): ", "not on a Friday").end()

    assert code in (1, 4)
    assert cli("show", "last", "--json").lines[0]["steps"]["deploy"]["reason"] == "not on a Friday"
    assert deployed() == []


@pytest.mark.parametrize("later", ["s", "", "\x04"], ids=["s", "Enter", "Ctrl-D"])
def test_a_question_that_is_left_open_waits(talk, flow, cli, deployed, later: str) -> None:
    code, text = talk("run", flow("ship")).after(MORE, later).end()

    assert code == 3
    assert "waiting for a decision: deploy would call" in text
    assert cli("approve", "last", "--json").code == 0
    assert deployed() == ["prod 100"]


def test_a_question_mark_shows_every_verb_and_what_is_no_answer_is_said(talk, flow, deployed) -> None:
    code, text = talk("run", flow("ship")).after(MORE, "?").after(MORE, "perhaps").after(MORE, "skip").end()

    assert code == 0
    assert "  abort     stop the run" in text
    assert "'perhaps' is no answer here; ? shows what is" in text
    assert deployed() == []


def test_no_input_makes_a_terminal_behave_like_none(terminal, flow) -> None:
    code, text = terminal("run", flow("ship"), "--no-input").finish()

    assert code == 3
    assert MORE not in text
    assert "waiting for a decision" in text


def test_ctrl_c_at_a_question_leaves_and_the_question_stays(talk, flow, cli) -> None:
    conversation = talk("run", flow("ship"))
    conversation.screen.until(MORE)

    conversation.screen.process.send_signal(signal.SIGINT)
    code, _ = conversation.end()

    assert code == 130
    assert [one["kind"] for one in cli("decide", "--list", "--json").lines] == ["approval"]


def test_a_question_is_asked_while_other_steps_still_run(talk, flow, folder: Path, deployed) -> None:
    path = flow("ship")
    text = (folder / path).read_text().replace(
        "outputs:", '  - {id: beside, uses: "py:acts:held"}\noutputs:'
    )  # fmt: skip
    (folder / path).write_text(text)

    conversation = talk("run", path).after(MORE, "y")
    while not deployed():
        assert conversation.screen.process.poll() is None
    (folder / "go").touch()
    code, _ = conversation.end()

    assert code == 0


def test_a_question_that_somebody_else_answers_is_dropped(talk, flow, cli, deployed) -> None:
    conversation = talk("run", flow("ship"))
    conversation.screen.until(MORE)

    assert cli("approve", "last").code == 0
    code, text = conversation.end()

    assert code == 0
    assert "waits no longer" in text
    assert deployed() == ["prod 100"]


def test_a_question_whose_time_is_up_is_dropped_and_the_run_goes_on(talk, flow) -> None:
    code, text = talk("run", flow("impatient")).end()

    assert code == 0
    assert re.search(r"until  \d\d:\d\d:\d\d \(\d+ ms left\), then the run goes on", text)
    assert text.rstrip().endswith("b: 2")


@pytest.mark.parametrize(
    ("name", "said", "code", "end"),
    [
        ("gated", [(MORE, "a")], 0, "size: 1"),
        ("gated", [(MORE, "e"), ("JSON: ", '{"size": 9}')], 0, "size: 9"),
        ("gated", [(MORE, "r"), (MORE, "x"), ("empty): ", "enough")], 1, "size: null"),
        ("gated", [(MORE, "s")], 0, "size: null"),
        ("routed", [(MORE, "1")], 0, "right: skipped"),
        ("routed", [(MORE, "7"), (MORE, "2")], 0, "right: succeeded"),
        ("spent", [(MORE, "r"), ("4): ", "")], 0, "c: 3"),
        ("spent", [(MORE, "r"), ("4): ", "1"), (MORE, "f")], None, "c: null"),
        ("agreed", [(MORE, "y")], 0, "b: 2"),
        ("agreed", [(MORE, "m"), ("message: ", "with care")], 0, "b: 2"),
        ("agreed", [(MORE, "n"), ("empty): ", "no")], 1, "b: null"),
    ],
    ids=lambda value: ",".join(typed for _, typed in value) if isinstance(value, list) else None,
)
def test_each_kind_of_question_has_its_keys(talk, flow, name: str, said, code, end: str) -> None:
    conversation = talk("run", flow(name))
    for mark, typed in said:
        conversation.after(mark, typed)
    left, text = conversation.end()

    assert left == code or (code is None and left in (1, 4))
    assert end in text or left == 1


def test_what_is_left_open_at_a_spent_budget_exits_with_5(talk, flow) -> None:
    assert talk("run", flow("spent")).after(MORE, "").end()[0] == 5


def test_resume_asks_too(talk, terminal, flow, deployed) -> None:
    terminal("run", flow("ship"), "--no-input").finish()

    code, _ = talk("resume", "last").after(MORE, "y").end()

    assert code == 0
    assert deployed() == ["prod 100"]


def test_decide_goes_through_everything_that_waits(talk, cli, flow, deployed) -> None:
    cli("run", flow("ship"))
    cli("run", flow("two"))

    code, text = talk("decide").after(MORE, "y").after(MORE, "y").after(MORE, "s").end()

    assert code == 3
    assert len(re.findall(r"^\w+:\d+  \w+  approval  \w+ would call", text, re.MULTILINE)) == 3
    assert deployed() == ["prod 100", "east 100"]
    assert [one["step"] for one in cli("decide", "--list", "--json").lines] == ["west"]


def test_decide_asks_about_a_run_that_another_process_drives(talk, begin, cli, flow, folder: Path) -> None:
    path = flow("ship")
    text = (folder / path).read_text().replace("outputs:", '  - {id: beside, uses: "py:acts:held"}\noutputs:')
    (folder / path).write_text(text)
    driver = begin("run", path, "--json")
    while not cli("decide", "--list", "--json").stdout:
        assert driver.poll() is None

    code, said = talk("decide").after(MORE, "y").end()
    (folder / "go").touch()

    assert code == 0
    assert "approve accepted by" in said
    assert driver.wait(30) == 0


def test_decide_with_nothing_to_ask_says_so(terminal, cli, flow) -> None:
    cli("run", flow("looped"))

    code, text = terminal("decide").finish()

    assert code == 0
    assert "no run waits for a decision" in text
