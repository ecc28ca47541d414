"""The one question about a definition: is it all right?

Types, values, names, circles, routes and expressions are each looked at where they are
understood (`shape`, `values`, `graph`, `routes`, `sites`); here everything that was found
is given its place in the text it came from.
"""

from __future__ import annotations

from penstock.workflow.findings import Finding, Findings, Locate
from penstock.workflow.graph import Graph, assemble
from penstock.workflow.inputs import check_inputs, coerce_inputs
from penstock.workflow.spec import Workflow
from penstock.workflow.support import unsupported

__all__ = ["Finding", "Locate", "check", "check_inputs", "coerce_inputs", "unsupported"]


def check(workflow: Workflow, locate: Locate | None = None) -> Graph:
    """The compiled workflow, or one `DefinitionError` with every problem and its place."""
    findings = Findings.of(workflow)
    graph = assemble(workflow, findings)
    findings.check(locate)
    return graph
