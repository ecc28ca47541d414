"""Kill runs until it hurts: `python tests/durability/chaos.py --kills 1000`.

Random workflows, each killed at every moment there is and at random times, taken up again
until they end. Prints one line for each workflow and one for all of them; the exit code is 1
when anything was lost, done twice or came out differently.
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
from itertools import count
from pathlib import Path
from random import Random

from campaign import Campaign, Tally
from zygote import Fresh, Hang, Nursery, Zygote


class Chaos:
    """Several campaigns at once, until there have been enough kills."""

    def __init__(self, kills: int, seed: int, folder: Path, store: str) -> None:
        self._kills = kills
        self._seeds = count(seed)
        self._folder = folder
        self._store = store
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
            campaign = Campaign(nursery, self._folder / str(seed), seed, store=self._store)
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


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument(
        "--store", default="", help="a store for all runs; a new SQLite file for each otherwise"
    )
    parser.add_argument("--seed", type=int, default=0, help="the first workflow")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", type=Path, help="where the files go; kept when something is wrong")
    parser.add_argument("--fresh", action="store_true", help="start an interpreter for each process")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="penstock-chaos-"))
    chaos = Chaos(given.kills, given.seed, folder, given.store)
    began = time.monotonic()
    zygotes = [] if given.fresh else [Zygote() for _ in range(given.jobs)]
    nurseries: list[Nursery] = [Fresh() for _ in range(given.jobs)] if given.fresh else [*zygotes]
    threads = [threading.Thread(target=chaos.work, args=(nursery,)) for nursery in nurseries]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for zygote in zygotes:
        zygote.close()
    tally = chaos.tally
    figures = {
        "kills": tally.kills,
        "violations": len(tally.violations),
        "workflows": chaos.workflows,
        "runs": tally.cases,
        "processes": tally.processes,
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(figures))
    if not tally.violations:
        shutil.rmtree(folder, ignore_errors=True)
    return bool(tally.violations)


if __name__ == "__main__":
    sys.exit(main())
