"""Servers of other people, installed once beside the environment that the tests run in.

Every server made with Python has an environment of its own: they do not agree about the SDK.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PYTHON = {
    "mcp-server-calculator": ["mcp-server-calculator>=0.2.1,<0.3"],
    "mcp-server-fetch": ["mcp-server-fetch>=2026.10,<2027"],
    "mcp-server-git": ["mcp-server-git>=2025.9,<2027"],
    "mcp-server-sqlite": ["mcp-server-sqlite>=2025.4,<2026", "mcp<2"],
    "mcp-server-time": ["mcp-server-time>=2025.9,<2027"],
}
NODE = [
    "@modelcontextprotocol/server-everything@^2026.1.0",
    "@modelcontextprotocol/server-filesystem@^2026.1.0",
    "@modelcontextprotocol/server-memory@^2026.1.0",
    "@modelcontextprotocol/server-sequential-thinking@^2026.1.0",
]
CACHE = Path(sys.prefix) / "third-party"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "third_party: needs servers from PyPI or npm; installed at the first run, then kept"
    )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two test runs at the same time install one after the other."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _installed(folder: Path, wanted: list[str], install: Callable[[], list[str]]) -> None:
    """Install what is wanted, unless that is what is there."""
    with _alone(folder):
        done = folder / "installed.txt"
        if done.is_file() and done.read_text(encoding="utf-8") == "\n".join(wanted):
            return
        found = subprocess.run(install(), capture_output=True, text=True, check=False, timeout=280)
        if found.returncode:
            pytest.fail(f"{', '.join(wanted)} cannot be installed:\n{found.stderr[-2000:]}")
        done.write_text("\n".join(wanted), encoding="utf-8")


@pytest.fixture(scope="session")
def from_pypi() -> Callable[[str], str]:
    """The program of a server made with Python, by its name."""

    def program(name: str) -> str:
        folder = CACHE / name

        def install() -> list[str]:
            venv.create(folder, with_pip=True)
            return [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *PYTHON[name]]

        _installed(folder, PYTHON[name], install)
        return str(folder / "bin" / name)

    return program


@pytest.fixture(scope="session")
def from_npm() -> Path:
    """The folder of the programs of servers made with Node."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.fail("npm is missing: install Node.js 20 or newer, or leave these out: -m 'not third_party'")
    folder = CACHE / "node"
    quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
    _installed(folder, NODE, lambda: [npm, "install", "--prefix", str(folder), *quiet, *NODE])
    return folder / "node_modules" / ".bin"
