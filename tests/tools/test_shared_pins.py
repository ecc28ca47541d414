"""What was approved, when several processes know it: the gateway that runs, and whoever types beside it."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from penstock.tools.keep import FileKeep
from penstock.tools.mcp.base import Definition
from penstock.tools.pinning import LARGEST, Pins


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pins.json"


def pins(file: Path) -> Pins:
    return Pins(FileKeep(file))


def tool(description: str) -> Definition:
    return Definition("t", description)


def test_an_approval_in_another_process_counts_at_once(file: Path) -> None:
    running = pins(file)
    running.see({"s:t": tool("old")})
    running.see({"s:t": tool("new")})
    before = running.version
    assert running.change("s:t") is not None

    beside = pins(file)
    beside.see({"s:t": tool("new")})
    assert beside.approve("s:t")

    assert running.change("s:t") is None
    assert running.changes == []
    assert running.version > before


def test_what_was_approved_by_an_earlier_version_still_is(file: Path) -> None:
    """Its numbers, too, however they are written."""
    schema = {"b": [1e16, 1e-7, 0.5, 3], "a": {"é": "\u2028\x7f\n😀"}}
    text = (
        '{\n "annotations": {},\n "description": "old",\n "input": {\n  "a": {\n   "é": "\u2028\x7f\\n😀"\n'
        '  },\n  "b": [\n   1e+16,\n   1e-07,\n   0.5,\n   3\n  ]\n },\n "output": null\n}'
    )
    kept = {"hash": sha256(text.encode()).hexdigest(), "definition": text}
    plain = '{\n "annotations": {},\n "description": "old",\n "input": {},\n "output": null\n}'
    other = {"hash": sha256(plain.encode()).hexdigest(), "definition": plain}
    FileKeep(file).save({"version": 1, "tools": {"s:t": kept, "s:u": other}})

    changes = pins(file).see({"s:t": Definition("t", "old", schema), "s:u": Definition("u", "old")})

    assert changes == []


def test_an_approval_of_something_else_does_not_count(file: Path) -> None:
    running = pins(file)
    running.see({"s:t": tool("old")})
    running.see({"s:t": tool("evil")})

    beside = pins(file)
    beside.see({"s:t": tool("new")})
    beside.approve("s:t")

    assert running.change("s:t") is not None


def test_who_writes_later_does_not_take_an_approval_back(file: Path) -> None:
    running, beside = pins(file), pins(file)
    running.see({"s:t": tool("old")})
    beside.see({"s:t": tool("new")})
    beside.approve("s:t")

    running.see({"s:other": tool("another server, seen for the first time")})

    after = pins(file)
    assert after.see({"s:t": tool("new"), "s:other": tool("another server, seen for the first time")}) == []


def test_of_two_that_are_too_large_to_show_each_is_its_own(file: Path) -> None:
    running = pins(file)
    running.see({"s:t": tool("old")})
    (first,) = running.see({"s:t": tool("a" * LARGEST)})
    (second,) = running.see({"s:t": tool("b" * LARGEST)})

    assert "too large to show" in first.difference
    assert first.difference != second.difference
