"""The benchmark scripts run, on tiny data that is made here. Their figures are not judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import penstock

SCRIPTS = Path(__file__).resolve().parents[2] / "benchmarks"

# A long chain beside short tasks: with two workers, what starts first decides the makespan.
TASKS = [
    {"id": "short one", "parents": [], "runtime": 4.0},
    {"id": "short two", "parents": [], "runtime": 4.0},
    {"id": "long/1", "parents": [], "runtime": 5.0},
    {"id": "long/2", "parents": ["long/1"], "runtime": 5.0},
    {"id": "end", "parents": ["short one", "short two", "long/2"], "runtime": 0.0},
]
WORKFLOW = {"id": "made-up/1", "tasks": TASKS}


def ran(script: str, *arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(penstock.__file__).resolve().parents[1])}
    environment.pop("PENSTOCK_BENCH_COMMON", None)
    command = [sys.executable, SCRIPTS / script, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def makespan() -> ModuleType:
    spec = spec_from_file_location("makespan", SCRIPTS / "makespan.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_real_workflows_are_scheduled_as_well_as_critical_path_first_could(tmp_path: Path) -> None:
    (tmp_path / "workflows.jsonl").write_text(json.dumps(WORKFLOW) + "\n", "utf-8")

    done = ran("makespan.py", "--workflows", "workflows.jsonl", "--workers", "1,2", "--out", "out.jsonl",
               folder=tmp_path)  # fmt: skip

    one, two = lines(done)
    assert (one["invalid"], two["invalid"]) == (0, 0)
    assert two["penstock"] == two["critical_path_first"] == 1.0  # 10 s, which is the longest chain
    assert two["fifo"] == 1.4
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
    assert [row["workers"] for row in written] == [1, 2]
    assert {tuple(slot) for slot in written[1]["schedule"]} >= {("long/1", 0.0, 5.0), ("long/2", 5.0, 10.0)}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda slots: slots[:-1], "exactly once"),
        (lambda slots: [*slots[:-1], ("end", 3.0, 3.0)], "before what it needs"),
        (lambda slots: [(name, 0.0, 0.0) for name, _, _ in slots], "as long as it takes"),
        (lambda slots: [("short one", 0.0, 4.0), ("short two", 1.0, 5.0), *slots[2:]], "more than 2"),
    ],
)
def test_a_schedule_that_cheats_is_noticed(makespan: ModuleType, change: Any, complaint: str) -> None:
    dag = makespan.Dag(WORKFLOW)
    honest = [("short one", 0.0, 4.0), ("short two", 4.0, 8.0), ("long/1", 0.0, 5.0), ("long/2", 5.0, 10.0),
              ("end", 10.0, 10.0)]  # fmt: skip

    assert makespan.fault(dag, 2, honest) == ""
    assert complaint in makespan.fault(dag, 2, change(honest))


def test_cel_rows_become_predictions(tmp_path: Path) -> None:
    row = {"id": "1", "expr": "x + 1 == 2", "bindings": {"x": {"value": {"int64_value": "1"}}},
           "type_env": [{"name": "x", "ident": {"type": {"primitive": "INT64"}}}], "container": "",
           "disable_check": False}  # fmt: skip
    broken = row | {"id": "2", "expr": "1 / 0"}
    (tmp_path / "tests.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps(broken)}\n", "utf-8")

    done = ran("cel.py", "--tests", "tests.jsonl", "--out", "out.jsonl", folder=tmp_path)

    assert done.returncode == 0, done.stderr
    good, bad = (json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines())
    assert good == {"id": "1", "error": False, "value": {"bool_value": True}}
    assert bad["error"]


def test_recorded_errors_are_told_apart_and_given_to_the_scorer(tmp_path: Path) -> None:
    (tmp_path / "llm_errors").mkdir()
    (tmp_path / "metrics").mkdir()
    told = {"error": {"type": "rate_limit_error", "message": "slow down"}}
    refused = {"choices": [{"message": {"content": ""}, "finish_reason": "content_filter"}]}
    rows: list[dict[str, Any]] = [
        {"id": "1", "provider": "anthropic", "status": 429, "headers": {"Retry-After": "7"},
         "body": json.dumps(told)},
        {"id": "2", "provider": "anthropic", "status": 200, "headers": {"retry-after": "9"}, "body": None},
        {"id": "3", "provider": "azure", "status": 200, "headers": {}, "body": refused},
    ]  # fmt: skip
    fixtures = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "llm_errors" / "fixtures.jsonl").write_text(fixtures, "utf-8")
    (tmp_path / "metrics" / "llm_errors.py").write_text("import sys; print(open(sys.argv[2]).read(), end='')")

    limited, fine, filtered = lines(ran("llm_errors.py", "--data", tmp_path, folder=tmp_path))

    assert limited == {"id": "1", "class": "rate_limited", "retry": True, "wait_s": 7.0}
    assert fine == {"id": "2", "class": "ok", "retry": False, "wait_s": None}
    assert filtered == {"id": "3", "class": "bad_request", "retry": False, "wait_s": None}


def test_what_a_call_of_a_model_costs_is_measured_alone_and_sharing(tmp_path: Path) -> None:
    alone, sharing, together = lines(ran("model_calls.py", "--small", folder=tmp_path))

    assert [one["figure"] for one in (alone, sharing)] == ["router", "router, sharing"]
    assert all(one["limit"] == 0.3 and one["bare_ms"] > 0 for one in (alone, sharing, together))


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_table_shows_every_figure_and_says_which_folders_it_lacks(tmp_path: Path) -> None:
    rows = lines(ran("table.py", "--small", "--json", folder=tmp_path))

    skipped = [row for row in rows if row["mark"] == "skipped"]
    measured = [row["workload"] for row in rows if row["ours"] is not None]
    assert all(row["note"].startswith("needs --") for row in skipped)
    assert len(skipped) == 14
    assert len(measured) >= 13 + 13  # and two more where there is a Postgres
    assert any(name.startswith("W6 import") for name in measured)
    assert any(name.startswith("durable chain") for name in measured)


def test_a_durable_figure_says_what_it_may_be_and_whether_it_is(tmp_path: Path) -> None:
    held_up, durable = lines(ran("durable.py", "checkpoint", "--small", folder=tmp_path))

    assert (held_up["figure"], durable["figure"]) == ("checkpoint", "checkpoint kept")
    assert held_up["ok"] == (held_up["value"] <= held_up["limit"])


def test_a_figure_that_does_not_exist_is_refused_with_those_that_do(tmp_path: Path) -> None:
    done = ran("durable.py", "colour", folder=tmp_path)

    assert done.returncode == 2
    assert "there is no figure colour; there are steps, busy" in done.stderr


def test_a_workload_without_the_peers_folder_says_what_is_missing(tmp_path: Path) -> None:
    done = ran("bench_penstock.py", "W1", folder=tmp_path)

    assert done.returncode == 1
    assert "--common DIR" in done.stderr


def test_the_gateway_is_measured_beside_direct_calls(tmp_path: Path) -> None:
    rows = lines(ran("gateway.py", "--calls", "3", folder=tmp_path))

    assert [(row["call"], row["way"]) for row in rows] == [
        (call, way) for call in ("read", "write") for way in ("direct", "memory", "sqlite")
    ]
    assert all("added_ms" in row for row in rows if row["way"] != "direct")
