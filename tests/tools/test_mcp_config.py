"""Servers are read from the files that people have already."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.tools.mcp.config import Config, Server, parse_config, read_config


def config(entries: Any, variables: dict[str, str] | None = None, key: str = "mcpServers") -> Config:
    return parse_config(json.dumps({key: entries}), variables or {})


def only(found: Config) -> Server:
    assert not found.problems
    return next(iter(found.servers.values()))


def test_a_command_with_arguments_and_variables() -> None:
    entry = {
        "command": "uvx",
        "args": ["git", "${FOLDER:-.}"],
        "env": {"KEY": "${KEY}", "N": 3},
        "cwd": "/srv",
    }

    server = only(config({"git": entry}, {"KEY": "secret"}))

    assert (server.command, server.args, server.cwd) == ("uvx", ("git", "."), "/srv")
    assert server.env == {"KEY": "secret", "N": "3"}
    assert "secret" not in repr(server)


def test_an_address_with_headers() -> None:
    entry = {"type": "http", "url": "https://${HOST}/mcp", "headers": {"Authorization": "Bearer ${T}"}}

    server = only(config({"web": entry}, {"HOST": "x.org", "T": "t"}))

    assert (server.url, server.headers) == ("https://x.org/mcp", {"Authorization": "Bearer t"})


def test_what_is_not_set_is_left_as_it_stands_and_said() -> None:
    found = config({"a": {"command": "x", "args": ["${NOPE}", "$BARE", "${SET}"]}}, {"SET": "1", "BARE": "2"})

    assert found.servers["a"].args == ("${NOPE}", "$BARE", "1")
    assert [problem.message for problem in found.problems] == ["${NOPE} is not set"]


def test_the_form_of_vs_code_with_its_inputs() -> None:
    text = json.dumps(
        {
            "servers": {"a": {"type": "stdio", "command": "x", "args": ["${input:key}", "${input:place}"]}},
            "inputs": [{"id": "key", "type": "promptString"}, {"id": "place", "default": "here"}],
        }
    )

    assert only(parse_config(text, {}, {"key": "k"})).args == ("k", "here")


def test_our_own_options_stand_under_one_key() -> None:
    ours = {"idle": "5m", "timeout": 3, "effects": {"log": "read"}, "max_bytes": 4096}

    server = only(config({"a": {"command": "x", "x-penstock": ours, "autoApprove": ["what others know"]}}))

    assert (server.idle, server.timeout, server.effects, server.max_bytes) == (
        300.0,
        3.0,
        {"log": "read"},
        4096,
    )


def test_a_key_that_nobody_knows_is_said_and_the_server_is_one_all_the_same() -> None:
    found = config({"a": {"command": "x", "arg": ["y"], "envFile": ".env"}})

    assert list(found.servers) == ["a"]
    assert [f"{one.where}: {one.message} ({one.hint})" for one in found.problems] == [
        "mcpServers.a: unknown key 'arg' (did you mean 'args'?)",
        "mcpServers.a: unknown key 'envFile' (it is not read)",
    ]


def test_an_input_that_nobody_can_type_is_answered_by_a_variable() -> None:
    text = json.dumps(
        {
            "servers": {"a": {"command": "x", "env": {"KEY": "${input:api-key}", "HERE": "${env:PLACE}"}}},
            "inputs": [{"id": "api-key", "type": "promptString", "password": True}],
        }
    )

    answered = parse_config(text, {"PENSTOCK_INPUT_API_KEY": "k", "PLACE": "p"})
    silent = parse_config(text, {"PLACE": "p"})

    assert only(answered).env == {"KEY": "k", "HERE": "p"}
    assert [problem.hint for problem in silent.problems] == [
        "set PENSTOCK_INPUT_API_KEY; it is left as it stands"
    ]


def test_what_is_shown_of_a_server_is_what_its_file_says() -> None:
    entry = {"command": "x", "args": ["--key", "${KEY}", "a b"], "env": {"T": "${KEY}"}}
    server = only(config({"a": entry}, {"KEY": "secret-1"}))

    assert server.args == ("--key", "secret-1", "a b")
    assert server.written == "x --key '${KEY}' 'a b'"


def test_options_that_an_entry_does_not_give_are_taken_from_those_for_all() -> None:
    entries = {"mcpServers": {"a": {"command": "x", "x-penstock": {"idle": 1}}, "b": {"command": "x"}}}

    found = parse_config(json.dumps(entries), {}, defaults={"idle": 2.0, "timeout": 3.0})

    assert [(one.idle, one.timeout) for one in found.servers.values()] == [(1.0, 3.0), (2.0, 3.0)]


def test_a_disabled_server_is_none() -> None:
    assert config({"a": {"command": "x", "disabled": True}}) == Config({}, ())


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("text", "must be an object"),
        ({}, "has no command"),
        ({"type": "http"}, "has no url"),
        ({"type": "carrier pigeon", "command": "x"}, "is not a type"),
        ({"type": "sse", "url": "http://x"}, "SSE transport"),
        ({"url": "ftp://x"}, "is not an address"),
        ({"command": 3}, "command must be text"),
        ({"command": "x", "args": "all in one"}, "args must be a list"),
        ({"command": "x", "args": ["a\0b"]}, "args must be a list"),
        ({"command": "x", "env": {"A": None}}, "env must map"),
        ({"command": "x", "x-penstock": {"idel": "5m"}}, "unknown key 'idel'"),
        ({"command": "x", "x-penstock": {"idle": "soon"}}, "is not a duration"),
        ({"command": "x", "x-penstock": {"effects": {"a": "harmless"}}}, "effect classes"),
    ],
)
def test_one_entry_that_is_wrong_is_said_and_the_others_are_servers(entry: Any, words: str) -> None:
    found = config({"wrong": entry, "right": {"command": "x"}})

    assert list(found.servers) == ["right"]
    assert words in str(found.problems[0])


@pytest.mark.parametrize("name", ["py", "files", "a:b", "", "a/b"])
def test_a_name_that_means_something_else_is_refused(name: str) -> None:
    assert not config({name: {"command": "x"}}).servers


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "must be an object"),
        ('{"mcpServers": []}', "must be an object"),
        ("[" * 99_999, "is not JSON"),
    ],
)
def test_a_file_that_is_no_configuration_says_so(text: str, words: str) -> None:
    found = parse_config(text, {})

    assert not found.servers
    assert words in str(found.problems[0])


def test_a_file_that_is_not_there_names_no_servers(tmp_path: Path) -> None:
    assert read_config(tmp_path / ".mcp.json", {}) == Config()


def test_a_file_that_is_not_text_says_so(tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_bytes(b"\xff\xfe\x00")

    assert "cannot be read" in str(read_config(tmp_path / ".mcp.json", {}).problems[0])


def test_the_fingerprint_knows_another_program_but_no_secret() -> None:
    one = Server(name="a", command="x", env={"KEY": "1"})

    assert one.fingerprint == Server(name="a", command="x", env={"KEY": "2"}).fingerprint
    assert one.fingerprint != Server(name="a", command="y", env={"KEY": "1"}).fingerprint
