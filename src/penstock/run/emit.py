"""The one way to conclude something."""

from __future__ import annotations

from penstock.run.events import Event
from penstock.run.evolve import evolve
from penstock.run.state import Run


def emit(run: Run, batch: list[Event], event: Event) -> None:
    """Conclude: fold the event in and add it to the batch."""
    evolve(run, event)
    batch.append(event)
