"""All figures in one table: ours, what they may be at most, and what the best peers need.

    python benchmarks/table.py [--common DIR] [--data DIR] [--peers PYTHON,SCRIPT …] [--json]

`--common` is the folder of the peers' scripts (for W1, W2, W3 and W5), `--data` a folder with
`wfinstances/`, `cel/`, `llm_errors/` and `metrics/`. Rows whose folder is not given are skipped and say so.
Peers' figures are quoted as published with their scripts, from another machine; ratios travel,
absolute figures do not. `--peers` runs their scripts here as well, each with its own Python.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, kw_only=True)
class Row:
    workload: str
    ours: float | None
    """None: not measured, and `note` says why."""
    limit: float
    unit: str = "×"
    least: bool = False
    """The limit is the least that will do, not the most."""
    published: str = "–"
    """The best peers, as published with the scripts."""
    here: str = ""
    """The best peer of those that were run beside us."""
    note: str = ""

    @property
    def mark(self) -> str:
        if self.ours is None:
            return "skipped"
        good = self.ours >= self.limit if self.least else self.ours <= self.limit
        return "ok" if good else "MISSED"


@dataclass(frozen=True, kw_only=True)
class Given:
    common: Path | None
    data: Path | None
    peers: list[tuple[str, str]]
    small: bool


Line = dict[str, Any]


def lines(command: list[str]) -> list[Line]:
    """Run a script; its JSON lines."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def script(name: str, *arguments: str) -> list[Line]:
    return lines([sys.executable, str(HERE / name), *arguments])


# --- beside the peers -------------------------------------------------------------------------


