"""Many calls to providers that fail in every way known, and bad input: nothing is lost, nothing piles up."""

from __future__ import annotations

import importlib.util
import json
import logging
import sys
import tracemalloc
from pathlib import Path
from types import ModuleType

import pytest
from msgspec.structs import replace
from routing import HELLO, Bench, routed

from penstock.errors import DefinitionError
from penstock.models.assemble import assemble
from penstock.models.base import ModelError, user
from penstock.models.catalog import configured
from penstock.models.endpoint import Secret
from penstock.models.tiers import read_table
from penstock.testing.faults import Drips, Floods, Stalls, replies
from penstock.testing.wires import Says

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_no_call_is_lost_and_nothing_piles_up() -> None:
    import asyncio

    logging.disable()  # the server complains of connections that we closed
    tracemalloc.start()
    try:
        found = asyncio.run(script("model_faults").trial(1_000, 16, 7))
    finally:
        tracemalloc.stop()
        logging.disable(logging.NOTSET)

    assert (found["ended"], found["told_once"]) == (1_000, 1_000)
    assert (found["still_in_flight"], found["still_waiting"]) == (0, 0)
    assert found["longest_queue"] <= 600
    assert len(found["attempts"]) >= 9
    assert found["kb_at_the_end"] < 2 * found["kb_after_a_fifth"] + 500


@pytest.mark.parametrize(
    "turn",
    [
        Floods(100 * 1024 * 1024),
        Floods(100 * 1024 * 1024, announced=False),
        Stalls(1),
        Drips(60.0),
        replies(200, b"\xff\xfe\x00" * 100),
        replies(429, {"error": "?"}, retry_after="soon, perhaps", x_ratelimit_limit_requests="-1e9"),
        replies(429, b"[[[[", retry_after="9" * 300),
        replies(599, b""),
        replies(302, b"", location="http://127.0.0.1:1/"),
    ],
    ids=[
        "100 MB",
        "100 MB unannounced",
        "a byte and no more",
        "a byte a minute",
        "no text",
        "odd headers",
        "long header",
        "599",
        "302",
    ],
)
@routed
async def test_whatever_a_provider_sends_another_one_answers(bench: Bench, turn: object) -> None:
    bench.server.script("a", turn)  # type: ignore[arg-type]
    router = bench.router(["a"], ["b"])
    request = replace(HELLO, idle=0.1)

    try:
        answer = await router.chat(request)
    except ModelError as error:
        assert "redirects" in str(error)  # noqa: PT017 - a wrong address is the configuration's fault
    else:
        assert answer.served_by == "b/m"
    assert (await router.chat(request, model="b/m")).text


@routed
async def test_a_request_that_is_no_json_is_refused_and_blames_nobody(bench: Bench) -> None:
    router = bench.router(["a"], ["b"])

    with pytest.raises(ModelError) as caught:
        await router.chat(replace(HELLO, messages=(user("\ud800"),)))

    assert caught.value.fault.kind == "bad_request"
    assert router.report()[0].success == 1.0


@routed
async def test_headers_that_lie_do_not_stop_anybody(bench: Bench) -> None:
    odd = {
        "x-ratelimit-limit-requests": "-1",
        "x-ratelimit-remaining-requests": "-1",
        "x-ratelimit-reset-requests": "0",
    }
    bench.server.script("a", *[Says(headers=odd)] * 5)
    router = bench.router(["a"], ["b"])

    assert [(await router.chat(HELLO)).served_by for _ in range(5)] == ["a/m"] * 5


# --- configuration ---


def test_a_table_is_read_and_everything_wrong_with_it_is_said() -> None:
    good, none = read_table(
        {
            "default": "small",
            "tiers": {
                "best": ["openai/x", {"model": "azure/y", "rpm": 60, "lane": 2}],
                "small": ["ollama/z"],
            },
            "prices": {"openai/x": {"input": 2.5, "output": 10}},
        }
    )
    _, problems = read_table(
        {
            "defualt": "x",
            "default": "smal",
            "lane": -1,
            "hedge": "yes",
            "last_resort": "magic",
            "tiers": {
                "best": [],
                "small": ["gpt", {"model": "a/b", "rpn": 5}, 3, {"model": "a/c", "rpm": -1}, "d/e", "d/e"],
            },
            "prices": {"x": {"input": "dear"}, "y": {"input": -1.0}},
        },
        file="penstock.toml",
    )

    assert not none
    assert [one.model for one in good.tiers["best"]] == ["openai/x", "azure/y"]
    told = "\n".join(map(str, problems))
    assert told.count("penstock.toml") == len(problems) == 13
    for words in (
        "did you mean 'default'",
        "no tier 'smal'",
        "did you mean 'rpm'",
        "provider/model",
        "already",
    ):
        assert words in told, told


def test_keys_are_found_and_never_shown_and_an_unknown_provider_is_named(tmp_path: Path) -> None:
    import asyncio

    key = "sk-very-secret-0123456789"
    catalog = configured({"OPENAI_API_KEY": key})
    table, _ = read_table({"tiers": {"best": ["openai/x", "anthropic/y"]}})

    async def go() -> str:
        router = assemble(table, catalog, path=tmp_path / "models.db")
        try:
            shown = json.dumps([one.plain() for one in router.report()]) + repr(router.tiers)
            assert router.system_health() == 0.5
        finally:
            await router.close()
        return shown

    shown = asyncio.run(go())
    assert key not in shown
    assert "no key: set ANTHROPIC_API_KEY" in shown
    assert key.encode() not in (tmp_path / "models.db").read_bytes()
    assert Secret(key).reveal() == key
    wrong, _ = read_table({"tiers": {"best": ["opnai/x"]}})
    with pytest.raises(DefinitionError, match="did you mean 'openai'"):
        assemble(wrong, catalog)
