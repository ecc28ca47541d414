"""The fenced blocks of a documentation page, and what the comment before each one promises.

    <!-- run -->               python: is executed, in the page's one namespace
                               console: each `$ ` line is executed, what follows it is its output
    <!-- prints -->            what the python block before it prints
    <!-- file: NAME -->        is written to NAME in the page's folder; a .yaml must be a valid workflow
    <!-- bad file: NAME -->    the same for a workflow that is wrong on purpose
    <!-- from: PATH -->        stands, line for line, in that file of this repository
    <!-- excerpt -->           an outline that cannot stand alone

A python, yaml or console block without a promise is a mistake; test_examples says so.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]

_BLOCK = re.compile(
    r"(?:<!-- (?P<promise>[^>]*?) -->\n)?^(?P<fence>```+)(?P<language>\w*)\n(?P<text>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
_MUST_PROMISE = frozenset({"python", "yaml", "console"})


class Block(NamedTuple):
    page: str
    line: int
    language: str
    promise: str
    name: str
    """Of a file."""
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        promise, _, name = (match["promise"] or "").partition(": ")
        line = text.count("\n", 0, match.start("fence")) + 1
        where = str(page.relative_to(ROOT))
        found.append(Block(where, line, match["language"], promise, name, match["text"]))
    return found


def promises_too_little(block: Block) -> bool:
    """Whether a block could be wrong without anyone noticing."""
    known = ("run", "prints", "file", "bad file", "from", "excerpt")
    return block.language in _MUST_PROMISE and block.promise not in known
