"""Kill a run at every moment there is, take it up again, and see what is left of it."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Self

import audit
import deeds
import msgspec
from zygote import Hang, Nursery, Victim

from penstock.errors import StoreError
from penstock.testing.postgres import Server


@dataclass(frozen=True)
class Stop:
    """When a process is killed: at a moment that it reports, or after some time."""

    moment: int = 0
    after: float = 0.0
    suicide: bool = False


@dataclass
class Tally:
    """What came of it."""

    kills: int = 0
    cases: int = 0
    processes: int = 0
    hangs: int = 0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.kills} kills, {self.cases} runs, {len(self.violations)} violations"

    def add(self, other: Tally) -> None:
        self.kills += other.kills
        self.cases += other.cases
        self.processes += other.processes
        self.hangs += other.hangs
        self.violations += other.violations


def over(victim: Victim) -> bool:
    """Whether a process came to its end before anyone killed it."""
    return any("ended" in line or "error" in line for line in victim.said)


def refused(victim: Victim) -> bool:
    """Whether it could not reach its store, and said so."""
    return any(line.get("error") == "StoreError" for line in victim.said)


class Campaign:
    """Against one workflow. Each case has a folder of its own, and its store in it unless one is named."""

    def __init__(
        self, nursery: Nursery, folder: Path, seed: int, *, store: str = "", outages: bool = False
    ) -> None:
        self._nursery = nursery
        self._folder = folder
        self._store = store
        self._outages = outages
        """Whether the store may be gone at times: whoever cannot begin then tries again."""
        self.seed = seed
        self.tally = Tally()
        root, said = self._drive("untouched", [])
        self.moments: int = next(line["moments"] for line in said[-1] if "moments" in line)
        """How many there are in a run that nobody interrupts."""
        self._expected = self._histories("untouched", root)
        shutil.rmtree(folder / "untouched")

    def everywhere(self, random: Random, *, again: int = 1) -> None:
        """Kill the first process at every moment there is, and the ones that take over at some other."""
        for moment in range(1, self.moments + 1):
            stops = [Stop(moment, suicide=random.random() < 0.5)]
            stops += [Stop(random.randint(1, self.moments), suicide=random.random() < 0.5)] * again
            self.case(f"at-{moment}", stops)
            if self.tally.hangs > 1:
                return  # the rest would only take long

    def at_random(self, random: Random, *, kills: int, longest: float = 0.05) -> None:
        """Kill at no moment in particular."""
        self.case("at-random", [Stop(after=random.uniform(0.0, longest)) for _ in range(kills)])

    def case(self, name: str, stops: Sequence[Stop]) -> None:
        """Start a run, kill whoever drives it as told, let it end, and look for what went wrong."""
        name = f"{self.seed}-{name}"
        self.tally.cases += 1
        try:
            root, said = self._drive(name, stops)
        except Hang as hang:
            self.tally.hangs += 1
            self.tally.violations.append(f"{name}: hangs: {hang}")
            return
        ledger = deeds.lines(self._folder / name / "ledger")
        found = self._histories(name, root)
        wrong = audit.violations(audit.Case(root, found, self._expected, ledger, said))
        self.tally.violations += [f"{name}: {each}" for each in wrong]
        if not wrong:
            shutil.rmtree(self._folder / name)
            return
        events = {run: history.events for run, history in found.items()}
        evidence = msgspec.json.encode({"wrong": wrong, "events": events, "said": said})
        (self._folder / name / "evidence.json").write_bytes(evidence)

    def _drive(self, name: str, stops: Sequence[Stop]) -> tuple[str, list[list[dict[str, Any]]]]:
        """The root run, and what each process said that had anything to do with it."""
        folder = self._folder / name
        folder.mkdir(parents=True)
        root = ""
        said: list[list[dict[str, Any]]] = []
        for stop in (*stops, Stop()):
            order = {"folder": str(folder), "store": self._url(name), "seed": self.seed, "run": root}
            order |= {"stop": stop.moment, "suicide": stop.suicide}
            victim = self._reach(order, stop, name)
            said.append(victim.said)
            root = root or next((line["run"] for line in victim.said if "run" in line), "")
            if over(victim):
                break
            if not root:
                (folder / "ledger").unlink(missing_ok=True)  # it had not begun
                said.clear()
        if not over(victim):
            raise Hang(f"{root} did not end: {victim.said[-2:]} {victim.errors()}")
        return root, said

    def _reach(self, order: dict[str, Any], stop: Stop, name: str) -> Victim:
        """A process that came as far as it should, or as it could."""
        while True:
            victim = self._nursery.victim(order)
            self.tally.processes += 1
            self._kill(victim, stop, name)
            if not (self._outages and refused(victim)):
                return victim

    def _kill(self, victim: Victim, stop: Stop, name: str) -> None:
        """Kill it when its time has come. One that ends before is let go."""
        if stop.after:
            if victim.survives(stop.after):
                victim.kill()
                self.tally.kills += 1
            return
        blocked = False
        try:
            for line in victim.listen():
                if "blocked" in line:
                    blocked = True
                    break
        except Hang:
            last, why = victim.said[-1:], victim.confess()
            victim.kill()
            raise Hang(f"{name} {stop}: silent after {last}; {why}") from None
        if blocked:
            victim.kill()
        if blocked or (stop.suicide and not over(victim)):
            self.tally.kills += 1

    def _url(self, name: str) -> str:
        return self._store or f"sqlite:///{self._folder / name / 'store.db'}"

    def _histories(self, name: str, root: str) -> dict[str, audit.History]:
        while True:
            try:
                return asyncio.run(audit.histories(self._url(name), root))
            except StoreError:
                if not self._outages:
                    raise


class Outages:
    """Kills a server every now and then, and starts it again. Use it as `with Outages(server)`."""

    def __init__(self, server: Server, *, longest: float = 4.0) -> None:
        self._server = server
        self._longest = longest
        """Seconds between two."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.count = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        random = Random(0)  # noqa: S311 - chance, no secret
        while not self._over.wait(random.uniform(0.5, self._longest)):
            self._server.freeze()  # so that it can start no more processes of its own
            self._server.kill()
            self._over.wait(random.uniform(0.0, 0.5))
            self._server.start()
            self.count += 1
