"""Real tools and real requests: are the right tools found?

    python benchmarks/discovery.py --tools tools.jsonl --queries queries.jsonl --out predictions.jsonl

A tool is `{"id", "server", "name", "description", "inputSchema", "server_description"}`. Of a query only
`id` and `request` are read. What is written is `{"id", "ranked": [ids]}`, the best twenty first.
`--embedding minilm` takes other vectors, `--words-only` none. `--gold FILE` adds hit@1 and hit@5 for each
kind of request: one that names a server, one that names a file, and the others; a hit is any tool that
somebody chose. `--folds K` adds nDCG@10 with the two constants of the search chosen on the other folds.
`--metrics DIR` has `DIR/retrieval.py` score the predictions. `--speed N` measures a catalog of N tools.
`--tokens` compares what the tools cost by estimate and by the tokenizer of `penstock[tokens]`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.ids import ToolId
from penstock.knowledge.embed import Embedder, Matrix, WordLlama, chosen
from penstock.knowledge.entries import Entry, entry_of
from penstock.knowledge.requests import terms
from penstock.knowledge.search import Mix, Search
from penstock.planner.context import cost_of, counter, estimate
from penstock.tools.base import Tool

DEPTH = 20
WORDS = (0.2, 0.3, 0.4, 0.5, 0.6)
PARTS = (0.0, 0.25, 0.5, 0.75, 1.0)
REPEATS = 20


class Remembering:
    """Makes the vectors of a text once."""

    def __init__(self, embedder: Embedder) -> None:
        self.name = embedder.name
        self._embedder = embedder
        self._made: dict[str, Matrix] = {}

    def embed(self, texts: Sequence[str]) -> Matrix:
        import numpy as np

        new = [text for text in dict.fromkeys(texts) if text not in self._made]
        self._made.update(zip(new, self._embedder.embed(new), strict=True))
        return np.stack([self._made[text] for text in texts])


def lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]


def entry(tool: Mapping[str, Any]) -> Entry:
    made = Tool(
        id=ToolId(f"{tool['server'].replace(':', '-')}:{tool['name']}"),
        call=lambda: None,
        description=tool.get("description") or "",
        input_schema=tool.get("inputSchema") or {},
    )
    return entry_of(made, tool.get("server_description") or "")


def kind(request: str, servers: Sequence[frozenset[str]]) -> str:
    words = frozenset(terms(request))
    if any(server and server <= words for server in servers):
        return "names a server"
    return "names a file" if "/" in request else "plain"


def hits(
    queries: Sequence[Mapping[str, Any]],
    ranked: Mapping[str, Sequence[str]],
    gold: Mapping[str, Any],
    servers: Sequence[frozenset[str]],
) -> dict[str, Any]:
    rows: dict[str, list[tuple[bool, bool]]] = {}
    for query in queries:
        chosen = {id for slot in gold[query["id"]] for id in ([slot] if isinstance(slot, str) else slot)}
        found = ranked[query["id"]]
        hit = bool(chosen & set(found[:1])), bool(chosen & set(found[:5]))
        rows.setdefault("all", []).append(hit)
        rows.setdefault(kind(query["request"], servers), []).append(hit)
    return {
        name: {"n": len(some), "hit@1": round(_share(some, 0), 3), "hit@5": round(_share(some, 1), 3)}
        for name, some in rows.items()
    }


def _share(rows: Sequence[tuple[bool, bool]], place: int) -> float:
    return sum(row[place] for row in rows) / len(rows)


def ndcg(ranked: Sequence[str], slots: Sequence[Any]) -> float:
    """Each slot counts once, by the first of its tools."""
    left = [{slot} if isinstance(slot, str) else set(slot) for slot in slots]
    gained = 0.0
    for place, id in enumerate(ranked[:10]):
        slot = next((one for one in left if id in one), None)
        if slot is not None:
            left.remove(slot)
            gained += 1 / math.log2(place + 2)
    return gained / sum(1 / math.log2(place + 2) for place in range(min(len(slots), 10)))


def folded(scores: Mapping[Mix, Sequence[float]], folds: int) -> dict[str, Any]:
    """Constants chosen on the other folds, and what they are worth on each; many times over."""
    count = len(scores[Mix()])
    chance = random.Random(0)  # noqa: S311 - the same each time
    means = []
    for _ in range(REPEATS):
        order = chance.sample(range(count), count)
        kept: list[float] = []
        for fold in range(folds):
            aside = order[fold::folds]
            rest = [i for i in order if i not in aside]
            best = max(scores, key=lambda mix, rest=rest: sum(scores[mix][i] for i in rest))  # type: ignore[misc]
            kept += [scores[best][i] for i in aside]
        means.append(statistics.fmean(kept))
    every = {mix: statistics.fmean(values) for mix, values in scores.items()}
    return {
        "folds": folds,
        "ndcg@10_default": round(every[Mix()], 4),
        "ndcg@10_cross_validated": round(statistics.fmean(means), 4),
        "spread": round(statistics.pstdev(means), 4),
        "worst_constants": round(min(every.values()), 4),
        "best_constants": round(max(every.values()), 4),
    }


def speed(entries: Sequence[Entry], requests: Sequence[str], size: int) -> dict[str, float]:
    """How long a large catalog takes: to be made, to be opened again, to be searched."""
    many = [
        msgspec.structs.replace(entries[i % len(entries)], id=f"s{i // 30}{entries[i % len(entries)].id}")
        for i in range(size)
    ]
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder, "vectors.npz")
        times = {}
        for name in ("cold", "warm"):
            began, spent = time.perf_counter(), time.process_time()
            search = Search(WordLlama(), kept=kept)
            search.update(many)
            search.find("read a file")
            times[f"{name}_s"] = round(time.perf_counter() - began, 3)
            times[f"{name}_cpu_s"] = round(time.process_time() - spent, 3)
    took = []
    for request in requests:
        began, spent = time.perf_counter(), time.thread_time()
        search.find(request)
        took.append(((time.perf_counter() - began) * 1000, (time.thread_time() - spent) * 1000))
    for name, values in (("search", [one[0] for one in took]), ("search_cpu", [one[1] for one in took])):
        values.sort()
        times[f"{name}_p50_ms"] = round(statistics.median(values), 2)
        times[f"{name}_p95_ms"] = round(values[int(0.95 * (len(values) - 1))], 2)
    return {"tools": size, **times}


def tokens(tools: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """How far estimates are from exact counts, tool by tool and in all, in percent."""
    count, exact = counter()
    if not exact:
        raise SystemExit("exact counts need a tokenizer: pip install 'penstock[tokens]'")
    plain = [
        {"id": tool["id"], "description": tool.get("description"), "input_schema": tool.get("inputSchema")}
        for tool in tools
    ]
    pairs = [(cost_of(one, estimate), cost_of(one, count)) for one in plain]
    off = sorted(100 * (guess / real - 1) for guess, real in pairs)
    return {
        "tools": len(tools),
        "all_off": round(100 * (sum(one[0] for one in pairs) / sum(one[1] for one in pairs) - 1), 1),
        "median_off": round(statistics.median(off), 1),
        "p5_off": round(off[int(0.05 * (len(off) - 1))], 1),
        "p95_off": round(off[int(0.95 * (len(off) - 1))], 1),
        "within_25": round(100 * sum(abs(one) <= 25 for one in off) / len(off), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tools", required=True)
    parser.add_argument("--queries", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--gold")
    parser.add_argument("--metrics")
    parser.add_argument("--embedding", default="embedded")
    parser.add_argument("--words-only", action="store_true")
    parser.add_argument("--folds", type=int, default=0)
    parser.add_argument("--speed", type=int, default=0)
    parser.add_argument("--tokens", action="store_true")
    options = parser.parse_args()

    tools = lines(options.tools)
    queries = [{"id": str(one["id"]), "request": one["request"]} for one in lines(options.queries)]
    entries = [entry(tool) for tool in tools]
    names = {made.id: tool["id"] for made, tool in zip(entries, tools, strict=True)}
    embedder = None if options.words_only else chosen(options.embedding)

    def ranking(mix: Mix) -> dict[str, list[str]]:
        search = Search(embedder, mix=mix)
        search.update(entries)
        return {
            query["id"]: [names[found.id] for found in search.find(query["request"], limit=DEPTH)]
            for query in queries
        }

    ranked = ranking(Mix())
    with Path(options.out).open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"id": id, "ranked": best}) + "\n" for id, best in ranked.items())
    if options.gold:
        servers = [frozenset(terms(made.server)) for made in entries]
        gold = {str(one["id"]): one["gold"] for one in lines(options.gold)}
        print(json.dumps(hits(queries, ranked, gold, servers)))
    if options.metrics:
        script = [sys.executable, str(Path(options.metrics, "retrieval.py"))]
        subprocess.run([*script, "--pred", options.out, "--gold", options.queries], check=True)
    if options.gold and options.folds:
        embedder = embedder if isinstance(embedder, WordLlama | None) else Remembering(embedder)
        scores = {
            mix: [ndcg(best, gold[id]) for id, best in ranking(mix).items()]
            for mix in itertools.starmap(Mix, itertools.product(WORDS, PARTS))
        }
        print(json.dumps(folded(scores, options.folds)))
    if options.speed:
        print(json.dumps(speed(entries, [query["request"] for query in queries], options.speed)))
    if options.tokens:
        print(json.dumps(tokens(tools)))


if __name__ == "__main__":
    main()
