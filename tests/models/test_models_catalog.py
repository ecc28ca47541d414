"""Which providers are configured: from the usual variables, and never a value of theirs in sight."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.models.base import Usage
from penstock.models.catalog import Catalog, configured
from penstock.models.endpoint import Endpoint, Secret
from penstock.models.prices import Price, cost, price_of

KEY = "sk-test-abcdefghijklmnop0123"


def found(**environment: str) -> Endpoint:
    catalog = configured(environment)
    assert catalog.problems == ()
    [only] = catalog.found
    return only.endpoint


@pytest.mark.parametrize(
    ("variable", "name", "header"),
    [
        ("OPENAI_API_KEY", "openai", f"authorization: Bearer {KEY}"),
        ("GITHUB_TOKEN", "github", f"authorization: Bearer {KEY}"),
        ("GITHUB_MODELS_TOKEN", "github", f"authorization: Bearer {KEY}"),
        ("GEMINI_API_KEY", "gemini", f"x-goog-api-key: {KEY}"),
        ("GOOGLE_API_KEY", "gemini", f"x-goog-api-key: {KEY}"),
        ("ANTHROPIC_API_KEY", "anthropic", f"x-api-key: {KEY}"),
        ("ANTHROPIC_AUTH_TOKEN", "anthropic", f"authorization: Bearer {KEY}"),
        ("GROQ_API_KEY", "groq", f"authorization: Bearer {KEY}"),
        ("OPENROUTER_API_KEY", "openrouter", f"authorization: Bearer {KEY}"),
        ("DEEPSEEK_API_KEY", "deepseek", f"authorization: Bearer {KEY}"),
        ("MISTRAL_API_KEY", "mistral", f"authorization: Bearer {KEY}"),
        ("OLLAMA_API_KEY", "ollama", f"authorization: Bearer {KEY}"),
    ],
)
def test_a_key_in_its_usual_variable_is_a_provider(variable: str, name: str, header: str) -> None:
    endpoint = found(**{variable: f" {KEY}\n"})

    assert endpoint.name == name
    assert endpoint.base.startswith("https://")
    assert [f"{header}: {value}" for header, value in endpoint.credentials().items()] == [header]


def test_nothing_set_is_nothing_found() -> None:
    assert configured({"PATH": "/bin", "OPENAI_API_KEY": "  "}) == Catalog()


def test_what_was_found_is_shown_by_the_names_of_variables_only() -> None:
    environment = {
        "OPENAI_API_KEY": KEY,
        "AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com/",
        "AZURE_OPENAI_API_KEY": KEY + "2",
        "OLLAMA_HOST": "localhost",
    }

    catalog = configured(environment)

    shown = [each.shown() for each in catalog.found]
    assert [each["provider"] for each in shown] == ["openai", "azure", "ollama"]
    assert shown[1]["from"] == ["AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT"]
    assert [each["key"] for each in shown] == [True, True, False]
    assert KEY not in f"{shown} {catalog} {catalog!r}"


def test_azure_is_asked_the_new_way_unless_a_version_is_given() -> None:
    given_ = {
        "AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com/openai/v1/",
        "AZURE_OPENAI_API_KEY": KEY,
    }

    new, old = found(**given_), found(**given_, OPENAI_API_VERSION="2024-10-21")

    assert (new.base, new.chat) == ("https://mine.openai.azure.com", "/openai/v1/responses")
    assert old.query == {"api-version": "2024-10-21"}
    assert old.chat == "/openai/deployments/{model}/chat/completions"
    assert found(AZURE_OPENAI_ENDPOINT="https://x.y", AZURE_OPENAI_AD_TOKEN=KEY).credentials() == {
        "authorization": f"Bearer {KEY}"
    }


@pytest.mark.parametrize(
    ("host", "base"),
    [
        ("localhost", "http://localhost:11434"),
        ("127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("0.0.0.0", "http://127.0.0.1:11434"),  # noqa: S104 - never bound to
        ("0.0.0.0:9", "http://127.0.0.1:9"),
        (":9", "http://127.0.0.1:9"),
        ("http://gpu.lan:11434/", "http://gpu.lan:11434"),
        ("https://ollama.example.org", "https://ollama.example.org"),
        ("http://gpu.lan", "http://gpu.lan"),  # a URL has the port of its scheme
        ("gpu.lan/ollama/", "http://gpu.lan:11434/ollama"),
        ("::1", "http://[::1]:11434"),
        ("[::1]", "http://[::1]:11434"),
        ("[::1]:9", "http://[::1]:9"),
        ("[::]:9", "http://127.0.0.1:9"),
    ],
)
def test_ollamas_host_is_read_as_ollama_reads_it(host: str, base: str) -> None:
    assert found(OLLAMA_HOST=host).base == base


def test_a_server_of_ones_own_may_need_no_key() -> None:
    own = found(OPENAI_BASE_URL="http://localhost:8000/v1")
    lab = found(PENSTOCK_ENDPOINT_LAB="http://lab.lan/v1/", PENSTOCK_ENDPOINT_LAB_KEY=KEY)

    assert (own.base, bool(own.key), own.max_tokens) == ("http://localhost:8000/v1", False, "max_tokens")
    assert (lab.name, lab.base, lab.local, lab.key) == ("lab", "http://lab.lan/v1", True, Secret(KEY))


def test_other_urls_and_organisations_are_honoured() -> None:
    openai = found(OPENAI_API_KEY=KEY, OPENAI_ORG_ID="org-1", OPENAI_PROJECT="p")
    github = found(GITHUB_TOKEN=KEY, GITHUB_MODELS_ORG="acme")

    assert openai.headers == {"openai-organization": "org-1", "openai-project": "p"}
    assert github.chat == "/orgs/acme/inference/chat/completions"
    assert found(GEMINI_API_KEY=KEY, GEMINI_BASE_URL="http://proxy:1").base == "http://proxy:1/v1beta"
    assert found(ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL="http://proxy:1/").base == "http://proxy:1"
    assert found(ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL="http://proxy:1/v1/").base == "http://proxy:1"


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"AZURE_OPENAI_API_KEY": KEY}, "AZURE_OPENAI_API_KEY is set and AZURE_OPENAI_ENDPOINT is not"),
        ({"AZURE_OPENAI_ENDPOINT": "https://x"}, "AZURE_OPENAI_API_KEY is not"),
        ({"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "localhost:8000"}, "OPENAI_BASE_URL is not a URL"),
        ({"OPENAI_API_KEY": f"{KEY}\r\nx: y"}, "OPENAI_API_KEY is not a key"),
        ({"OLLAMA_HOST": "http://host:port"}, "OLLAMA_HOST is not a URL"),
        ({"PENSTOCK_ENDPOINT_LAB": f"http://me:{KEY}@lab"}, "PENSTOCK_ENDPOINT_LAB is not a URL"),
        ({"PENSTOCK_ENDPOINT_LAB": "http://lab/v1?key=1"}, "PENSTOCK_ENDPOINT_LAB is not a URL"),
        ({"PENSTOCK_ENDPOINT_LAB": "http://lab/v1#x"}, "PENSTOCK_ENDPOINT_LAB is not a URL"),
        ({"PENSTOCK_ENDPOINT_OPENAI": "http://x"}, "there is a provider openai already"),
        ({"PENSTOCK_ENDPOINT_EXTRACTIVE": "http://x"}, "there is a provider extractive already"),
        ({"PENSTOCK_ENDPOINT_9": "http://x"}, "does not name a provider"),
    ],
)
def test_what_cannot_be_used_is_said_and_not_used(environment: dict[str, str], words: str) -> None:
    catalog = configured(environment)

    assert catalog.found == ()
    [problem] = catalog.problems
    assert words in problem.message
    assert str(problem).count(next(iter(environment))) <= 1, "the variable is named once"
    assert KEY not in str(problem)


_names = st.sampled_from(
    ["OPENAI_API_KEY", "OPENAI_BASE_URL", "OLLAMA_HOST", "AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_KEY",
     "GEMINI_BASE_URL", "GOOGLE_API_KEY", "GITHUB_TOKEN", "GITHUB_MODELS_ENDPOINT", "PENSTOCK_ENDPOINT_A"]
)  # fmt: skip


@given(
    st.dictionaries(
        _names, st.text(max_size=30) | st.sampled_from(["http://[", "http://a:b", "::", "http://x:99999"])
    )
)
def test_no_environment_is_too_odd(environment: dict[str, str]) -> None:
    catalog = configured(environment)

    assert all(each.endpoint.base.startswith("http") for each in catalog.found)


@pytest.mark.parametrize("write", [pickle.dumps, msgspec.json.encode, msgspec.msgpack.encode])
def test_a_secret_is_never_written_down(write: Any) -> None:
    with pytest.raises(TypeError):
        write(Secret(KEY))
    assert KEY not in f"{Secret(KEY)} {Secret(KEY)!r}"


def test_prices_go_from_the_particular_to_the_general() -> None:
    prices = {"openai/m": Price(input=1.0), "m": Price(input=2.0), "openai/*": Price(input=3.0)}

    assert [price_of(prices, *who) for who in (("openai", "m"), ("azure", "m"), ("openai", "n"))] == [
        Price(input=1.0),
        Price(input=2.0),
        Price(input=3.0),
    ]
    assert price_of(prices, "azure", "n") is None
    assert cost(None, Usage(1, 1)) is None
    assert cost(Price(input=2.0, output=4.0), Usage(1_000_000, 500_000, 1_000)) == pytest.approx(4.0)


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    program = (
        "import sys, penstock.cli.main, penstock.models.catalog, penstock.models.providers.hosted,"
        " penstock.models.providers.extractive, penstock.models.providers.cassette;"
        "print([m for m in ('aiohttp', 'jsonschema', 'yarl') if m in sys.modules])"
    )

    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert said.stdout.strip() == "[]"
