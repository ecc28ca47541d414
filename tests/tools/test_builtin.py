"""The tools that are always there touch nothing they may not."""

from __future__ import annotations

import asyncio
import gzip
import http.server
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import VARIABLES, alive, eventually, wait

from penstock.tools.builtin.http import LARGEST, Forbidden, Http, is_public
from penstock.tools.builtin.offer import Reach, builtin_tools
from penstock.tools.builtin.places import Outside


class Box:
    """The tools, by name, for a folder."""

    def __init__(self, root: Path, **options: Any) -> None:
        reach = Reach(roots=(root,), variables=VARIABLES, **options)
        self.tools = {tool.id: tool for tool in builtin_tools(reach)}

    def __call__(self, id: str, **args: Any) -> Any:
        tool = self.tools[id]  # type: ignore[index]
        result = tool.call(**(tool.convert(args) if tool.convert else args))
        return asyncio.run(result) if asyncio.iscoroutine(result) else result


@pytest.fixture
def box(tmp_path: Path) -> Box:
    (tmp_path / "inside").mkdir()
    (tmp_path / "outside.txt").write_text("secret")
    return Box(tmp_path / "inside")


def test_each_tool_has_its_effect_class(box: Box) -> None:
    assert {id: tool.effect for id, tool in box.tools.items() if not id.startswith("data:")} == {
        "http:get": "read",
        "files:read": "read",
        "files:write": "idempotent",
        "files:append": "write",
        "files:delete": "destructive",
        "files:list_directory": "read",
        "files:search": "read",
    }
    assert {tool.effect for id, tool in box.tools.items() if id.startswith("data:")} == {"read"}


# --- files ---


def test_what_was_written_is_read(box: Box) -> None:
    written = box("files:write", path="notes/a.txt", content="grüße\n")
    box("files:append", path="notes/a.txt", content="mehr")

    assert written["bytes"] == 8
    assert box("files:read", path="notes/a.txt")["text"] == "grüße\nmehr"
    assert box("files:list_directory", path=".") == {"path": ".", "files": [], "folders": ["notes"]}
    assert box("files:list_directory", path="./notes")["files"] == ["notes/a.txt"]
    assert box("files:search", pattern="*.txt", text="mehr")["matches"] == [
        {"path": "notes/a.txt", "line": 2, "text": "mehr"}
    ]
    assert box("files:delete", path="notes/a.txt")["deleted"]
    assert box("files:search")["matches"] == []


def test_bytes_travel_in_base_64(box: Box) -> None:
    box("files:write", path="a.bin", content="//4A", encoding="base64")

    assert box("files:read", path="a.bin", encoding="base64")["text"] == "//4A"
    with pytest.raises(ValueError, match=r"a\.bin is not UTF-8"):
        box("files:read", path="a.bin")


@pytest.mark.parametrize("tool", ["files:read", "files:list_directory", "files:delete", "files:search"])
@pytest.mark.parametrize(
    "path", ["../outside.txt", "/etc/passwd", "link", "folder-link/x", "a/../../outside.txt", "a\0b", "loop"]
)
def test_no_path_leads_outside(box: Box, tmp_path: Path, tool: str, path: str) -> None:
    inside = tmp_path / "inside"
    (inside / "link").symlink_to(tmp_path / "outside.txt")
    (inside / "folder-link").symlink_to(tmp_path)
    (inside / "loop").symlink_to(inside / "loop")

    with pytest.raises((Outside, OSError)):
        box(tool, path=path)
    with pytest.raises((Outside, OSError)):
        box("files:write", path=path, content="x")
    with pytest.raises((Outside, OSError)):
        box("files:append", path=path, content="x")
    assert (tmp_path / "outside.txt").read_text() == "secret"
    assert box("files:list_directory")["files"] in ([], ["loop"])


def test_a_pipe_or_a_device_is_not_a_file(box: Box, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "inside" / "pipe")

    with pytest.raises(Outside, match="is not a file"):
        box("files:read", path="pipe")
    with pytest.raises(Outside, match="is not a file"):
        box("files:write", path=".", content="x")


# --- data ---


def test_json_csv_and_xml_come_and_go(box: Box) -> None:
    box("files:write", path="a.json", content='{"a": [1, 2]}')

    assert box("data:parse_json", path="a.json") == {"a": [1, 2]}
    assert box("data:format_json", value={"b": 1, "a": "ü"}, indent=0, sort_keys=True) == '{"a": "ü", "b": 1}'
    rows = box("data:parse_csv", text='name,n\n"a, b",1\nc,2\n')
    assert rows == [{"name": "a, b", "n": "1"}, {"name": "c", "n": "2"}]
    assert box("data:format_csv", rows=rows) == 'name,n\n"a, b",1\nc,2\n'
    tree = box("data:parse_xml", text='<a x="1"><b>t &amp; u</b><c/></a>')
    assert tree["children"][0] == {"tag": "b", "attributes": {}, "text": "t & u", "children": []}
    assert box("data:format_xml", element=tree) == '<a x="1"><b>t &amp; u</b><c/></a>'


