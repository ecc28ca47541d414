"""Everything callable under one roof: functions, built-ins, and the tools of MCP servers.

A tool is found by its id without waiting, from what its server last said; only who calls it, or
asks for what was never listed, waits for a start (`ready`). Arguments are checked before a call,
declared results after it, and a tool that is not what was approved is not called at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import Problem, ToolFailed, ToolRefused, UnknownTool
from penstock.ids import ToolId
from penstock.policy.schemas import LARGEST, BadSchema, Check, compiled, size_of
from penstock.tools.base import Sketch, Task, Tool
from penstock.tools.functions import Functions
from penstock.tools.glance import Glance, glance
from penstock.tools.keep import Keep, MemoryKeep
from penstock.tools.listings import Listings
from penstock.tools.mcp.base import Definition, Listing, Progress, Watch
from penstock.tools.mcp.config import Server
from penstock.tools.pinning import Change, Pins
from penstock.tools.rules import Rules
from penstock.tools.table import Pinning
from penstock.workflow.findings import did_you_mean
from penstock.workflow.spec import Effect

if TYPE_CHECKING:
    from penstock.tools.mcp.health import Health
    from penstock.tools.mcp.pool import Pool

TASK: Final = "penstock/task"
"""Under this name a tool of a server is given its `Task`; no argument can be called so."""


class Servers:
    """The servers of a catalog, and how it came to know them."""

    def __init__(
        self,
        servers: Mapping[str, Server] | None = None,
        *,
        variables: Mapping[str, str] | None = None,
        listings: Keep | None = None,
        pins: Keep | None = None,
        problems: Sequence[Problem] = (),
        pinning: Pinning = "ask",
    ) -> None:
        self.known = dict(servers or {})
        self.variables = variables or {}
        self.listings = Listings(listings or MemoryKeep())
        self.pins = Pins(pins or MemoryKeep(), trusting=pinning == "off")
        self.pinning = pinning
        self.problems = tuple(problems)
        """What was wrong with their configuration."""


class ToolCatalog:
    """Use one for a process, and `close` it."""

    def __init__(
        self,
        functions: Functions | None = None,
        *,
        builtins: Iterable[Tool] = (),
        servers: Servers | None = None,
        rules: Rules | None = None,
    ) -> None:
        self.functions = functions or Functions()
        self.servers = servers or Servers()
        self.rules = rules or Rules()
        self._builtins = {tool.id: tool for tool in builtins}
        self._listed: dict[str, dict[str, Definition]] = {}
        """By server, what it offers; a server that is not here has never been asked."""
        self._about: dict[str, str] = {}
        self._found: dict[str, Tool] = {}
        self._rules_kept: dict[str, tuple[Tool, Tool]] = {}
        self._bad: dict[str, str] = {}
        """Tools whose definition cannot be used, and why."""
        self._down: dict[str, str] = {}
        """Servers that did not start the last time, and why."""
        self._revision = 0
        """Counts the times that a server offered something else."""
        self._pool: Pool | None = None
        for server in self.servers.known.values():
            listing = self.servers.listings.get(server)
            if listing is not None:
                self._take(server, listing)

    # --- finding ---

    def find(self, uses: str, *, folder: str | None = None, changed: bool = False) -> Tool:
        self._refuse_denied(uses)
        server, _, name = uses.partition(":")
        if server in self.servers.known:
            return self._of_server(self.servers.known[server], name, changed=changed)
        if self.is_builtin(uses):
            return self._ruled(self._builtins[ToolId(uses)])
        try:
            return self._ruled(self.functions.find(uses, folder=folder))
        except UnknownTool as error:
            hint = error.hint or did_you_mean(uses, self.ids())
            if not hint and not uses.startswith("py:"):
                hint = did_you_mean(server, self.servers.known) or f"there is no server {server!r}"
            raise UnknownTool(uses, hint) from None

    def of(self, function: Callable[..., Any], uses: str) -> Tool:
        self._refuse_denied(uses)
        return self._ruled(self.functions.of(function, uses))

    def add(self, function: Tool | Callable[..., Any]) -> Tool:
        return self.functions.add(function)

    def ids(self) -> Sequence[str]:
        return [id for id in self.every() if id not in self._bad and self.rules.verdict(id) != "deny"]

    def sketches(self) -> Sequence[Sketch]:
        """Tools of servers as those describe them: that one cannot be used is seen when it is looked for."""
        changed = {change.id for change in self.changes}
        found = [Sketch(one.id, one.description, one.input_schema) for one in self._builtins.values()]
        found += self.functions.sketches()
        for server, tools in list(self._listed.items()):
            about = self._about.get(server, "")
            found += [
                Sketch(f"{server}:{name}", tool.description, tool.input_schema, about)
                for name, tool in tools.items()
            ]
        by_id = {one.id: one for one in found if one.id not in changed and one.id not in self._bad}
        return [one for one in by_id.values() if not self.rules.refusal(one.id)]

    def look_at(self, id: str) -> tuple[Tool | None, str]:
        """A tool whatever rules and pins say of it, to be shown and not to be called; else why it is none."""
        server = id.partition(":")[0]
        try:
            definition = self.definition(id)
            if definition is not None and id not in self._bad:
                return self._found.get(id) or self._made(self.servers.known[server], definition), ""
            if self.is_builtin(id):
                return self._ruled(self._builtins[ToolId(id)]), ""
            return self._ruled(self.functions.find(id)), ""
        except UnknownTool as error:
            return None, self._bad.get(id, error.hint)

    def is_builtin(self, id: str) -> bool:
        return ToolId(id) in self._builtins and id not in self.functions.ids()

    def definition(self, id: str) -> Definition | None:
        """A tool of a server as that describes it."""
        server, _, name = id.partition(":")
        return self._listed.get(server, {}).get(name)

    def every(self) -> Sequence[str]:
        """The ids of all that is known, also of what may not be called."""
        listed = [f"{server}:{name}" for server, tools in self._listed.items() for name in tools]
        return list(dict.fromkeys([*self.functions.ids(), *self._builtins, *listed, *self._bad]))

    # --- servers ---

    @property
    def pool(self) -> Pool:
        """The servers that run, or will when they are called."""
        if self._pool is None:
            from penstock.tools.mcp.pool import Pool

            self._pool = Pool(self.servers.known, variables=self.servers.variables, listed=self._heard)
        return self._pool

    def about(self, server: str) -> str:
        """What a server says it is for, in its own words; empty when it says nothing."""
        return self._about.get(server, "")

    async def ready(self, uses: Iterable[str]) -> list[Progress]:
        """Start the servers of these tools that have never been asked what they offer."""
        unknown = self.unasked(uses)
        return await self.start(unknown) if unknown else []

    def ask(self, uses: Iterable[str]) -> None:
        """`ready` for those who cannot wait: outside of an event loop. The servers do not stay."""
        unknown = self.unasked(uses)
        if not unknown:
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            asyncio.run(self._ask(unknown))

    def unasked(self, uses: Iterable[str] = ("*",)) -> list[str]:
        """The servers that these ids, or patterns of ids, may belong to, and that were never asked."""
        wanted = dict.fromkeys(one.partition(":")[0] for one in uses)
        unasked = [name for name in self.servers.known if name not in self._listed]
        return [name for name in unasked if any(fnmatchcase(name, one) for one in wanted)]

    async def _ask(self, servers: Sequence[str]) -> None:
        try:
            await self.start(servers)
        finally:
            await self.close()
            self._pool = None

    async def start(
        self, servers: Iterable[str] | None = None, *, watch: Watch | None = None
    ) -> list[Progress]:
        """Start servers, all of them if none are named, and learn what they offer now."""
        ended = await self.pool.start(servers, watch=watch)
        self._down |= {one.server: one.error for one in ended if one.state == "failed"}
        return ended

    def health(self) -> dict[str, Health]:
        """How each server did the last time it was needed."""
        return {name: upstream.health for name, upstream in self.pool.upstreams.items()}

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()

    # --- approval of definitions ---

    @property
    def changes(self) -> list[Change]:
        """Tools that are not what was approved; they are refused until they are."""
        return self.servers.pins.changes

    @property
    def version(self) -> int:
        return self._revision + self.servers.pins.version + self.functions.version

    def approve(self, id: str) -> bool:
        """Take a changed tool as it is now. False when nothing waits under this id."""
        self._found.pop(id, None)
        return self.servers.pins.approve(id)

    # --- tools of servers ---

    def _heard(self, server: Server, listing: Listing) -> None:
        """A server said what it offers."""
        kept = self._take(server, listing)
        self.servers.listings.put(server, kept)

    def _take(self, server: Server, listing: Listing) -> Listing:
        good: dict[str, Definition] = {}
        for tool in listing.tools:
            id = f"{server.name}:{tool.name}"
            size = size_of(tool.input_schema) + size_of(tool.output_schema) + len(tool.description)
            if size > LARGEST:
                self._bad[id] = f"its definition has {size:,} bytes; {LARGEST:,} are allowed"
            else:
                good[tool.name] = tool
        old = self._listed.get(server.name, {})
        gone = [name for name in {*old, *good} if old.get(name) != good.get(name)]
        for name in gone:
            self._found.pop(f"{server.name}:{name}", None)
            if name in good:
                self._bad.pop(f"{server.name}:{name}", None)
        if gone or server.name not in self._listed or self._about.get(server.name) != listing.instructions:
            self._revision += 1
        self._listed[server.name] = good
        self.servers.pins.see({f"{server.name}:{name}": tool for name, tool in good.items()})
        self._about[server.name] = listing.instructions
        return replace(listing, tools=tuple(good.values()))

    def _of_server(self, server: Server, name: str, *, changed: bool) -> Tool:
        id = f"{server.name}:{name}"
        if id in self._bad:
            raise ToolRefused(id, self._bad[id])
        listed = self._listed.get(server.name)
        if listed is None:
            why = self._down.get(server.name, "it has not been started yet")
            raise UnknownTool(id, f"nobody knows what the server {server.name!r} offers: {why}")
        if name not in listed:
            others = "1 other tool" if len(listed) == 1 else f"{len(listed) or 'no'} other tools"
            hint = did_you_mean(name, listed) or f"the server {server.name!r} offers {others}"
            raise UnknownTool(id, hint)
        ask = changed and self.servers.pinning == "ask" and self.servers.pins.change(id) is not None
        if not ask:
            self._refuse_changed(id)
        tool = self._found.get(id)
        if tool is None:
            tool = self._found[id] = self._made(server, listed[name])
        return replace(tool, consent=_Consent(self, id)) if ask else tool

    def _refuse_denied(self, id: str) -> None:
        refusal = self.rules.refusal(id)
        if refusal:
            raise ToolRefused(id, refusal)

    def _refuse_changed(self, id: str) -> None:
        change = self.servers.pins.change(id)
        if change is not None:
            hint = f"it is not what was approved; read what changed, then `penstock tools approve {id}`"
            raise ToolRefused(id, f"{hint}:\n{change.difference}")

    def _made(self, server: Server, tool: Definition) -> Tool:
        id = ToolId(f"{server.name}:{tool.name}")
        try:
            arguments = compiled(tool.input_schema)
            results = compiled(tool.output_schema) if tool.output_schema is not None else None
        except BadSchema as error:
            self._bad[id] = str(error)
            raise ToolRefused(id, str(error)) from None
        effect = self.rules.effect(id)[0] or effect_of(tool, server.effects)
        made = Tool(
            id=id,
            call=partial(self._call, server, tool.name, effect, results),
            effect=effect,
            description=tool.description,
            input_schema=tool.input_schema,
            output_schema=tool.output_schema or self.servers.listings.learned(id),
            wants_task=TASK,
            convert=partial(_checked, id, glance(tool.input_schema), arguments),
        )
        return self._ruled(made)

    async def _call(
        self, server: Server, name: str, effect: Effect, results: Check | None, /, **args: Any
    ) -> Any:
        id = f"{server.name}:{name}"
        task: Task | None = args.pop(TASK, None)
        upstream = self.pool.upstream(server.name)
        await upstream.tools()  # a server that has to be started again may be another one by now
        self._refuse_changed(id)
        output = await upstream.call(name, args, effect=effect, task=task)
        if results is None:
            if self.servers.listings.learn(id, output):
                self._found.pop(id, None)  # whoever finds it next finds what its results look like
        elif complaint := results(output):
            raise ToolFailed(id, f"its result is not what it declares: {complaint}")
        return output

    def _ruled(self, tool: Tool) -> Tool:
        """A tool as the rules want it; the same one every time."""
        kept = self._rules_kept.get(tool.id)
        if kept is None or kept[0] is not tool:
            kept = self._rules_kept[tool.id] = (tool, self._under_rules(tool))
        return kept[1]

    def _under_rules(self, tool: Tool) -> Tool:
        rules = self.rules
        effect, _ = rules.effect(tool.id)
        standing, timeout = rules.standing(tool.id), rules.timeout(tool.id)
        asks = f"the rules for tools ask about {standing.pattern!r}" if standing.verdict == "ask" else ""
        if not asks and timeout is None and effect in (None, tool.effect):
            return tool
        return replace(tool, effect=effect or tool.effect, asks=asks, timeout=timeout)


@dataclass(frozen=True, slots=True)
class _Consent:
    """A tool that is not what was approved."""

    catalog: ToolCatalog
    id: str

    @property
    def difference(self) -> str:
        change = self.catalog.servers.pins.change(self.id)
        return change.difference if change else ""

    def give(self) -> None:
        self.catalog.approve(self.id)


def effect_of(tool: Definition, said: Mapping[str, Effect]) -> Effect:
    """The effect class: what the configuration says, else what the server hints at, else `write`."""
    if tool.name in said:
        return said[tool.name]
    hints = tool.annotations
    if hints.get("readOnlyHint") is True:
        return "read"
    if hints.get("destructiveHint") is True:
        return "destructive"
    return "idempotent" if hints.get("idempotentHint") is True else "write"


def _checked(id: str, fits: Glance, check: Check, args: dict[str, Any]) -> dict[str, Any]:
    if not fits(args) and (complaint := check(args)):
        raise ValueError(f"{id}: {complaint}")
    return args
