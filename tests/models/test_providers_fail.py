"""Every provider fails in every way known, whole and streamed: one error, one kind, no secret in it."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Literal

import pytest
from loopback import GREETING, HELLO, MODEL, PROVIDERS, There, heard, on_loopback
from msgspec.structs import replace

from penstock.models.base import ModelError, Request, Usage, user
from penstock.models.endpoint import compatible
from penstock.models.errors import FaultKind
from penstock.models.providers.hosted import Hosted
from penstock.models.providers.http import LARGEST
from penstock.testing import faults
from penstock.testing.faults import Cuts, Drips, Drops, Ends, Errs, Floods, Hangs, HintForm, Stalls
from penstock.testing.models import KEY, Turn
from penstock.testing.wires import Says

Way = Literal["chat", "stream", "gathered"]

every_provider = pytest.mark.parametrize("kind", PROVIDERS)
every_way = pytest.mark.parametrize("way", ["chat", "stream", "gathered"])


async def failed(there: There, kind: str, way: Way, *turns: Turn, request: Request = HELLO) -> ModelError:
    """What comes of a call that must fail."""
    there.server.script(kind, *turns)
    provider = there.provider(kind)
    asked = provider.chat(MODEL, replace(request, stream=way == "gathered"))
    with pytest.raises(ModelError) as caught:
        await (heard(provider, request) if way == "stream" else asked)
    asked.close()
    error = caught.value
    assert (error.provider, error.model) == (kind, MODEL)
    assert KEY not in f"{error} {error!r} {error.fault} {error.args} {vars(error)}"
    assert error.__cause__ is None
    return error


STATUSES: dict[str, tuple[Any, FaultKind]] = {
    "quota": (faults.quota, "quota_exhausted"),
    "overloaded": (faults.overloaded, "overloaded"),
    "failing": (faults.failing, "server_error"),
    "unauthorised": (faults.unauthorised, "auth"),
    "too long": (faults.too_long, "context_length"),
    "unknown model": (faults.unknown_model, "not_found"),
    "wrong": (faults.wrong, "bad_request"),
}


@every_provider
@every_way
@pytest.mark.parametrize("name", STATUSES)
@on_loopback
async def test_an_error_status_is_what_it_means(there: There, kind: str, way: Way, name: str) -> None:
    make, expected = STATUSES[name]

    error = await failed(there, kind, way, make(kind))

    assert error.fault.kind == expected
    assert error.status >= 400
    assert error.fault.message or name == "quota"


@every_provider
@every_way
@pytest.mark.parametrize("form", ["seconds", "ms", "azure-ms", "date", "body", "reset"])
@on_loopback
async def test_every_form_of_hint_says_when_to_come_back(
    there: There, kind: str, way: Way, form: HintForm
) -> None:
    error = await failed(there, kind, way, faults.rate_limited(kind, form, 3.0))

    assert error.fault.kind == "rate_limited"
    assert error.fault.retry_after == pytest.approx(3.0, abs=0.01)
    assert error.hints is not None
    assert error.hints.wait == error.fault.retry_after


@every_provider
@on_loopback
async def test_a_limit_without_a_hint_has_no_time(there: There, kind: str) -> None:
    error = await failed(there, kind, "chat", faults.rate_limited(kind, "none"))

    assert (error.fault.kind, error.fault.retry_after) == ("rate_limited", None)


@every_way
@pytest.mark.parametrize("kind", [kind for kind in PROVIDERS if faults.filtered(kind) is not None])
@on_loopback
async def test_refused_content_is_nobodys_failure(there: There, kind: str, way: Way) -> None:
    reply = faults.filtered(kind)
    assert reply is not None

    assert (await failed(there, kind, way, reply)).fault.kind == "content_filter"


@every_way
@pytest.mark.parametrize("kind", [kind for kind in PROVIDERS if kind != "ollama"])
@on_loopback
async def test_an_answer_that_ends_in_a_refusal_is_none(there: There, kind: str, way: Way) -> None:
    error = await failed(there, kind, way, Says(text="Well, first", end="refused"))

    assert (error.fault.kind, error.fault.action) == ("content_filter", "other_once")
    assert error.partial == "Well, first"
    assert error.spent is not None
    assert error.spent.usage == Usage(9, 3)


# --- errors that look like answers ---


@every_provider
@every_way
@on_loopback
async def test_an_error_with_status_200_is_an_error(there: There, kind: str, way: Way) -> None:
    error = await failed(there, kind, way, faults.in_band(faults.overloaded(kind)))

    assert error.fault.kind in ("overloaded", "server_error")
    assert error.status == 200


@pytest.mark.parametrize("kind", ["anthropic", "gemini", "lab"])
@pytest.mark.parametrize("name", ["rate", "quota", "overloaded"])
@on_loopback
async def test_an_error_in_the_middle_of_a_stream_keeps_its_meaning(
    there: There, kind: str, name: str
) -> None:
    make: Any = {"rate": faults.rate_limited, "quota": faults.quota, "overloaded": faults.overloaded}[name]
    expected = {"rate": "rate_limited", "quota": "quota_exhausted", "overloaded": "overloaded"}[name]
    if kind == "lab" and name == "overloaded":
        expected = "server_error"  # it says no more than that

    error = await failed(there, kind, "stream", Errs(make(kind), after=4 if kind == "anthropic" else 2))

    assert error.fault.kind == expected
    assert error.partial.startswith("Hello")


@every_provider
@every_way
@pytest.mark.parametrize("reply", [faults.NOT_JSON, faults.HALF_JSON, faults.NOT_AN_ANSWER])
@on_loopback
async def test_a_body_that_is_no_answer_is_a_failing_server(
    there: There, kind: str, way: Way, reply: faults.Replies
) -> None:
    error = await failed(there, kind, way, reply)

    assert error.fault.kind in ("server_error", "transport")
    assert error.fault.action == "fail_over"
    assert error.status == 200


@every_provider
@on_loopback
async def test_a_broken_message_in_a_stream_is_a_failing_server(there: There, kind: str) -> None:
    error = await failed(there, kind, "stream", Errs(faults.HALF_JSON, after=3))

    assert error.fault.kind == "server_error"
    assert "not what it should be" in str(error)


@pytest.mark.parametrize(
    "body", [b"[]", b"null", b"3", b'"x"', b'{"choices": [null]}', b"\xff\xfe", b"[" * 9999]
)
@on_loopback
async def test_odd_json_is_never_more_than_a_failing_server(there: There, body: bytes) -> None:
    for kind in PROVIDERS:
        error = await failed(there, kind, "chat", faults.replies(200, body))
        assert error.fault.kind == "server_error"


# --- time ---


@every_provider
@every_way
@on_loopback
async def test_a_first_byte_that_does_not_come_is_late(there: There, kind: str, way: Way) -> None:
    error = await failed(there, kind, way, Hangs(), request=replace(HELLO, first_byte=0.03))

    assert error.fault.kind == "timeout"
    assert "no answer began" in str(error)


@every_provider
@on_loopback
async def test_a_stream_that_stalls_is_late(there: There, kind: str) -> None:
    error = await failed(there, kind, "stream", Stalls(after=3), request=replace(HELLO, idle=0.03))

    assert error.fault.kind == "timeout"
    assert "stalled" in str(error)
    assert error.partial.startswith("Hello") or kind in ("openai", "azure", "anthropic")


@every_provider
@on_loopback
async def test_a_body_that_never_ends_is_late(there: There, kind: str) -> None:
    error = await failed(there, kind, "chat", Stalls(after=1), request=replace(HELLO, timeout=0.4))

    assert error.fault.kind == "timeout"
    assert "did not end within 0.4 s" in str(error)


@every_way
@on_loopback
async def test_bytes_that_drip_without_end_are_late_though_they_are_never_silent(
    there: There, way: Way
) -> None:
    error = await failed(there, "openai", way, Drips(), request=replace(HELLO, timeout=0.4, idle=30.0))

    assert error.fault.kind == "timeout"
    assert "did not end within 0.4 s" in str(error)


@every_provider
@on_loopback
async def test_a_stream_that_says_it_is_over_is_not_waited_for(there: There, kind: str) -> None:
    if kind == "gemini":
        return  # nothing but the end of the connection says so
    there.server.script(kind, Stalls(after=99))

    _, answer = await heard(there.provider(kind), HELLO)

    assert answer.text == GREETING
    assert answer.took < HELLO.timeout / 2


@on_loopback
async def test_an_answer_that_only_lacks_its_account_of_tokens_is_one(there: There) -> None:
    there.server.script("groq", Cuts(after=7))  # a role, five words and the reason for the end

    _, answer = await heard(there.provider("groq"), HELLO)

    assert (answer.text, answer.usage) == (GREETING, Usage())


@every_way
@on_loopback
async def test_an_error_whose_body_does_not_end_is_known_by_its_status(
    there: There, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.models.providers.http.PATIENCE", 0.03)

    async with asyncio.timeout(HELLO.timeout / 2):
        error = await failed(there, "openai", way, Stalls(after=1, status=503))

    assert (error.fault.kind, error.status) == ("overloaded", 503)


@on_loopback
async def test_whoever_asks_can_stop_waiting(there: There) -> None:
    there.server.script("openai", Hangs())

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.03):
            await there.provider("openai").chat(MODEL, HELLO)

    assert (await there.provider("openai").chat(MODEL, HELLO)).text == GREETING


# --- the line ---


@every_provider
@every_way
@on_loopback
async def test_a_connection_that_is_dropped_is_transport(there: There, kind: str, way: Way) -> None:
    assert (await failed(there, kind, way, Drops())).fault.kind == "transport"


@every_provider
@every_way
@on_loopback
async def test_a_connection_cut_in_mid_answer_is_transport(there: There, kind: str, way: Way) -> None:
    error = await failed(there, kind, way, Cuts(after=2))

    assert error.fault.kind == "transport"
    assert "middle of the answer" in str(error)


@every_provider
@pytest.mark.parametrize("after", [0, 1, 2])
@on_loopback
async def test_a_stream_that_ends_too_early_is_never_an_answer(there: There, kind: str, after: int) -> None:
    error = await failed(there, kind, "stream", Ends(after=after))

    assert error.fault.kind == "transport"
    assert "ended before the answer did" in str(error)


@on_loopback
async def test_a_server_that_is_not_there_is_transport(there: There) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    provider = Hosted(compatible("gone", f"http://127.0.0.1:{port}/v1", KEY), there.http)

    for call in (provider.chat(MODEL, HELLO), provider.probe(), provider.embed(MODEL, ["x"])):
        with pytest.raises(ModelError) as caught:
            await call
        assert caught.value.fault.kind == "transport"


@pytest.mark.parametrize("base", ["http://[::1", "not a url", "http://"])
@on_loopback
async def test_a_base_that_is_no_url_is_a_mistake_of_ours(there: There, base: str) -> None:
    with pytest.raises(ModelError) as caught:
        await Hosted(compatible("odd", base, KEY), there.http).chat(MODEL, HELLO)

    assert caught.value.fault.kind == "bad_request"


@on_loopback
async def test_a_key_that_cannot_be_a_header_is_a_mistake_of_ours(there: There) -> None:
    endpoint = there.server.endpoint("openai", key=f"{KEY}\r\nx: y")

    with pytest.raises(ModelError) as caught:
        await Hosted(endpoint, there.http).chat(MODEL, HELLO)

    assert caught.value.fault.kind == "bad_request"
    assert KEY not in str(caught.value)


@on_loopback
async def test_a_whole_answer_where_a_stream_was_asked_for_will_do(there: There) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    choice = {"message": {"content": "Hi.", "tool_calls": [call]}, "finish_reason": "tool_calls"}
    there.server.script("lab", faults.replies(200, {"choices": [choice]}))

    chunks, answer = await heard(there.provider("lab"), HELLO)

    assert chunks[0].text == answer.text == "Hi."
    assert chunks[1].tool_call == answer.tool_calls[0]


@pytest.mark.parametrize("announced", [True, False])
@on_loopback
async def test_a_body_without_measure_is_not_read(there: There, announced: bool) -> None:
    error = await failed(there, "openai", "chat", Floods(LARGEST * 3, announced=announced))

    assert error.fault.kind == "server_error"
    assert "larger than 32 MB" in str(error)


@on_loopback
async def test_a_redirect_is_not_followed_with_our_key(there: There) -> None:
    elsewhere = f"{there.server.url}/elsewhere/v1"
    there.server.script("openai", faults.replies(307, b"", location=elsewhere))

    error = await failed(there, "openai", "chat")

    assert "redirects to 127.0.0.1" in str(error)
    assert len(there.server.calls) == 1


# --- secrets ---


@every_provider
@every_way
@on_loopback
async def test_a_key_that_a_provider_echoes_is_not_repeated(there: There, kind: str, way: Way) -> None:
    error = await failed(there, kind, way, faults.unauthorised(kind, echo=KEY))

    assert "***" in str(error)


@pytest.mark.parametrize("before", [480, 490, 495])
@on_loopback
async def test_half_a_key_is_not_repeated_either(there: There, before: int) -> None:
    reply = faults.error("openai", 401, "invalid_api_key", "x" * before + KEY)

    error = await failed(there, "openai", "chat", reply)

    assert KEY[:5] not in str(error)


@on_loopback
async def test_a_provider_does_not_show_its_key(there: There) -> None:
    provider = there.provider("openai")

    assert KEY not in f"{provider!r} {provider.endpoint!r} {provider.endpoint.key}"


# --- staying well ---


@every_provider
@on_loopback
async def test_after_every_failure_the_next_call_is_answered(there: There, kind: str) -> None:
    provider = there.provider(kind)
    for turn in (Drops(), Cuts(after=1), faults.overloaded(kind), faults.NOT_JSON, Ends(after=1)):
        there.server.script(kind, turn)
        with pytest.raises(ModelError):
            await provider.chat(MODEL, replace(HELLO, stream=isinstance(turn, Ends)))
        assert (await provider.chat(MODEL, HELLO)).text == GREETING


@every_provider
@on_loopback
async def test_a_stream_can_be_left_at_any_time(there: There, kind: str) -> None:
    provider = there.provider(kind)
    there.server.script(kind, Says(text="a b c d e f"))
    stream = provider.stream(MODEL, HELLO)
    async for chunk in stream:
        assert chunk.text == "a"
        break
    await stream.aclose()

    assert (await provider.chat(MODEL, HELLO)).text == GREETING


@on_loopback
async def test_many_calls_at_once_share_the_session(there: There) -> None:
    provider = there.provider("openai")

    answers = await asyncio.gather(*(provider.chat(MODEL, HELLO) for _ in range(100)))

    assert {answer.text for answer in answers} == {GREETING}


@pytest.mark.parametrize("text", ["\ud800", "\x00", "🙂"])
@on_loopback
async def test_odd_text_is_sent_or_refused_and_never_crashes(there: There, text: str) -> None:
    request = replace(HELLO, messages=(user(text),))
    for kind in PROVIDERS:
        if text.isprintable() or text == "\x00":
            assert (await there.provider(kind).chat(MODEL, request)).text == GREETING
        else:
            error = await failed(there, kind, "chat", request=request)
            assert error.fault.kind == "bad_request"
            with pytest.raises(ModelError):
                await there.provider(kind).embed(MODEL, [text])
