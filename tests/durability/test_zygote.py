"""Where victims come from leaves nobody behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

MAKER = """
import sys
sys.path.insert(0, sys.argv[1])
from zygote import Zygote
nursery = Zygote()
order = {"folder": sys.argv[2], "store": "memory:", "seed": 0, "stop": 1}
victim = nursery.victim(order)
victim.hear("blocked")
print(nursery._process.pid, victim.pid, flush=True)
sys.stdin.read()
"""


def test_a_zygote_and_its_victims_end_when_whoever_made_them_is_killed(folder: Path) -> None:
    command = [sys.executable, "-c", MAKER, str(HERE), str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as maker:
        assert maker.stdout is not None
        handles = [os.pidfd_open(int(pid)) for pid in maker.stdout.readline().split()]
        assert len(handles) == 2

        os.kill(maker.pid, signal.SIGKILL)

        for handle in handles:
            assert select.select([handle], [], [], 10.0)[0], "it is still there"
            os.close(handle)
