"""Which built-in tools there are, given what they may touch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.tools.base import Tool
from penstock.tools.builtin.data import Data
from penstock.tools.builtin.files import Files
from penstock.tools.builtin.http import Hosts, Http
from penstock.tools.builtin.places import Places
from penstock.tools.builtin.shell import Shell
from penstock.tools.functions import tool_of


@dataclass(frozen=True, kw_only=True)
class Reach:
    """What the built-in tools may touch."""

    roots: tuple[Path, ...] = (Path(),)
    """Folders for `files:*`, `data:*` and `shell:run`; relative paths start in the first."""
    hosts: Hosts = field(default_factory=Hosts)
    """What `http:get` may ask for."""
    commands: tuple[str, ...] = ()
    """Programs of `shell:run`; `*` for any. Without one there is no `shell:run`."""
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Where `shell:run` takes PATH and HOME from."""


def builtin_tools(reach: Reach | None = None) -> list[Tool]:
    """The tools that are always there."""
    reach = reach or Reach()
    places = Places(reach.roots)
    files, data, http = Files(places), Data(places), Http(reach.hosts)
    named: list[tuple[str, Callable[..., Any]]] = [
        ("http:get", http.get),
        ("files:read", files.read),
        ("files:write", files.write),
        ("files:append", files.append),
        ("files:delete", files.delete),
        ("files:list_directory", files.list_directory),
        ("files:search", files.search),
        ("data:parse_json", data.parse_json),
        ("data:parse_csv", data.parse_csv),
        ("data:parse_xml", data.parse_xml),
        ("data:format_json", data.format_json),
        ("data:format_csv", data.format_csv),
        ("data:format_xml", data.format_xml),
    ]
    if reach.commands:
        named.append(("shell:run", Shell(places, reach.variables, reach.commands).run))
    return [tool_of(function, id=id) for id, function in named]
