"""The HTTP proxy between us and a provider: from the usual variables, and with no password in sight."""

from __future__ import annotations

import base64

import pytest
from loopback import GREETING, HELLO, MODEL, There, on_loopback

from penstock.models.base import ModelError
from penstock.models.catalog import configured
from penstock.models.providers.hosted import Hosted
from penstock.models.providers.http import Http
from penstock.models.proxies import proxy_for

PROXY = "http://me:hush-hush@proxy.lan:3128"


@pytest.mark.parametrize(
    ("url", "environment", "expected"),
    [
        ("https://api.openai.com/v1", {"HTTPS_PROXY": PROXY}, "HTTPS_PROXY"),
        ("https://api.openai.com/v1", {"HTTP_PROXY": PROXY}, ""),
        ("http://lab.lan/v1", {"http_proxy": PROXY, "HTTP_PROXY": "http://other"}, "http_proxy"),
        ("http://lab.lan/v1", {"ALL_PROXY": PROXY}, "ALL_PROXY"),
        ("http://lab.lan/v1", {"HTTP_PROXY": PROXY, "NO_PROXY": "lab.lan"}, ""),
        ("http://gpu.lab.lan/v1", {"HTTP_PROXY": PROXY, "no_proxy": "x, .lab.lan"}, ""),
        ("http://collab.lan/v1", {"HTTP_PROXY": PROXY, "no_proxy": "lab.lan"}, "HTTP_PROXY"),
        ("http://lab.lan:8000/v1", {"HTTP_PROXY": PROXY, "NO_PROXY": "lab.lan:9000"}, "HTTP_PROXY"),
        ("http://lab.lan:8000/v1", {"HTTP_PROXY": PROXY, "NO_PROXY": "lab.lan:8000"}, ""),
        ("http://lab.lan/v1", {"HTTP_PROXY": PROXY, "NO_PROXY": "*"}, ""),
        ("http://[fd00::1]:8000/v1", {"HTTP_PROXY": PROXY, "NO_PROXY": "fd00::1"}, ""),
        ("http://localhost:11434", {"HTTP_PROXY": PROXY}, ""),
        ("http://127.0.0.1:11434", {"HTTP_PROXY": PROXY}, ""),
        ("http://[::1]:11434", {"HTTP_PROXY": PROXY}, ""),
        ("https://api.openai.com/v1", {"HTTPS_PROXY": "  "}, ""),
    ],
)
def test_a_proxy_is_taken_as_other_programs_take_it(
    url: str, environment: dict[str, str], expected: str
) -> None:
    variable, proxy = proxy_for(url, environment)

    assert variable == expected
    assert proxy == (environment[expected] if expected else "")


@pytest.mark.parametrize("proxy", ["socks5://proxy.lan:1080", "http://[", "http://proxy.lan:port"])
def test_a_proxy_that_cannot_be_used_is_said_and_not_used(proxy: str) -> None:
    catalog = configured({"OPENAI_API_KEY": "sk-made-up", "HTTPS_PROXY": proxy})

    [found], [problem] = catalog.found, catalog.problems
    assert not found.endpoint.proxy
    assert str(problem) == "HTTPS_PROXY is not used for openai: it is no HTTP proxy"


def test_a_proxy_is_shown_by_the_name_of_its_variable() -> None:
    catalog = configured({"OPENAI_API_KEY": "sk-made-up", "HTTPS_PROXY": PROXY})

    [found] = catalog.found
    assert found.shown()["from"] == ["OPENAI_API_KEY", "HTTPS_PROXY"]
    assert "hush" not in f"{catalog!r} {found.shown()}"


@on_loopback
async def test_a_provider_is_asked_by_way_of_its_proxy(there: There) -> None:
    there.server.endpoint("lab")
    proxy = there.server.url.replace("http://", "http://me:hush-hush@")
    environment = {"PENSTOCK_ENDPOINT_LAB": "http://models.invalid/lab/v1", "HTTP_PROXY": proxy}
    [found] = configured(environment).found

    answer = await Hosted(found.endpoint, there.http).chat(MODEL, HELLO)

    assert answer.text == GREETING
    [call] = there.server.calls
    assert call.headers["host"] == "models.invalid"
    assert call.headers["proxy-authorization"] == f"Basic {base64.b64encode(b'me:hush-hush').decode()}"


async def test_a_proxy_that_is_not_there_is_a_fault_without_its_password() -> None:
    environment = {
        "PENSTOCK_ENDPOINT_LAB": "http://models.invalid/v1",
        "HTTP_PROXY": "http://me:hush-hush@127.0.0.1:1",
    }
    [found] = configured(environment).found

    async with Http() as http:
        with pytest.raises(ModelError) as raised:
            await Hosted(found.endpoint, http).chat(MODEL, HELLO)

    assert raised.value.fault.kind == "transport"
    assert "hush" not in str(raised.value)
