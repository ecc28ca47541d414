"""Reads what lies in a folder: JSON by plan, XML when a rule asks for it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import penstock as ps

HERE = Path(__file__).parent


@ps.tool(effect="read")
def list_files(folder: str = "") -> dict[str, list[str]]:
    return {"files": sorted(str(path) for path in Path(folder or HERE / "inbox").iterdir())}


@ps.tool(effect="read")
def parse_json(path: str) -> dict[str, Any]:
    orders: list[dict[str, Any]] = json.loads(Path(path).read_text(encoding="utf-8"))
    return {"file": Path(path).name, "orders": orders}


@ps.tool(effect="read")
def parse_xml(path: str) -> dict[str, Any]:
    tree = ET.parse(path)  # noqa: S314 - our own file
    orders = [
        {"item": order.get("item"), "count": int(order.get("count", 0))} for order in tree.iter("order")
    ]
    return {"file": Path(path).name, "orders": orders}


@ps.tool(effect="read")
def report(tables: list[Any]) -> dict[str, Any]:
    """One line for each file. What rules feed in comes as further lists beside the first."""
    files = [table for part in tables for table in (part if isinstance(part, list) else [part])]
    total = sum(order["count"] for table in files for order in table["orders"])
    return {"files": [table["file"] for table in files], "total": total}
