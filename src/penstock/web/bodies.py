"""What requests and answers look like. Requests are checked by these; answers are described by them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Start(_Request):
    """A run to begin: of a workflow file that is served, or of a definition that comes along."""

    workflow: Annotated[str, Field(description="A file, as `/api/workflows` lists it.")] = ""
    definition: Annotated[
        dict[str, Any] | None,
        Field(description="A workflow in the shape of a file, without `py:` and other code of yours."),
    ] = None
    inputs: dict[str, Any] = {}


class Answer(_Request):
    """An answer to an open decision."""

    verb: Annotated[str, Field(description="One of the question's `options`.")]
    args: Annotated[dict[str, Any] | None, Field(description="What the verb takes; see `schema`.")] = None
    message: Annotated[str, Field(description="Why, for the record.")] = ""
    by: Annotated[str, Field(description="Who answers, for the record.")] = "http"
    id: Annotated[str, Field(description="The same id twice is one answer.")] = ""


class Error(BaseModel):
    type: str
    message: str
    hint: str


class Failure(BaseModel):
    """How every request that fails is answered."""

    error: Error


class Health(BaseModel):
    status: str
    version: str


class RunLine(BaseModel):
    run_id: str
    status: str
    workflow: str
    started: str
    ended: str | None
    events: int
    reason: str
    owner: str | None
    parent: str | None
    fork_of: str | None
    fork_at: int | None
    source: str
    hash: str


class RunList(BaseModel):
    runs: list[RunLine]
    next: Annotated[str | None, Field(description="The `cursor` of the next page, if there is one.")]


class StepLine(BaseModel):
    status: str
    attempts: int
    iterations: int
    reason: str


class Pending(BaseModel):
    id: str
    kind: str
    step: str | None
    summary: str


class RunSummary(BaseModel):
    """How a run stands: the line that ends `penstock show --json`."""

    run_id: str
    status: str
    outputs: dict[str, Any]
    steps: dict[str, StepLine]
    pending: list[Pending]
    duration_ms: float


class Started(BaseModel):
    run_id: str
    status: str
    workflow: str


class Accepted(BaseModel):
    run_id: str
    command: str
    id: str
    accepted: bool


class Question(Pending):
    """A decision: all that somebody who decides may want to know."""

    run_id: str
    workflow: str
    iteration: int
    item: int | None
    attempt: int
    options: list[str]
    call: dict[str, Any]
    digest: str
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    asked: str
    deadline: str | None
    open: bool
    answer: Annotated[dict[str, Any] | None, Field(description="What was decided, by whom and why.")]


class QuestionList(BaseModel):
    decisions: list[Question]


class Answered(BaseModel):
    id: str
    run_id: str
    verb: str
    accepted: bool


class WorkflowLine(BaseModel):
    file: str
    name: str
    description: str
    inputs: dict[str, Any]
    steps: int
    hash: str
    problems: list[str]


class WorkflowList(BaseModel):
    workflows: list[WorkflowLine]


class ToolLine(BaseModel):
    id: str
    effect: str
    description: str
    input_schema: dict[str, Any]


class ToolList(BaseModel):
    tools: list[ToolLine]
