"""The live view: a run drawn on a terminal, again and again, until it ends.

A small workflow is shown whole, step by step in its layers. Of a large one the terminal
shows what matters now: the layers in work, what runs, what failed, what ended last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.live import Live
from rich.text import Text

from penstock.cli.text import count, headline, one_line, span, ticking
from penstock.cli.view import UNKNOWN_LAYER, Row, State, View
from penstock.ids import RunId, StepId
from penstock.run.events import Event
from penstock.run.usage import figure

PERIOD: Final = 0.1
NAME: Final = 32
"""Cells for a step's name, at most."""
BAR: Final = 24
ASKED: Final = 3
"""Open decisions shown."""

Peek = Callable[[StepId], tuple[int, int] | None]
"""How far the child run of a step has come: steps ended, and all of them."""

COLOURS: Final[dict[str, str]] = {
    "waiting": "dim",
    "running": "cyan",
    "retrying": "yellow",
    "asking": "magenta",
    "succeeded": "green",
    "failed": "red",
    "skipped": "dim",
    "partial": "yellow",
    "aborted": "yellow",
    "paused": "yellow",
}
_MARKS: Final[dict[str, str]] = {
    "waiting": "·", "running": "●", "retrying": "↻", "asking": "?", "succeeded": "✓", "failed": "✗",
    "skipped": "–",
}  # fmt: skip
_ASCII_MARKS: Final[dict[str, str]] = {
    "waiting": ".", "running": "*", "retrying": "~", "asking": "?", "succeeded": "+", "failed": "x",
    "skipped": "-",
}  # fmt: skip
_SPIN: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ASCII_SPIN: Final = "|/-\\"


def colour_of(status: str) -> str:
    """Of a run: one that waits is not as quiet as a step that does."""
    return COLOURS["asking" if status == "waiting" else status] if status in COLOURS else "cyan"


