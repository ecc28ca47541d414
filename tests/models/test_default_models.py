"""With a key and nothing else: which models answer, where that comes from, what to set where it is wrong."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

import penstock
from penstock.models.assemble import assemble
from penstock.models.base import Request, user
from penstock.models.calls import CallRecord, Shed, Unavailable
from penstock.models.catalog import AS_OF, DEFAULTS, Catalog, Found, configured, default_tiers
from penstock.models.endpoint import KNOWN
from penstock.models.tiers import read_table
from penstock.testing import faults
from penstock.testing.faults import Hangs
from penstock.testing.models import ModelServer

KEY = "sk-test-abcdefghijklmnop0123"
HELLO = Request(messages=(user("Hello?"),), timeout=20.0)


@pytest.mark.parametrize(
    ("variable", "provider"),
    [
        ("OPENAI_API_KEY", "openai"),
        ("ANTHROPIC_API_KEY", "anthropic"),
        ("GEMINI_API_KEY", "gemini"),
        ("GOOGLE_API_KEY", "gemini"),
        ("MISTRAL_API_KEY", "mistral"),
        ("DEEPSEEK_API_KEY", "deepseek"),
        ("GROQ_API_KEY", "groq"),
        ("OPENROUTER_API_KEY", "openrouter"),
        ("GITHUB_MODELS_TOKEN", "github"),
    ],
)
def test_one_key_is_a_model_for_each_tier(variable: str, provider: str) -> None:
    best, standard = DEFAULTS[provider]

    assert default_tiers(configured({variable: KEY})) == {
        "best": (f"{provider}/{best}",),
        "standard": (f"{provider}/{standard}",),
    }


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"GITHUB_TOKEN": KEY},
        {"OPENAI_BASE_URL": "http://127.0.0.1:8000/v1", "OPENAI_API_KEY": KEY},
        {"AZURE_OPENAI_API_KEY": KEY, "AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com"},
        {"PENSTOCK_ENDPOINT_LAB": "http://127.0.0.1:8000/v1"},
    ],
)
def test_where_nobody_can_know_the_models_none_is_guessed(environment: dict[str, str]) -> None:
    assert default_tiers(configured(environment)) == {}


def test_ollama_is_the_tier_of_local_models() -> None:
    catalog = configured({"OLLAMA_HOST": "127.0.0.1", "ANTHROPIC_API_KEY": KEY})

    assert list(default_tiers(catalog)) == ["best", "standard", "local"]


def test_every_default_is_of_a_provider_that_is_known() -> None:
    assert set(DEFAULTS) <= set(KNOWN)


def test_a_tier_of_ones_own_takes_the_place_of_all_defaults() -> None:
    table, problems = read_table({"tiers": {"mine": ["openai/gpt"]}})

    router = assemble(table, configured({"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}))

    assert problems == []
    assert [(one.name, one.origin) for one in router.report()][:1] == [("openai/gpt", "")]
    assert not any(one.name.startswith("anthropic/") for one in router.report())


def test_a_default_says_that_it_is_one_and_of_when() -> None:
    router = assemble(None, configured({"OPENAI_API_KEY": KEY}))

    origins = {one.name: one.origin for one in router.report()}
    assert origins["openai/gpt-6.1-terra"] == f"default of {AS_OF}"
    assert origins["extractive/extractive"] == ""


def test_a_default_tier_may_be_chosen_without_a_table_of_tiers() -> None:
    table, problems = read_table({"default": "best"})
    _, wrong = read_table({"default": "bets"})

    assert problems == []
    assert assemble(table, configured({"OPENAI_API_KEY": KEY})).tiers.default == "best"
    assert "did you mean 'best'" in str(wrong[0])


async def test_a_call_that_names_no_tier_is_answered_by_the_standard_one() -> None:
    async with ModelServer() as server:
        catalog = Catalog(found=(Found(endpoint=server.endpoint("anthropic"), variables=("X",)),))
        async with assemble(None, catalog) as router:
            answers = [await router.chat(HELLO), await router.chat(HELLO, tier="best")]

    assert [one.served_by for one in answers] == ["anthropic/claude-sonnet-5-5", "anthropic/claude-opus-5-5"]
    assert not any(one.degraded for one in answers)


async def test_a_default_that_is_not_offered_says_what_to_set() -> None:
    async with ModelServer() as server:
        catalog = Catalog(found=(Found(endpoint=server.endpoint("anthropic"), variables=("X",)),))
        server.script("anthropic", *[faults.unknown_model("anthropic")] * 3)
        offered = {"data": [{"id": "claude-sonnet-9"}, {"id": "claude-haiku-9"}]}
        server.script_probes("anthropic", faults.replies(200, offered))
        table, _ = read_table({"last_resort": "none"})
        async with assemble(table, catalog) as router:
            tested = await router.test("anthropic/claude-sonnet-5-5")
            with pytest.raises(Unavailable) as caught:
                await router.chat(HELLO)
            [shown] = [one for one in router.report() if one.name == "anthropic/claude-sonnet-5-5"]

    assert not tested.ok
    assert "it offers claude-sonnet-9, claude-haiku-9: name another in [models.tiers]" in tested.message
    assert "name another in [models.tiers]" in str(caught.value)
    assert shown.status == "off"
    assert shown.why.startswith("there is no such model")


AGENT = """
name: ask
config: {agents: {writer: {prompt: Be brief.}}}
steps:
  - {id: answer, uses: "agent:writer", with: {question: Hello?}}
