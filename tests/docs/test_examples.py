"""What the documentation shows is what happens."""

from __future__ import annotations

import difflib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pages
import pytest

import penstock
from penstock.workflow.read import loads

PAGES = [pytest.param(page, id=str(page.relative_to(pages.ROOT))) for page in pages.pages()]
BLOCKS = [
    pytest.param(block, id=block.where)
    for page in pages.pages()
    for block in pages.blocks(page)
    if block.promise in ("file", "from")
]


VARYING = {
    r"\b1[0-9a-hjkmnp-tv-z]{15}\b": "RUN",
    r"\bsha256:[0-9a-f]+": "HASH",
    r"\b20\d\d-\d\d-\d\dT[\d:.]+Z": "TIME",
    r"(?m)^( *\d+ )? +\d+\.\d{3}  ": r"\1 SECONDS  ",
    r"\b[\d.]+ (m?s)\b": "LENGTH",
    r'(?<="duration_ms":)[\d.]+': "LENGTH",
}
"""What is new in every run."""


def settled(text: str) -> str:
    """The text with everything that is new in every run made the same."""
    for pattern, word in VARYING.items():
        text = re.sub(pattern, word, text)
    return text.strip()


def matches(shown: str, happened: str) -> bool:
    """Whether a page shows what happened; … stands for anything that it leaves out."""
    pattern = ".*?".join(re.escape(part) for part in settled(shown).split("…"))
    return re.fullmatch(pattern, settled(happened), re.DOTALL) is not None


def different(shown: str, happened: str) -> str:
    return "\n".join(difflib.unified_diff(shown.splitlines(), happened.splitlines(), "shown", "happened"))


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which `penstock` and `python` are the ones under test."""
    bin = tmp_path / "bin"
    bin.mkdir()
    for name, arguments in (("penstock", "-m penstock"), ("python", "")):
        script = bin / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{bin}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(penstock.__file__).parents[1]),
        "NO_COLOR": "1",
    }


@pytest.mark.parametrize("page", PAGES)
def test_every_example_promises_something_that_can_be_checked(page: Path) -> None:
    assert [block.where for block in pages.blocks(page) if pages.promises_too_little(block)] == []


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_is_what_happens(page: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    blocks = pages.blocks(page)
    if not any(block.promise == "run" for block in blocks):
        return
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "examples").symlink_to(pages.ROOT / "examples")
    stage = [sys.executable, "-W", "error", str(Path(__file__).with_name("stage.py")), str(folder)]
    played = subprocess.run(
        stage,
        input=json.dumps([block._asdict() for block in blocks]),
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert played.returncode == 0, played.stderr

    for number, happened in json.loads(played.stdout):
        block = blocks[number]
        after = blocks[number + 1] if number + 1 < len(blocks) else block
        shown = block.text if block.language == "console" else after.text
        if block.language == "console" or after.promise == "prints":
            assert matches(shown, happened), f"{block.where}\n{different(shown, happened)}"


@pytest.mark.parametrize("block", BLOCKS)
def test_a_workflow_in_a_page_is_valid_and_a_quotation_is_exact(block: pages.Block) -> None:
    if block.promise == "from":
        assert block.text in (pages.ROOT / block.name).read_text(encoding="utf-8")
    elif block.language == "yaml":
        assert loads(block.text, block.where).workflow.steps


@pytest.mark.parametrize("page", PAGES)
def test_every_link_within_the_documentation_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'src="([^"]+)"', text)
    local = [link for link in links if not re.match(r"[a-z]+:", link)]

    assert [link for link in local if not leads_somewhere(page, link)] == []


def leads_somewhere(page: Path, link: str) -> bool:
    name, _, heading = unquote(link).partition("#")
    target = page.parent / name if name else page
    return target.exists() and (not heading or heading in anchors(target))


def anchors(page: Path) -> set[str]:
    """What headings are called in links."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
