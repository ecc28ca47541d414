"""Every provider answers the same sentences: whole, in pieces, with tools, in a given form."""

from __future__ import annotations

from typing import Any

import pytest
from loopback import GREETING, HELLO, MODEL, PROVIDERS, There, heard, on_loopback
from msgspec.structs import replace

from penstock.models.base import BadOutput, ModelError, Request, ToolSpec, Usage, reply, result, system, user
from penstock.models.endpoint import dated
from penstock.models.providers.hosted import BATCH, Hosted
from penstock.testing.faults import overloaded, replies
from penstock.testing.models import KEY
from penstock.testing.wires import Called, Says

every_provider = pytest.mark.parametrize("kind", PROVIDERS)

WEATHER = ToolSpec(
    "get_weather",
    "The weather somewhere.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
CALL = Called(name="get_weather", arguments={"city": "Tromsø"}, id="call_9")
VERDICT = {
    "type": "object",
    "properties": {"verdict": {"enum": ["yes", "no"]}, "score": {"type": "number"}},
    "required": ["verdict", "score"],
    "additionalProperties": False,
}
GOOD = '{"verdict": "yes", "score": 0.9}'
BAD = '{"verdict": "maybe"}'


@every_provider
@on_loopback
async def test_a_question_gets_an_answer_that_says_who_gave_it_and_what_it_cost(
    there: There, kind: str
) -> None:
    there.server.script(kind, Says(text="Yes, hello.", input=1000, output=100))

    answer = await there.provider(kind).chat(MODEL, HELLO)

    assert (answer.text, answer.finish, answer.tool_calls) == ("Yes, hello.", "stop", ())
    assert answer.usage == Usage(1000, 100)
    assert answer.cost == pytest.approx(0.003)
    assert answer.served_by == answer.requested == f"{kind}/{MODEL}"
    assert answer.model.startswith(MODEL)
    assert (answer.degraded, answer.attempts, answer.label) == (False, 1, "")
    assert 0 < answer.first_byte <= answer.took


@every_provider
@on_loopback
async def test_a_streamed_answer_comes_in_pieces_that_add_up(there: There, kind: str) -> None:
    there.server.script(kind, Says(text="one two three", input=1000, output=100))

    chunks, answer = await heard(there.provider(kind), HELLO)

    assert [chunk.text for chunk in chunks[:-1]] == ["one", " two", " three"]
    assert answer.text == "one two three"
    assert answer.usage == Usage(1000, 100)
    assert answer.finish == "stop"
    assert answer.cost == pytest.approx(0.003)


@every_provider
@on_loopback
async def test_a_whole_answer_can_be_gathered_from_a_stream(there: There, kind: str) -> None:
    answer = await there.provider(kind).chat(MODEL, replace(HELLO, stream=True))

    assert answer.text == GREETING
    assert there.server.asked(kind)[0].stream


@every_provider
@on_loopback
async def test_an_answer_cut_at_its_length_says_so(there: There, kind: str) -> None:
    there.server.script(kind, Says(end="length"), Says(end="length"))

    assert (await there.provider(kind).chat(MODEL, HELLO)).finish == "length"
    assert (await heard(there.provider(kind), HELLO))[1].finish == "length"


@pytest.mark.parametrize("kind", ["openai", "anthropic", "gemini"])
@on_loopback
async def test_tokens_from_a_providers_cache_cost_what_they_cost(there: There, kind: str) -> None:
    there.server.script(kind, Says(input=1000, cached=800, output=0))

    answer = await there.provider(kind).chat(MODEL, HELLO)

    assert answer.usage == Usage(1000, 0, 800)
    assert answer.cost == pytest.approx((200 * 2.0 + 800 * 0.5) / 1e6)


@on_loopback
async def test_a_model_without_a_price_is_not_free(there: There) -> None:
    answer = await there.provider("openai").chat("model-without-price", HELLO)

    assert answer.cost is None


@on_loopback
async def test_a_model_on_this_machine_is_free(there: There) -> None:
    endpoint = replace(there.server.endpoint("ollama"), local=True)

    assert (await Hosted(endpoint, there.http).chat(MODEL, HELLO)).cost == 0.0


@on_loopback
async def test_a_stream_is_asked_for_its_account_only_where_that_is_known(there: There) -> None:
    for kind in ("groq", "mistral"):
        await heard(there.provider(kind), HELLO)

    assert ["stream_options" in call.body for call in there.server.calls] == [True, False]


# --- tools ---


@every_provider
@pytest.mark.parametrize("streamed", [False, True])
@on_loopback
async def test_a_tool_call_arrives_whole(there: There, kind: str, streamed: bool) -> None:
    there.server.script(kind, Says(text="Let me see.", calls=[CALL]))
    provider, request = there.provider(kind), replace(HELLO, tools=(WEATHER,))

    if streamed:
        chunks, answer = await heard(provider, request)
        assert [chunk.tool_call for chunk in chunks if chunk.tool_call] == list(answer.tool_calls)
    else:
        answer = await provider.chat(MODEL, request)

    [call] = answer.tool_calls
    assert (call.name, call.arguments, call.problem) == ("get_weather", {"city": "Tromsø"}, "")
    assert call.id
    assert answer.finish == "tool_calls"
    assert "get_weather" in str(there.server.asked(kind)[0].body["tools"])


@every_provider
@on_loopback
async def test_a_conversation_goes_on_after_a_tool_has_answered(there: There, kind: str) -> None:
    there.server.script(kind, Says(text="", calls=[CALL]), Says(text="It snows."))
    provider, asked = there.provider(kind), replace(HELLO, tools=(WEATHER,))
    first = await provider.chat(MODEL, asked)
    messages = (*asked.messages, reply(first), result(first.tool_calls[0], "snow, -3 °C"))

    second = await provider.chat(MODEL, replace(asked, messages=messages))

    assert second.text == "It snows."
    sent = str(there.server.asked(kind)[1].body)
    assert "snow, -3 °C" in sent
    assert "Tromsø" in sent


@pytest.mark.parametrize("kind", ["openai", "azure", "lab"])
@on_loopback
async def test_arguments_that_are_not_json_are_a_problem_the_model_can_be_told(
    there: There, kind: str
) -> None:
    there.server.script(kind, Says(calls=[Called(name="get_weather", written='{"city": "Tro')]))

    [call] = (await there.provider(kind).chat(MODEL, HELLO)).tool_calls

    assert "not JSON" in call.problem
    assert call.raw == '{"city": "Tro'


@on_loopback
async def test_two_calls_at_once_have_ids_of_their_own(there: There) -> None:
    two = [Called(name="a", id="1"), Called(name="b", id="2")]
    for kind in PROVIDERS:
        there.server.script(kind, Says(calls=two), Says(calls=two))
        for streamed in (False, True):
            answer = await there.provider(kind).chat(MODEL, replace(HELLO, stream=streamed))
            assert [call.name for call in answer.tool_calls] == ["a", "b"]
            assert len({call.id for call in answer.tool_calls}) == 2


@on_loopback
async def test_a_signature_goes_back_to_whoever_gave_it_and_to_nobody_else(there: There) -> None:
    there.server.script("gemini", Says(text="", calls=[CALL]))
    first = await there.provider("gemini").chat(MODEL, HELLO)
    messages = (*HELLO.messages, reply(first), result(first.tool_calls[0], "snow"))

    for kind in ("gemini", "openai", "anthropic"):
        await there.provider(kind).chat(MODEL, replace(HELLO, messages=messages))

    sent = {call.provider: str(call.body) for call in there.server.calls[1:]}
    assert "'thoughtSignature': 'c2ln'" in sent["gemini"]
    assert "c2ln" not in sent["openai"] + sent["anthropic"]


@on_loopback
async def test_several_tool_results_in_a_row_are_one_turn_where_turns_alternate(there: There) -> None:
    there.server.script("anthropic", Says(calls=[Called(name="a", id="1"), Called(name="b", id="2:x")]))
    first = await there.provider("anthropic").chat(MODEL, HELLO)
    answers = [result(call, "done") for call in first.tool_calls]
    request = replace(HELLO, messages=(*HELLO.messages, reply(first), *answers))

    await there.provider("anthropic").chat(MODEL, request)

    turns = there.server.asked("anthropic")[1].body["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert [block["tool_use_id"] for block in turns[2]["content"]] == ["1", "2_x"]


# --- output in a given form ---


@every_provider
@pytest.mark.parametrize("streamed", [False, True])
@on_loopback
async def test_output_in_a_form_is_parsed(there: There, kind: str, streamed: bool) -> None:
    there.server.script(kind, Says(text=GOOD))
    provider, request = there.provider(kind), replace(HELLO, output=VERDICT)

    answer = (await heard(provider, request))[1] if streamed else await provider.chat(MODEL, request)

    assert answer.parsed == {"verdict": "yes", "score": 0.9}
    assert (answer.repaired, answer.tool_calls, answer.finish) == (False, (), "stop")
    assert "verdict" in str(there.server.asked(kind)[0].body)


@every_provider
@pytest.mark.parametrize("streamed", [False, True])
@on_loopback
async def test_output_in_another_form_is_asked_for_once_more(there: There, kind: str, streamed: bool) -> None:
    there.server.script(kind, Says(text=BAD, input=100, output=10), Says(text=GOOD, input=200, output=20))
    provider, request = there.provider(kind), replace(HELLO, output=VERDICT)

    answer = (await heard(provider, request))[1] if streamed else await provider.chat(MODEL, request)

    assert answer.parsed == {"verdict": "yes", "score": 0.9}
    assert answer.repaired
    assert answer.usage == Usage(300, 30)
    assert answer.cost == pytest.approx(0.0009)
    again = str(there.server.asked(kind)[1].body)
    assert "'maybe' is not one of" in again.replace("\\", "")
    assert "'score' is a required property" in again.replace("\\", "")


@every_provider
@on_loopback
async def test_output_that_stays_wrong_is_given_up_after_one_repair(there: There, kind: str) -> None:
    there.server.script(kind, Says(text=BAD), Says(text="I'd rather not say."), Says(text=GOOD))

    with pytest.raises(BadOutput, match="no JSON in it") as caught:
        await there.provider(kind).chat(MODEL, replace(HELLO, output=VERDICT))

    assert len(there.server.asked(kind)) == 2
    assert caught.value.answer.usage == Usage(18, 6)
    assert caught.value.answer.text == "I'd rather not say."


@every_provider
@on_loopback
async def test_a_repair_that_fails_says_what_was_spent_before(there: There, kind: str) -> None:
    there.server.script(kind, Says(text=BAD), overloaded(kind))

    with pytest.raises(ModelError) as caught:
        await there.provider(kind).chat(MODEL, replace(HELLO, output=VERDICT))

    assert caught.value.fault.kind == "overloaded"
    assert caught.value.spent is not None
    assert caught.value.spent.usage == Usage(9, 3)


@every_provider
@on_loopback
async def test_output_cut_at_its_length_is_not_asked_for_again(there: There, kind: str) -> None:
    there.server.script(kind, Says(text='{"verdict": "y', end="length"))

    with pytest.raises(BadOutput, match="cut off at the length limit"):
        await there.provider(kind).chat(MODEL, replace(HELLO, output=VERDICT))

    assert len(there.server.asked(kind)) == 1


@every_provider
@on_loopback
async def test_with_tools_to_call_first_the_output_comes_later(there: There, kind: str) -> None:
    there.server.script(kind, Says(text="", calls=[CALL]), Says(text=GOOD))
    provider, request = there.provider(kind), replace(HELLO, output=VERDICT, tools=(WEATHER,))

    first, second = await provider.chat(MODEL, request), await provider.chat(MODEL, request)

    assert (first.parsed, len(first.tool_calls)) == (None, 1)
    assert (second.parsed, second.tool_calls) == ({"verdict": "yes", "score": 0.9}, ())
    for call in there.server.asked(kind):
        assert "verdict" in str(call.body)
        assert "get_weather" in str(call.body)


@pytest.mark.parametrize(
    "text", [f"```json\n{GOOD}\n```", f"Here it is: {GOOD} I hope it helps.", f"\n\n{GOOD}\n"]
)
@on_loopback
async def test_json_among_words_is_found(there: There, text: str) -> None:
    there.server.script("lab", Says(text=text))

    answer = await there.provider("lab").chat(MODEL, replace(HELLO, output=VERDICT))

    assert answer.parsed == {"verdict": "yes", "score": 0.9}


@on_loopback
async def test_a_form_that_is_not_an_object_works_everywhere(there: There) -> None:
    for kind in PROVIDERS:
        there.server.script(kind, Says(text="[1, 2]"))
        request = replace(HELLO, output={"type": "array", "items": {"type": "integer"}})
        assert (await there.provider(kind).chat(MODEL, request)).parsed == [1, 2]
        assert "integer" in str(there.server.asked(kind)[0].body)


@pytest.mark.parametrize("schema", [{"type": "objekt"}, {"type": "object", "properties": 3}])
@on_loopback
async def test_a_schema_that_is_none_is_refused_before_anyone_is_asked(there: There, schema: Any) -> None:
    with pytest.raises(ModelError, match="the output schema is not one") as caught:
        await there.provider("openai").chat(MODEL, replace(HELLO, output=schema))

    assert caught.value.fault.kind == "bad_request"
    assert there.server.calls == []


# --- embeddings, probes ---


@pytest.mark.parametrize("kind", ["openai", "azure", "github", "gemini", "ollama", "lab"])
@on_loopback
async def test_embeddings_come_in_the_order_of_the_texts_and_in_batches(there: There, kind: str) -> None:
    texts = ["x" * (at % 7 + 1) for at in range(BATCH + 4)]

    found = await there.provider(kind).embed(MODEL, texts)

    assert [vector[0] for vector in found.vectors] == [float(len(text)) for text in texts]
    assert len(there.server.asked(kind)) == 2
    assert found.served_by == f"{kind}/{MODEL}"
    assert await there.provider(kind).embed(MODEL, []) == replace(found, vectors=(), usage=Usage(), cost=0.0)


@pytest.mark.parametrize("kind", ["anthropic", "groq"])
@on_loopback
async def test_who_offers_no_embeddings_says_so(there: There, kind: str) -> None:
    with pytest.raises(ModelError, match="offers no embeddings"):
        await there.provider(kind).embed(MODEL, ["x"])


@on_loopback
async def test_vectors_that_are_too_few_are_an_error(there: There) -> None:
    there.server.script("ollama", replies(200, {"embeddings": [[1.0]]}))

    with pytest.raises(ModelError, match="1 vectors for 2 texts"):
        await there.provider("ollama").embed(MODEL, ["a", "b"])


@every_provider
@on_loopback
async def test_a_probe_asks_for_something_cheap(there: There, kind: str) -> None:
    there.server.script_probes(kind, Says(), overloaded(kind))

    await there.provider(kind).probe()
    with pytest.raises(ModelError) as caught:
        await there.provider(kind).probe()

    assert caught.value.fault.kind == "overloaded"
    assert [call.operation for call in there.server.calls] == ["probe", "probe"]


# --- what is on the wire ---

FULL = Request(
    messages=(system("Be brief."), user("Hello?")),
    tools=(WEATHER,),
    tool_choice="required",
    max_tokens=50,
    temperature=0.5,
    timeout=20.0,
)


@pytest.mark.parametrize(
    ("kind", "path", "header"),
    [
        ("openai", "/v1/responses", "authorization"),
        ("azure", "/openai/v1/responses", "api-key"),
        ("github", "/inference/chat/completions", "authorization"),
        ("gemini", f"/v1beta/models/{MODEL}:generateContent", "x-goog-api-key"),
        ("anthropic", "/v1/messages", "x-api-key"),
        ("ollama", "/api/chat", "authorization"),
        ("lab", "/v1/chat/completions", "authorization"),
    ],
)
@on_loopback
async def test_each_is_asked_where_and_how_it_expects(
    there: There, kind: str, path: str, header: str
) -> None:
    await there.provider(kind).chat(MODEL, FULL)

    [call] = there.server.calls
    assert call.path == path
    assert call.headers[header] == (f"Bearer {KEY}" if header == "authorization" else KEY)
    assert KEY not in call.path + str(call.query) + str(call.body)
    assert {"anthropic-version": "2023-06-01"}.items() <= call.headers.items() or kind != "anthropic"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("openai", {"max_output_tokens": 50, "temperature": 0.5, "tool_choice": "required", "store": False}),
        ("groq", {"max_completion_tokens": 50, "temperature": 0.5, "tool_choice": "required"}),
        ("lab", {"max_tokens": 50, "temperature": 0.5}),
        ("anthropic", {"max_tokens": 50, "system": "Be brief.", "tool_choice": {"type": "any"}}),
        ("gemini", {"generationConfig": {"maxOutputTokens": 50, "temperature": 0.5}}),
        ("gemini", {"systemInstruction": {"parts": [{"text": "Be brief."}]}}),
        ("gemini", {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}),
        ("ollama", {"options": {"num_predict": 50, "temperature": 0.5}, "stream": False}),
    ],
)
@on_loopback
async def test_settings_are_said_in_the_providers_words(
    there: There, kind: str, expected: dict[str, Any]
) -> None:
    await there.provider(kind).chat(MODEL, FULL)

    assert expected.items() <= there.server.calls[0].body.items()


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("openai", "text"),
        ("groq", "response_format"),
        ("gemini", "generationConfig"),
        ("anthropic", "output_config"),
        ("ollama", "format"),
    ],
)
@on_loopback
async def test_a_form_is_asked_for_in_the_providers_own_way(there: There, kind: str, field: str) -> None:
    there.server.script(kind, Says(text=GOOD))

    await there.provider(kind).chat(MODEL, replace(HELLO, output=VERDICT))

    assert "verdict" in str(there.server.calls[0].body[field])


@on_loopback
async def test_azure_can_be_asked_the_older_way(there: There) -> None:
    endpoint = dated(there.server.endpoint("azure"), "2024-10-21")

    await Hosted(endpoint, there.http).chat("my deployment", HELLO)

    [call] = there.server.calls
    assert call.path == "/openai/deployments/my deployment/chat/completions"
    assert call.query == {"api-version": "2024-10-21"}


@on_loopback
async def test_limits_in_headers_are_passed_on(there: There) -> None:
    headers = {"x-ratelimit-limit-requests": "5000", "x-ratelimit-remaining-requests": "4999"}
    there.server.script("openai", Says(headers=headers), Says(headers=headers))

    whole = await there.provider("openai").chat(MODEL, HELLO)
    streamed = await there.provider("openai").chat(MODEL, replace(HELLO, stream=True))

    for answer in (whole, streamed):
        assert answer.hints is not None
        [limit] = answer.hints.limits
        assert (limit.dimension, limit.limit, limit.remaining) == ("requests", 5000, 4999)
