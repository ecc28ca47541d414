"""Colours, icons and the legend of the SVG drawing.

Colours are given twice, for light and for dark pages. States differ in icon and border as
well as in colour, for those who do not see the difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.workflow.picture import EdgeKind, Picture


class _Tones(NamedTuple):
    fill: str
    line: str
    dark_fill: str
    dark_line: str


_STATES: Final[Mapping[str, _Tones]] = {
    "ready": _Tones("#f5f3ff", "#7c6ff0", "#1e1b3a", "#a5a0ff"),
    "running": _Tones("#eff6ff", "#2563eb", "#14233f", "#60a5fa"),
    "backoff": _Tones("#fffbeb", "#d97706", "#33240d", "#fbbf24"),
    "asking": _Tones("#fffbeb", "#d97706", "#33240d", "#fbbf24"),
    "succeeded": _Tones("#f0fdf4", "#16a34a", "#10281b", "#4ade80"),
    "failed": _Tones("#fef2f2", "#dc2626", "#371618", "#f87171"),
    "skipped": _Tones("#f8fafc", "#94a3b8", "#1a2333", "#64748b"),
}

_LINES: Final[Mapping[EdgeKind, tuple[str, str, str]]] = {
    "need": ("#94a3b8", "#64748b", "needs"),
    "route": ("#7c3aed", "#a78bfa", "may route to"),
    "loop": ("#c2410c", "#fb923c", "may go back to"),
    "detour": ("#0e7490", "#22d3ee", "detour"),
}

_SIGNS: Final[Mapping[str, str]] = {
    "ready": '<circle class="sign-dot" r="2.6"/>',
    "running": '<path class="sign-dot" d="M-2.6 -4l6.6 4l-6.6 4z"/>',
    "backoff": '<path class="sign" d="M0 -4.2v4.2l3 2"/>',
    "asking": '<text class="sign-text" y="4" text-anchor="middle">?</text>',
    "succeeded": '<path class="sign" d="M-3.8 0.2l2.8 2.8l4.8 -5.6"/>',
    "failed": '<path class="sign" d="M-3 -3l6 6m0 -6l-6 6"/>',
    "skipped": '<path class="sign" d="M-3.6 0h7.2"/>',
}
ICONS: Final[Mapping[str, str]] = {
    state: f'<circle class="badge" r="8"/>{sign}' for state, sign in _SIGNS.items()
}
"""A state as a badge around the origin."""

_LETTER: Final = 6.4


def tag(name: str, inner: str = "", /, **attributes: str | float) -> str:
    """An element. `class_` and `text_anchor` are written as XML has them; `inner` is XML already."""
    parts = [name]
    for key, value in attributes.items():
        shown = f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
        parts.append(f'{key.rstrip("_").replace("_", "-")}="{shown}"')
    head = " ".join(parts)
    return f"<{head}>{inner}</{name}>" if inner else f"<{head}/>"


def group(x: float, y: float, inner: str, /, **attributes: str | float) -> str:
    return tag("g", inner, transform=f"translate({x:.1f} {y:.1f})", **attributes)


def legend(drawn: Picture) -> tuple[str, float]:
    """What lines and badges mean, of those that occur; and how wide that is."""
    parts: list[str] = []
    x = 0.0

    def add(sign: str, width: float, words: str) -> float:
        parts.extend((sign, tag("text", words, class_="key", x=x + width, y=4)))
        return x + width + len(words) * _LETTER + 18

    kinds = {edge.kind for edge in drawn.edges}
    states = {box.state for box in drawn.boxes}
    for kind, (_, _, words) in _LINES.items():
        if kind in kinds:
            line = tag("path", class_=f"line {kind}", d=f"M{x:.1f} 0h26", marker_end=f"url(#{kind}-end)")
            x = add(line, 36, words)
    if "dormant" in states:
        x = add(
            tag("rect", class_="box dormant", x=x, y=-7, width=22, height=14, rx=4), 30, "waits for a route"
        )
    for state, icon in ICONS.items():
        if state in states:
            x = add(group(x + 8, 0, icon, class_=state), 22, state)
    return "".join(parts), x


def _colours(*, dark: bool) -> str:
    page, box, edge, text, faint = (
        ("#0f172a", "#1b2537", "#3b4a61", "#e2e8f0", "#94a3b8")
        if dark
        else ("#ffffff", "#f8fafc", "#cbd5e1", "#1e293b", "#64748b")
    )
    rules = [
        f".page{{fill:{page}}}",
        f".box{{fill:{box};stroke:{edge}}}",
        f".more{{fill:none;stroke:{edge}}}",
        f".name,.id{{fill:{text}}}",
        f".note,.uses,.key,.pill-text{{fill:{faint}}}",
        f".pill{{fill:{page};stroke:{edge}}}",
        f".ground{{fill:{page}}}",
        f".sign{{stroke:{page}}}.sign-dot,.sign-text{{fill:{page}}}",
        f".end{{fill:{faint}}}.end-text,.human-text{{fill:{page}}}",
        f".human{{fill:{'#fbbf24' if dark else '#d97706'}}}",
    ]
    for kind, (light, other, _) in _LINES.items():
        tone = other if dark else light
        rules.append(f".line.{kind}{{stroke:{tone}}}.label.{kind},.head.{kind}{{fill:{tone}}}")
    rules.append(f".router{{fill:{_LINES['route'][dark]};stroke:{page}}}")
    for state, tones in _STATES.items():
        fill, line = (tones.dark_fill, tones.dark_line) if dark else (tones.fill, tones.line)
        rules.append(f".box.{state}{{fill:{fill};stroke:{line}}}.{state} .badge{{fill:{line};stroke:{page}}}")
    return "".join(rules)


_SHAPES: Final = (
    "text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
    ".name{font-size:16px;font-weight:600}.note{font-size:12px;font-weight:400}"
    ".id{font-size:13px;font-weight:600}.uses,.key{font-size:11px}.pill-text{font-size:9px}"
    ".label{font-size:11px}.ground{fill-opacity:.85}"
    ".end-text,.human-text{font-size:11px;font-weight:600}.sign-text{font-size:11px;font-weight:700}"
    ".box{stroke-width:1.25px}.box.dormant,.box.skipped,.more{stroke-dasharray:5 4}"
    ".line{fill:none;stroke-width:1.5px}.line.route,.line.loop,.line.detour{stroke-dasharray:6 4}"
    ".sign{fill:none;stroke-width:1.8px;stroke-linecap:round;stroke-linejoin:round}"
    ".badge{stroke-width:2px}.router{stroke-width:1.5px}"
)
_HEADS: Final = "".join(
    f'<marker id="{kind}-end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
    f' markerUnits="userSpaceOnUse" orient="auto"><path class="head {kind}" d="M0 0.5L8 4L0 7.5z"/></marker>'
    for kind in _LINES
)
STYLE: Final = (
    f"<style>{_SHAPES}{_colours(dark=False)}"
    f"@media (prefers-color-scheme:dark){{{_colours(dark=True)}}}</style><defs>{_HEADS}</defs>"
)
