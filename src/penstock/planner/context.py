"""How much of a model's window tools may take, and which tools fit into it.

Token counts are exact where a tokenizer is installed whose vocabulary came with it, and otherwise
estimated from what JSON schemas are made of; nothing is downloaded to count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from penstock.errors import PenstockError
from penstock.tools.base import Catalog, Tool
from penstock.tools.names import wire_name

T = TypeVar("T")
Count = Callable[[str], int]
Mode = Literal["auto", "always", "never"]

_WORD: Final = re.compile(r"[A-Za-z]+")
_HUMP: Final = re.compile(r"[a-z][A-Z]")
_DIGIT: Final = re.compile(r"\d")
_MARKS: Final = re.compile(r"[^\w\s]+")
_FOREIGN: Final = re.compile(r"[^\x00-\x7f]")


class Budget(Struct, frozen=True, kw_only=True):
    """What tools may cost in one conversation, in tokens."""

    window: int = 200_000
    share: float = 0.05
    used: int = 0
    """Spent already: what is in every request, whatever is asked."""

    def __post_init__(self) -> None:
        if self.window < 1 or not 0 <= self.share <= 1 or self.used < 0:
            raise PenstockError(f"no budget has the window {self.window} and the share {self.share:g}")

    @property
    def available(self) -> int:
        return max(int(self.window * self.share) - self.used, 0)

    def shown(self) -> dict[str, Any]:
        return {
            "window": self.window,
            "share": self.share,
            "used": self.used,
            "available": self.available,
        }


class Filled(NamedTuple):
    chosen: list[Any]
    left_out: list[Any]
    tokens: int


def fill(ranked: Iterable[T], cost: Callable[[T], int], available: int) -> Filled:
    """The best that fit together: in order, and past one that is too large the next may still fit."""
    chosen: list[T] = []
    left_out: list[T] = []
    tokens = 0
    for one in ranked:
        price = cost(one)
        if tokens + price <= available:
            chosen.append(one)
            tokens += price
        else:
            left_out.append(one)
    return Filled(chosen, left_out, tokens)


def estimate(text: str) -> int:
    """Tokens of o200k in a schema, within a quarter for nine tools of ten, and seldom too few."""
    words = _WORD.findall(text)
    return round(
        0.85 * len(words)
        + 0.065 * sum(max(len(word) - 6, 0) for word in words)
        + 5.0 * sum(1 for word in words if _HUMP.search(word))
        + 0.4 * len(_DIGIT.findall(text))
        + 1.34 * len(_MARKS.findall(text))
        + 0.5 * len(_FOREIGN.findall(text))
    )


@cache
def counter() -> tuple[Count, bool]:
    """How tokens are counted here, and whether that is exact."""
    try:
        from splintr import Tokenizer
    except ModuleNotFoundError:
        return estimate, False
    encode = Tokenizer.from_pretrained("o200k_base").encode
    return lambda text: len(encode(text)), True


def described(tool: Tool) -> dict[str, Any]:
    """A tool as a client is shown it."""
    return {"id": tool.id, "description": tool.description, "input_schema": tool.input_schema}


def cost_of(plain: Mapping[str, Any], count: Count) -> int:
    return count(msgspec.json.encode(plain).decode())


class Exposure:
    """Which tools clients see directly, beside the meta-tools.

    `always` shows all, `never` none but the favourites, `auto` all when they fit into the budget and
    otherwise the favourites, those that fit.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        mode: Mode = "never",
        pinned: Sequence[str] = (),
        budget: Budget | None = None,
    ) -> None:
        self._catalog = catalog
        self._mode = mode
        self._pinned = tuple(pinned)
        self._budget = budget or Budget()

    @property
    def wanted(self) -> Sequence[str]:
        """The ids of what may be shown, or a pattern of them."""
        return self._pinned if self._mode == "never" else ("*",)

    def missing(self) -> dict[str, str]:
        """Favourites that cannot be shown, and why."""
        said: dict[str, str] = {}
        for id in self._pinned:
            try:
                self._catalog.find(id)
            except PenstockError as error:
                said[id] = str(error)
        return said

    def tools(self) -> Mapping[str, Tool]:
        """By their names on the wire."""
        return {wire_name(tool.id): tool for tool in self._chosen()}

    def _chosen(self) -> list[Tool]:
        if self._mode == "never":
            return known(self._catalog, self._pinned)
        every = known(self._catalog, self._catalog.ids())
        if self._mode == "always":
            return every
        count, _ = counter()
        all_of_them = fill(every, lambda tool: cost_of(described(tool), count), self._budget.available)
        if not all_of_them.left_out:
            return every
        favourites = known(self._catalog, self._pinned)
        return fill(favourites, lambda tool: cost_of(described(tool), count), self._budget.available).chosen


def known(catalog: Catalog, ids: Iterable[str]) -> list[Tool]:
    """The tools of these ids; those that are refused or gone are passed over."""
    found = []
    for id in ids:
        try:
            found.append(catalog.find(id))
        except PenstockError:
            continue
    return found
