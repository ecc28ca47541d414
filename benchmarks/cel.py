"""CEL conformance: run the rows of a tests.jsonl through our expression layer.

    python benchmarks/cel.py --tests tests.jsonl --out predictions.jsonl

A row has an `expr`, typed `bindings`, a `type_env`, a `container` and `disable_check`. A
prediction is `{"id", "error", "value"}` with the value as `cel.expr.Value` JSON. Rows go through
the environments and the planning that workflows use; only the encoding of typed results is
done here, because workflows know JSON alone.
"""

from __future__ import annotations

import argparse
import json
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cel_expr_python import cel  # type: ignore[import-untyped]

from penstock.workflow.expr import environment, plan

PRIMITIVES = {
    "BOOL": cel.Type.BOOL,
    "INT64": cel.Type.INT,
    "UINT64": cel.Type.UINT,
    "DOUBLE": cel.Type.DOUBLE,
    "STRING": cel.Type.STRING,
    "BYTES": cel.Type.BYTES,
}
INFINITIES = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}


def declared(kind: Mapping[str, Any]) -> Any:
    """A `cel.expr.Type` in the library's terms; what has none there is dynamic."""
    match kind:
        case {"primitive": name}:
            return PRIMITIVES[name]
        case {"list_type": {"elem_type": element}}:
            return cel.Type.List(declared(element))
        case {"map_type": {"key_type": key, "value_type": value}}:
            return cel.Type.Map(declared(key), declared(value))
        case {"null": _}:
            return cel.Type.NULL
        case {"message_type": name}:
            return cel.Type(name)
        case _:
            return cel.Type.DYN


def decoded(value: Mapping[str, Any]) -> Any:
    """A `cel.expr.Value` as the Python value to bind."""
    match value:
        case {"int64_value": number} | {"uint64_value": number}:
            return int(number)
        case {"double_value": number}:
            return float(number)
        case {"bytes_value": text}:
            return bytearray(b64decode(text))
        case {"list_value": items}:
            return [decoded(item) for item in items.get("values", ())]
        case {"map_value": items}:
            return {decoded(entry["key"]): decoded(entry["value"]) for entry in items.get("entries", ())}
        case {"bool_value": plain} | {"string_value": plain} | {"null_value": plain}:
            return plain
        case _:
            message = f"cannot bind {value}"
            raise ValueError(message)


def encoded(result: Any) -> dict[str, Any]:
    """A typed result as a `cel.expr.Value`."""
    kind = result.type().name().partition("<")[0]
    if kind == "NULL":  # never asked for: the library does not own the None it would give out
        return {"null_value": None}
    value = result.value()
    match kind:
        case "BOOL" | "STRING":
            return {f"{kind.lower()}_value": value}
        case "INT" | "UINT":
            return {f"{kind.lower()}64_value": str(value)}
        case "DOUBLE":
            return {"double_value": INFINITIES.get(str(value), value)}
        case "BYTES":
            return {"bytes_value": b64encode(value).decode()}
        case "LIST":
            return {"list_value": {"values": [encoded(item) for item in value]}}
        case "MAP":
            entries = [{"key": encoded_key(key), "value": encoded(item)} for key, item in value.items()]
            return {"map_value": {"entries": entries}}
        case "TYPE":
            return {"type_value": value.name().lower().partition("<")[0]}
        case _:
            message = f"cannot encode {result}"
            raise ValueError(message)


def encoded_key(key: bool | int | str) -> dict[str, Any]:
    if isinstance(key, bool):
        return {"bool_value": key}
    return {"int64_value": str(key)} if isinstance(key, int) else {"string_value": key}


def evaluated(row: Mapping[str, Any]) -> dict[str, Any]:
    """One row, as a workflow's expression would go: checked, planned, bound, evaluated."""
    variables = {one["name"]: declared(one["ident"]["type"]) for one in row["type_env"] if "ident" in one}
    if not row["disable_check"]:
        environment(variables, checking=True, container=row["container"]).compile(row["expr"])
    program = plan(environment(variables, container=row["container"]), row["expr"])
    result = program.eval(data={name: decoded(one["value"]) for name, one in row["bindings"].items()})
    if result.type().name() == "ERROR":
        raise ValueError(result.value())
    return encoded(result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--tests", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    rows = [json.loads(line) for line in given.tests.read_text("utf-8").splitlines() if line.strip()]
    began = time.process_time()
    with given.out.open("w", encoding="utf-8") as out:
        for row in rows:
            try:
                prediction = {"id": row["id"], "error": False, "value": evaluated(row)}
            except (RuntimeError, TypeError, ValueError, KeyError, OverflowError) as error:
                prediction = {"id": row["id"], "error": True, "value": None, "message": str(error)}
            out.write(json.dumps(prediction) + "\n")
    print(f"{len(rows)} rows in {time.process_time() - began:.1f} s of CPU")


if __name__ == "__main__":
    main()
