"""Real tools and real requests: are the right tools found?

    python benchmarks/discovery.py --tools tools.jsonl --queries queries.jsonl --out predictions.jsonl

A tool is `{"id", "server", "name", "description", "inputSchema", "server_description"}`. Of a query only
`id` and `request` are read. What is written is `{"id", "ranked": [ids]}`, the best twenty first.
`--words-only` leaves the vectors out. `--gold FILE` adds hit@1 and hit@5 for each kind of request:
one that names a server, one that names a file, and the others; a hit is any tool that somebody chose.
`--metrics DIR` has `DIR/retrieval.py` score the predictions. `--scale N` measures a catalog of N tools.
"""

from __future__ import annotations

import argparse
import json
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
from penstock.knowledge.embed import WordLlama
from penstock.knowledge.requests import terms
from penstock.knowledge.search import Entry, Search, entry_of
from penstock.tools.base import Tool

DEPTH = 20


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


def scale(entries: Sequence[Entry], requests: Sequence[str], size: int) -> dict[str, float]:
    """How long a large catalog takes: to be made, to be opened again, to be searched."""
    many = [
        msgspec.structs.replace(entries[i % len(entries)], id=f"s{i // 30}{entries[i % len(entries)].id}")
        for i in range(size)
    ]
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder, "vectors.npz")
        times = {}
        for name in ("cold_s", "warm_s"):
            began = time.perf_counter()
            search = Search(WordLlama(), kept=kept)
            search.update(many)
            search.find("read a file")
            times[name] = round(time.perf_counter() - began, 3)
    took = []
    for request in requests:
        began = time.perf_counter()
        search.find(request)
        took.append((time.perf_counter() - began) * 1000)
    took.sort()
    return {
        "tools": size,
        **times,
        "search_p50_ms": round(statistics.median(took), 2),
        "search_p95_ms": round(took[int(0.95 * (len(took) - 1))], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tools", required=True)
    parser.add_argument("--queries", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--gold")
    parser.add_argument("--metrics")
    parser.add_argument("--words-only", action="store_true")
    parser.add_argument("--scale", type=int, default=0)
    options = parser.parse_args()

    tools = lines(options.tools)
    queries = [{"id": str(one["id"]), "request": one["request"]} for one in lines(options.queries)]
    entries = [entry(tool) for tool in tools]
    names = {made.id: tool["id"] for made, tool in zip(entries, tools, strict=True)}
    search = Search(None if options.words_only else WordLlama())
    search.update(entries)
    ranked = {
        query["id"]: [names[found.id] for found in search.find(query["request"], limit=DEPTH)]
        for query in queries
    }
    with Path(options.out).open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"id": id, "ranked": best}) + "\n" for id, best in ranked.items())
    if options.gold:
        servers = [frozenset(terms(made.server)) for made in entries]
        gold = {str(one["id"]): one["gold"] for one in lines(options.gold)}
        print(json.dumps(hits(queries, ranked, gold, servers)))
    if options.metrics:
        script = [sys.executable, str(Path(options.metrics, "retrieval.py"))]
        subprocess.run([*script, "--pred", options.out, "--gold", options.queries], check=True)
    if options.scale:
        print(json.dumps(scale(entries, [query["request"] for query in queries], options.scale)))


if __name__ == "__main__":
    main()
