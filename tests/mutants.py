"""Break the core on purpose; the tests must notice: `make mutants`.

Each mutant is one deliberate mistake in a copy of the source. The tests run against the copy
until the first of them fails. A mutant that no test notices survives, and so does the mistake
that somebody makes for real; a mutant whose place is not found any more is out of date. Both
end this program with an error. `python tests/mutants.py WORD …` tries only those that match.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
WORKERS = 2

SENTENCES = (
    "tests/run/test_joins_and_skips.py",
    "tests/run/test_steering.py",
    "tests/run/test_retrying.py",
    "tests/run/test_run_events.py",
    "tests/policy/test_rule_order.py",
    "tests/run/test_routing.py",
    "tests/run/test_choosing.py",
    "tests/run/test_looping.py",
    "tests/run/test_loops_stall.py",
    "tests/run/test_loops_interrupted.py",
    "tests/run/test_detours.py",
    "tests/engines/test_timeouts_and_retries.py",
    "tests/engines/test_maps_and_children.py",
    "tests/engines/test_values_between_steps.py",
    "tests/engines/test_cancelling.py",
    "tests/engines/test_order_and_ends.py",
    "tests/engines/test_commanding.py",
    "tests/engines/test_watching.py",
)
PROPERTIES = (
    "tests/run/test_core_properties.py",
    "tests/run/test_routing_properties.py",
    "tests/engines/test_native_properties.py",
    "tests/engines/test_native_routing.py",
)
"""Tried alone by `--properties`: they must notice nearly everything by themselves."""


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str


EVOLVE, ACCEPT, EFFECTS = (f"run/{name}.py" for name in ("evolve", "accept", "effects"))
RELEASE, CHOOSING, TURNS = (f"run/{name}.py" for name in ("release", "choosing", "turns"))
ADVANCE, STARTING, ENDING = (f"run/{name}.py" for name in ("advance", "starting", "ending"))
MAPS, READY = (f"run/{name}.py" for name in ("maps", "ready"))
RULES = "policy/routing.py"
TASKS, STREAM, READING = (f"engines/{name}.py" for name in ("tasks", "stream", "reading"))
RETRY = "policy/retry.py"

MUTANTS = (
    # --- when a step is ready ---
    Mutant(
        "ready: a success counts twice",
        RELEASE,
        "        left = pending[d] = pending[d] - 1\n        if not left or joins[d] == ANY_SUCCESS:",
        "        left = pending[d] = max(0, pending[d] - 2)\n        if not left or joins[d] == ANY_SUCCESS:",
    ),
    Mutant(
        "ready: a re-opened need is not waited for",
        RELEASE,
        "        _hold_back(run, i, body)\n",
        "",
    ),
    Mutant(
        "ready: a paused run starts steps",
        ADVANCE,
        "and not run.pauses and not run.stopping:",
        "and not run.stopping:",
    ),
    # --- joins ---
    Mutant(
        "join: all_success does not mind a skip",
        STARTING,
        "if passed_over is not None and rule in (ALL_SUCCESS, ANY_SUCCESS):",
        "if passed_over is not None and rule == ANY_SUCCESS:",
    ),
    Mutant(
        "join: none_failed minds a skip",
        STARTING,
        "if passed_over is not None and rule in (ALL_SUCCESS, ANY_SUCCESS):",
        "if passed_over is not None:",
    ),
    Mutant(
        "join: any_success wants all", STARTING, "if any(_counts_as_success(", "if all(_counts_as_success("
    ),
    Mutant(
        "join: any_success waits for the last",
        RELEASE,
        "if not left or joins[d] == ANY_SUCCESS:",
        "if not left:",
    ),
    Mutant(
        "join: all_done minds a failure",
        STARTING,
        "elif rule == ALL_DONE:",
        "elif rule == ALL_DONE and blamed is None:",
    ),
    Mutant(
        "join: dependents of a failure run",
        STARTING,
        "    if blamed is not None:\n        return (",
        "    if blamed is not None and rule == ANY_SUCCESS:\n        return (",
    ),
    Mutant(
        "join: on_error continue counts as failed",
        EVOLVE,
        "(release_succeeded if passes else release_failed)(run, i)",
        "release_failed(run, i)",
    ),
    # --- skips ---
    Mutant(
        "skip: upstream_failed counts as a mere skip",
        EVOLVE,
        '(release_failed if event.kind == "upstream_failed" else release_skipped)(run, i)',
        "release_skipped(run, i)",
    ),
    Mutant(
        "skip: the cascade stops after one step",
        RELEASE,
        "        run.passed_over.setdefault(d, i)\n        if not left:\n            due.append(d)",
        "        run.passed_over.setdefault(d, i)",
    ),
    Mutant(
        "skip: the kind of a cascade is forgotten",
        STARTING,
        "kind = run.reasons[passed_over][0]",
        'kind = "not_routed"',
    ),
    Mutant(
        "skip: a false condition is ignored",
        STARTING,
        "    if value is True:\n",
        "    if not isinstance(value, Failure):\n",
    ),
    # --- limits ---
    Mutant(
        "cap: one task more than max_parallel",
        STARTING,
        "while ready and run.running < slots:",
        "while ready and run.running <= slots:",
    ),
    Mutant(
        "cap: a chain ignores max_parallel",
        STARTING,
        "        or run.running >= graph.workflow.config.max_parallel\n",
        "",
    ),
    Mutant(
        "cap: one item more than the map's", MAPS, "len(state.running) >= cap", "len(state.running) > cap"
    ),
    Mutant(
        "cap: a map runs in batches",
        MAPS,
        "            enqueue(run, i)\n        return\n    if state.failed",
        "            pass\n        return\n    if state.failed",
    ),
    Mutant(
        "cap: one attempt more", RETRY, "if attempt >= retry.max_attempts", "if attempt > retry.max_attempts"
    ),
    Mutant("retry: no backoff", EFFECTS, "event.attempt, event.retry_in))", "event.attempt, 0.0))"),
    Mutant(
        "retry: a timed-out write is repeated", RETRY, 'return kind == "timeout" and', 'return kind == "" and'
    ),
    # --- counting ---
    Mutant("fold: a closed map forgets its timers", RELEASE, "    run.timers -= len(state.backoff)\n", ""),
    Mutant(
        "fold: a failed item keeps its slot",
        EVOLVE,
        "        del state.running[item]\n        run.running -= 1\n    elif item in state.backoff:",
        "        del state.running[item]\n    elif item in state.backoff:",
    ),
    Mutant(
        "fold: an event out of order is taken",
        EVOLVE,
        "if event.seq != run.seq + 1:",
        "if event.seq < run.seq:",
    ),
    Mutant(
        "fold: a skip forgets its timer",
        EVOLVE,
        "    if run.phase[i] == BACKOFF:\n        run.timers -= 1\n    elif run.phase[i] == ASKING:",
        "    if run.phase[i] == ASKING:",
    ),
    # --- how it went ---
    Mutant(
        "status: failures are forgotten", ENDING, "    elif run.failures:\n", "    elif run.failures > 1:\n"
    ),
    Mutant(
        "status: everything that failed is partial",
        ENDING,
        'else "partial" if produced else "failed"',
        'else "partial"',
    ),
    Mutant(
        "status: an aborted run completes",
        ENDING,
        '    if run.stopping == "abort":\n        emit(',
        '    if run.stopping == "":\n        emit(',
    ),
    # --- commands ---
    Mutant(
        "abort: tasks are not cancelled", EFFECTS, "return isinstance(event.command, Abort)", "return False"
    ),
    Mutant(
        "abort: what waits to be tried again is left",
        ENDING,
        "    if run.phase[i] == BACKOFF:\n        attempt, iteration",
        "    if run.phase[i] == DORMANT:\n        attempt, iteration",
    ),
    Mutant("command: an id is heard twice", ACCEPT, "if asked.id in run.commands:", "if asked.id in ():"),
    Mutant(
        "command: a running step can be skipped",
        ACCEPT,
        "return run.phase[i] in UNSTARTED",
        "return run.phase[i] < 5",
    ),
    Mutant(
        "retry_step: what was skipped stays skipped",
        EVOLVE,
        "                body.add(d)\n                stack.append(d)\n    reopen",
        "                pass\n    reopen",
    ),
    # --- routes ---
    Mutant(
        "route: one iteration more than the cap",
        CHOOSING,
        "run.iteration(i) >= router.max_iterations",
        "run.iteration(i) > router.max_iterations",
    ),
    Mutant(
        "route: an outer pass does not reset inner loops",
        TURNS,
        "            run.iteration_base[i] = run.iterations[i] - 1",
        "            run.iteration_base[i] = 0",
    ),
    Mutant(
        "route: the barrier of a loop is ignored",
        STARTING,
        "if run.preparing and (i, -1)",
        "return bool(run.preparing) and (i, -1) in run.preparing\n    if run.preparing and (i, -1)",
    ),
    Mutant(
        "route: what was not chosen is not skipped",
        CHOOSING,
        "if run.phase[target] == DORMANT and all(",
        "if run.phase[target] == DORMANT and not all(",
    ),
    Mutant(
        "route: skipped although another router may choose it",
        CHOOSING,
        "DORMANT and all(r in run.settled",
        "DORMANT and any(r in run.settled",
    ),
    Mutant("route: a stall is not noticed", CHOOSING, "and set(earlier) == {round_}", "and not earlier"),
    Mutant(
        "route: a detour does not return",
        TURNS,
        "        run.choosing.append(waiting)\n",
        "        pass\n",
    ),
    Mutant(
        "route: detours without end",
        CHOOSING,
        "_depth(run, i) >= routing.DEEPEST",
        "_depth(run, i) > routing.DEEPEST",
    ),
    Mutant(
        "route: a loop does not wait for its body",
        TURNS,
        "any(run.phase[i] in (RUNNING, BACKOFF, ASKING) for i in body)",
        "any(run.phase[i] in (BACKOFF, ASKING) for i in body)",
    ),
    Mutant(
        "route: targets in a body do not sleep again",
        RELEASE,
        'or run.graph.index[arrival["from"]] in body:',
        "or False:",
    ),
    Mutant(
        "route: a cap hides what comes after it",
        RULES,
        '            entry["closed"] = why\n    return None\n\n\ndef _by_branches',
        '            return Choice(None, "cap", reason=why)\n    return None\n\n\ndef _by_branches',
    ),
    Mutant(
        "route: any rule is for a failure",
        RULES,
        'if asking.failed and ("status",)',
        'if False and ("status",)',
    ),
    Mutant(
        "route: a tie-breaker is believed whatever it says",
        CHOOSING,
        "if not wrong and fact.target not in legal:",
        "if not wrong and not legal:",
    ),
    Mutant(
        "route: an unsure tie-breaker is believed",
        CHOOSING,
        "if not wrong and not least <=",
        "if not wrong and not 0 <=",
    ),
    Mutant(
        "route: a failure that was dealt with still counts",
        TURNS,
        "    run.failures -= 1\n    run.forgiven",
        "    run.forgiven",
    ),
    Mutant(
        "route: the end starts something new",
        CHOOSING,
        'run.unsettled.get(i) == "" and not run.ending',
        'run.unsettled.get(i) == ""',
    ),
    # --- the engine ---
    Mutant(
        "order: the least critical first",
        READY,
        "key=lambda i: (-levels[i], i)",
        "key=lambda i: (levels[i], i)",
    ),
    Mutant("engine: no timeout", TASKS, 'self._cancel(live, "timeout")', "pass"),
    Mutant(
        "engine: a stubborn task is waited for",
        TASKS,
        "call_later(GRACE, self._abandon, live)",
        "call_later(1e9, self._abandon, live)",
    ),
    Mutant("stream: a gap is one short", STREAM, "yield Gap(start, missed)", "yield Gap(start, missed - 1)"),
    Mutant(
        "outputs: arguments see failed steps' outputs",
        READING,
        "        if run.phase[i] != SUCCEEDED:\n            return None\n",
        "",
    ),
)


def attempt(mutant: Mutant | None, tests: tuple[str, ...]) -> tuple[str, str, float]:
    """What became of a mutant (killed, survived, stale), the test that noticed, and the seconds it took."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        if mutant is not None:
            path = copy / "penstock" / mutant.file
            text = path.read_text()
            if text.count(mutant.old) != 1:
                return "stale", f"found {text.count(mutant.old)} times in {mutant.file}", 0.0
            path.write_text(text.replace(mutant.old, mutant.new))
        # No shrinking, the same examples each time, and nothing left behind.
        environment = os.environ | {
            "PYTHONPATH": str(copy),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HYPOTHESIS_PROFILE": "mutants",
        }
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"]
        command += ["--timeout=20", "--tb=no", *tests]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    found = re.search(r"^(?:FAILED|ERROR) (?:\S*::)?(\S+)", done.stdout, re.MULTILINE)
    noticed = (
        found.group(1)
        if found
        else done.stdout.strip().splitlines()[-1]
        if done.stdout.strip()
        else done.stderr[-200:]
    )
    return ("survived" if done.returncode == 0 else "killed"), noticed, time.monotonic() - began


def main() -> int:
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    tests = PROPERTIES if "--properties" in sys.argv else SENTENCES + PROPERTIES
    wanted = [m for m in MUTANTS if not words or any(word in m.name for word in words)]
    verdict, first, _ = attempt(None, tests)
    if verdict != "survived":
        print(f"the tests fail without any mutant: {first}")  # noqa: T201
        return 2
    with ThreadPoolExecutor(WORKERS) as pool:
        results = list(pool.map(lambda mutant: attempt(mutant, tests), wanted))
    for mutant, (verdict, noticed, seconds) in zip(wanted, results, strict=True):
        print(f"{verdict:8}  {seconds:5.1f} s  {mutant.name:45}  {noticed}")  # noqa: T201
    killed = sum(verdict == "killed" for verdict, _, _ in results)
    print(f"{killed} of {len(results)} mutants were noticed")  # noqa: T201
    return 0 if killed == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
