"""Words and numbers as people read them in a terminal. Knows nothing of runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

NARROW = 20
"""A terminal of fewer columns breaks lines as it likes."""


def legible(text: str) -> str:
    """The text without anything that could steer a terminal: errors may quote strangers."""
    return _CONTROL.sub("�", text) if _CONTROL.search(text) else text


def one_line(text: str) -> str:
    """The text on one line, safe to print."""
    return legible(" ".join(text.split()))


def headline(text: str) -> str:
    """The first line of a text, safe to print."""
    return one_line(text.strip().partition("\n")[0])


def folded(text: str, width: int) -> str:
    """The text in lines that fit, broken between words; what goes on below is indented."""
    import textwrap

    lines: list[str] = []
    for line in text.split("\n"):
        if len(line) <= width or width < NARROW:
            lines.append(line)
            continue
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        lines += textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False)
    return "\n".join(lines)


def span(seconds: float) -> str:
    """A length of time: `12 ms`, `3.4 s`, `2m 05s`, `1h 02m`."""
    if seconds < 0.9995:
        return f"{max(seconds, 0.0) * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02}m"


def ticking(seconds: float) -> str:
    """A length of time that is still growing: steady to look at."""
    return f"{max(seconds, 0.0):.1f} s" if seconds < 0.9995 else span(seconds)


def count(number: int, noun: str) -> str:
    """`1 step`, `2,000 steps`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def pretty(value: Any) -> str:
    """JSON for people."""
    import json

    return json.dumps(value, indent=2, ensure_ascii=False)


def for_people(outputs: Mapping[str, Any]) -> str:
    """Outputs on a terminal: text as text, the rest as JSON."""
    parts = []
    for name, given in outputs.items():
        text = legible(given).rstrip() if isinstance(given, str) else legible(pretty(given))
        parts.append(f"{name}:\n{text}" if isinstance(given, str) and "\n" in text else f"{name}: {text}")
    return "\n".join(parts)


def value(text: str) -> Any:
    """What somebody typed: JSON where it is JSON, else the text itself."""
    import msgspec

    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def size(bytes: int) -> str:
    """`512 bytes`, `12 KB`, `3.4 MB`."""
    if bytes < 1000:
        return count(bytes, "byte")
    if bytes < 1_000_000:
        return f"{bytes / 1000:.0f} KB"
    return f"{bytes / 1_000_000:.1f} MB" if bytes < 1_000_000_000 else f"{bytes / 1_000_000_000:.1f} GB"
