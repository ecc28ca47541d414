"""Providers without a network: one that copies, one that is told what to say, one that remembers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback import HELLO, MODEL, There, heard, on_loopback
from msgspec.structs import replace

from penstock.errors import PenstockError
from penstock.models.base import (
    Answer,
    BadOutput,
    Message,
    ModelError,
    Request,
    ToolCall,
    Usage,
    system,
    user,
)
from penstock.models.errors import Fault, unreachable
from penstock.models.providers.cassette import NotRecorded, Recorder, Replay
from penstock.models.providers.extractive import HEAD, NOTHING, Extractive
from penstock.models.providers.passages import sentences
from penstock.models.providers.scripted import Scripted, ScriptEnded
from penstock.testing import faults
from penstock.testing.models import KEY
from penstock.testing.wires import Called, Says

BRIDGE = (
    "The bridge opened in 1932 after eight years of work. It carries 160,000 vehicles a day. "
    "Gulls nest on it in spring. The chief engineer was John Bradfield. It is painted grey every ten years."
)


def extracted(*messages: Message, **asked: Any) -> Answer:
    return asyncio.run(Extractive().chat("", Request(messages=messages, **asked)))


# --- extractive ---


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("Who was the chief engineer?", "The chief engineer was John Bradfield."),
        ("When did the bridge open?", "The bridge opened in 1932"),
        ("Do gulls nest there?", "Gulls nest on it in spring."),
    ],
)
def test_an_extract_is_the_sentence_that_has_most_to_do_with_the_question(question: str, words: str) -> None:
    assert words in extracted(user(f"{BRIDGE}\n\n{question}")).text


def test_every_word_of_an_extract_was_given() -> None:
    answer = extracted(system("You know everything."), user(BRIDGE), user("Who painted the bridge grey?"))

    assert all(sentence in BRIDGE for sentence in sentences(answer.text.removeprefix(HEAD)))


def test_an_extract_says_that_it_is_one() -> None:
    answer = extracted(user(BRIDGE), user("Who was the engineer?"))

    assert answer.text.startswith("[extractive] ")
    assert (answer.label, answer.model, answer.served_by) == (
        "extractive",
        "extractive",
        "extractive/extractive",
    )
    assert answer.cost == 0.0


def test_what_the_text_does_not_say_is_not_answered() -> None:
    assert extracted(user(f"{BRIDGE}\nWhat is the price of tea?")).text == HEAD + NOTHING
    assert extracted(user("Who are you?")).text == HEAD + NOTHING
    assert extracted().text == HEAD + NOTHING


def test_results_of_tools_are_text_to_answer_from() -> None:
    told = Message("tool", "Tromsø: snow, three degrees below zero.", tool_call="1", name="get_weather")

    assert "three degrees below zero" in extracted(user("What is the weather in Tromsø?"), told).text


def test_a_summary_is_made_of_what_the_text_repeats() -> None:
    text = "Rivers flood in spring. Cats sleep. Floods of rivers cost money. Rivers need room in spring."

    assert "Cats" not in extracted(user(f"Summarise this:\n{text}")).text


FORM = {
    "type": "object",
    "properties": {
        "opened": {"type": "integer"},
        "engineer": {"type": "string"},
        "vehicles": {"type": "number"},
        "owner": {"type": "string"},
        "toll": {"type": ["number", "null"]},
        "painted": {"enum": ["grey", "red"]},
    },
    "required": ["opened", "owner"],
}


def test_a_form_is_filled_with_what_is_there_and_the_rest_is_named() -> None:
    answer = extracted(user(f"{BRIDGE}\nDescribe the bridge?"), output=FORM)

    assert answer.parsed == {
        "opened": 1932,
        "engineer": "The chief engineer was John Bradfield.",
        "vehicles": 160000,
        "toll": None,
        "painted": "grey",
    }
    assert answer.missing == ("owner", "toll")
    assert json.loads(answer.text) == answer.parsed


def test_of_two_figures_as_close_neither_is_taken() -> None:
    form = {"type": "object", "properties": {"metres": {"type": "integer"}}}

    answer = extracted(user("It is 503 metres long and 49 metres wide.\nHow long?"), output=form)

    assert (answer.parsed, answer.missing) == ({}, ("metres",))


@pytest.mark.parametrize("output", [None, {"type": "string"}])
def test_text_that_is_not_unicode_is_answered_too(output: dict[str, Any] | None) -> None:
    answer = extracted(user("The \ud800 bridge is red. What is the bridge?"), output=output)

    assert "bridge is red" in answer.text
    answer.text.encode()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
schema_like = st.recursive(
    st.fixed_dictionaries(
        {}, optional={"type": st.sampled_from(["string", "integer", "array", "object", "null"])}
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", ["string", "null"], ["integer"]]),
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            "items": inner,
            "anyOf": st.lists(inner, max_size=2),
            "$ref": st.sampled_from(["#", "#/properties/a", "#/nowhere", "elsewhere"]),
            "enum": json_values,
            "maxItems": st.integers(-2, 9),
            "minItems": json_values,
        },
    ),
    max_leaves=8,
)
texts = st.text(alphabet=st.characters() | st.sampled_from(" .?\n1"), max_size=200)


@given(
    given_text=texts,
    asked=texts,
    schema=st.none() | schema_like | st.dictionaries(st.text(max_size=6), json_values),
)
def test_the_last_resort_cannot_fail(given_text: str, asked: str, schema: dict[str, Any] | None) -> None:
    request = Request(messages=(system(asked), user(given_text), user(asked)), output=schema, max_tokens=20)

    first, second = (asyncio.run(Extractive().chat("m", request)) for _ in range(2))

    assert first == second
    assert first.label == "extractive"


def test_a_schema_that_refers_to_itself_comes_to_an_end() -> None:
    tree = {"type": "object", "properties": {name: {"$ref": "#"} for name in "abcdefghij"}}

    assert extracted(user(f"{BRIDGE}\nWhat?"), output=tree).label == "extractive"


def test_an_extract_can_be_streamed_and_embedded() -> None:
    provider = Extractive()
    request = Request(messages=(user(BRIDGE), user("Who was the engineer?")))

    chunks, answer = asyncio.run(heard(provider, request))
    found = asyncio.run(provider.embed("", ["a red bridge", "a red bridge", "quite different"]))

    assert "".join(chunk.text for chunk in chunks) == answer.text
    assert found.vectors[0] == found.vectors[1] != found.vectors[2]
    asyncio.run(provider.probe())


# --- scripted ---


def test_a_script_is_said_line_by_line_and_remembers_what_it_was_asked() -> None:
    async def main() -> None:
        call = ToolCall("1", "look", {"at": "it"})
        provider = Scripted(
            ["one", Answer(tool_calls=(call,)), lambda asked: asked.messages[0].content.upper()]
        )
        answers = [await provider.chat(MODEL, HELLO) for _ in range(3)]
        assert [answer.text for answer in answers] == ["one", "", "HELLO?"]
        assert [answer.finish for answer in answers] == ["stop", "tool_calls", "stop"]
        assert {answer.label for answer in answers} == {"scripted"}
        assert provider.asked == [HELLO] * 3
        with pytest.raises(ScriptEnded, match="has ended and was asked: 'Hello"):
            await provider.chat(MODEL, HELLO)

    asyncio.run(main())


def test_a_script_can_fail_and_its_output_is_repaired_like_anyones() -> None:
    async def main() -> None:
        asked = replace(HELLO, output={"type": "object", "required": ["a"]})
        provider = Scripted([unreachable("gone"), {}, {"a": 1}, {}, {}])
        with pytest.raises(ModelError, match="gone"):
            await provider.chat(MODEL, HELLO)
        answer = await provider.chat(MODEL, asked)
        assert (answer.parsed, answer.repaired) == ({"a": 1}, True)
        with pytest.raises(BadOutput):
            await provider.chat(MODEL, asked)

    asyncio.run(main())


def test_a_script_streams_word_by_word() -> None:
    chunks, answer = asyncio.run(heard(Scripted(["one two three"]), HELLO))

    assert [chunk.text for chunk in chunks[:-1]] == ["one", " two", " three"]
    assert answer.text == "one two three"


# --- cassettes ---


def asking(text: str, **asked: Any) -> Request:
    return Request(messages=(user(text),), **asked)


@on_loopback
async def test_what_was_recorded_is_replayed_without_anyone_there(there: There, tmp_path: Path) -> None:
    cassette = tmp_path / "deep" / "talk.jsonl"
    call = Called(name="look", arguments={"path": "/srv/inbox/a.txt"})
    there.server.script(
        "openai", Says(text="one"), Says(text="two", calls=[call]), faults.overloaded("openai")
    )
    recorder = Recorder(there.provider("openai"), cassette)
    one = await recorder.chat(MODEL, asking("first"))
    _, two = await heard(recorder, asking("second"))
    with pytest.raises(ModelError):
        await recorder.chat(MODEL, asking("third"))
    vectors = await recorder.embed(MODEL, ["x", "yy"])
    asked = len(there.server.calls)

    replay = Replay(cassette)

    assert await replay.chat(MODEL, asking("first")) == replace(one, label="replayed")
    assert (await heard(replay, asking("second", timeout=1.0)))[1] == replace(two, label="replayed")
    with pytest.raises(ModelError) as caught:
        await replay.chat(MODEL, asking("third"))
    assert (caught.value.fault.kind, caught.value.status) == ("overloaded", 503)
    assert await replay.embed(MODEL, ["x", "yy"]) == vectors
    assert len(there.server.calls) == asked


@on_loopback
async def test_the_same_question_gets_its_answers_in_order_then_the_last(
    there: There, tmp_path: Path
) -> None:
    there.server.script("openai", Says(text="one"), Says(text="two"))
    recorder = Recorder(there.provider("openai"), tmp_path / "talk.jsonl")
    for _ in range(2):
        await recorder.chat(MODEL, HELLO)

    replay = Replay(tmp_path / "talk.jsonl")

    assert [(await replay.chat(MODEL, HELLO)).text for _ in range(3)] == ["one", "two", "two"]


@pytest.mark.parametrize(
    "other",
    [asking("else"), asking("first", temperature=0.5), asking("first", output={"type": "object"})],
)
@on_loopback
async def test_a_question_that_is_not_on_record_is_a_clear_error(
    there: There, tmp_path: Path, other: Request
) -> None:
    await Recorder(there.provider("openai"), tmp_path / "talk.jsonl").chat(MODEL, asking("first"))
    replay = Replay(tmp_path / "talk.jsonl")

    with pytest.raises(NotRecorded, match=r"talk\.jsonl has no answer to"):
        await replay.chat(MODEL, other)
    with pytest.raises(NotRecorded):
        await replay.chat("another model", asking("first"))
    with pytest.raises(NotRecorded):
        await replay.embed(MODEL, ["first"])


@on_loopback
async def test_no_secret_is_on_a_cassette_and_the_conversation_still_replays(
    there: There, tmp_path: Path
) -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0"
    own = "swordfish-hunter-2"
    call = Called(name="login", arguments={"password": "open sesame please", "host": "db"})
    there.server.script("openai", Says(text=f"Use {token} and {own}.", calls=[call]), Says(text="Done."))
    recorder = Recorder(there.provider("openai"), tmp_path / "talk.jsonl", secrets=[own])
    asked = asking(f"My key is {token}; also {own}")

    async def talk(provider: Any) -> str:
        first = await provider.chat(MODEL, asked)
        told = (*asked.messages, Message("assistant", first.text, first.tool_calls))
        return str((await provider.chat(MODEL, replace(asked, messages=told))).text)

    await talk(recorder)
    written = (tmp_path / "talk.jsonl").read_text()

    for secret in (token, own, "open sesame", "sesame please", KEY):
        assert secret not in written
    assert await talk(Replay(tmp_path / "talk.jsonl", secrets=[own])) == "Done."


@pytest.mark.parametrize("line", ["not json", '{"digest": 3}', '{"model": "m"}'])
def test_a_broken_cassette_names_its_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "bad.jsonl").write_text(f"\n{line}\n")

    with pytest.raises(PenstockError, match=r"bad\.jsonl:2 is not an exchange"):
        Replay(tmp_path / "bad.jsonl")


def test_a_cassette_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match=r"cassette none\.jsonl cannot be read"):
        Replay(tmp_path / "none.jsonl")


@on_loopback
async def test_calls_at_once_are_written_line_by_line(there: There, tmp_path: Path) -> None:
    recorder = Recorder(there.provider("openai"), tmp_path / "talk.jsonl")

    await asyncio.gather(*(recorder.chat(MODEL, asking(str(n))) for n in range(20)))
    await recorder.probe()

    replay = Replay(tmp_path / "talk.jsonl")
    for n in range(20):
        assert (await replay.chat(MODEL, asking(str(n)))).usage == Usage(9, 3)


def test_a_fault_survives_being_written_down(tmp_path: Path) -> None:
    fault = Fault(kind="rate_limited", action="wait", retry_after=3.0, message="slow down", code="requests")

    async def main() -> None:
        with pytest.raises(ModelError):
            await Recorder(Scripted([fault]), tmp_path / "talk.jsonl").chat(MODEL, HELLO)
        with pytest.raises(ModelError) as caught:
            await Replay(tmp_path / "talk.jsonl").chat(MODEL, HELLO)
        assert caught.value.fault == fault

    asyncio.run(main())
