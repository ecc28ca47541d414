"""The tools that are always there touch nothing they may not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from serving import VARIABLES, alive, eventually

from penstock.tools.builtin.files import Files
from penstock.tools.builtin.offer import Reach, builtin_tools
from penstock.tools.builtin.places import Outside, Places


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
    listed = {"path": ".", "files": [], "folders": ["notes"], "more": False}
    assert box("files:list_directory", path=".") == listed
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


class Hasty(Places):
    """Someone puts a link in the way as soon as a path has been judged."""

    def __init__(self, root: Path, swap: Callable[[], None]) -> None:
        super().__init__([root])
        self._swap = swap

    def resolve(self, path: str) -> Path:
        found = super().resolve(path)
        self._swap()
        return found


@pytest.mark.parametrize("swapped", ["folder", "folder/inner", "folder/inner/a.txt"])
@pytest.mark.parametrize(
    "use",
    [
        lambda places: places.read("folder/inner/a.txt"),
        lambda places: places.append("folder/inner/a.txt", b"!"),
        lambda places: places.write("folder/inner/a.txt", b"!"),
        lambda places: places.delete("folder/inner/a.txt"),
        lambda places: Files(places).list_directory("folder/inner")["files"],
    ],
    ids=["read", "append", "write", "delete", "list"],
)
def test_a_link_put_in_the_way_after_the_check_leads_nowhere(
    tmp_path: Path, swapped: str, use: Callable[[Places], Any]
) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for base in (inside, outside):
        (base / "folder" / "inner").mkdir(parents=True)
        (base / "folder" / "inner" / "a.txt").write_text(base.name)

    def swap() -> None:
        if not (inside / swapped).is_symlink():
            (inside / swapped).rename(inside / "before")
            (inside / swapped).symlink_to(outside / swapped)

    try:
        found = use(Hasty(inside, swap))
    except (Outside, OSError):
        found = b"refused"

    assert found not in (b"outside", ["folder/inner/a.txt", "folder/inner/secret"])
    assert (outside / "folder" / "inner" / "a.txt").read_text() == "outside"


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


# --- shell ---


def test_there_is_no_shell_unless_asked_for(box: Box) -> None:
    assert "shell:run" not in box.tools


def test_only_the_programs_that_are_named_are_run(tmp_path: Path) -> None:
    box = Box(tmp_path, commands=("printf",))

    assert box("shell:run", argv=["printf", "x"])["stdout"] == "x"
    for other in ("sh", "/usr/bin/printf", "./printf", "printf "):
        with pytest.raises(ValueError, match=r"not among the programs .* \(printf\)"):
            box("shell:run", argv=[other, "x"])


def test_a_program_gets_its_arguments_as_they_are(tmp_path: Path) -> None:
    box = Box(tmp_path, commands=("*",))

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
    box = Box(tmp_path, commands=("*",))

    with pytest.raises(ValueError, match="did not end within"):
        box("shell:run", argv=["sh", "-c", "sleep 1000 & echo $! > pid; wait"], timeout=0.5)
    pid = int((tmp_path / "pid").read_text())
    assert eventually(lambda: not alive(pid))