outputs: {by: "${ steps.answer.output.served_by }", text: "${ steps.answer.output.text }"}
"""


@pytest.mark.parametrize(
    ("key", "url", "kind", "served_by"),
    [
        ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "anthropic", "anthropic/claude-sonnet-5-5"),
        ("GEMINI_API_KEY", "GEMINI_BASE_URL", "gemini", "gemini/gemini-flash-latest"),
        ("GROQ_API_KEY", "GROQ_BASE_URL", "groq", "groq/openai/gpt-oss-20b"),
    ],
)
async def test_with_one_key_and_no_configuration_an_agent_step_is_answered(
    tmp_path: Path, key: str, url: str, kind: str, served_by: str
) -> None:
    (tmp_path / "flow.yaml").write_text(AGENT)
    async with ModelServer() as server:
        base = server.endpoint(kind).base
        clean = {
            name: value for name, value in os.environ.items() if "KEY" not in name and "TOKEN" not in name
        }
        env = {**clean, key: KEY, url: base, "PYTHONPATH": str(Path(penstock.__file__).parents[1])}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "penstock", "run", "flow.yaml", "--json",
            cwd=tmp_path, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, said = await process.communicate()

    last = json.loads(out.decode().splitlines()[-1])
    assert process.returncode == 0, said.decode()
    assert last["outputs"] == {"by": served_by, "text": "Hello there, and good day."}


@pytest.mark.parametrize("asked", ["best", "standard", ""])
async def test_a_model_on_this_machine_is_asked_before_anybody_waits(asked: str) -> None:
    told: list[CallRecord] = []
    async with ModelServer() as server:
        environment = {
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": server.endpoint("anthropic").base,
            "OLLAMA_HOST": server.endpoint("ollama").base,
        }
        server.script("anthropic", *[faults.rate_limited("anthropic", "seconds", wait=20.0)] * 9)
        async with assemble(None, configured(environment), listener=told.append) as router:
            answer = await router.chat(HELLO, tier=asked)
            again = await router.chat(HELLO, tier=asked)

    assert (answer.served_by, answer.degraded) == ("ollama/llama3.2", True)
    assert (again.served_by, again.degraded, again.attempts) == ("ollama/llama3.2", True, 1)
    assert [one.waited for one in told] == [0.0, 0.0]


async def test_only_where_that_model_is_busy_as_well_a_call_waits_and_is_turned_away_with_a_time() -> None:
    async with ModelServer() as server:
        environment = {
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": server.endpoint("anthropic").base,
            "OLLAMA_HOST": server.endpoint("ollama").base,
        }
        limited = [faults.rate_limited("anthropic", "seconds", wait=20.0)] * 30
        server.script("anthropic", *limited)
        server.script("ollama", *[Hangs()] * 10)  # as many as run at once on this machine
        async with assemble(None, configured(environment)) as router:
            flying = [asyncio.create_task(router.chat(HELLO)) for _ in range(10)]
            while len(server.asked("ollama")) < 10:  # noqa: ASYNC110 - the server has no such event
                await asyncio.sleep(0)
            with pytest.raises(Shed) as raised:
                await router.chat(Request(messages=HELLO.messages, timeout=0.2))
            for task in flying:
                task.cancel()
            await asyncio.gather(*flying, return_exceptions=True)

    assert 0 < raised.value.retry_after <= 60


async def test_a_tier_for_which_there_is_no_key_is_answered_by_the_next_one() -> None:
    async with ModelServer() as server:
        environment = {"OLLAMA_HOST": server.endpoint("ollama").base}
        async with assemble(None, configured(environment)) as router:
            best, usual = await router.chat(HELLO, tier="best"), await router.chat(HELLO)

    assert (best.served_by, best.requested, best.degraded) == ("ollama/llama3.2", "best", True)
    assert (usual.served_by, usual.requested, usual.degraded) == ("ollama/llama3.2", "local", False)
