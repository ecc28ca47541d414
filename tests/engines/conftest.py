from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that say nothing about a store leave nothing behind."""
    monkeypatch.setenv("PENSTOCK_STORE", "memory:")