def workload(given: Given, key: str, *arguments: str) -> Line:
    """The middle one of three processes; each takes the best of its repeats."""
    command = ["--common", str(given.common), *arguments, "--variant", "native"]
    found = [script("bench_penstock.py", *command)[0] for _ in range(1 if given.small else 3)]
    wrong = [line["error"] for line in found if "error" in line]
    if wrong:
        raise SystemExit(f"bench_penstock.py {' '.join(arguments)}: {wrong[0]}")
    return sorted(found, key=lambda line: float(line[key]))[len(found) // 2]


def beside(given: Given, key: str, *arguments: str) -> str:
    """The best of the peers that `--peers` names, measured now. One that cannot do it is no peer."""
    best: tuple[float, str] | None = None
    for python, path in given.peers:
        try:
            found = lines([python, path, *arguments])
        except (SystemExit, OSError, subprocess.TimeoutExpired) as error:
            print(f"{path}: {error}", file=sys.stderr)
            continue
        for line in found:
            if key in line and (best is None or line[key] < best[0]):
                best = (line[key], f"{line['peer']} {line['variant']}")
    return f"{best[1]} {shown(best[0])}" if best else ""


def engines(given: Given) -> Iterator[Row]:
    rows = [
        ("W1 fan-out 1,000, no-op tasks", "cpu_ratio", 4.0, "×", "dask 14, LangGraph 174", ["W1"], []),
        ("W1, tasks that suspend once", "cpu_ratio", 4.0, "×", "–", ["W1"], ["--suspend"]),
        ("W2 chain 1,000, no-op tasks", "cpu_ratio", 4.0, "×", "burr 9, LangGraph 261", ["W2"], []),
        ("W2, tasks that suspend once", "cpu_ratio", 4.0, "×", "–", ["W2"], ["--suspend"]),
        ("W3 makespan ÷ the bare loop's", "ratio", 1.02, "×", "to critical path: dask 1.06, LangGraph 2.20",
         ["W3"], []),
        ("W5 memory, fan-out 10,000", "peak_kb_per_task", 2.0, "KB/task", "burr 3.3", ["W5"], []),
        ("W5 memory, chain 10,000", "peak_kb_per_task", 2.0, "KB/task", "–", ["W5", "--shape", "chain"], []),
    ]  # fmt: skip
    for name, key, limit, unit, published, arguments, ours_only in rows:
        if given.common is None:
            yield Row(workload=name, ours=None, limit=limit, unit=unit, published=published,
                      note="needs --common")  # fmt: skip
            continue
        few = ["--n", "50", "--repeats", "2"] if given.small else []
        line = workload(given, key, *arguments, *ours_only, *few)
        here = "" if ours_only else beside(given, key, *arguments, *few)
        yield Row(workload=name, ours=line[key], limit=limit, unit=unit, published=published, here=here,
                  note=remark(line))  # fmt: skip


def remark(line: Line) -> str:
    if "over_cp" in line:
        return f"÷ critical path: {line['over_cp']}, bare {line['bare_over_cp']}"
    if "cpu_us_per_task" in line:
        bare = line["cpu_us_per_task"] / line["cpu_ratio"]
        return f"{line['cpu_us_per_task']:.1f} µs a task, bare {bare:.1f} µs"
    return ""


# --- real data --------------------------------------------------------------------------------


def real(given: Given) -> Iterator[Row]:
    yield from scheduling(given)
    yield conformance(given)
    yield from errors(given)


def scheduling(given: Given) -> Iterator[Row]:
    """The limit is relative to the ideal critical-path-first scheduler on the same workflows."""
    published = {4: "FIFO 1.10, ideal 1.06", 16: "FIFO 1.16, ideal 1.09", 64: "FIFO 1.13, ideal 1.08"}
    workflows = given.data / "wfinstances" / "workflows.jsonl" if given.data else None
    if workflows is None or not workflows.is_file():
        for workers, peer in published.items():
            yield Row(workload=_slots(workers), ours=None, limit=1.01, published=peer,
                      note="needs --data with wfinstances/workflows.jsonl")  # fmt: skip
        return
    with tempfile.TemporaryDirectory() as folder:
        command = ["--workflows", str(workflows), "--out", f"{folder}/predictions.jsonl"]
        if (workflows.parents[1] / "metrics" / "makespan.py").is_file():
            command += ["--metrics", str(workflows.parents[1] / "metrics")]
        found = script("makespan.py", *command)
    for line in found:
        if "workers" in line:
            yield Row(
                workload=_slots(line["workers"]),
                ours=line["over_critical_path_first"] if not line["invalid"] else float("inf"),
                limit=1.01,
                published=published.get(line["workers"], "–"),
                note=f"÷ lower bound {line['penstock']:.3f}; ideal {line['critical_path_first']:.3f}, "
                f"FIFO {line['fifo']:.3f}; {line['invalid']} of {line['n']} invalid",
            )


def _slots(workers: int) -> str:
    return f"real workflows, {workers} slots: makespan ÷ ideal critical-path-first"


def conformance(given: Given) -> Row:
    name = "CEL conformance, core rows"
    tests = given.data / "cel" / "tests.jsonl" if given.data else None
    scorer = given.data / "metrics" / "cel_conf.py" if given.data else None
    if tests is None or scorer is None or not (tests.is_file() and scorer.is_file()):
        return Row(workload=name, ours=None, limit=99.0, unit="%", least=True,
                   note="needs --data with cel/tests.jsonl and metrics/")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/predictions.jsonl"
        script("cel.py", "--tests", str(tests), "--out", out)
        score = lines([sys.executable, str(scorer), "--pred", out, "--gold", str(tests), "--core"])[0]
    return Row(workload=name, ours=score["pass_rate"] * 100, limit=99.0, unit="%", least=True,
               note=f"{score['n']} rows")  # fmt: skip


ERRORS = {"class_acc": ("what it is", 97.0), "retry_acc": ("whether to ask again", 97.0),
          "wait_acc": ("how long to wait", 90.0)}  # fmt: skip


def errors(given: Given) -> Iterator[Row]:
    """Providers' recorded errors, and what our classifier makes of them."""
    rows = given.data / "llm_errors" / "fixtures.jsonl" if given.data else None
    there = rows is not None and rows.is_file() and (rows.parents[1] / "metrics" / "llm_errors.py").is_file()
    score = script("llm_errors.py", "--data", str(given.data))[0] if there else {}
    for key, (what, limit) in ERRORS.items():
        name = f"providers' errors, right about {what}"
        if not there:
            yield Row(workload=name, ours=None, limit=limit, unit="%", least=True,
                      note="needs --data with llm_errors/fixtures.jsonl and metrics/")  # fmt: skip
            continue
        yield Row(workload=name, ours=score[key] * 100, limit=limit, unit="%", least=True,
                  note=f"{score['n_wait' if key == 'wait_acc' else 'n']} rows")  # fmt: skip


# --- by ourselves -----------------------------------------------------------------------------

LIMITS: dict[str, tuple[str, float, str, str]] = {
    "parallel": ("five 500 ms tools in parallel ÷ one", 1.05, "×", "–"),
    "watching": ("events and commands on ÷ off, suspending tasks", 1.05, "×", "–"),
    "reducer": ("state update, one reducer op", 0.05, "ms", "–"),
    "set": ("the same as a step's `set`, in a run", 0.05, "ms", "–"),
    "event": ("event emission", 0.05, "ms", "–"),
    "command": ("command enqueued → applied, busy run", 2.0, "ms", "–"),
    "start import": ("W6 import ÷ bare `import asyncio`", 2.5, "×", "pydantic-graph 3.4"),
    "start hello": ("W6 cold hello run ÷ bare `import asyncio`", 5.0, "×", "LangGraph 33"),
    "start help": ("`penstock --help`", 200.0, "ms CPU", "–"),
}
SCALE = {"W2 chain": 1.2, "W1 fan-out": 1.5}


def alone(given: Given) -> Iterator[Row]:
    for line in script("figures.py", *(["--small"] if given.small else [])):
        kind = f", {line['kind']}" if "kind" in line else ""
        if line["figure"] == "scale":
            name = f"cost per task, {line['many']:,} tasks ÷ {line['few']:,}{kind}"
            note = f"{line['few_us']:.1f} → {line['many_us']:.1f} µs"
            yield Row(workload=name, ours=line["value"], limit=SCALE[line["kind"]], note=note)
        elif line["figure"] in LIMITS:
            name, limit, unit, published = LIMITS[line["figure"]]
            note = f"{line['ms']:.0f} ms, bare {line['bare_ms']:.0f} ms" if "ms" in line else ""
            if line["unit"] == "ms p95":
                name, kind = f"{name} (p95)", f", worst: {line['kind']}" if kind else ""
            yield Row(workload=name + kind, ours=line["value"], limit=limit, unit=unit, published=published,
                      note=note)  # fmt: skip


# --- durable runs -----------------------------------------------------------------------------

DURABLE: dict[str, tuple[str, str]] = {
    "chain": ("durable chain, a step ÷ an inline insert and fsync", "LangGraph 2.2 ms, DBOS 4.0 ms"),
    "fan-out": ("durable fan-out, a step", "–"),
    "busy burst": ("4,000 events at once beside a busy loop, until durable", "–"),
    "busy spread": ("4,000 events spread over ticks of a busy loop, until durable", "–"),
    "bytes": ("bytes written, 1,600 steps of 1 KB", "fsync loop 12.7, DBOS 75, LangGraph 2,696"),
    "bytes growth": ("their growth with the number of steps", "burr 1.74"),
    "cpu": ("what SQLite adds to a task, W1 fan-out (CPU)", "–"),
    "checkpoint": ("a checkpoint of 1 MB: what holds the run up (p95)", "–"),
    "checkpoint kept": ("a checkpoint of 1 MB: until it is kept (p95)", "–"),
    "resume": ("resuming a run of 10,000 tasks", "–"),
    "memory": ("what 10,000 tasks with results of 1 KB add to memory", "–"),
    "command sqlite": ("command of another process → owner, SQLite (p95)", "–"),
    "command postgres": ("command of another process → owner, Postgres (p95)", "–"),
    "follow sqlite": ("event durable → follower in another process, SQLite (p95)", "–"),
    "follow postgres": ("event durable → follower in another process, Postgres (p95)", "–"),
}


def durable(given: Given) -> Iterator[Row]:
    few = ["--n", "20", "--repeats", "1"] if given.small else []
    for line in script("durable.py", *(["--small"] if given.small else [])):
        if "limit" not in line:
            continue
        name, published = DURABLE[line["figure"]]
        shape = {"chain": "chain", "fan-out": "fan"}.get(line["figure"])
        here = beside(given, "ms_per_step", "W4", "--shape", shape, *few) if shape else ""
        unit = line["unit"].removesuffix(" p95")
        yield Row(workload=name, ours=line["value"], limit=line["limit"], unit=unit,
                  published=published, here=f"{here} ms" if here else "",
                  note=_durable_remark(line))  # fmt: skip


def _durable_remark(line: Line) -> str:
    match line["figure"]:
        case "chain" | "fan-out":
            return f"{line['ours_ms']:.3f} ms, inline {line['fsync_ms']:.3f} ms"
        case "bytes growth":
            return f"{line['few']:,} → {line['many']:,} steps"
        case "cpu":
            return f"{line['sqlite']:.1f} µs, in memory {line['memory']:.1f} µs"
        case "checkpoint kept":
            return f"median {line['median']:.1f} ms; a bare INSERT of it {line['insert_ms']:.1f} ms"
        case "memory":
            return f"kept afterwards: {line['kept_mb']:.1f} MB"
    return ""


# --- the table --------------------------------------------------------------------------------

COLUMNS: dict[str, Callable[[Row], str]] = {
    "workload": lambda row: row.workload,
    "ours": lambda row: "–" if row.ours is None else f"{shown(row.ours)} {row.unit}",
    "limit": lambda row: f"{'≥' if row.least else '≤'} {row.limit:g} {row.unit}",
    "": lambda row: row.mark,
    "best peers, as published with the scripts": lambda row: row.published,
    "best peer, here": lambda row: row.here,
    "note": lambda row: row.note,
}


def shown(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value < 0.1 else f"{value:.2f}"


def table(rows: list[Row]) -> str:
    """Markdown that reads well as it is."""
    columns = {name: [cell(row) for row in rows] for name, cell in COLUMNS.items()}
    columns = {name: cells for name, cells in columns.items() if any(cells)}
    widths = {name: max(map(len, [name, *cells])) for name, cells in columns.items()}
    printed = ["| " + " | ".join(name.ljust(widths[name]) for name in columns) + " |"]
    printed.append("|" + "|".join("-" * (width + 2) for width in widths.values()) + "|")
    for cells in zip(*columns.values(), strict=True):
        padded = (cell.ljust(width) for cell, width in zip(cells, widths.values(), strict=True))
        printed.append(f"| {' | '.join(padded)} |")
    return "\n".join(printed)


def _peer(text: str) -> tuple[str, str]:
    python, comma, path = text.removeprefix("python=").partition(",")
    if not comma:
        raise argparse.ArgumentTypeError(f"{text!r} is not PYTHON,SCRIPT")
    return python, path


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--common", type=Path, help="the folder of the peers' common.py")
    parser.add_argument(
        "--data", type=Path, help="a folder with wfinstances/, cel/, llm_errors/ and metrics/"
    )
    parser.add_argument("--peers", type=_peer, nargs="+", default=[], metavar="PYTHON,SCRIPT",
                        help="peers' scripts to run here, each with a Python that has it")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON line per row")
    parser.add_argument("--small", action="store_true", help="tiny sizes: does it run at all?")
    asked = parser.parse_args()
    given = Given(common=asked.common, data=asked.data, peers=asked.peers, small=asked.small)
    rows: list[Row] = []
    for part in (engines, real, alone, durable):
        for row in part(given):
            rows.append(row)
            if asked.json:
                print(json.dumps({**asdict(row), "mark": row.mark}), flush=True)
            else:
                print(f"{row.workload}: {row.mark}", file=sys.stderr, flush=True)
    if not asked.json:
        print(table(rows))
    if given.small:
        print("These sizes are tiny: the marks mean nothing.", file=sys.stderr)


if __name__ == "__main__":
    main()
