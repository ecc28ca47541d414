"""An author who takes advice, and a critic who gives it. No model, no network."""

from __future__ import annotations

from typing import Any

import penstock as ps

ADVICE = {
    "say what it is": "A penstock is a pipe that leads water to a turbine.",
    "say what it is for": "It keeps the water within its banks, whatever the river does.",
    "end with a number": "At the dam of Itaipu each one is 10.5 metres wide.",
}


@ps.tool(effect="read")
async def write(topic: str, draft: dict[str, Any] | None, critique: dict[str, Any] | None) -> dict[str, Any]:
    """The first draft is a title. Every later one follows one more piece of advice."""
    if draft is None or critique is None:
        return {"round": 1, "text": f"On {topic}."}
    return {"round": draft["round"] + 1, "text": f"{draft['text']} {ADVICE[critique['advice']]}"}


@ps.tool(effect="read")
async def read(draft: dict[str, Any]) -> dict[str, str]:
    """What is still missing, the first thing first."""
    missing = [advice for advice, sentence in ADVICE.items() if sentence not in draft["text"]]
    return {"verdict": "REVISE", "advice": missing[0]} if missing else {"verdict": "VERIFIED", "advice": ""}


@ps.tool(effect="read")
async def publish(draft: dict[str, Any], critique: dict[str, Any]) -> dict[str, Any]:
    return {"text": draft["text"], "rounds": draft["round"], "open": critique["advice"]}
