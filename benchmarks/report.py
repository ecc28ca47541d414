"""What the scripts that print figures have in common: a line per figure, and the command line."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

Figure = dict[str, Any]


class Measure(Protocol):
    def __call__(self, *, small: bool) -> Coroutine[Any, Any, list[Figure]]: ...


def figure(name: str, value: float, unit: str, **details: Any) -> Figure:
    shown = {k: round(v, 4) if isinstance(v, float) else v for k, v in details.items()}
    return {"figure": name, "value": round(value, 4), "unit": unit, **shown}


def p95(seconds: Sequence[float]) -> float:
    return sorted(seconds)[int(0.95 * (len(seconds) - 1))]


def main(about: str | None, figures: Mapping[str, Measure], mark: Callable[[Figure], Figure] = dict) -> None:
    """Print the figures that the command line names, or all. `mark` says what each of them is worth."""
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="FIGURE", help=f"of {', '.join(figures)}; default: all")
    parser.add_argument("--small", action="store_true", help="tiny sizes: does it run at all?")
    given = parser.parse_args()
    unknown = set(given.names) - set(figures)
    if unknown:
        parser.error(f"there is no figure {', '.join(sorted(unknown))}; there are {', '.join(figures)}")
    for name in given.names or figures:
        for one in asyncio.run(figures[name](small=given.small)):
            print(json.dumps(mark(one)), flush=True)
