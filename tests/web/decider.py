"""A program that decides, knowing only HTTP: `python decider.py URL TOKEN RUN`.

Watches the run's events and answers every question in it until the run ends. Comes back where it
was when the stream breaks off.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from typing import Any

VERBS = {"approval": "approve", "ail": "approve", "gate": "accept", "budget": "raise"}


def main(url: str, token: str, run: str) -> None:
    last = "0"
    while True:
        asking = request(f"{url}/api/runs/{run}/events", token, **{"Last-Event-ID": last})
        with urllib.request.urlopen(asking) as stream:  # noqa: S310 - our own server
            for raw in stream:
                name, _, value = raw.decode().rstrip("\n").partition(": ")
                if name == "id":
                    last = value
                elif (name, value) == ("event", "end"):
                    return
                elif name == "data":
                    decide(url, token, json.loads(value))


def decide(url: str, token: str, event: dict[str, Any]) -> None:
    if event.get("type") != "decision_required":
        return
    verb = VERBS[event["kind"]]
    body = json.dumps({"verb": verb, "by": "decider.py"}).encode()
    answer = request(f"{url}/api/decisions/{event['decision']}", token, body)
    with urllib.request.urlopen(answer) as said:  # noqa: S310 - our own server
        assert json.load(said)["accepted"]
    print(event["kind"], verb, flush=True)  # noqa: T201 - for whoever started us


def request(url: str, token: str, body: bytes | None = None, **headers: str) -> urllib.request.Request:
    headers |= {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    return urllib.request.Request(url, body, headers)  # noqa: S310 - our own server


if __name__ == "__main__":
    main(*sys.argv[1:])
