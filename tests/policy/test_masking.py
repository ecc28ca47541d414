"""What is said of an error keeps what helps and drops what leaks."""

from __future__ import annotations

import string
import time
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.policy import masking
from penstock.policy.masking import mask, secrets_in

ALNUM = string.ascii_letters + string.digits

secrets = st.text(ALNUM, min_size=10, max_size=40).filter(
    lambda text: any(c.isdigit() for c in text) and any(c.isalpha() for c in text)
)
names = st.sampled_from([
    "password", "PASSWORD", "db_password", "passwd", "pwd", "passphrase", "secret", "client_secret",
    "clientSecret", "token", "access_token", "GITHUB_TOKEN", "api_key", "apiKey", "API-KEY", "x-api-key",
    "aws_secret_access_key", "private_key", "key", "encryption-key", "credentials", "secret_key_base",
    "password1",
])  # fmt: skip
syntaxes = st.sampled_from([
    "{n}={s}", "{n} = {s}", "{n}: {s}", "{n}:{s}", "{n}='{s}'", '{n}="{s}"', "{n} = `{s}`", '"{n}": "{s}"',
    "'{n}': '{s}'", '{{"user": "ann", "{n}": "{s}", "port": 1}}', '{{\\"{n}\\": \\"{s}\\"}}', "{n} => {s}",
    "{n} := '{s}'", "Server=db;{n}={s};Timeout=3", "https://host/x?a=1&{n}={s}&b=2",
    "connect(host='h', {n}='{s}', port=1)", "f({n}={s})", "export {n}={s}", "<{n}>{s}</{n}>",
    "('{n}', '{s}')", "config['{n}'] = '{s}'", "{n}%3D{s}", '{n}="{s}', "{n}={s},{s}",
    '{n}: "a \\"{s}\\" b"',
])  # fmt: skip
forms = st.sampled_from([
    "sk-{s}abcdef", "sk-proj-{s}-abcdef", "sk-ant-api03-{s}", "ghp_{s}abcdefghij", "github_pat_{s}_abcdef",
    "xoxb-1234-{s}", "glpat-{s}abcdefgh", "hf_{s}abcdefgh", "npm_{s}abcdefgh", "pypi-{s}abcdefgh",
    "AIza{s}abcdefghijkl", "ya29.{s}abcdefgh", "eyJhbGciOiJI.eyJ{s}.{s}", "Bearer {s}", "bearer {s}",
    "Authorization: Basic {s}==", "--password {s}", "--api-key {s}", "['--token', '{s}']",
    "-----BEGIN PRIVATE KEY-----\n{s}\n{s}\n-----END PRIVATE KEY-----",
    "-----BEGIN RSA PRIVATE KEY-----\\n{s}\\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\n{s}", "postgresql://ann:{s}@db/x", "https://{s}@host/x",
    "amqp://ann:a/{s}@host", "redis://:{s}@host:6379/0", "http://h/?next=https://ann:{s}@host",
    "postgresql://ann:p{s}", "ftp://ann:{s}:{s}@@host",
])  # fmt: skip
fragments = st.sampled_from([
    "/", "\\", "\\\\", ":", "://", "@", "=", '"', "'", "`", "…", "…/", "***", "a", "b.py", " ", "\n", "C:",
    "file", "home", "~", "-", "--", "-----BEGIN A-----", "-----END A-----", "password", "key", "Key",
    "token", "Bearer ", "basic ", "eyJ", "sk-", "x1y2z3w4x1y2z3w4", "ghp_", ".", ",", "(", ")", "{", "}",
    "<", ">", "[", "]", "|", ";", "&", "?", "#", "$", "%3D", "site-packages", "lib/python3.11", "GET ",
    "-I", "\\n", "1", "None", "authorization", "secret", "Users", "\t", "é",
])  # fmt: skip
messy = st.lists(fragments, max_size=25).map("".join)
folders = st.text(string.ascii_lowercase, min_size=6, max_size=12).map(lambda text: "Q" + text)


@given(before=st.sampled_from(["", "failed: ", "x\n", "("]), name=names, syntax=syntaxes, secret=secrets)
def test_what_is_assigned_to_a_secret_name_is_gone_in_every_syntax(
    before: str, name: str, syntax: str, secret: str
) -> None:
    masked = mask(before + syntax.format(n=name, s=secret) + " and more")

    assert secret not in masked
    assert name in masked
    assert masked.startswith(before)
    assert masked.endswith(" and more")


