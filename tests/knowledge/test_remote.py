"""Vectors of a server that speaks `/v1/embeddings`, and how an embedding is chosen."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from penstock.errors import PenstockError
from penstock.knowledge.embed import WordLlama, chosen
from penstock.knowledge.entries import Entry
from penstock.knowledge.remote import TOGETHER, Remote
from penstock.knowledge.search import Search

Wire = tuple[str, list[dict[str, Any]]]


@pytest.fixture
def wire() -> Iterator[Wire]:
    """A server that knows two topics; what it is asked is noted."""
    asked: list[dict[str, Any]] = []

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append({**body, "key": self.headers.get("Authorization"), "path": self.path})
            data = [
                {"index": i, "embedding": [3.0 * ("rain" in text), 4.0 * ("money" in text), 0.1]}
                for i, text in enumerate(body["input"])
            ]
            wrong = {"refuse": (401, b"no"), "babble": (200, b"not json"), "short": (200, b'{"data": []}')}
            status, said = wrong.get(body["model"], (200, json.dumps({"data": data[::-1]}).encode()))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1", asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_tools_are_found_by_the_vectors_of_a_server(wire: Wire) -> None:
    url, asked = wire
    search = Search(chosen(f"openai-compatible:{url}#some-model", key="k"))
    search.update([Entry("a:b", "about money"), Entry("c:d", "about rain"), Entry("e:f", "neither")])

    assert search.find("rain money rain")[2].id == "e:f"
    assert asked[0]["model"] == "some-model"
    assert asked[0]["path"] == "/v1/embeddings"
    assert asked[0]["key"] == "Bearer k"


def test_many_texts_are_asked_for_in_several_requests_and_stay_in_order(wire: Wire) -> None:
    url, asked = wire
    texts = ["rain", *["money"] * TOGETHER]

    vectors = Remote(url, "m").embed(texts)

    assert len(asked) == 2
    assert vectors[0, 0] > 0.9
    assert vectors[-1, 1] > 0.9


@pytest.mark.parametrize(("model", "why"), [("refuse", "401"), ("babble", "gave no"), ("short", "0 for 1")])
def test_a_server_that_gives_no_vectors_is_named_with_the_reason(wire: Wire, model: str, why: str) -> None:
    with pytest.raises(PenstockError, match=why):
        Remote(wire[0], model).embed(["x"])


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(PenstockError, match=r"http://127\.0\.0\.1:9/v1/embeddings gave no vectors"):
        Remote("http://127.0.0.1:9/v1", "m").embed(["x"])


def test_the_default_is_embedded() -> None:
    assert isinstance(chosen(), WordLlama)


@pytest.mark.parametrize(
    "setting", ["bert", "", "openai-compatible:", "openai-compatible:file:///etc/passwd#m"]
)
def test_an_unknown_embedding_is_refused_with_the_choice(setting: str) -> None:
    with pytest.raises(PenstockError, match=r"openai-compatible:"):
        chosen(setting)
