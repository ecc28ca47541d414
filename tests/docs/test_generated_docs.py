"""The parts of the documentation that the code writes are the ones that this code would write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pages
import pytest

import penstock
from penstock.workflow.read import Source, from_plain
from penstock.workflow.support import unsupported

LATER = {
    "workflow.schedule": "daily",
    "config.speculation": True,
    "config.wave_timeout": "1m",
}
"""A use of each key that the documentation marks as *later*."""


def test_the_generated_parts_are_up_to_date() -> None:
    checked = subprocess.run(
        [sys.executable, str(pages.ROOT / "docs" / "generate.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(penstock.__file__).parents[1])},
    )

    assert checked.returncode == 0, f"run `python docs/generate.py`:\n{checked.stdout}{checked.stderr}"


def test_the_list_for_language_models_names_every_page() -> None:
    listed = (pages.ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")
    written = [str(page.relative_to(pages.ROOT / "docs")) for page in (pages.ROOT / "docs").rglob("*.md")]

    assert [page for page in written if f"]({page})" not in listed] == []


def test_what_is_marked_as_later_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(pages.ROOT / "docs")
    from generator import file_format

    assert set(LATER) == file_format.LATER
    assert [place for place in LATER if not unsupported(definition(place).workflow)] == []


def definition(place: str) -> Source:
    """A workflow that is plain but for one key."""
    section, _, key = place.partition(".")
    step = {"id": "a", "uses": "py:os:getcwd"}
    whole: dict[str, Any] = {"name": "plain", "steps": [step], "config": {}}
    part = {"workflow": whole, "config": whole["config"], "step": step}[section]
    part[key] = LATER[place]
    return from_plain(whole)
