"""`penstock tools show`, `approve` and `servers`: one tool in full, one that changed, and who offers them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import exits, offered

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.tools.accounts import Account
    from penstock.tools.mcp.base import Progress
    from penstock.tools.mcp.config import Server

SAID = 160
"""Characters of what a server says of itself that are shown in a list."""

Id = Annotated[str, typer.Argument(help="The tool, as `penstock tools` lists it.", metavar="SERVER:TOOL")]
Json = Annotated[bool, typer.Option("--json", help="As JSON.")]


async def started(penstock: Penstock, servers: list[str] | None = None) -> list[Progress]:
    """Ask servers what they offer now; what is wrong is said, and the rest works."""
    for problem in penstock.tools.servers.problems:
        exits.say(str(problem))
    if not penstock.tools.servers.known:
        return []
    ended = await penstock.tools.start(servers, watch=_told if sys.stderr.isatty() else None)
    for one in ended:
        if one.error:
            exits.say(f"{one.server}: {one.error}")
    return ended


def _told(one: Progress) -> None:
    if one.state == "ready":
        exits.say(f"{one.server}: {_tools(one.tools)} in {one.seconds:.1f} s")


def accounts(penstock: Penstock) -> list[Account]:
    """What is to be said of each tool, by id."""
    from penstock.tools.accounts import account

    table = penstock.settings.tools
    return [account(penstock.tools, id, table) for id in sorted(penstock.tools.every())]


def row(one: Account) -> dict[str, Any]:
    return {
        "id": one.id,
        "wire_name": one.wire_name,
        "state": one.state,
        "rule": one.rule,
        "rule_from": one.rule_from,
        "effect": one.effect,
        "effect_from": one.effect_from,
        "description": one.description,
        "input_schema": one.input_schema,
        "output_schema": one.output_schema,
        "learned_from": one.learned,
        "changed": one.changed,
        "trouble": one.trouble,
    }


async def _one(penstock: Penstock, id: str) -> Account:
    from penstock.tools.accounts import account
    from penstock.workflow.findings import did_you_mean

    server = id.partition(":")[0]
    if server in penstock.tools.servers.known:
        await started(penstock, [server])
    known = penstock.tools.every()
    if id not in known:
        hint = did_you_mean(id, known) or "`penstock tools` lists them"
        raise exits.Refused(f"there is no tool {id} ({hint})")
    return account(penstock.tools, id, penstock.settings.tools)


@exits.guarded
def show(
    id: Id,
    json: Json = False,
    servers: offered.Servers = "",
    functions: offered.Functions = "",
) -> None:
    """Show one tool in full: its schemas, its effect class and its rule, and who says so."""
    found = offered.with_tools(servers, functions, lambda penstock: _one(penstock, id))
    if json:
        from penstock.cli.outlets import json_line

        sys.stdout.buffer.write(json_line(row(found)))
        return
    from penstock.cli.text import legible

    print(legible("\n".join(_lines(found))))


def _lines(one: Account) -> list[str]:
    import msgspec

    def schema(value: Any) -> str:
        return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()

    lines = [one.id, f"  on the wire  {one.wire_name}"]
    if one.trouble:
        return [*lines, f"  cannot be used: {one.trouble}"]
    lines.append(f"  effect       {one.effect} ({one.effect_from})")
    lines.append(f"  rule         {one.rule} ({one.rule_from or 'no rule speaks of it'})")
    if one.timeout is not None:
        lines.append(f"  timeout      {one.timeout:g} s")
    if one.description:
        lines += ["", one.description]
    lines += ["", "arguments:", schema(one.input_schema)]
    if one.output_schema:
        how = f"learned from {one.learned} results" if one.learned else "declared"
        lines += ["", f"result ({how}):", schema(one.output_schema)]
    else:
        lines += ["", "result: nothing is declared, and none was seen yet"]
    if one.changed:
        lines += ["", "not what was approved:", one.changed]
    return lines


@exits.guarded
def approve(
    id: Id,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    servers: offered.Servers = "",
) -> None:
    """Take a tool as it is now, after it has changed. Shows the difference first."""

    async def go(penstock: Penstock) -> bool:
        found = await _one(penstock, id)
        if not found.changed:
            exits.say(f"{id} is what was approved")
            return False
        from penstock.cli.text import legible

        print(legible(found.changed))
        if not yes and not _confirmed(id):
            raise exits.Refused("nothing was approved; --yes approves without asking")
        return penstock.tools.approve(id)

    if offered.with_tools(servers, "", go):
        exits.say(f"{id} is approved as it is now")


def _confirmed(id: str) -> bool:
    return sys.stdin.isatty() and typer.confirm(f"approve {id} as it is now?", default=False, err=True)


@exits.guarded
def servers(json: Json = False, servers: offered.Servers = "") -> None:
    """List the servers: where each one is configured, how it is reached, and how it is doing."""

    async def go(penstock: Penstock) -> list[dict[str, Any]]:
        known = penstock.tools.servers
        ended = {one.server: one for one in await started(penstock)}
        if not known.known and not known.problems:
            exits.say(f"there are no servers yet: name them in {penstock.settings.mcp}")
        return [_server_row(penstock, one, ended[one.name]) for one in known.known.values()]

    rows = offered.with_tools(servers, "", go)
    if json:
        from penstock.cli.outlets import json_line

        sys.stdout.buffer.writelines(json_line(each) for each in rows)
        return
    from penstock.cli.text import one_line

    for each in rows:
        hidden = ", ".join(f"{name}=***" for name in (*each["env"], *each["headers"]))
        state = _tools(each["tools"]) if each["state"] == "ready" else each["state"]
        parts = [f"{each['name']:<16}", f"{state:<10}", each["file"], one_line(each["written"]), hidden]
        print("  ".join(part for part in parts if part).rstrip())
        if each["about"]:
            print(f"  says: {one_line(each['about'])[:SAID]}")


def _tools(count: int) -> str:
    return "1 tool" if count == 1 else f"{count} tools"


def _server_row(penstock: Penstock, server: Server, ended: Progress) -> dict[str, Any]:
    """A server as it may be shown anywhere: of variables and headers only the names."""
    from penstock.policy.masking import mask

    return {
        "name": server.name,
        "file": server.file,
        "transport": "stdio" if server.command else "http",
        "written": mask(server.written, penstock.settings.secrets),
        "env": sorted(server.env),
        "headers": sorted(server.headers),
        "state": ended.state,
        "tools": ended.tools,
        "seconds": round(ended.seconds, 3),
        "about": mask(penstock.tools.about(server.name), penstock.settings.secrets),
        "error": ended.error,
    }
