"""The parts of the documentation that the code writes are the ones that this code would write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pages

import penstock


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
