"""Tools are found by meaning and by words, and the index follows the catalog."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from penstock.ids import ToolId
from penstock.knowledge.embed import WordLlama, installed
from penstock.knowledge.entries import Entry, entry_of
from penstock.knowledge.lexicon import Fields, Lexicon
from penstock.knowledge.search import Search
from penstock.tools.base import Tool

ENTRIES = [
    Entry("files:write_file", "Create or overwrite a file with new content.", "path content"),
    Entry("files:read_file", "Read the complete contents of a file.", "path"),
    Entry("weather:get_forecast", "Weather forecast for a location.", "latitude longitude"),
    Entry("mail:send_message", "Send an email to a recipient.", "to subject body"),
    Entry("clock:get_current_time", "Get the current time in a timezone.", "timezone"),
    Entry("charts:generate_bar_chart", "Generate a bar chart.", "data title"),
    Entry("stocks:get_quote", "Latest price of a share on the exchange.", "ticker"),
    Entry("git:git_log", "Shows the commit logs.", "repo max_count"),
]


class Counting(WordLlama):
    """Says which texts it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def embed(self, texts: Any) -> Any:
        self.texts += texts
        return super().embed(texts)


@pytest.fixture
def search() -> Search:
    made = Search(WordLlama())
    made.update(ENTRIES)
    return made


def first(search: Search, request: str, **more: Any) -> str:
    return search.find(request, limit=1, **more)[0].id


@pytest.mark.parametrize(
    ("request_", "id"),
    [
        ("git_log", "git:git_log"),
        ("will it rain tomorrow in Lisbon", "weather:get_forecast"),
        ("tell my boss by e-mail that I am ill", "mail:send_message"),
        ("how much does one Nvidia share cost", "stocks:get_quote"),
        ("plot the sales as bars", "charts:generate_bar_chart"),
        ("show the history of commits", "git:git_log"),
    ],
)
def test_the_right_tool_comes_first_by_name_and_by_paraphrase(search: Search, request_: str, id: str) -> None:
    assert first(search, request_) == id


def test_words_alone_find_names_when_there_are_no_vectors() -> None:
    search = Search()
    search.update(ENTRIES)

    assert first(search, "generate bar chart") == "charts:generate_bar_chart"


def test_work_that_a_request_implies_is_found_too(search: Search) -> None:
    found = [one.id for one in search.find("a poem about rain, save it in poems/rain.md", limit=2)]

    assert "files:write_file" in found


def test_what_usually_follows_counts_only_when_there_is_a_context() -> None:
    search = Search(WordLlama(), evidence=lambda used: {"mail:send_message": 5.0} if used else {})
    search.update(ENTRIES)

    assert first(search, "show the history of commits") == "git:git_log"
    assert first(search, "show the history of commits", context=["git:git_log"]) == "mail:send_message"


@pytest.mark.parametrize("request_", ["", "   ", '"', "AND OR NOT", "tools:*", "的", "x" * 100_000, "\x00"])
def test_any_text_is_a_request(search: Search, request_: str) -> None:
    assert len(search.find(request_, limit=3)) == 3


def test_a_catalog_without_tools_has_nothing_to_find() -> None:
    search = Search(WordLlama())
    search.update([])

    assert search.find("anything") == []


def test_more_are_wanted_than_there_are(search: Search) -> None:
    assert len(search.find("file", limit=50)) == len(ENTRIES)


def test_a_changed_tool_is_found_by_what_it_is_now_and_only_it_is_embedded_again() -> None:
    embedder = Counting()
    search = Search(embedder)
    search.update(ENTRIES)
    embedder.texts.clear()
    changed = [*ENTRIES[:-1], structs.replace(ENTRIES[-1], description="Brew a cup of coffee.")]

    assert search.update(changed) == 1
    assert embedder.texts
    assert all("coffee" in text or "git" in text for text in embedder.texts)
    assert first(search, "make me a coffee") == "git:git_log"


def test_a_tool_that_is_gone_is_found_no_more(search: Search) -> None:
    search.update(ENTRIES[:-1])

    assert "git:git_log" not in [one.id for one in search.find("show the history of commits", limit=8)]


def test_vectors_are_kept_and_not_made_again(tmp_path: Path) -> None:
    kept = tmp_path / "vectors.npz"
    Search(WordLlama(), kept=kept).update(ENTRIES)
    embedder = Counting()
    search = Search(embedder, kept=kept)
    search.update(ENTRIES)

    assert [text for text in embedder.texts if text] == []
    assert first(search, "show the history of commits") == "git:git_log"


