"""Several threads may begin at once, each with runs of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys, threading
sys.setswitchinterval(1e-6)
import msgspec
import penstock as ps
from penstock.run.events import Event, WorkflowStarted
from penstock.workflow import spec

started = msgspec.to_builtins(WorkflowStarted(1, 1.0, "w", "h", {}))
workflow = spec.encode(spec.Workflow(name="w", steps=(spec.Step(id="a", uses="x:y"),)))
gate = threading.Barrier(8)

def begin(number):
    gate.wait()
    ps.open("memory:")
    for _ in range(3):
        msgspec.convert(started, Event) if number % 2 else spec.decode(workflow)

threads = [threading.Thread(target=begin, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
"""Threads that take turns after every instruction, and read what none has read before."""


@pytest.mark.parametrize("turn", range(3))
def test_threads_that_begin_at_once_do_not_crash_the_process(turn: int) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)

    assert (turn, done.returncode, done.stderr) == (turn, 0, "")
