"""Servers of other people, installed once beside the environment that the tests run in."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

PYTHON = ["mcp-server-fetch>=2025.4,<2027", "mcp-server-git>=2025.9,<2027", "mcp-server-time>=2025.9,<2027"]
NODE = [
    "@modelcontextprotocol/server-everything@^2026.1.0",
    "@modelcontextprotocol/server-filesystem@^2026.1.0",
    "@modelcontextprotocol/server-memory@^2026.1.0",
]
CACHE = Path(sys.prefix) / "third-party"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "third_party: needs servers from PyPI or npm; installed at the first run, then kept"
    )


def _installed(folder: Path, wanted: list[str], *commands: list[str]) -> None:
    """Install what is wanted, unless that is what is there."""
    done = folder / "installed.txt"
    if done.is_file() and done.read_text(encoding="utf-8") == "\n".join(wanted):
        return
    folder.mkdir(parents=True, exist_ok=True)
    for command in commands:
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
        assert found.returncode == 0, found.stderr[-2000:]
    done.write_text("\n".join(wanted), encoding="utf-8")


@pytest.fixture(scope="session")
def from_pypi() -> Path:
    """The folder of the programs of servers made with Python, in an environment of their own."""
    folder = CACHE / "python"
    if not (folder / "bin" / "python").exists():
        venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *PYTHON]
    _installed(folder, PYTHON, pip)
    return folder / "bin"


@pytest.fixture(scope="session")
def from_npm() -> Path:
    """The folder of the programs of servers made with Node."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    folder = CACHE / "node"
    quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
    _installed(folder, NODE, [npm, "install", "--prefix", str(folder), *quiet, *NODE])
    return folder / "node_modules" / ".bin"
