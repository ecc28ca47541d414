"""`/api/runs`: lists of runs, runs, their events, and commands for them."""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Final, get_args

import msgspec
from fastapi import APIRouter, Body, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from msgspec import structs

from penstock.engines.plain import run_line, summary_of
from penstock.engines.questions import standing
from penstock.errors import DefinitionError, Problem
from penstock.ids import CommandId, RunId
from penstock.run.commands import Command, read
from penstock.store.listing import FINAL, STATUSES
from penstock.web import streams
from penstock.web.bodies import Accepted, RunList, RunSummary, Start, Started
from penstock.web.desk import Desk, Route, written
from penstock.workflow import read as workflows
from penstock.workflow.foreign import barred

PAGE: Final = 50
LARGEST: Final = 1_000
EVENTS: Final = 10_000
FURTHEST: Final = 2**53
"""Numbers beyond it are not the same in every language."""

STREAM: Final = "text/event-stream"

_Page = Annotated[int, Query(ge=1, le=LARGEST)]
_Seq = Annotated[int, Query(ge=0, le=FURTHEST)]


def routes(desk: Desk) -> APIRouter:  # noqa: C901, RUF100 - a list of routes
    router = APIRouter(route_class=Route, tags=["runs"])

    @router.get("/api/runs", responses={200: {"model": RunList}})
    async def list_runs(
        status: Annotated[str, Query(description="Only runs that stand like this.")] = "",
        workflow: Annotated[str, Query(description="Only runs of this workflow.")] = "",
        limit: _Page = PAGE,
        cursor: Annotated[str, Query(description="`next` of the page before.")] = "",
        children: Annotated[bool, Query(description="Runs that other runs started, too.")] = False,
    ) -> Response:
        """Runs, the newest first."""
        if status and status not in STATUSES:
            raise DefinitionError([Problem(f"no run is ever {status!r}", f"one of {', '.join(STATUSES)}")])
        where: dict[str, Any] = {} if children else {"parent": None}
        where |= {name: text for name, text in (("status", status), ("workflow", workflow)) if text}
        if cursor:
            where["before"] = (await desk.record(cursor)).run
        found = list(await desk.runs.store.runs(limit=limit + 1, **where))
        more = found[limit - 1].run if len(found) > limit else None
        return written({"runs": [run_line(one) for one in found[:limit]], "next": more})

    @router.post("/api/runs", status_code=201, responses={201: {"model": Started}})
    async def start_run(body: Start) -> Response:
        """Start a run of a workflow file, or of a definition that comes along."""
        handle = await desk.runs.start_with(_flow(desk, body), body.inputs)
        await desk.pick_up.drive(handle)
        state = handle.state
        name = state.graph.workflow.name
        return written({"run_id": handle.id, "status": state.status, "workflow": name}, 201)

    @router.get(
        "/api/runs/{run:path}/events",
        responses={
            200: {
                "description": "Events, each with its number as `id`; a JSON list for who accepts only that.",
                "content": {STREAM: {}, "application/json": {"schema": {"type": "array"}}},
            },
            204: {"description": "The run has ended, and every event of it was seen."},
        },
    )
    async def run_events(
        request: Request,
        run: str,
        after: _Seq = 0,
        limit: Annotated[int, Query(ge=1, le=EVENTS, description="Of a list.")] = EVENTS,
        last_event_id: Annotated[str, Header(description="Go on after this event.")] = "",
        token: Annotated[str, Query(description="For browsers, whose streams send no headers.")] = "",  # noqa: ARG001 - looked at before we are asked
    ) -> Response:
        """The events of a run: a stream until it ends, or a list."""
        record = await desk.record(run)
        if last_event_id.isdecimal() and len(last_event_id) < 16:
            after = max(after, int(last_event_id))
        accepted = request.headers.get("accept", "")
        if "application/json" in accepted and STREAM not in accepted:
            return written(await streams.listed(desk, record.run, after, limit))
        if record.status in FINAL and record.events <= after:
            return Response(status_code=204)  # a browser that is told so does not come back
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(streams.frames(desk, record.run, after), media_type=STREAM, headers=headers)

    @router.post("/api/runs/{run:path}/commands", responses={200: {"model": Accepted}})
    async def send_command(
        run: str,
        body: Annotated[dict[str, Any], Body(openapi_examples={"pause": {"value": {"command": "pause"}}})],
    ) -> Response:
        """Steer a run, whichever process drives it. The same `id` twice is one command.

        One that nobody drives is taken up here first.
        """
        record = await desk.record(run)
        command = named(read({"by": "http", **body}), record.run)
        await desk.pick_up.send(record.run, command)
        tag = type(command).__struct_config__.tag
        return written({"run_id": record.run, "command": tag, "id": command.id, "accepted": True})

    @router.get("/api/runs/{run:path}", responses={200: {"model": RunSummary}})
    async def show_run(
        run: str, at: Annotated[int | None, Query(ge=0, le=FURTHEST, description="After this event.")] = None
    ) -> Response:
        """How a run stands, or stood: the line that ends `penstock show --json`."""
        result, asked = await standing(desk.runs, await desk.record(run), at)
        return written(summary_of(result, asked))

    return router


def named(command: Command, run: RunId) -> Command:
    """The command with an id, so that whoever sent it can send it again."""
    if command.id:
        return command
    return structs.replace(command, id=CommandId(f"{run}!{secrets.token_hex(8)}"))


def _flow(desk: Desk, body: Start) -> workflows.Source:
    if bool(body.workflow) == (body.definition is not None):
        raise DefinitionError([Problem("give a `workflow` file or a `definition`", "one of them")])
    if body.definition is None:
        return workflows.load(desk.library.path(body.workflow))
    source = workflows.from_plain(body.definition)
    if wrong := barred(source.workflow):
        raise DefinitionError(wrong)
    return source


def command_schema() -> dict[str, Any]:
    """The JSON Schema of every command, for the description of the API."""
    _, schemas = msgspec.json.schema_components([Command], ref_template="#/components/schemas/{name}")
    return schemas


def command_names() -> list[str]:
    return [kind.__name__ for kind in get_args(Command)]
