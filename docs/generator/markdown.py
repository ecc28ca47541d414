"""The little Markdown that generated pages are made of."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

NOTE = "<!-- Written by docs/generate.py: change the code, then run that again. -->"


WIDTH = 110


def wrapped(text: str) -> str:
    """A paragraph in lines of the usual width."""
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def table(head: str, rows: Sequence[Sequence[str]]) -> str:
    names = [name.strip() for name in head.split("|")]
    return "\n".join("| " + " | ".join(row) + " |" for row in (names, ["---"] * len(names), *rows))


def code(text: str) -> str:
    """Inline code; a bar would end a cell of a table."""
    return f"`{text}`".replace("|", "\\|") if text else ""


def fenced(text: str, language: str = "text") -> str:
    return f"```{language}\n{text}\n```"


def paragraphs(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)
