"""What tools cost, and which of them a conversation has room for."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from penstock.errors import PenstockError
from penstock.gateway.definitions import plain
from penstock.planner import context
from penstock.planner.context import Budget, Exposure, cost_of, counter, estimate, fill
from penstock.planner.finder import ToolFinder
from penstock.tools.base import Tool
from penstock.tools.functions import Functions, tool_of

splintr = pytest.importorskip("splintr")


def made(id: str, about: str = "", *parameters: str) -> Tool:
    def call(**_args: Any) -> None: ...

    schema = {"type": "object", "properties": {name: {"type": "string"} for name in parameters}}
    return Tool(id=id, call=call, description=about, input_schema=schema)  # type: ignore[arg-type]


def catalog(count: int = 3, size: int = 1) -> Functions:
    return Functions([made(f"s{i}:tool{i}", "words " * size, "path") for i in range(count)])


def test_the_meta_tools_cost_less_than_a_thousand_tokens() -> None:
    count, exact = counter()

    assert exact
    assert sum(cost_of(one, count) for one in plain()) < 1_000


def test_twenty_servers_cost_no_more_behind_the_gateway_than_none() -> None:
    tools = Functions(
        [
            made(f"server{s}:tool_{t}", "Does one of many things. " * 4, "path", "query")
            for s in range(20)
            for t in range(30)
        ]
    )
    count, _ = counter()

    assert sum(ToolFinder(tools).costs(count).values()) > 30_000
    assert sum(cost_of(one, count) for one in plain()) < 2_000


def test_an_estimate_stands_in_where_no_tokenizer_is_installed() -> None:
    code = (
        "import sys; sys.modules['splintr'] = None;"
        "from penstock.planner.context import counter, estimate;"
        "sys.exit(counter() != (estimate, False))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_estimate_is_near_the_exact_count_of_schemas() -> None:
    count, _ = counter()
    for one in plain():
        text = json.dumps(one)
        assert estimate(text) == pytest.approx(count(text), rel=0.35)


def test_a_budget_is_a_share_of_the_window_less_what_is_used() -> None:
    assert Budget().available == 10_000
    assert Budget(used=900).available == 9_100
    assert Budget(window=1_000, used=80).available == 0


@pytest.mark.parametrize("wrong", [{"window": 0}, {"share": 1.5}, {"share": -1.0}, {"used": -1}])
def test_a_budget_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PenstockError):
        Budget(**wrong)


def test_a_budget_is_filled_in_order_and_says_what_it_left_out() -> None:
    filled = fill([5, 3, 9, 2], cost=lambda one: one, available=10)

    assert (filled.chosen, filled.left_out, filled.tokens) == ([5, 3, 2], [9], 10)


async def test_discovery_shows_what_fits_and_names_the_rest() -> None:
    finder = ToolFinder(catalog(6, size=100), budget=Budget(window=10_000, share=0.05))

    answer = await finder.find("tool", limit=6, schemas=True)
    names = await finder.find("tool", limit=6, schemas=False)

    assert 0 < len(answer["tools"]) < 6
    assert len(answer["tools"]) + len(answer["left_out"]) == 6
    assert answer["tokens"] <= answer["budget"]["available"] == 500
    assert len(names["tools"]) > len(answer["tools"])
    assert "input_schema" not in names["tools"][0]


async def test_discovery_follows_the_catalog_as_tools_come_and_change() -> None:
    tools = catalog(3)
    finder = ToolFinder(tools)
    await finder.find("anything", limit=1, schemas=False)

    def brew(cups: int) -> None:
        """Brew a cup of coffee."""

    tools.add(tool_of(brew, id="kitchen:brew"))
    answer = await finder.find("make coffee", limit=1, schemas=True)

    assert answer["tools"][0]["id"] == "kitchen:brew"
    assert answer["of"] == 4


@pytest.mark.parametrize("intent", ["", "  ", "?!", "x" * 9_000])
async def test_an_intent_that_says_nothing_finds_nothing_and_is_told_so(intent: str) -> None:
    finder = ToolFinder(catalog(2))

    found = await finder.find(intent, limit=5, schemas=True)

    assert found["tools"] == []
    assert "say in a few words" in found["hint"]


async def test_the_only_tool_there_is_is_found() -> None:
    finder = ToolFinder(catalog(1))

    assert len((await finder.find("tool", limit=5, schemas=False))["tools"]) == 1


async def test_discovery_does_without_vectors_where_none_are_installed() -> None:
    answer = await ToolFinder(catalog(3), embedder=lambda: None).find("tool1", limit=1, schemas=False)

    assert answer["tools"][0]["id"] == "s1:tool1"


async def test_discovery_counts_what_was_used_only_when_there_is_a_context() -> None:
    finder = ToolFinder(catalog(3), evidence=lambda used: dict.fromkeys(used and ["s2:tool2"], 1.0))

    alone = await finder.ranked("tool1", limit=3)
    after = await finder.ranked("tool1", limit=3, context=["s0:tool0"])

    scores = {one.id: one.score for one in alone}
    moved = {one.id: round(one.score - scores[one.id], 3) for one in after}
    assert moved == {"s0:tool0": 0, "s1:tool1": 0, "s2:tool2": 2}


@pytest.mark.parametrize(
    ("mode", "window", "pinned", "shown"),
    [
        ("never", 200_000, [], []),
        ("never", 200_000, ["s1:tool1", "gone:tool"], ["s1__tool1"]),
        ("always", 1_000, [], ["s0__tool0", "s1__tool1", "s2__tool2"]),
        ("auto", 200_000, [], ["s0__tool0", "s1__tool1", "s2__tool2"]),
        ("auto", 1_000, ["s2:tool2"], ["s2__tool2"]),
    ],
)
def test_tools_are_shown_directly_as_the_mode_says(
    mode: context.Mode, window: int, pinned: list[str], shown: list[str]
) -> None:
    exposure = Exposure(catalog(3), mode=mode, pinned=pinned, budget=Budget(window=window))

    assert list(exposure.tools()) == shown


def test_a_favourite_that_cannot_be_shown_is_named_with_the_reason() -> None:
    tools = catalog(1)
    (id,) = tools.ids()

    assert list(Exposure(tools, pinned=[id, "nobody:nothing"]).missing()) == ["nobody:nothing"]