class Pen:
    """How things are drawn on this console: with Unicode where it can, without where it cannot."""

    def __init__(self, console: Console) -> None:
        unicode = console.encoding.lower().startswith("utf")
        self.marks = _MARKS if unicode else _ASCII_MARKS
        self.spin = _SPIN if unicode else _ASCII_SPIN
        self.full, self.empty = ("━", "─") if unicode else ("#", "-")
        self.dot = "·" if unicode else "-"

    def mark(self, state: State, now: float) -> tuple[str, str]:
        if state == "running":
            return self.spin[int(now * 10) % len(self.spin)], COLOURS[state]
        return self.marks[state], COLOURS[state]

    def bar(self, part: int, whole: int, width: int, colour: str) -> Text:
        full = width if whole <= 0 else min(width, part * width // whole)
        return Text.assemble((self.full * full, colour), (self.empty * (width - full), "dim"))


class Screen:
    """One frame: a view, made into lines that fit the console."""

    def __init__(self, view: View, run: RunId, console: Console, peek: Peek | None = None) -> None:
        self._view = view
        self._run = run
        self._console = console
        self._peek = peek
        self._pen = Pen(console)

    def frame(self, now: float) -> Text:
        view = self._view
        asks = self._asks(now) + self._budgets()
        room = max(4, self._console.height - 5 - len(asks))
        names = min(NAME, view.widest)
        body = self._whole(now, names) if len(view.rows) <= room else self._part(now, names, room)
        lines = [self._head(now), Text(), *body, *asks, Text(), self._foot()]
        if view.ended and view.reason:
            lines.append(Text(one_line(view.reason), COLOURS[view.status]))
        width = self._console.width
        for line in lines[:-1] if view.ended and view.reason else lines:
            line.truncate(width, overflow="ellipsis")
        return Text("\n").join(lines)

    def _head(self, now: float) -> Text:
        view = self._view
        state = f"stopping: {view.stopping}" if view.stopping and not view.ended else view.status
        colour = "yellow" if view.stopping and not view.ended else colour_of(view.status)
        took = ""
        if view.started:
            took = span(view.at - view.started) if view.ended else ticking(now - view.started)
        return Text.assemble(
            (view.workflow, "bold"),
            (f"  {self._run}  ", "dim"),
            (state, colour),
            f"  {took}",
            (f"  {view.note}" if view.note and not view.ended else "", "yellow"),
        )

    def _asks(self, now: float) -> list[Text]:
        """The open decisions, the first few of them."""
        if self._view.ended:
            return []
        lines = []
        for asked in islice(self._view.decisions.values(), ASKED):
            left = "" if asked.deadline is None else f"{ticking(asked.deadline - now)} left  "
            head = (f"? {asked.decision}  ", "magenta")
            lines.append(Text.assemble(head, (left, "yellow"), headline(asked.summary)))
        more = len(self._view.decisions) - len(lines)
        if more > 0:
            lines.append(Text(f"  … and {more:,} more questions", "magenta"))
        return lines

    def _budgets(self) -> list[Text]:
        """Budgets that are nearly spent."""
        if self._view.ended:
            return []
        return [
            Text(f"! {name}: {figure(spent.used)} of {figure(spent.limit)}", "yellow")
            for name, spent in self._view.budgets.items()
        ]

    def _foot(self) -> Text:
        view = self._view
        bad = view.counts["failed"] > 0
        wide = min(BAR, self._console.width // 5)  # on a narrow terminal the words come first
        bar = self._pen.bar(view.over, len(view.rows), wide, "red" if bad else "green")
        line = Text.assemble(bar, f" {view.over:,}/{len(view.rows):,} ")
        for state, n in view.counts.items():
            if n:
                line.append(f" {self._pen.dot} ", "dim").append(f"{n:,} {state}", COLOURS[state])
        return line

    # --- a small run: every step, layer by layer ---

    def _whole(self, now: float, names: int) -> list[Text]:
        rows = sorted(self._view.rows.values(), key=lambda row: row.layer)
        lines, before = [], UNKNOWN_LAYER
        wide = len(str(rows[-1].layer)) if rows else 1
        for row in rows:
            label = str(row.layer) if row.layer != before else ""
            before = row.layer
            lines.append(Text.assemble((f"{label:>{wide}} ", "dim"), self._row(row, now, names)))
        return lines

    # --- a large run: what matters now ---

    def _part(self, now: float, names: int, room: int) -> list[Text]:
        view = self._view
        layers = self._layers(room // 2 if view.ended else room // 5)
        room -= len(layers)
        failed = list(islice(reversed(view.failed.values()), room - 1 if view.ended else room // 4))
        room -= len(failed)
        active = list(islice(view.active.values(), room * 2 // 3))
        recent = [] if view.ended else list(islice(reversed(view.recent), max(0, room - len(active) - 2)))
        lines = layers
        lines += self._rows(failed, now, names, len(view.failed), "failed")
        lines += self._rows(active, now, names, len(view.active), "running")
        lines += self._rows(recent, now, names, 0, "")
        return lines

    def _layers(self, room: int) -> list[Text]:
        """The layers in work, the deepest of them if there are many; at the end all, if they fit."""
        view = self._view
        chosen = [(n, layer) for n, layer in view.layers.items() if layer.active]
        if view.ended:
            chosen = list(view.layers.items()) if len(view.layers) <= room else []
        last = f"{len(view.layers) - 1:,}"
        return [
            Text.assemble(
                (f"layer {n:>{len(last)},} of {last}  ", "dim"),
                self._pen.bar(layer.over, layer.total, BAR, "cyan"),
                f" {layer.over:,}/{layer.total:,}",
            )
            for n, layer in chosen[-max(1, room) :]
        ]

    def _rows(self, rows: Iterable[Row], now: float, names: int, total: int, what: str) -> list[Text]:
        lines = [self._row(row, now, names) for row in rows]
        if total > len(lines):
            lines.append(Text(f"  … and {total - len(lines):,} more {what}", "dim"))
        return lines

    # --- one step ---

    def _row(self, row: Row, now: float, names: int) -> Text:
        mark, colour = self._pen.mark(row.state, now)
        name = row.id if cell_len(row.id) <= names else f"{set_cell_size(row.id, names - 1)}…"
        took = ""
        if row.started:
            took = span(row.seconds(now)) if row.ended else ticking(row.seconds(now))
        quiet = row.state in ("waiting", "skipped")
        return Text.assemble(
            (f"{mark} ", colour),
            (set_cell_size(name, names), "dim" if quiet else ""),
            f"  {took:>8}  ",
            self._detail(row, now),
        )

    def _detail(self, row: Row, now: float) -> Text:
        match row.state:
            case "running":
                return self._running(row)
            case "retrying" if not row.reason:
                return Text("starts again" if row.started else "starts", "yellow")
            case "retrying":
                wait = ticking(row.retry_at - now)
                return Text(
                    f"attempt {row.attempt} failed, again in {wait}: {one_line(row.reason)}", "yellow"
                )
            case "asking":
                asks = f"{count(row.asks, 'item')}: " if row.asks else ""
                gate = f"{one_line(row.gate)}, " if row.gate else ""
                return Text(f"{asks}{gate}waits for a decision", "magenta")
            case "failed":
                tries = f"{row.attempt} attempts: " if row.attempt > 1 else ""
                return Text(f"{tries}{one_line(row.reason)}", "red")
            case "skipped":
                return Text(one_line(row.reason), "dim")
            case "succeeded":
                return Text(outcome(row), "dim")
            case "waiting" if row.route or row.by:
                return Text(outcome(row), "dim")
            case _:
                return Text()

    def _running(self, row: Row) -> Text:
        line = Text()
        if row.items >= 0:
            line = self._pen.bar(row.done, row.items, BAR // 2, "cyan")
            line.append(f" {row.done:,}/{row.items:,}")
            if row.lost:
                line.append(f" {self._pen.dot} {row.lost:,} failed", "red")
        elif self._peek is not None and (child := self._peek(row.id)) is not None:
            line = self._pen.bar(*child, BAR // 2, "cyan")
            line.append(f" {child[0]:,}/{count(child[1], 'step')}")
        words = [f"iteration {row.iteration}"] if row.iteration > 1 else []
        words += [f"attempt {row.attempt}"] if row.attempt > 1 else []
        if words:
            line.append((" " if line else "") + ", ".join(words), "yellow")
        return line


def outcome(row: Row) -> str:
    """What else there is to say of a step that went well, or waits for its turn."""
    parts = []
    if row.items >= 0:
        parts.append(count(row.items, "item") + (f", {row.lost:,} failed" if row.lost else ""))
    if row.attempt > 1:
        parts.append(f"{row.attempt} attempts")
    if row.iteration > 1:
        parts.append(f"iteration {row.iteration}")
    if row.gate:
        parts.append(one_line(row.gate))
    if row.by:
        parts.append(f"added by {row.by}")
    if row.route:
        parts.append(one_line(row.route))
    return ", ".join(parts)


class LiveView:
    """Draws the screen in place while events come in, and leaves the last frame standing."""

    period: float | None = PERIOD

    def __init__(self, view: View, screen: Screen, console: Console) -> None:
        self._view = view
        self._screen = screen
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")

    def take(self, events: Sequence[Event]) -> None:
        for event in events:
            self._view.take(event)

    def tick(self) -> None:
        if not self._live.is_started:
            self._live.start()
        self._live.update(self._screen.frame(time.time()), refresh=True)

    def end(self, _summary: dict[str, Any] | None) -> None:
        try:
            self.tick()
        finally:
            self._live.stop()
