"""What the durability tests share: a zygote, and folders where a kill costs little."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from zygote import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    with Zygote() as nursery:
        yield nursery


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory where there is such a place: a killed process loses nothing there, and an fsync is free."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
    usable = memory.is_dir() and os.access(memory, os.W_OK)
    made = Path(tempfile.mkdtemp(prefix="penstock-", dir=memory if usable else None))
    yield made
    shutil.rmtree(made, ignore_errors=True)
