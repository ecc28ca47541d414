"""What is to be said of a tool to whoever owns it: what it does, whether it may, and who says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.tools.base import Tool
from penstock.tools.catalog import ToolCatalog, effect_of
from penstock.tools.learning import SEEN
from penstock.tools.names import wire_name
from penstock.tools.rules import Verdict
from penstock.tools.table import ToolsTable


@dataclass(frozen=True, slots=True)
class Account:
    id: str
    rule: Verdict
    rule_from: str
    """Where the rule stands; empty where none speaks of the tool."""
    effect: str = ""
    effect_from: str = ""
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=dict)
    output_schema: Mapping[str, Any] = field(default_factory=dict)
    learned: int = 0
    """How many results the output schema was learned from; 0 when it is declared, or there is none."""
    changed: str = ""
    """What differs from what was approved."""
    trouble: str = ""
    """Why it cannot be used at all."""
    timeout: float | None = None

    @property
    def wire_name(self) -> str:
        return wire_name(self.id)

    @property
    def state(self) -> str:
        """In one word: `allow`, `ask`, `deny`, `changed` or `unusable`."""
        if self.rule == "deny":
            return "deny"
        if self.trouble:
            return "unusable"
        return "changed" if self.changed else self.rule


def account(catalog: ToolCatalog, id: str, table: ToolsTable | None = None) -> Account:
    """What is known of a tool that is in the catalog."""
    table = table or ToolsTable()
    standing = catalog.rules.standing(id)
    source = f"{table.said_in(standing.verdict, standing.pattern)} {standing.verdict}: {standing.pattern}"
    rule_from = (
        source if standing.pattern else ("no pattern of [tools] allow" if standing.verdict == "deny" else "")
    )
    tool, trouble = catalog.look_at(id)
    change = catalog.servers.pins.change(id)
    if tool is None:
        return Account(id, standing.verdict, rule_from, trouble=trouble)
    declared = {key: value for key, value in tool.output_schema.items() if key != SEEN}
    return Account(
        id,
        standing.verdict,
        rule_from,
        tool.effect,
        _effect_from(catalog, tool, table),
        tool.description,
        tool.input_schema,
        declared,
        int(tool.output_schema.get(SEEN, 0)),
        change.difference if change else "",
        timeout=tool.timeout,
    )


def _effect_from(catalog: ToolCatalog, tool: Tool, table: ToolsTable) -> str:
    _, pattern = catalog.rules.effect(tool.id)
    if pattern:
        return f"{table.said_in('effects', pattern)} {pattern}"
    name, _, rest = tool.id.partition(":")
    server = catalog.servers.known.get(name)
    if server is None:
        return "built in" if catalog.is_builtin(tool.id) else "the function"
    if rest in server.effects:
        return f"{server.file} x-penstock.effects"
    definition = catalog.definition(tool.id)
    hinted = definition is not None and (effect_of(definition, {}) != "write" or bool(definition.annotations))
    return "hints of the server" if hinted else "nothing says otherwise"