@given(before=st.sampled_from(["", "failed: ", "x\n", "'", "\\n"]), form=forms, secret=secrets)
def test_a_secret_of_a_known_form_is_gone(before: str, form: str, secret: str) -> None:
    assert secret not in mask(f"{before}{form.format(s=secret)}")


@pytest.mark.parametrize(
    ("said", "masked"),
    [
        ("/home/ann/project/x.py:12: boom", "…/x.py:12: boom"),
        ('File "/home/ann/my project/x.py", line 3, in f', 'File "…/x.py", line 3, in f'),
        ("[Errno 2] No such file: '/data/in/orders.csv'", "[Errno 2] No such file: '…/orders.csv'"),
        ("/usr/lib/python3.11/site-packages/requests/api.py", "…/site-packages/requests/api.py"),
        ("/usr/lib/python3.11/asyncio/tasks.py", "…/python3.11/asyncio/tasks.py"),
        (r"C:\Users\ann\project\x.py", r"…\x.py"),
        (r"open 'C:\\Users\\ann\\x.py'", r"open '…\\x.py'"),
        (r"C:\Program Files\App\run.exe failed", r"…\run.exe failed"),
        (r"\\server\share\team\plan.doc", r"…\plan.doc"),
        ("file:///home/ann/x.py", "file://…/x.py"),
        ("sqlite:////srv/data/runs.db", "sqlite://…/runs.db"),
        ("cannot enter /home/ann", "cannot enter ~"),
        ("PATH=/usr/bin:/home/ann/bin", "PATH=…/bin:…/bin"),
        ("cc -I/home/ann/include/x", "cc -I…/x"),
        ("postgres://ann:hunter2@db:5432/x", "postgres://***@db:5432/x"),
        ("postgres://ann:hu/nt@er2@db/x", "postgres://***@db/x"),
        ("https://h/a?token=abc123&page=2", "https://h/a?token=***&page=2"),
        ('{"user": "ann", "password": "x y"}', '{"user": "ann", "password": "***"}'),
        ("Authorization: Bearer abc", "Authorization: ***"),
    ],
)
def test_what_helps_is_kept(said: str, masked: str) -> None:
    assert mask(said) == masked


@pytest.mark.parametrize(
    "said",
    [
        "ValueError: invalid literal for int() with base 10: 'abc'",
        "max_tokens=4096, total_tokens: 12",
        "unexpected token: '}'",
        "KeyError: 'name'",
        "invalid key: 'name'",
        "sorted(rows, key=len)",
        "monkey=5, primary_key=42",
        "password=None, token=null, secret=''",
        "password: ${ inputs.password }",
        "password authentication failed for user ann",
        "bearer authentication required",
        "task-runner-with-a-long-name-12345678",
        "GET /v1/models returned 503",
        "https://example.org:8080/users/@me",
        "at #/definitions/step/with",
        "either/or, 1/2, n/a, text/html, ./src/x.py, ../x/y, ~/x/y, ${HOME}/x/y",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "steps.fetch.output.items[3] is null",
    ],
)
def test_what_leaks_nothing_is_left_alone(said: str) -> None:
    assert mask(said) == said


@given(st.text(string.ascii_letters + string.digits + " .,:;!?()'\n", max_size=200))
def test_plain_sentences_are_left_alone(text: str) -> None:
    low = text.lower()
    if not masking._named(low) and not masking._formed(low):
        assert mask(text) == text


@given(
    st.lists(folders, min_size=1, max_size=5),
    st.sampled_from(["/", "C:\\", "C:/", "file:///", "\\\\host\\share\\"]),
)
def test_of_a_path_only_the_last_component_stays(parts: list[str], root: str) -> None:
    between = "\\" if "\\" in root else "/"
    masked = mask(f"cannot read {root}{between.join(parts)}{between}report.csv: denied")

    assert not any(part in masked for part in parts)
    assert masked.endswith(f"{between}report.csv: denied")


@given(messy)
def test_masking_twice_is_masking_once(text: str) -> None:
    once = mask(text)

    assert mask(once) == once


