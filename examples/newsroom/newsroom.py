"""What the steps of newsroom.yaml do: plain functions, no network, no model.

Each function takes its arguments from the step's `with` and returns JSON. `desk` is the only
pretence: reading takes a person time, and without it the live view would be over in a blink.
"""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import penstock as ps

HERE = Path(__file__).parent
TODAY = date(2025, 11, 13)
STOP = frozenset(
    re.findall(
        r"\w+",
        """a about after again all and any are as at be because been before but by can each for from had has
        have he her his if in into is it its last more most no not of on or other out over she so some than
        that the their them then there they this to two under up was we were when which who will with would
        year""",
    )
)


async def desk(seconds: float) -> None:
    """Someone has to read it."""
    await asyncio.sleep(seconds)


@ps.tool(effect="read")
def collect(folder: str) -> list[str]:
    """The articles on the desk."""
    found = sorted(str(path) for path in Path(folder or HERE / "articles").glob("*.txt"))
    if not found:
        msg = f"no articles in {folder}"
        raise FileNotFoundError(msg)
    return found


@ps.tool(effect="read")
async def wire(task: ps.Task) -> dict[str, Any]:
    """What readers care about today, from the wire service. Its line is busy the first time."""
    await desk(0.4)
    if task.attempt == 1:
        msg = "the wire service is busy"
        raise ConnectionError(msg)
    known: dict[str, Any] = json.loads((HERE / "wire.json").read_text(encoding="utf-8"))
    return known


@ps.tool(effect="read")
async def clean(path: str) -> dict[str, Any]:
    """An article without tags, entities and stray spaces."""
    await desk(0.3)
    title, when, section, body = _parts(await asyncio.to_thread(Path(path).read_text, encoding="utf-8"))
    text = html.unescape(re.sub(r"<[^>]+>", " ", body)).replace("\N{NO-BREAK SPACE}", " ")
    return {
        "slug": Path(path).stem,
        "title": title,
        "date": when,
        "section": section,
        "text": " ".join(text.split()),
    }


@ps.tool(effect="read")
async def extract(article: dict[str, Any]) -> dict[str, str]:
    """The sentence that says most: the one whose words the article keeps coming back to."""
    await desk(0.4)
    sentences = _sentences(article["text"])
    weight = Counter(_words(article["title"] + " " + article["text"]))

    def says(sentence: str) -> float:
        words = _words(sentence)
        return sum(weight[word] for word in words) / (len(words) + 3)

    # The opening sentence of a news story is written to carry it, so it gets a head start.
    best = max(range(len(sentences)), key=lambda n: says(sentences[n]) * (1.25 if n == 0 else 1.0))
    return {"slug": article["slug"], "sentence": sentences[best]}


@ps.tool(effect="read")
def vocabulary(articles: list[dict[str, Any]]) -> list[str]:
    """The words that most articles of the day share."""
    seen: Counter[str] = Counter()
    for article in articles:
        seen.update(set(_words(article["text"])))
    return [word for word, _ in sorted(seen.items(), key=lambda pair: (-pair[1], pair[0]))[:6]]


@ps.tool(effect="read")
async def score(article: dict[str, Any], interest: dict[str, float], common: list[str]) -> dict[str, Any]:
    """How much the story deserves the front page: what readers want, how fresh, how many figures."""
    await desk(0.25)
    words = Counter(_words(article["title"] + " " + article["text"]))
    wanted = sum(value * min(words[word], 3) for word, value in interest.items())
    fresh = max(0.0, 5.0 - (TODAY - date.fromisoformat(article["date"])).days)
    figures = 0.3 * len(figures_in(article["text"]))
    shared = 0.2 * sum(words[word] > 0 for word in common)
    return {**article, "score": round(wanted + fresh + figures - shared, 2)}


@ps.tool(effect="read")
def rank(scores: list[dict[str, Any]], stories: int) -> dict[str, Any]:
    """The best stories first, no section more than twice."""
    taken: list[dict[str, Any]] = []
    sections: Counter[str] = Counter()
    for article in sorted(scores, key=lambda one: (-one["score"], one["slug"])):
        if len(taken) < stories and sections[article["section"]] < 2:
            taken.append(article)
            sections[article["section"]] += 1
    return {"lead": taken[0], "stories": taken}


@ps.tool(effect="read")
async def figures(text: str) -> list[str]:
    await desk(0.5)
    return figures_in(text)


@ps.tool(effect="read")
async def people(text: str) -> list[str]:
    """Two capitalised words in a row, past the start of a sentence: mostly people and places."""
    await desk(0.7)
    found = re.findall(r"(?<![.!?]\s)(?<!^)\b([A-Z][a-z]+ [A-Z][a-z]+)\b", text)
    return list(dict.fromkeys(found))


@ps.tool(effect="read")
async def sheet(title: str, figures: list[str], people: list[str]) -> str:
    await desk(0.3)
    return f"{title}: figures {', '.join(figures) or 'none'}; names {', '.join(people) or 'none'}"


@ps.tool(effect="read")
def alert(title: str) -> str:
    return f"BREAKING: {title}"


@ps.tool(effect="read")
def compile_brief(
    ranking: dict[str, Any], summaries: list[dict[str, str]], facts: str, alert: str | None
) -> str:
    """The morning brief, as Markdown."""
    sentence = {each["slug"]: each["sentence"] for each in summaries}
    lines = [f"# The morning brief, {TODAY:%d %B %Y}", ""]
    if alert:
        lines += [alert, ""]
    for story in ranking["stories"]:
        lines += [
            f"## {story['title']}",
            f"{sentence[story['slug']]} ({story['section']}, {story['score']})",
            "",
        ]
    return "\n".join([*lines, f"Fact sheet. {facts}."])


@ps.tool(effect="idempotent")
def publish(brief: str, path: str) -> dict[str, Any]:
    written = Path(path).write_text(brief + "\n", encoding="utf-8")
    return {"path": path, "characters": written}


def figures_in(text: str) -> list[str]:
    """Numbers with the word that follows them: `48 steel`, `3.2 million`, `7 percent`."""
    found = re.findall(r"\b(\d+(?:[.,]\d+)*)(?:\s([a-z]+))?", text)
    return [f"{number} {word}" if word and word not in STOP else number for number, word in found]


def _parts(text: str) -> tuple[str, str, str, str]:
    head, _, body = text.partition("\n\n")
    title, *rest = head.splitlines()
    fields = dict(line.split(": ", 1) for line in rest)
    return title, fields["Date"], fields["Section"], body


def _sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.!?])\s+(?=[\"A-Z])", text)


def _words(text: str) -> list[str]:
    return [word for word in re.findall(r"[a-z]{3,}", text.lower()) if word not in STOP]
