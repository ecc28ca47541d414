"""The live view, on a real pseudo-terminal."""

from __future__ import annotations

import re
import signal
from pathlib import Path

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7][0-9;]*m")


def last_frame(text: str) -> str:
    """What stands on the screen at the end, without colours: the text after the last cursor movement up."""
    plain = re.sub(r"\x1b\[[0-9;?]*[a-ln-zB-Z]|\x1b\[[0-9;]*m", "", re.split(r"\x1b\[\d*A", text)[-1])
    return plain.replace("\r", "")


FLOW = """
    {id: again, uses: "py:tools:second_time", retry: {max_attempts: 2, backoff: 1ms}}
    {id: each, uses: "py:tools:echo", for_each: "[1, 2, 3]", with: {value: "${ item }"}}
    {id: never, uses: "py:tools:boom", when: "false", needs: [each]}
"""
OUTPUTS = 'outputs: {list: "${ steps.each.output }", text: "one\\ntwo"}'


def test_the_view_shows_every_step_of_a_small_run_and_ends_with_the_outputs(terminal, write) -> None:
    code, text = terminal("run", write(FLOW, OUTPUTS)).finish()

    frame = last_frame(text)
    assert code == 0
    assert re.search(r"flow  \w{16}  succeeded", frame)
    assert re.search(r"0 ✓ again +\d+ ms  2 attempts", frame)
    assert re.search(r"✓ each +\d+ ms  3 items", frame)
    assert re.search(r"1 – never +when is false: false", frame)
    assert "3/3  · 2 succeeded · 1 skipped" in frame
    assert frame.endswith("text:\none\ntwo\n")
    assert COLOUR.search(text)
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_no_color_is_honoured(terminal, write) -> None:
    code, text = terminal("run", write(FLOW, OUTPUTS), NO_COLOR="1").finish()

    assert code == 0
    assert not COLOUR.search(text)


def test_a_dumb_terminal_gets_plain_lines(terminal, write) -> None:
    code, text = terminal("run", write(FLOW, OUTPUTS), TERM="dumb").finish()

    assert code == 0
    assert "\x1b" not in text
    assert "done     each[2]" in text


def test_of_a_large_run_the_view_shows_what_fits(terminal, folder: Path) -> None:
    steps = [f'  - {{id: step_{n}, uses: "py:tools:echo", with: {{value: {n}}}}}' for n in range(300)]
    steps += ['  - {id: broken, uses: "py:tools:boom", needs: [step_0]}']
    (folder / "large.yaml").write_text("\n".join(["name: large", "steps:", *steps]))

    code, text = terminal("run", "large.yaml", rows=20).finish()

    frame = last_frame(text)
    assert code == 1
    assert len(frame.splitlines()) < 20
    assert re.search(r"✗ broken +\d+ ms  ValueError: no good", frame)
    assert "layer 0 of 1" in frame
    assert "301/301  · 300 succeeded · 1 failed" in frame


def test_no_line_is_wider_than_the_terminal(terminal, write) -> None:
    flow = write(f'{{id: bad, uses: "py:tools:boom", with: {{message: {"x" * 500}}}, on_error: continue}}')

    _, text = terminal("run", flow, columns=60).finish()

    assert max(len(line) for line in last_frame(text).splitlines()) <= 60


def test_on_a_terminal_show_prints_text_as_text(terminal, cli, write) -> None:
    flow = write(
        '{id: say, uses: "py:tools:echo", with: {value: "one\\ntwo"}}',
        'outputs: {said: "${ steps.say.output }"}',
    )
    cli("run", flow, "-q")

    _, text = terminal("show", "last").finish()

    assert text.replace("\r", "").endswith("said:\none\ntwo\n")


def test_a_question_is_broken_between_words(terminal, flow) -> None:
    screen = terminal("run", flow("ship"), columns=40)
    text = screen.until("more] ").replace("\r", "")
    screen.type("abort\n\n")
    screen.finish()

    question = text[text.index("approval: deploy") :].splitlines()
    assert max(map(len, question)) <= 40
    assert "[y approve · e edit · n reject · s not\n  now · ? more]" in text


def test_what_a_step_prints_stands_above_the_view(terminal, write) -> None:
    code, text = terminal("run", write('{id: loud, uses: "py:tools:noisy"}')).finish()

    assert code == 0
    assert "printed by a step" in text
    assert "1/1  · 1 succeeded" in last_frame(text)


def test_an_interrupt_ends_the_view_in_good_order(terminal, write) -> None:
    screen = terminal("run", write('{id: endless, uses: "py:tools:forever"}'))
    screen.until("endless")

    screen.process.send_signal(signal.SIGINT)
    code, text = screen.finish()

    assert code == 130
    assert "aborted" in last_frame(text)
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_a_second_interrupt_gives_the_cursor_back(terminal, write) -> None:
    screen = terminal("run", write('{id: stubborn, uses: "py:tools:stubborn"}'))
    screen.until("stubborn")

    screen.process.send_signal(signal.SIGINT)
    screen.until("stopping: interrupted")
    screen.process.send_signal(signal.SIGINT)
    code, text = screen.finish()

    assert code == 130
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
