"""Plays the blocks of one page in a process of its own: `python stage.py FOLDER < blocks.json`.

Prints a JSON list of [block, what it printed], one for each block that was executed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any


def play(folder: Path, blocks: list[dict[str, str]]) -> list[tuple[int, str]]:
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    page = types.ModuleType("__main__")
    sys.modules["__main__"] = page  # where dataclasses and the like look for their own names
    printed = []
    for number, block in enumerate(blocks):
        if block["promise"] in ("file", "bad file"):
            Path(block["name"]).parent.mkdir(parents=True, exist_ok=True)
            Path(block["name"]).write_text(block["text"], encoding="utf-8")
        elif block["promise"] == "run" and block["language"] == "python":
            printed.append((number, _python(block, vars(page))))
        elif block["promise"] == "run":
            printed.append((number, _console(block["text"])))
    return printed


def _python(block: dict[str, str], namespace: dict[str, Any]) -> str:
    said = io.StringIO()
    # Line numbers of the page, so that a traceback points into it.
    code = compile("\n" * int(block["line"]) + block["text"], block["page"], "exec", dont_inherit=True)
    with contextlib.redirect_stdout(said):
        exec(code, namespace)  # noqa: S102 - our own documentation
    return said.getvalue()


def _console(text: str) -> str:
    """The block as it would look if it were typed here: commands, and what each says on either stream."""
    said = []
    for line in text.splitlines():
        if line.startswith("$ "):
            done = subprocess.run(
                ["/bin/sh", "-c", f"({line.removeprefix('$ ')}) 2>&1"],
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            )
            said += [line, done.stdout]
    return "\n".join(part.strip("\n") for part in said if part.strip())


if __name__ == "__main__":
    print(json.dumps(play(Path(sys.argv[1]), json.load(sys.stdin))))  # noqa: T201 - the answer