@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><x>&b;</x>',
        '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><x>&a;</x>',
        '<!DOCTYPE x SYSTEM "http://example.com/x.dtd"><x/>',
        "<a>" * 1000 + "</a>" * 1000,
        "<a><b></a>",
        "not xml",
    ],
)
def test_dangerous_or_broken_xml_is_refused(box: Box, text: str) -> None:
    with pytest.raises(ValueError, match="XML"):
        box("data:parse_xml", text=text)


def test_either_text_or_a_path_is_read(box: Box) -> None:
    for given in ({}, {"text": "1", "path": "a"}):
        with pytest.raises(ValueError, match="either text or path"):
            box("data:parse_json", **given)
    with pytest.raises(ValueError, match="is not JSON"):
        box("data:parse_json", text="{")


# --- http ---


class Site(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        bomb = self.path == "/bomb"
        if bomb:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        body = gzip.compress(b"x" * (LARGEST * 2)) if bomb else f"grüße {self.headers.get('X-Key')}".encode()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def site() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_page_is_fetched(site: str) -> None:
    found = wait(Http([site]).get(f"http://{site}/", {"X-Key": "k"}))

    assert (found["status"], found["text"]) == (200, "grüße k")


def test_a_redirect_is_judged_like_any_other_address(site: str) -> None:
    here = Http([site])

    assert wait(here.get(f"http://{site}/to//page"))["text"] == "grüße None"
    for target in (
        "http://127.0.0.1:1/",
        "http://localhost:1/",
        "http://169.254.169.254/latest",
        "file:///etc/passwd",
    ):
        with pytest.raises(Forbidden):
            wait(here.get(f"http://{site}/to/{target}"))
    with pytest.raises(ValueError, match="more than 5 redirects"):
        wait(here.get(f"http://{site}" + "/to/" * 9))


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://localhost/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f.0.0.1/",
        "http://0/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://10.0.0.1/",
        "http://192.168.1.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://[fd00::1]/",
        "http://user:pw@example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "http:///nothing",
        "http://[",
    ],
)
def test_private_addresses_are_refused_however_they_are_written(url: str) -> None:
    with pytest.raises(Forbidden):
        wait(Http().get(url))


def test_a_name_is_resolved_once_and_judged_by_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["93.184.216.34", "127.0.0.1"])
    asked: list[str] = []

    async def resolve(_: Any, host: str, port: int, **__: Any) -> Any:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", resolve)
    next(answers)  # the second answer is the one that bites

    with pytest.raises(Forbidden, match=r"rebind\.example is 127\.0\.0\.1"):
        wait(Http().get("http://rebind.example/"))
    assert asked == ["rebind.example"]


def test_what_is_too_large_is_not_kept(site: str) -> None:
    with pytest.raises(ValueError, match=r"is larger than|bomb"):
        wait(Http([site]).get(f"http://{site}/bomb"))


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("2002:7f00:1::", False),
        ("fe80::1%eth0", False),
        ("x", False),
    ],
)
def test_which_addresses_are_public(address: str, *, public: bool) -> None:
    assert is_public(address) is public


# --- shell ---


def test_there_is_no_shell_unless_asked_for(box: Box) -> None:
    assert "shell:run" not in box.tools


def test_a_program_gets_its_arguments_as_they_are(tmp_path: Path) -> None:
    box = Box(tmp_path, programs=True)

    found = box("shell:run", argv=["printf", "%s|", "a b", "$HOME", ";ls"], stdin="x")
    assert (found["code"], found["stdout"]) == (0, "a b|$HOME|;ls|")
    assert box("shell:run", argv=["sh", "-c", "cat; exit 3"], stdin="hi") == {
        "code": 3,
        "stdout": "hi",
        "stderr": "",
    }
    assert box.tools["shell:run"].effect == "destructive"  # type: ignore[index]
    with pytest.raises(Outside):
        box("shell:run", argv=["ls"], cwd="/")


def test_a_program_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    box = Box(tmp_path, programs=True)

    with pytest.raises(ValueError, match="did not end within"):
        box("shell:run", argv=["sh", "-c", "sleep 1000 & echo $! > pid; wait"], timeout=0.5)
    pid = int((tmp_path / "pid").read_text())
    assert eventually(lambda: not alive(pid))
