"""Penstock among its own servers: an entry that starts us would start itself, and that one itself again.

A client's file names us, and may well be the file that we read. Pure functions of an entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from penstock.tools.mcp.config import Server
from penstock.tools.mcp.watchdog import MARK


def starts_us(server: Server, here: Path, variables: Mapping[str, str]) -> bool:
    """Whether an entry is not to be started, for it is `penstock mcp` for this very folder.

    One for another folder is a server like any other, but not when we were started by Penstock
    ourselves: two folders may name each other.
    """
    words = [Path(server.command).stem, *server.args]
    if ("penstock", "mcp") not in pairwise(words):
        return False
    return MARK in variables or Path(server.cwd, _folder(words)).resolve() == here.resolve()


def _folder(words: Sequence[str]) -> str:
    """The folder that a command line is for; where it is started, when it says nothing."""
    for word, following in pairwise([*words, ""]):
        if word == "--folder":
            return following
        if word.startswith("--folder="):
            return word.partition("=")[2]
    return ""
