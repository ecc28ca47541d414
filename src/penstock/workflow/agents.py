"""Agents described in files of their own: `agents/NAME.yaml`, or `agents/NAME.md`, beside a workflow.

What is found becomes part of the definition, so that a run pins it like everything else.
"""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from penstock.errors import DefinitionError, Problem
from penstock.workflow import yaml
from penstock.workflow.keys import AGENT
from penstock.workflow.problems import Problems
from penstock.workflow.spec import AgentSpec, Workflow

FOLDER = "agents"
_FENCE = "---"


def with_agents(workflow: Workflow, folder: Path) -> Workflow:
    """The workflow with the agents that it calls, does not describe, and finds in its folder."""
    called = {step.uses.removeprefix("agent:") for step in workflow.steps if step.uses.startswith("agent:")}
    found = {
        name: spec
        for name in sorted(called - set(workflow.config.agents))
        if (spec := _read(folder / FOLDER, name)) is not None
    }
    if not found:
        return workflow
    config = replace(workflow.config, agents={**workflow.config.agents, **found})
    return replace(workflow, config=config)


def _read(folder: Path, name: str) -> AgentSpec | None:
    for suffix in (".yaml", ".yml", ".md"):
        path = folder / f"{name}{suffix}"
        if path.is_file():
            return _markdown(path) if suffix == ".md" else _described(path, _text(path))
    return None


def _markdown(path: Path) -> AgentSpec:
    """Keys between two lines of dashes, then the prompt; or nothing but the prompt."""
    text = _text(path)
    head, prompt = "", text
    if text.startswith(f"{_FENCE}\n"):
        head, fence, rest = text.removeprefix(f"{_FENCE}\n").partition(f"\n{_FENCE}\n")
        if not fence:
            raise DefinitionError([Problem(f"the keys at the top do not end with {_FENCE}", file=str(path))])
        prompt = rest
    spec = _described(path, f"\n{head}") if head.strip() else AgentSpec()
    return spec if spec.prompt else replace(spec, prompt=prompt.strip())


def _described(path: Path, text: str) -> AgentSpec:
    problems = Problems()
    node = yaml.parse(text, str(path))
    spec = AGENT.read(node, problems)
    if problems or not isinstance(spec, AgentSpec):
        raise problems.error(node, node, file=str(path))
    return spec


def _text(path: Path) -> str:
    try:
        with path.open("rb") as handle:
            return yaml.decode(handle.read(yaml.MAX_BYTES + 1), str(path))
    except OSError as error:
        raise DefinitionError([Problem(f"cannot read the file: {error.strerror}", file=str(path))]) from None
