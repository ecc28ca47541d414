"""Kill runs until it hurts: `python tests/durability/chaos.py --kills 1000`.

Random workflows, each killed at every moment there is and at random times, taken up again
until they end. Prints one line for each workflow and one for all of them; the exit code is 1
when anything was lost, done twice or came out differently.

`--store postgres` starts a server for the purpose, and `--kill-server` kills that as well,
again and again, while runs are going on.
"""

# ruff: noqa: T201 - a program that prints
from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from random import Random

import zygote
from campaign import Campaign, Outages, Tally
from zygote import Fresh, Hang, Nursery, Zygote

from penstock.store import batches
from penstock.testing.postgres import Server


class Chaos:
    """Several campaigns at once, until there have been enough kills."""

    def __init__(self, kills: int, seed: int, folder: Path, store: str, *, outages: bool) -> None:
        self._kills = kills
        self._seeds = count(seed)
        self._folder = folder
        self._store = store
        self._outages = outages
        self._lock = threading.Lock()
        self.tally = Tally()
        self.workflows = 0

    def work(self, nursery: Nursery) -> None:
        while True:
            with self._lock:
                if self.tally.kills >= self._kills:
                    return
                seed = next(self._seeds)
            self._report(seed, self._campaign(nursery, seed))

    def _campaign(self, nursery: Nursery, seed: int) -> Tally:
        random = Random(seed)  # noqa: S311 - chance, no secret
        try:
            campaign = Campaign(
                nursery, self._folder / str(seed), seed, store=self._store, outages=self._outages
            )
        except Hang as hang:
            return Tally(violations=[f"{seed}: does not even end by itself: {hang}"])
        campaign.everywhere(random, again=random.randint(1, 3))
        campaign.at_random(random, kills=10)
        return campaign.tally

    def _report(self, seed: int, tally: Tally) -> None:
        with self._lock:
            self.workflows += 1
            self.tally.add(tally)
            for wrong in tally.violations:
                print(wrong, file=sys.stderr)
            print(f"seed {seed}: {tally}; {self.tally.kills} kills so far", flush=True)


def run(given: argparse.Namespace, folder: Path, stack: ExitStack) -> dict[str, float]:
    store, outages = given.store, None
    if store == "postgres":
        server = stack.enter_context(Server())
        store = server.url
        if given.kill_server:
            outages = stack.enter_context(Outages(server))
    nurseries: list[Nursery] = [
        Fresh() if given.fresh else stack.enter_context(Zygote()) for _ in range(given.jobs)
    ]
    chaos = Chaos(given.kills, given.seed, folder, store, outages=outages is not None)
    batches.learn()
    began = time.monotonic()
    threads = [threading.Thread(target=chaos.work, args=(nursery,)) for nursery in nurseries]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    figures = {
        "kills": chaos.tally.kills,
        "violations": len(chaos.tally.violations),
        "workflows": chaos.workflows,
        "runs": chaos.tally.cases,
        "processes": chaos.tally.processes,
        "seconds": round(time.monotonic() - began, 1),
    }
    return figures if outages is None else {**figures, "server_kills": outages.count}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument(
        "--store", default="", help="a URL, or `postgres`; otherwise a SQLite file for each run"
    )
    parser.add_argument("--kill-server", action="store_true", help="with `--store postgres`")
    parser.add_argument("--seed", type=int, default=0, help="the first workflow")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", type=Path, help="where the files go; kept when something is wrong")
    parser.add_argument("--fresh", action="store_true", help="start an interpreter for each process")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="penstock-chaos-"))
    zygote.PATIENCE = 60.0
    with ExitStack() as stack:
        figures = run(given, folder, stack)
    print(json.dumps(figures))
    if not figures["violations"]:
        shutil.rmtree(folder, ignore_errors=True)
    return bool(figures["violations"])


if __name__ == "__main__":
    sys.exit(main())
