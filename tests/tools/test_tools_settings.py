"""`[tools]` of configuration files: what is wrong is said with its line, and files add up."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import settings
from penstock.errors import DefinitionError
from penstock.tools.rules import Rules
from penstock.tools.table import ToolsTable


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def table(**variables: str) -> ToolsTable:
    found = settings.read(variables).tools
    assert found is not None
    return found


def test_everything_that_can_be_said(folder: Path) -> None:
    (folder / "penstock.toml").write_text(
        """
        [tools]
        allow = ["git:*", "files:*"]
        ask = ["git:push"]
        deny = ["git:reset"]
        pinning = "refuse"

        [tools.effects]
        "git:log" = "read"

        [tools.timeouts]
        "*" = "2m"

        [tools.files]
        roots = ["docs", "~/notes"]

        [tools.http]
        allow = ["*.example.org"]
        deny = ["bad.example.org"]
        private = ["localhost:8080", "10.0.0.0/8"]

        [tools.shell]
        commands = ["git"]

        [tools.servers]
        idle = "5m"
        max_bytes = 4096
        """
    )

    found = table()

    assert found.rules == Rules(
        allow=("git:*", "files:*"),
        ask=("git:push",),
        deny=("git:reset",),
        effects={"git:log": "read"},
        timeouts={"*": 120.0},
    )
    assert (found.pinning, found.roots, found.commands) == ("refuse", ("docs", "~/notes"), ("git",))
    assert (found.hosts, found.no_hosts) == (("*.example.org",), ("bad.example.org",))
    assert found.private == ("localhost:8080", "10.0.0.0/8")
    assert found.servers == {"idle": 300.0, "max_bytes": 4096}
    assert found.said_in("deny", "git:reset") == "penstock.toml [tools]"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tools = 3", "penstock.toml:1: tools: must be a table"),
        ("[tools]\ndney = []", "penstock.toml:2: tools.dney: unknown setting (did you mean 'deny'?)"),
        ("[tools]\n\nask = 'git:*'", "penstock.toml:3: tools.ask: must be a list of texts"),
        ("[tools]\nask = ['']", "penstock.toml:2: tools.ask: must be a list of texts"),
        ("[tools]\npinning = 'of'", "penstock.toml:2: tools.pinning: 'of' is none of ask, refuse, off"),
        ("[tools.effects]\n'a:*' = 'raed'", "penstock.toml:2: tools.effects.a:*: 'raed' is none of read"),
        ("[tools]\neffects.'a.b:c' = 3", "penstock.toml:2: tools.effects.a.b:c: 3 is none of read"),
        ("[tools.timeouts]\n'*' = 'soon'", "penstock.toml:2: tools.timeouts.*: 'soon' is not a duration"),
        ("[tools.timeouts]\n'*' = -1", "penstock.toml:2: tools.timeouts.*: -1 is not a duration"),
        ("[tools.files]\nrotos = []", "tools.files.rotos: unknown setting (did you mean 'roots'?)"),
        ("tools = {http = {x = 1}}", "penstock.toml:1: tools.http.x: unknown setting (known are allow"),
        (
            "[tools.http]\nprivate = ['10.0.0.1/8']",
            "penstock.toml:2: tools.http.private: '10.0.0.1/8' is not",
        ),
        ("[tools.shell]\ncommands = true", "penstock.toml:2: tools.shell.commands: must be a list of texts"),
        ("[tools.servers]\nmax_bytes = 1", "penstock.toml:2: tools.servers.max_bytes: must be a number from"),
        ("[tools]\nfiles = []", "penstock.toml:2: tools.files: must be a table"),
        (
            "[tools]\ndeny = ['git__push']",
            "penstock.toml:2: tools.deny: 'git__push' fits no tool (write SERVER:TOOL, such as git:push)",
        ),
        (
            "[tools.timeouts]\ngit = 1",
            "tools.timeouts: 'git' fits no tool (write SERVER:TOOL, such as git:*)",
        ),
        ("stroe = 'x'", "penstock.toml:1: stroe: unknown setting (did you mean 'store'?)"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(folder: Path, text: str, words: str) -> None:
    (folder / "penstock.toml").write_text(text)

    with pytest.raises(DefinitionError) as caught:
        settings.read({})
    assert words in str(caught.value)


def test_the_lines_of_a_shared_file_are_those_of_that_file(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[project]\nname = "x"\n\n[tool.penstock.tools]\ndeny = 3\n')

    with pytest.raises(DefinitionError, match=r"pyproject\.toml:5: tools\.deny: must be a list"):
        settings.read({})


def test_everything_wrong_is_said_at_once(folder: Path) -> None:
    (folder / "penstock.toml").write_text("[tools]\nallow = 1\ndeny = 2\n[tools.http]\nhosts = 3\n")

    with pytest.raises(DefinitionError) as caught:
        settings.read({})
    assert [problem.line for problem in caught.value.problems] == [2, 3, 5]


def test_what_the_user_denies_no_project_allows_and_the_rest_is_the_projects(folder: Path) -> None:
    own = folder / "own" / "penstock"
    own.mkdir(parents=True)
    (own / "config.toml").write_text(
        '[tools]\ndeny = ["mail:*"]\nask = ["git:*"]\npinning = "refuse"\n'
        '[tools.timeouts]\n"a:*" = 1\n"b:*" = 2\n'
    )
    (folder / "penstock.toml").write_text(
        '[tools]\nallow = ["*"]\ndeny = ["git:reset"]\npinning = "off"\n[tools.timeouts]\n"b:*" = 3\n'
    )

    found = table(XDG_CONFIG_HOME=str(folder / "own"))

    assert [found.rules.verdict(id) for id in ("mail:send", "git:reset", "git:log", "x:y")] == [
        "deny", "deny", "ask", "allow",
    ]  # fmt: skip
    assert (found.pinning, found.rules.timeouts) == ("off", {"a:*": 1.0, "b:*": 3.0})
    assert found.said_in("deny", "mail:*") == f"{own / 'config.toml'} [tools]"


# --- the order of rules ---


@given(st.lists(st.sampled_from(["*", "git:*", "git:log", "mail:*"]), max_size=3), st.data())
def test_the_strictest_rule_that_fits_wins(patterns: list[str], data: st.DataObject) -> None:
    id = data.draw(st.sampled_from(["git:log", "git:push", "mail:send"]))
    strict = Rules(allow=("*",), ask=tuple(patterns), deny=tuple(patterns))

    fits = Rules(deny=tuple(patterns)).verdict(id) == "deny"
    assert strict.verdict(id) == ("deny" if fits else "allow")
    assert Rules(ask=tuple(patterns)).verdict(id) == ("ask" if fits else "allow")


def test_the_most_specific_pattern_gives_the_effect_and_the_limit() -> None:
    rules = Rules(
        effects={"*": "write", "git:*": "read", "git:re*": "destructive", "git:reset": "idempotent"},
        timeouts={"git:*": 5.0, "*:log": 7.0},
    )

    assert [rules.effect(id)[0] for id in ("git:reset", "git:rebase", "git:log", "x:y")] == [
        "idempotent", "destructive", "read", "write",
    ]  # fmt: skip
    assert (rules.timeout("git:log"), rules.timeout("git:x"), rules.timeout("a:b")) == (5.0, 5.0, None)


def test_a_refusal_names_its_rule() -> None:
    assert "'git:*' is in [tools] deny" in Rules(deny=("git:*",)).refusal("git:log")
    assert "nothing in [tools] allow fits it (mail:*)" in Rules(allow=("mail:*",)).refusal("git:log")
    assert Rules().refusal("git:log") == ""
