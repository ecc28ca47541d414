"""Whatever the description of the API allows, and what it does not, is answered, and never by a fault."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import booleans
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance
from surface import Server, server

CHECKS = [not_a_server_error, response_schema_conformance, status_code_conformance]


class World:
    """A server with a run that waits, so that there is something to be asked about."""

    def __init__(self, there: Server) -> None:
        self.there = there
        self.run = self.post("/api/runs", {"workflow": "ship"})["run_id"]
        self.decision = ""
        while not self.decision:
            open_ = self.get("/api/decisions")["decisions"]
            self.decision = open_[0]["id"] if open_ else ""

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.there.token}", "Content-Type": "application/json"}

    def get(self, path: str) -> Any:
        return self._asked(urllib.request.Request(f"{self.there.url}{path}", headers=self.headers))  # noqa: S310 - ours

    def post(self, path: str, body: Any) -> Any:
        data = json.dumps(body).encode()
        return self._asked(urllib.request.Request(f"{self.there.url}{path}", data, self.headers))  # noqa: S310 - ours

    def _asked(self, request: urllib.request.Request) -> Any:
        with urllib.request.urlopen(request) as said:  # noqa: S310 - our own server
            return json.load(said)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with server(tmp_path_factory.mktemp("served")) as there:
        yield World(there)
        assert there.process.poll() is None
        _, said = there.stop()
        assert "penstock failed" not in said


def test_every_request_is_answered_as_described_and_never_by_a_fault(world: World) -> None:
    described = schemathesis.openapi.from_url(f"{world.there.url}/openapi.json")
    operations = [found.ok() for found in described.get_all_operations()]
    for operation in operations:
        _try(operation, world)

    assert len(operations) == 11
    assert world.get(f"/api/runs/{world.run}")["run_id"] == world.run


def _try(operation: Any, world: World) -> None:
    meant = {"run": world.run, "decision": world.decision}
    headers = {**world.headers, "Accept": "application/json"}

    @given(operation.as_strategy(), booleans())
    @settings(max_examples=20, suppress_health_check=list(HealthCheck), deadline=None)
    def asked(case: Any, known: bool) -> None:
        for name in meant.keys() & (case.path_parameters or {}):
            if known:  # half of them are about something that is there
                case.path_parameters[name] = meant[name]
        case.call_and_validate(headers=headers, checks=CHECKS, timeout=10)

    asked()
