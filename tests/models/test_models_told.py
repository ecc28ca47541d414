"""What a person is told about models that are named wrongly, and about those that are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from loopback import HELLO, MODEL, PRICES, There, on_loopback
from msgspec.structs import replace

from penstock.errors import DefinitionError
from penstock.models.assemble import assemble
from penstock.models.base import Request, user
from penstock.models.calls import Unavailable, UnknownModel
from penstock.models.catalog import configured
from penstock.models.providers.hosted import Hosted
from penstock.models.tiers import read_table
from penstock.testing import faults
from penstock.testing.handclock import HandClock


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"last_resort": "ollama"}, "models.last_resort: must be 'extractive', 'none' or a list of models"),
        ({"when_busy": "run"}, "models.when_busy: must be 'wait' or 'last_resort'"),
        ({"lane": "dear"}, "models.lane: Expected 'int', got 'str'"),
        (
            {"tiers": {"best": [{"model": "a/b", "rpm": "many"}]}},
            "models.tiers.best[0]: rpm: Expected 'float', got 'str'",
        ),
        (
            {"embeddings": ["openai/e", "azure/e", "lab/f"]},
            "models.embeddings[2]: is another model than the first: vectors of two models do not compare",
        ),
    ],
)
def test_a_mistake_is_said_in_words(table: Mapping[str, Any], said: str) -> None:
    _, problems = read_table(table)

    assert [str(one) for one in problems] == [said]


def test_an_unknown_provider_is_said_with_its_place_and_a_way_out() -> None:
    table, _ = read_table({"tiers": {"best": ["opnai/x", "shop/y"]}, "last_resort": ["olama/z"]})

    with pytest.raises(DefinitionError) as raised:
        assemble(table, configured({}))

    assert [str(one) for one in raised.value.problems] == [
        "models.tiers.best: unknown provider in 'opnai/x' (did you mean 'openai'?)",
        "models.tiers.best: unknown provider in 'shop/y' (PENSTOCK_ENDPOINT_SHOP names one of your own)",
        "models.last_resort: unknown provider in 'olama/z' (did you mean 'ollama'?)",
    ]


async def test_a_pinned_model_of_a_provider_without_a_key_says_which_key() -> None:
    async with assemble(None, configured({})) as router:
        with pytest.raises(UnknownModel, match=r"groq has no key \(set GROQ_API_KEY\)"):
            await router.chat(Request(messages=(user("Hello?"),)), model="groq/x")


async def test_a_model_for_embeddings_is_shown_as_one() -> None:
    table, _ = read_table({"tiers": {"best": ["openai/x"]}, "embeddings": ["openai/e"]})

    async with assemble(table, configured({"OPENAI_API_KEY": "sk-made-up"})) as router:
        shown = {one.name: one.tiers for one in router.report()}

    assert shown["openai/e"] == ("embeddings",)


@on_loopback
async def test_a_server_of_ones_own_costs_what_is_configured_and_else_nothing(there: There) -> None:
    own = replace(there.server.endpoint("lab"), local=True)

    priced = await Hosted(own, there.http, prices=PRICES).chat(MODEL, HELLO)
    free = await Hosted(own, there.http).chat(MODEL, HELLO)

    assert priced.cost == pytest.approx(9 * 2e-6 + 3 * 10e-6)
    assert free.cost == 0.0


@on_loopback
async def test_a_price_that_is_configured_counts_for_a_budget_too(there: There) -> None:
    there.server.endpoint("lab")
    environment = {"PENSTOCK_ENDPOINT_LAB": f"{there.server.url}/lab/v1"}
    table, _ = read_table(
        {
            "tiers": {"best": ["lab/m"]},
            "prices": {"lab/m": {"input": 1.0, "output": 1.0}},
            "last_resort": "none",
        }
    )

    async with assemble(table, configured(environment)) as router:
        with pytest.raises(Unavailable, match="the call may cost"):
            await router.chat(HELLO, budget=1e-9)


@on_loopback
async def test_where_there_is_nothing_at_all_the_url_is_doubted(there: There) -> None:
    there.server.endpoint("lab")
    nothing = faults.replies(404, b"404 page not found")
    there.server.script("lab", nothing)
    there.server.script_probes("lab", nothing)
    table, _ = read_table({"tiers": {"best": ["lab/m"]}})

    async with assemble(table, configured({"PENSTOCK_ENDPOINT_LAB": f"{there.server.url}/lab"})) as router:
        tested = await router.test("lab/m")

    assert tested.kind == "not_found"
    assert tested.message == "404 page not found; nor is there a list of models: is its URL right?"


@on_loopback
async def test_a_test_says_how_long_the_model_took_and_not_what_was_loaded_first(there: There) -> None:
    there.server.endpoint("lab")
    table, _ = read_table({"tiers": {"best": ["lab/m"]}})

    clock = HandClock()
    environment = {"PENSTOCK_ENDPOINT_LAB": f"{there.server.url}/lab/v1"}
    async with assemble(table, configured(environment), clock=clock) as router:
        tested = await router.test("lab/m")

    assert 0.0 < tested.seconds < 10.0, "by the clock of the exchange, which this one is not"


@pytest.mark.parametrize(
    ("seconds", "figure"), [(0.5, "0.5"), (12.34, "12.3"), (3598.3, "3598"), (86400.0, "86400")]
)
def test_a_time_to_come_back_is_a_plain_figure(seconds: float, figure: str) -> None:
    assert str(Unavailable("best", retry_after=seconds, why="busy")).endswith(f"ask again in {figure} s")


@on_loopback
async def test_a_refused_key_is_forgotten_with_the_key_also_for_a_pinned_model(
    there: There, tmp_path: Path
) -> None:
    there.server.endpoint("anthropic")
    there.server.script("anthropic", faults.unauthorised("anthropic"))

    async def asked(key: str) -> str:
        environment = {"ANTHROPIC_API_KEY": key, "ANTHROPIC_BASE_URL": f"{there.server.url}/anthropic"}
        table, _ = read_table({"tiers": {"best": ["ollama/x"]}, "last_resort": "none"})
        async with assemble(table, configured(environment), path=tmp_path / "models.db") as router:
            try:
                return (await router.chat(HELLO, model="anthropic/claude")).served_by
            except Unavailable as error:
                return str(error)

    assert "auth" in await asked("sk-old")
    assert "its key was refused" in await asked("sk-old")
    assert await asked("sk-new") == "anthropic/claude"


async def test_a_pinned_model_is_like_the_others_of_its_provider() -> None:
    environment = {"OLLAMA_HOST": "gpu.lan", "OPENAI_API_KEY": "sk-made-up"}

    async with assemble(None, configured(environment)) as router:
        assert not router.unknown(model="ollama/small") + router.unknown(model="openai/large")
        found = {one.name: (one.lane, one.limit) for one in router.report()}

    assert found["ollama/small"] == found["ollama/llama3.2"] == (0, 10)
    assert found["openai/large"] == (1, 50)
