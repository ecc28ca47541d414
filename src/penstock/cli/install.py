"""`penstock mcp install`: a client's other servers move behind Penstock, and Penstock takes their place."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from penstock.cli import exits

OURS: Final = "penstock"
"""The name of our entry."""


class Client(NamedTuple):
    """Where a client keeps its servers, and under which key."""

    path: Path
    key: str = "mcpServers"


class Change(NamedTuple):
    """A file as it is to be."""

    path: Path
    text: str


@exits.guarded
def install(
    client: Annotated[
        str, typer.Option("--client", help="claude-code, claude-desktop, vscode or cursor.", metavar="CLIENT")
    ],
    write: Annotated[bool, typer.Option("--write", help="Do it; else only show what would be done.")] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the client's other servers where they are.")
    ] = False,
    folder: Annotated[
        str, typer.Option("--folder", help="The folder that Penstock works in; else this one.", metavar="DIR")
    ] = "",
) -> None:
    """Make Penstock the one server in a client's configuration, with its other servers behind it.

    Nothing is written without --write. What a file was before is kept beside it, with the ending .bak.
    """
    base = Path(folder or ".").resolve()
    if not base.is_dir():
        raise exits.Refused(f"there is no folder {base}")
    known = clients(base, Path.home(), sys.platform)
    if client not in known:
        raise typer.BadParameter(f"{client!r} is not one of {', '.join(known)}", param_hint="--client")
    changes = changes_for(known[client], base, command(), keep=keep)
    for change in changes:
        _show(change)
    if not changes:
        exits.say(f"{known[client].path} is as it should be")
    elif write:
        for change in changes:
            exits.say(f"wrote {change.path}{_write(change)}")
        exits.say("restart the client, and ask it which tools it has")
    else:
        exits.say("nothing was written; --write does it")


def clients(folder: Path, home: Path, platform: str) -> dict[str, Client]:
    support = home / "Library/Application Support" if platform == "darwin" else home / ".config"
    return {
        "claude-code": Client(folder / ".mcp.json"),
        "claude-desktop": Client(support / "Claude" / "claude_desktop_config.json"),
        "vscode": Client(folder / ".vscode" / "mcp.json", "servers"),
        "cursor": Client(folder / ".cursor" / "mcp.json"),
    }


def command() -> list[str]:
    """How a client starts us: with whole paths, for it may know no others."""
    found = shutil.which(OURS)
    return [found] if found else [sys.executable, "-m", OURS]


def changes_for(client: Client, folder: Path, start: list[str], *, keep: bool) -> list[Change]:
    """What is to be written, the file that servers move to first: a crash between loses none of them."""
    from penstock.settings import BEHIND

    theirs = _read(client.path)
    servers = dict(_table(client.path, theirs, client.key))
    others = {name: entry for name, entry in servers.items() if name != OURS}
    moved = {} if keep else others
    behind = folder / BEHIND
    old = _read(behind)
    have = dict(_table(behind, old, client.key))
    for name, entry in moved.items():
        if have.get(name, entry) != entry:
            raise exits.Refused(f"{behind} has another server {name!r} already; rename one of them")
    args = [*start[1:], "mcp", "--folder", str(folder)]
    if moved or have:
        args += ["--servers", BEHIND]
    ours: dict[str, Any] = {"command": start[0], "args": args}
    if client.key == "servers":
        ours = {"type": "stdio", **ours}
    left = {**(others if keep else {}), OURS: ours}
    changes = []
    if moved:
        inputs = {"inputs": theirs["inputs"]} if "inputs" in theirs else {}
        changes.append(Change(behind, _text({**old, **inputs, client.key: {**have, **moved}})))
    changes.append(Change(client.path, _text({**theirs, client.key: left})))
    return [change for change in changes if not _same(change)]


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise exits.Refused(f"{path} cannot be read: {error}") from None
    try:
        found = json.loads(text or "{}")
    except json.JSONDecodeError as error:
        why = f"line {error.lineno}: {error.msg}"
        raise exits.Refused(f"{path} is not plain JSON ({why}); put Penstock in by hand") from None
    if not isinstance(found, dict):
        raise exits.Refused(f"{path} is not a JSON object")
    return found


def _table(path: Path, data: dict[str, Any], key: str) -> dict[str, Any]:
    found = data.get(key, {})
    if not isinstance(found, dict):
        raise exits.Refused(f"{path}: {key} is not a JSON object")
    return found


def _text(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _same(change: Change) -> bool:
    return change.path.is_file() and _read(change.path) == json.loads(change.text)


def _show(change: Change) -> None:
    import difflib

    old = change.path.read_text(encoding="utf-8") if change.path.is_file() else ""
    lines = difflib.unified_diff(
        old.splitlines(), change.text.splitlines(), str(change.path), str(change.path), lineterm=""
    )
    print("\n".join(lines))


def _write(change: Change) -> str:
    """Write a file whole or not at all. Returns where the old one went."""
    change.path.parent.mkdir(parents=True, exist_ok=True)
    kept = ""
    if change.path.is_file():
        backup = _free(change.path.with_name(f"{change.path.name}.bak"))
        shutil.copy2(change.path, backup)
        kept = f", the old one is {backup.name}"
    aside = change.path.with_name(f"{change.path.name}.new")
    aside.write_text(change.text, encoding="utf-8")
    aside.replace(change.path)
    return kept


def _free(path: Path) -> Path:
    """A name that no file has: an older backup is a backup, too."""
    number, found = 1, path
    while found.exists():
        number += 1
        found = path.with_name(f"{path.name}{number}")
    return found
