"""Providers' errors as they were recorded: what our classifier makes of each, against what it was.

    python benchmarks/llm_errors.py --data DATA [--out predictions.jsonl]

`DATA` has `llm_errors/fixtures.jsonl` (responses with their provider, status, headers and body) and
`metrics/llm_errors.py`, which scores. A prediction is `{"id", "class", "retry", "wait_s"}`. Only the
provider's name and the response are looked at, through what the product calls: nothing is decided
here but how our kinds are called in the metric.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.models.endpoint import KNOWN
from penstock.models.errors import Fault, FaultKind, classify, refused
from penstock.models.providers.dialect import InBand
from penstock.models.providers.hosted import DIALECTS

NAMES: Final[Mapping[FaultKind, str]] = {
    "context_length": "bad_request",
    "content_filter": "bad_request",
    "transport": "server_error",
    "timeout": "server_error",
}
"""Kinds that the metric has no name for; the others are called the same."""


def judged(row: Mapping[str, Any]) -> Fault | None:
    """The fault in a response; None where it is an answer."""
    body = row["body"] if row["body"] is not None else ""
    raw = (body if isinstance(body, str) else json.dumps(body)).encode()
    headers = {name: str(value) for name, value in row["headers"].items()}
    if row["status"] >= 300:
        return classify(row["provider"], row["status"], headers, raw)
    if not raw:  # only the headers were recorded
        return None
    return within(row["provider"], str(row.get("uri", "")), headers, raw)


def within(provider: str, url: str, headers: Mapping[str, str], raw: bytes) -> Fault | None:
    """The fault in a response whose status is a success."""
    speech = KNOWN[provider].speech if provider in KNOWN else "openai"
    if speech == "responses" and not url.endswith("/responses"):
        speech = "openai"
    try:
        said = DIALECTS[speech].answer(raw)
    except InBand as error:
        return classify(provider, 200, headers, msgspec.json.encode({"error": error.error}))
    except msgspec.DecodeError:
        return Fault(kind="server_error", action="fail_over")
    return refused(said.refused)


def prediction(row: Mapping[str, Any]) -> dict[str, Any]:
    fault = judged(row)
    if fault is None:
        return {"id": row["id"], "class": "ok", "retry": False, "wait_s": None}
    kind = NAMES.get(fault.kind, fault.kind)
    return {"id": row["id"], "class": kind, "retry": fault.retryable, "wait_s": fault.retry_after}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="a folder with llm_errors/ and metrics/")
    parser.add_argument("--out", type=Path, help="where to write the predictions; else nowhere to stay")
    given = parser.parse_args()
    gold = given.data / "llm_errors" / "fixtures.jsonl"
    rows = [json.loads(line) for line in gold.read_text(encoding="utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        out = given.out or Path(folder) / "predictions.jsonl"
        out.write_text("".join(json.dumps(prediction(row)) + "\n" for row in rows), encoding="utf-8")
        scorer = given.data / "metrics" / "llm_errors.py"
        subprocess.run(
            [sys.executable, "-B", str(scorer), "--pred", str(out), "--gold", str(gold)], check=True
        )


if __name__ == "__main__":
    main()
