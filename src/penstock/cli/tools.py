"""`penstock tools`: which tools there are, which fit a request, and what they would cost a client.

One tool in full, approval and servers are in `tool_accounts`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli import exits, offered, tool_accounts

if TYPE_CHECKING:
    from penstock.app import Penstock

tools = typer.Typer(rich_markup_mode=None, no_args_is_help=False, add_completion=False)
tools.command("show")(tool_accounts.show)
tools.command("approve")(tool_accounts.approve)
tools.command("servers")(tool_accounts.servers)

WIDEST: Final = 44
"""Characters of a column of ids; longer ones stand out."""

Json = Annotated[bool, typer.Option("--json", help="One JSON object for each tool.")]


@tools.callback(invoke_without_command=True)
@exits.guarded
def show(
    context: typer.Context,
    budget: Annotated[
        bool, typer.Option("--budget", help="What the tools cost a client: all of them, and behind us.")
    ] = False,
    json: Json = False,
    servers: offered.Servers = "",
    functions: offered.Functions = "",
    window: offered.Window = offered.WINDOW,
    share: offered.Share = offered.SHARE,
) -> None:
    """List the tools that workflows and clients can call."""
    if context.invoked_subcommand is not None:
        return
    if budget:
        _print_budget(
            offered.with_tools(servers, functions, lambda one: _budget(one, window, share)), json=json
        )
        return
    rows = offered.with_tools(servers, functions, _listed)
    if json:
        _write(rows)
        return
    width = min(WIDEST, max((len(row["id"]) for row in rows), default=0))
    for row in rows:
        what = row["trouble"] or row["description"]
        print(f"{row['id']:<{width}}  {row['effect']:<11}  {row['state']:<8}  {_brief(what)}".rstrip())
    if not rows:
        exits.say("there are no tools yet: name servers in .mcp.json")


@tools.command("search")
@exits.guarded
def search(
    request: Annotated[str, typer.Argument(help="What you want to do, in your own words.")],
    limit: Annotated[int, typer.Option(help="No more than this many.", metavar="N", min=1, max=50)] = 8,
    json: Json = False,
    servers: offered.Servers = "",
    functions: offered.Functions = "",
    window: offered.Window = offered.WINDOW,
    share: offered.Share = offered.SHARE,
) -> None:
    """Find the tools that fit a request, the best first.

    Of servers that were asked before, what they said then is searched; `penstock tools` asks them all again.
    """

    async def find(penstock: Penstock) -> Mapping[str, Any]:
        await tool_accounts.started(penstock, penstock.tools.unasked())
        finder = offered.finder(penstock, offered.budget(window, share))
        return await finder.find(request, limit=limit, schemas=False)

    found = offered.with_tools(servers, functions, find)
    rows: list[dict[str, Any]] = list(found["tools"])
    if left := found.get("left_out"):
        exits.say(
            f"{len(left)} more did not fit into {found['budget']['available']:,} tokens: {', '.join(left)}"
        )
    elif "hint" in found:
        exits.say(f"{request!r}: {found['hint']}")
    if json:
        _write(rows)
        return
    width = min(WIDEST, max((len(row["id"]) for row in rows), default=0))
    for row in rows:
        print(f"{row['score']:6.2f}  {row['id']:<{width}}  {_brief(row['description'])}".rstrip())
    if not found["of"]:
        exits.say("there are no tools yet: name servers in .mcp.json")


async def _listed(penstock: Penstock) -> list[dict[str, Any]]:
    await tool_accounts.started(penstock)
    return [tool_accounts.row(one) for one in tool_accounts.accounts(penstock)]


async def _budget(penstock: Penstock, window: int, share: float) -> list[dict[str, Any]]:
    from penstock.gateway.definitions import DEFINITIONS
    from penstock.planner.context import counter

    await tool_accounts.started(penstock)
    spend = offered.budget(window, share)
    count, exact = counter()
    costs = offered.finder(penstock, spend).costs(count)
    by_server: dict[str, int] = {}
    for id, tokens in costs.items():
        server = id.partition(":")[0]
        by_server[server] = by_server.get(server, 0) + tokens
    return [
        {
            **spend.shown(),
            "exact": exact,
            "meta_tools": len(DEFINITIONS),
            "meta_tokens": spend.used,
            "tools": len(costs),
            "tool_tokens": sum(costs.values()),
            "by_server": by_server,
        }
    ]


def _print_budget(rows: list[dict[str, Any]], *, json: bool) -> None:
    if json:
        _write(rows)
        return
    (row,) = rows
    window, how = row["window"], "" if row["exact"] else ", estimated"
    print(f"behind Penstock  {row['meta_tokens']:>9,} tokens  {_part(row['meta_tokens'], window)}"
          f"  {row['meta_tools']} meta-tools")  # fmt: skip
    print(f"shown directly   {row['tool_tokens']:>9,} tokens  {_part(row['tool_tokens'], window)}"
          f"  {row['tools']} tools")  # fmt: skip
    for server, tokens in sorted(row["by_server"].items(), key=lambda one: -one[1]):
        print(f"  {server:<15}{tokens:>9,}")
    print(
        f"one discovery    {row['available']:>9,} tokens at most"
        f"  ({row['share']:.0%} of {window:,}, less the meta-tools{how})"
    )


def _part(tokens: int, window: int) -> str:
    return f"{tokens / window:6.1%} of the window"


def _brief(text: str) -> str:
    from penstock.cli.text import one_line

    return one_line(text)[:100]


def _write(rows: list[dict[str, Any]]) -> None:
    from penstock.cli.outlets import json_line

    sys.stdout.buffer.writelines(json_line(row) for row in rows)
