"""What people really have in their configuration files."""

from __future__ import annotations

import json
import time

import pytest

from penstock.tools.mcp import jsonc
from penstock.tools.mcp.config import parse_config


@pytest.mark.parametrize("key", ["mcpServer", "mcpservers", "MCPServers", "mcp_servers"])
def test_a_file_that_names_no_servers_but_says_something_is_told_which_key_is_meant(key: str) -> None:
    found = parse_config(json.dumps({key: {"a": {"command": "x"}}}), {}, file=".mcp.json")

    assert str(found.problems[0]) == (f".mcp.json: has no mcpServers ({key!r}: did you mean 'mcpServers'?)")


def test_a_file_of_something_else_has_no_servers_and_an_empty_one_is_only_empty() -> None:
    assert [str(one) for one in parse_config('{"editor.fontSize": 12}', {}).problems] == ["has no mcpServers"]
    assert parse_config("{}", {}).problems == ()


def test_comments_and_trailing_commas_are_read_as_editors_read_them() -> None:
    text = (
        '{\n// mine\n"servers": {"a": {"command": "x", "args": ["https://h/*", ",]",],}, /* b */ },\n} // end'
    )

    found = parse_config(text, {})

    assert found.problems == ()
    assert found.servers["a"].args == ("https://h/*", ",]")


@pytest.mark.parametrize(
    "text",
    [
        r'{"a": "\\", "b": "// no comment", "c": "/* nor this */", "d": "\"// nor this"}',
        '{"a": ["x,", ",", ",}"]}',
        '{"a//b": 1}',
    ],
)
def test_what_looks_like_a_comment_within_a_text_is_none(text: str) -> None:
    assert jsonc.loads(text) == json.loads(text)


@pytest.mark.parametrize("text", ["[,]", "{,}", "[1,,]", '{"a":,}', '["a', '{"a": 1 / 2}', "[1 /* 2]"])
def test_what_no_editor_reads_is_not_read_here(text: str) -> None:
    with pytest.raises(ValueError, match="line 1"):
        jsonc.loads(text)


def test_what_is_wrong_is_found_where_it_stands_behind_comments() -> None:
    found = parse_config('{ /* two\nlines */ "servers": {\n  // here\n  "a": {"command": nope},\n}}', {})

    assert (found.problems[0].line, found.problems[0].column) == (4, 20)


def test_a_name_that_is_given_twice_is_said() -> None:
    found = parse_config(
        '{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y", "args": [], "args": []}}}', {}
    )

    assert [str(one) for one in found.problems] == [
        "mcpServers.a: is given twice (only the last one counts)",
        "mcpServers.a.args: is given twice (only the last one counts)",
    ]
    assert found.servers["a"].command == "y"


@pytest.mark.parametrize("part", ['\\"', "/*", "//", '"', ",", "[ ", '"\n', ", "])
def test_a_text_that_is_made_to_be_hard_to_read_is_refused_in_no_time(part: str) -> None:
    began = time.process_time()
    with pytest.raises((ValueError, RecursionError)):
        jsonc.loads(part * 200_000)

    assert time.process_time() - began < 2