def test_words_are_kept_and_not_read_again() -> None:
    texts: list[Fields] = [(entry.name, entry.description, entry.parameters, "") for entry in ENTRIES]
    keys = [entry.id for entry in ENTRIES]
    first, second = Lexicon(), Lexicon()
    read = first.become(keys, lambda i: texts[i])
    first.become(keys[2:], lambda i: texts[i + 2])

    second.resume(keys[2:], first.words(keys[2:]))
    again = second.become(keys[2:], lambda i: texts[i + 2])

    assert (read, again) == (True, False)
    one, other = (lexicon.find(["commit logs", "overwrite"]) for lexicon in (first, second))
    assert one.scores.tolist() == other.scores.tolist()
    assert one.strength.tolist() == other.strength.tolist()
    assert "overwrit" not in first.words(keys[2:]).vocabulary


@pytest.mark.parametrize("vectors", [True, False])
def test_an_index_that_was_kept_ranks_a_changed_catalog_like_a_new_one(
    tmp_path: Path, *, vectors: bool
) -> None:
    def made(kept: Path | None) -> Search:
        return Search(WordLlama() if vectors else None, kept=kept)

    kept = tmp_path / "vectors.npz"
    made(kept).update(ENTRIES)
    now = [*ENTRIES[:0:-1], Entry("git:git_diff", "Shows what is not committed.", "repo")]
    search, fresh = made(kept), Search()
    search.update(now)
    fresh.update(now)

    assert first(search, "git_diff of what is not committed") == "git:git_diff"
    assert "files:write_file" not in [one.id for one in search.find("write a file", limit=8)]
    if not vectors:
        assert search.find("commits of a repo") == fresh.find("commits of a repo")


@pytest.mark.parametrize("content", [b"", b"not a file of ours", b"PK\x03\x04broken"])
def test_a_broken_file_of_vectors_is_made_again(tmp_path: Path, content: bytes) -> None:
    kept = tmp_path / "vectors.npz"
    kept.write_bytes(content)
    search = Search(WordLlama(), kept=kept)
    search.update(ENTRIES)

    assert first(search, "show the history of commits") == "git:git_log"


def test_schemas_of_any_shape_are_taken() -> None:
    shapes: list[Any] = [
        {},
        {"properties": None},
        {"properties": {"a": True}},
        {"properties": {"a": {"description": 7}}},
    ]
    for shape in shapes:
        tool = Tool(id=ToolId("a:b"), call=print, description="x", input_schema=shape)
        assert entry_of(tool).id == "a:b"


@pytest.mark.slow
def test_ten_thousand_tools_are_searched_in_milliseconds_and_opened_again_in_seconds(tmp_path: Path) -> None:
    many = [
        structs.replace(entry, id=f"s{n}{entry.id}", description=f"{entry.description} {n}")
        for n in range(1_250)
        for entry in ENTRIES
    ]
    Search(WordLlama(), kept=tmp_path / "v").update(many)
    began = time.process_time()
    search = Search(WordLlama(), kept=tmp_path / "v")
    search.update(many)
    opened = time.process_time() - began
    search.find("send an email")
    spent = []
    for _ in range(9):
        began = time.thread_time()
        search.find("send an email about the weather, then save the forecast in /tmp/report.md")
        spent.append(time.thread_time() - began)

    assert len(search) == 10_000
    assert opened < 2
    assert sorted(spent)[4] < 0.01


def test_a_tool_that_comes_in_between_leaves_the_others_as_they_were() -> None:
    search = Search(WordLlama())
    search.update(ENTRIES)
    coffee = Entry("kitchen:brew", "Brew a cup of coffee.", "cups")

    assert search.update([ENTRIES[0], coffee, *ENTRIES[1:]]) == 1
    assert first(search, "make me a coffee") == "kitchen:brew"
    assert first(search, "show the history of commits") == "git:git_log"
    assert first(search, "weather_forecast") == "weather:get_forecast"


def test_each_part_of_a_long_request_is_served(search: Search) -> None:
    request = (
        "Tell me how the shares of Nvidia do on the exchange and how the shares of Intel do on the exchange, "
        "compare the prices of both shares over the last quarter, then plot a bar chart, and mail it to Ada"
    )
    *best, next_best = search.find(request, limit=4)

    assert {one.id.partition(":")[0] for one in best} == {"charts", "mail", "stocks"}
    assert min(one.score for one in best) > next_best.score + 1


def test_vectors_of_another_embedder_are_not_used(tmp_path: Path) -> None:
    class Other(Counting):
        name = "another"

    kept = tmp_path / "vectors.npz"
    Search(WordLlama(), kept=kept).update(ENTRIES)
    other = Other()
    Search(other, kept=kept).update(ENTRIES)

    assert any("commit logs" in text for text in other.texts)


def test_nothing_of_the_package_that_could_download_is_imported() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from penstock.knowledge.embed import WordLlama; WordLlama().embed(['x']);"
        "sys.exit(any(n in sys.modules for n in ('wordllama', 'huggingface_hub', 'requests')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert (installed() / "weights").is_dir()
