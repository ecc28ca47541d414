"""A run that is over, as a table: what each step came to, and when it ran."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from rich.console import Console
from rich.text import Text

from penstock.cli.lines import brief
from penstock.cli.live import COLOURS, NAME, Pen, colour_of, outcome
from penstock.cli.record import Record
from penstock.cli.text import count, headline, one_line, span
from penstock.cli.view import ANSWERS, Row
from penstock.run.events import DecisionMade
from penstock.run.usage import figure

BARS: Final = 28
"""Cells for the whole length of a run."""


class Timeline:
    def __init__(self, saved: Record, console: Console) -> None:
        self._saved = saved
        self._view = saved.view
        self._pen = Pen(console)
        self._length = max(self._view.at - self._view.started, 1e-9)
        self._names = min(NAME, max((len(row.id) for row in self._view.rows.values()), default=4))

    def lines(self, limit: int = 0) -> Iterator[Text]:
        """Heading, steps, and how many were left out; 0 leaves out none."""
        yield from self._head()
        rows = sorted(self._view.rows.values(), key=lambda row: row.started or row.ended or self._view.at)
        shown = rows
        if limit and len(rows) > limit:
            shown = [row for row in rows if row.state == "failed"][:limit]
            shown += [row for row in rows if row.state != "failed"][: limit - len(shown)]
        for row in shown:
            yield self._row(row)
        if len(rows) > len(shown):
            yield Text(f"… and {len(rows) - len(shown):,} more steps (--all shows them)", "dim")
        yield from self._answers()

    def _head(self) -> Iterator[Text]:
        view = self._view
        started = "not started"
        if view.started:
            at = datetime.fromtimestamp(view.started, UTC)
            started = f"started {at.strftime('%Y-%m-%d %H:%M:%S UTC')}"
        yield Text.assemble(
            (view.workflow, "bold"),
            "  ",
            (view.status, colour_of(view.status)),
            f"  {span(self._length)}",
        )
        yield Text(f"run {self._saved.run_id}, {started}, {count(self._saved.events, 'event')}", "dim")
        counts = ", ".join(f"{n:,} {state}" for state, n in view.counts.items() if n)
        yield Text(f"{count(len(view.rows), 'step')}: {counts}", "dim")
        for note in self._saved.notes:
            yield Text(note, "dim")
        if view.reason:
            yield Text(one_line(view.reason), COLOURS.get(view.status, ""))
        for name, spent in view.budgets.items():
            yield Text(f"! {name}: {figure(spent.used)} of {figure(spent.limit)}", "yellow")
        for asked in () if view.ended else view.decisions.values():
            options = f" ({', '.join(asked.options)})" if asked.options else ""
            until = "" if asked.deadline is None else f", answers itself at {clock(asked.deadline)}"
            yield Text(f"? {asked.decision}: {headline(asked.summary)}{options}{until}", COLOURS["asking"])
        yield Text()

    def _answers(self) -> Iterator[Text]:
        """The last answers: who, what, why, when."""
        answers = self._view.answers
        if answers:
            yield Text()
            yield Text("decided" if len(answers) < ANSWERS else f"decided, the last {ANSWERS}", "bold")
        for made in answers:
            yield Text.assemble((f"{clock(made.at)}  ", "dim"), self._answer(made))

    def _answer(self, made: DecisionMade) -> str:
        item = f"[{made.item}]" if made.item is not None else ""
        about = f"{made.step}{item} {made.kind}" if made.step is not None else made.kind
        given = f" {brief(made.args)}" if made.args else ""
        by = f" by {one_line(made.by)}" if made.by else ""
        why = f": {one_line(made.message)}" if made.message else ""
        return f"{about.strip()}: {made.verb}{given}{by}{why}"

    def _row(self, row: Row) -> Text:
        colour = COLOURS[row.state]
        took = span(row.seconds(self._view.at)) if row.started else ""
        name = row.id if len(row.id) <= self._names else f"{row.id[: self._names - 1]}…"
        return Text.assemble(
            (f"{self._pen.marks[row.state]} ", colour),
            (f"{name:<{self._names}}", "dim" if row.state == "skipped" else ""),
            f"  {took:>8}  ",
            self._bar(row, colour),
            "  ",
            (self._note(row), colour if row.state == "failed" else "dim"),
        )

    def _bar(self, row: Row, colour: str) -> Text:
        begun = max(row.started, self._view.started)
        if not row.started or 0.0 < row.ended < begun:  # never, or in the run that this one was forked from
            return Text(" " * BARS)
        scale = BARS / self._length
        first = min(BARS - 1, int((begun - self._view.started) * scale))
        length = max(1, min(BARS - first, round(((row.ended or self._view.at) - begun) * scale)))
        return Text.assemble(" " * first, (self._pen.full * length, colour), " " * (BARS - first - length))

    def _note(self, row: Row) -> str:
        reason = one_line(row.reason) if row.reason and row.state != "succeeded" else ""
        return ", ".join(part for part in (outcome(row), reason) if part)


def clock(at: float) -> str:
    """A time of day, where the person is."""
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%H:%M:%S")
