"""`penstock schema`: the JSON Schema of workflow files, for editors."""

from __future__ import annotations

from penstock.cli import exits


@exits.guarded
def schema() -> None:
    """Print the JSON Schema of workflow files."""
    from penstock.cli.text import pretty
    from penstock.workflow.schema import json_schema

    print(pretty(json_schema()))
