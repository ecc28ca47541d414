"""An event loop that never rests must not starve the thread that writes."""

from __future__ import annotations

import asyncio
import runpy
from pathlib import Path

import pytest

FIGURES = Path(__file__).parents[2] / "benchmarks" / "durable.py"

GENEROUS = 5_000.0
"""Milliseconds: starved, it takes three times as long; as it should be, a fiftieth."""


def test_four_thousand_events_become_durable_beside_a_busy_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(FIGURES.parent)
    busy_loop = runpy.run_path(str(FIGURES), run_name="durable")["busy_loop"]

    for figure in asyncio.run(busy_loop(small=True)):
        assert figure["value"] < GENEROUS, figure