@given(st.text(max_size=80))
def test_any_text_can_be_masked(text: str) -> None:
    once = mask(text, frozenset({"hunter2hunter2"}))

    assert mask(once) == once


@given(messy)
def test_the_quick_look_misses_nothing(text: str) -> None:
    low = text.lower()
    if masking._ASSIGNED.search(text) or masking._FLAGGED.search(text) or masking._SCHEMED.search(text):
        assert masking._named(low)
    if masking._TOKENS.search(text) or masking._PEM_BEGIN.search(text):
        assert masking._formed(low)


@given(messy, secrets, messy)
def test_a_known_secret_is_gone_wherever_it_stands(before: str, secret: str, after: str) -> None:
    masked = mask(before + secret + after, frozenset({secret}))

    assert secret not in masked
    assert mask(masked, frozenset({secret})) == masked


def test_secrets_are_found_in_the_environment_by_the_names_of_variables() -> None:
    environment = {
        "GITHUB_TOKEN": "abcdefgh1",
        "DB_PASSWORD": "p@ss/word with 'quotes'",
        "OPENAI_API_KEY": "xyzxyzxyz",
        "PIN_SECRET": "1234",
        "HOME": "/home/ann",
        "SSH_AUTH_SOCK": "/run/agent.sock",
        "TOKEN_FILE": "/run/secrets/token",
        "KEYBOARD": "qwertyuiop",
        "PWD": "/work/of/ann",
        "OLDPWD": "/work/of/ben",
        "FTP_PWD": "swordfish",
    }

    known = secrets_in(environment)

    assert mask("it was xyzxyzxyz, qwertyuiop and 1234", known) == "it was ***, qwertyuiop and 1234"
    assert "word" not in mask("at https://host/p%40ss%2Fword%20with%20%27quotes%27", known)
    assert "/run/agent.sock" not in known
    assert not {"/work/of/ann", "/work/of/ben"} & known  # where one is, and no password
    assert "swordfish" in known


def test_a_secret_that_contains_another_one_leaves_nothing_behind() -> None:
    assert mask("it was abcdefghij", frozenset({"abcdefgh", "abcdefghij"})) == "it was ***"


def test_a_real_trace_keeps_files_lines_and_the_exception(tmp_path: Path) -> None:
    script = tmp_path / "private folder" / "job.py"
    script.parent.mkdir()
    script.write_text("def go(token):\n    raise ValueError(f'no such token={token}')\n", encoding="utf-8")
    scope: dict[str, object] = {}
    exec(compile(script.read_text(encoding="utf-8"), str(script), "exec"), scope)  # noqa: S102 - our own text
    try:
        scope["go"]("tok3n-of-mine")  # type: ignore[operator]
    except ValueError as error:
        said = "".join(traceback.format_exception(error))

    masked = mask(said)

    assert '"…/job.py", line 2, in go' in masked
    assert "ValueError: no such token=***" in masked
    assert "private folder" not in masked
    assert str(tmp_path.parent) not in masked


@pytest.mark.parametrize(
    "unit",
    [
        "a", "/", "/a", "/a(", "/a/b:", "\\", "\\\\a\\", "C:\\a ", '"/a', "`/'", "://", "://a:b", "://@",
        "a://a:", "…/", "password=", "password='", 'password="', 'password=\\"', "secret>", "key=Ab.ab",
        "a.a.", "token: ", "bearer a", "--a", "--a-password ", "-", "sk-", "-eyJ", "eyJaaaaaaaaa.aa.",
        "\\neyJ", "SG.aaaaaaaaaaaaaaaa.", "-----BEGIN A-----!", "-----BEGIN A-----\n-----END !",
        "-----END A-----", "(),", "%3D", "\n ",
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", ["", "!\n=\"'@/"])
def test_no_text_takes_longer_than_its_length_allows(unit: str, end: str) -> None:
    text = (unit * 200_000)[:200_000] + end
    began = time.process_time()

    mask(text)

    assert time.process_time() - began < 5  # a fraction of a second; anything quadratic takes hours


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["/a(", 'password="', "-----BEGIN A-----!", "://a:b", "a"])
def test_a_megabyte_is_no_problem(unit: str) -> None:
    began = time.process_time()

    mask((unit * 1_000_000)[:1_000_000])

    assert time.process_time() - began < 20
