"""Workflows that ask, route and check, for the tests of the command line."""

from __future__ import annotations

ACTS = """
from pathlib import Path

import penstock as ps


@ps.tool(effect="destructive")
def deploy(env: str, share: int = 100):
    with Path("deployed").open("a") as ledger:
        ledger.write(f"{env} {share}\\n")
    return {"env": env, "share": share}


@ps.tool(effect="read")
def plain(value=None):
    return value


@ps.tool(effect="idempotent")
def build(size: int = 0, attempts=None):
    return {"size": size, "tried": len(attempts or []) + 1}


@ps.tool(effect="read")
async def held(file: str = "go"):
    import asyncio

    while not Path(file).exists():
        await asyncio.sleep(0.01)
    return file
"""

DEPLOY = """
name: ship
steps:
  - {id: pack, uses: "py:acts:plain", with: {value: app}}
  - {id: deploy, uses: "py:acts:deploy", needs: [pack], with: {env: prod, share: 100}}
outputs: {where: "${ steps.deploy.output.env }", share: "${ steps.deploy.output.share }"}
"""

TWO = """
name: two
steps:
  - {id: east, uses: "py:acts:deploy", with: {env: east}}
  - {id: west, uses: "py:acts:deploy", with: {env: west}}
outputs: {east: "${ steps.east.output.env }", west: "${ steps.west.output.env }"}
"""

GATE = """
name: gated
steps:
  - id: build
    uses: "py:acts:build"
    with: {size: 1, attempts: "${ attempts }"}
    gate: {max_attempts: 2, checks: [{name: large, expr: "output.size > 5"}]}
outputs: {size: "${ steps.build.output.size }"}
"""

ROUTE = """
name: routed
steps:
  - id: look
    uses: "py:acts:plain"
    with: {value: {doubt: true}}
    routing:
      kind: conditional
      conditions: [{expr: "output.doubt", target: human}]
      branches: {left: left}
      next: right
  - {id: left, uses: "py:acts:plain", with: {value: L}}
  - {id: right, uses: "py:acts:plain", with: {value: R}}
outputs: {left: "${ steps.left.status }", right: "${ steps.right.status }"}
"""

BUDGET = """
name: spent
config: {budget: {tool_calls: 2}, max_parallel: 1}
steps:
  - {id: a, uses: "py:acts:plain"}
  - {id: b, uses: "py:acts:plain", needs: [a]}
  - {id: c, uses: "py:acts:plain", needs: [b], with: {value: 3}}
outputs: {c: "${ steps.c.output }"}
"""

AIL = """
name: agreed
config: {ail: {after: [a], decider: external, timeout: TIMEOUT}}
steps:
  - {id: a, uses: "py:acts:plain", with: {value: 1}}
  - {id: b, uses: "py:acts:plain", needs: [a], with: {value: 2}}
outputs: {b: "${ steps.b.output }"}
"""

LOOP = """
name: looped
steps:
  - id: draft
    uses: "py:acts:plain"
    with: {value: "${ iteration }"}
  - id: judge
    uses: "py:acts:plain"
    with: {value: {good: "${ steps.draft.output >= 3 }"}}
    routing:
      kind: loop
      conditions: [{expr: "output.good", target: done}]
      loop_target: draft
      max_iterations: 5
      next: done
  - {id: done, uses: "py:acts:plain", with: {value: "${ steps.draft.output }"}}
outputs: {rounds: "${ steps.done.output }"}
"""

INJECT = """
name: grown
config:
  ail:
    after: [list]
    decider: policy
    rules:
      - if: "steps.list.output == 'xml'"
        do: inject
        feeds: report.value
        tasks: [{id: parse, uses: "py:acts:plain", with: {value: parsed}}]
steps:
  - {id: list, uses: "py:acts:plain", with: {value: xml}}
  - {id: report, uses: "py:acts:plain", needs: [list], with: {value: nothing}}
outputs: {report: "${ steps.report.output }"}
"""

FLOWS = {
    "ship": DEPLOY,
    "two": TWO,
    "gated": GATE,
    "routed": ROUTE,
    "spent": BUDGET,
    "agreed": AIL.replace("TIMEOUT", "60s"),
    "impatient": AIL.replace("TIMEOUT", "300ms"),
    "patient": AIL.replace("TIMEOUT", "6s"),
    "looped": LOOP,
    "grown": INJECT,
}
