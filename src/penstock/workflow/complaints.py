"""What CEL complains about, in words that tell an author what to do.

Works on the messages alone: it compiles and evaluates nothing. A message it does not know
is passed on without its decoration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from penstock.errors import ExpressionError
from penstock.workflow.names import Scope, nearest, unknown
from penstock.workflow.syntax import STRING

_PLACE = r"ERROR: <input>:(-?\d+):(-?\d+): (.*)"
_UNEXPECTED = r"(?:[a-z]+ input|token recognition error at:|no viable alternative at input) '(.*)'"
_CODE = r"\A[A-Z_]+: |\s*\[[A-Z_]+\]\Z"

_FUNCTIONS: Final = (
    "all", "base64.decode", "base64.encode", "bool", "bytes", "cel.bind", "charAt", "coalesce",
    "contains", "distinct", "double", "duration", "dyn", "endsWith", "exists", "existsOne", "exists_one",
    "filter", "flatten", "format", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear",
    "getFullYear", "getHours", "getMilliseconds", "getMinutes", "getMonth", "getSeconds", "has",
    "indexOf", "int", "join", "lastIndexOf", "lowerAscii", "map", "matches", "math.abs", "math.ceil",
    "math.floor", "math.greatest", "math.least", "math.round", "optMap", "optional.none", "optional.of",
    "orValue", "quote", "replace", "reverse", "sets.contains", "sets.intersects", "size", "slice", "sort",
    "sortBy", "split", "startsWith", "string", "substring", "timestamp", "transformList", "trim", "type",
    "uint", "upperAscii",
)  # fmt: skip

_ELSEWHERE: Final[Mapping[str, str]] = {
    "len": "size",
    "length": "size",
    "count": "size",
    "lower": "lowerAscii",
    "toLowerCase": "lowerAscii",
    "upper": "upperAscii",
    "toUpperCase": "upperAscii",
    "strip": "trim",
    "str": "string",
    "float": "double",
    "any": "exists",
    "some": "exists",
    "every": "all",
    "includes": "contains",
    "starts_with": "startsWith",
    "ends_with": "endsWith",
    "max": "math.greatest",
    "min": "math.least",
}
"""What other languages call it."""

_OPERATORS: Final[Mapping[str, str]] = {"and": "&&", "or": "||", "not": "!", "=": "==", "===": "=="}


def explain_check(message: str, source: str, scope: Scope) -> ExpressionError:
    """The error for a text that CEL refused to compile."""
    found = re.search(_PLACE, message)
    if found is None or "recursion" in message:
        return ExpressionError(*_whole(re.sub(_CODE, "", message)))
    line, column, text = int(found[1]), int(found[2]), re.sub(_CODE, "", found[3])
    place = sum(len(one) + 1 for one in source.split("\n")[: line - 1]) + column
    if name := re.match(r"undeclared reference to '\.?([^']*)'", text):
        return _unknown(name[1], source, scope, place)
    if overload := re.match(r"found no matching overload for '(.*)' applied to '(.*)'", text):
        return ExpressionError(*_mismatch(overload[1], overload[2]), column=place)
    if text.startswith("Syntax error: "):
        return ExpressionError(*_syntax(text.removeprefix("Syntax error: "), source), column=place)
    return ExpressionError(text, column=place)


def _whole(message: str) -> tuple[str, str]:
    if "recursion" in message:
        return "the expression is nested too deeply", "CEL allows 32 levels: split it over steps"
    return message, ""


def _unknown(name: str, source: str, scope: Scope, column: int) -> ExpressionError:
    if not re.search(rf"\b{re.escape(name)}\s*\(", source):
        root = name.partition(".")[0]
        return unknown(root, scope, source.rfind(root, 0, column + len(root)) + 1)
    if name in _FUNCTIONS:
        return ExpressionError(f"{name}() does not take these arguments", column=column)
    near = _ELSEWHERE.get(name) or nearest(name, _FUNCTIONS)
    return ExpressionError(f"unknown function {name}", f"did you mean {near}?" if near else "", column=column)


def _operator(function: str) -> str:
    if function == "_[_]":
        return "[…]"
    return function.replace("_", "").replace("@", "") if re.search(r"\W", function) else f"{function}()"


def _mismatch(function: str, types: str) -> tuple[str, str]:
    types = re.sub(r"wrapper\((\w+)\)", r"\1", types)
    if function == "_?_:_" and not types.startswith(("(bool", "(dyn")):
        return f"what stands before ? is {types[1:].split(',')[0]}, not true or false", ""
    if function == "_?_:_":
        return f"the parts of ?: do not fit together: {types}", "wrap one side in dyn() if they really differ"
    hint = ""
    if re.fullmatch(r"\((int|double), (list\()?(int|double)\)+", types):
        hint = "write 2.0 for a number, 2 for an integer, or convert with double() or int()"
    elif "null_type" in types:
        hint = "this can never be null"
    return f"{_operator(function)} does not take {types}", hint


def _syntax(message: str, source: str) -> tuple[str, str]:
    message = re.sub(r" expecting .*", "", message)
    if "'<EOF>'" in message:
        message = "the expression ends too early" if source.strip() else "the expression is empty"
    elif found := re.match(_UNEXPECTED, message):
        message = f"unexpected {found[1].strip()}"
    if "${" in source:
        return message, "an expression is written without ${ } inside"
    words = re.sub(STRING, "", source)
    for word, meant in _OPERATORS.items():
        if re.search(rf"(?<![=!<>\w.]){re.escape(word)}(?![=\w])", words):
            return message, f"CEL writes {meant} for {word}"
    return message, ""


_AT_RUN_TIME: Final = (
    (r'No value with name "(.*)" found', r"\1: no such value"),
    (r"Key not found in map : (.*)", r"no such key: \1"),
    (r"Applying SELECT to non-message type", r"a field was read of something that is no object"),
    (r"Index error: index=(-?\d+) size=(\d+)", r"index \1 is outside a list of \2"),
    (r"Iteration budget exceeded", r"the expression loops more than 10,000 times"),
    (r"overloads found : <iter_range>", r"map() or the like was used on something that is no list"),
    (r"overloads found : <jump_condition>", r"what stands before ? is not true or false"),
    (r"Invalid container type: '(.*)'", r"[…] was used on something of type \1"),
    (r"overloads found : [_@]*([^\s_(]\S*?)_?(\(.*\))$", r"\1 does not take \2"),
    (r"overloads found : [_@]*([^\s_(]\S*?)_?$", r"\1 does not take these values"),
    (r"Integer value '(.*)' out of range for '(.*)'", r"\2: \1 does not fit into 64 bits"),
    (r"Non-CEL value type for '(.*)': (.*)\.", r"\1: a \2 is not JSON"),
    (r"construction from null is not valid", r"a text holds a lone surrogate: it is not Unicode"),
    (r"Unable to convert function return value", r"the result is optional: end it with .orValue(…)"),
)


def explain_run(message: str, paths: Mapping[str, str]) -> str:
    """What went wrong during an evaluation. `paths` gives the author's words for variables."""
    message = re.sub(r"_[a-z]\d\d", lambda m: paths.get(m[0], m[0]), re.sub(_CODE, "", message))
    message = message.replace("int64", "int").replace("null_type", "null")
    for pattern, words in _AT_RUN_TIME:
        if found := re.search(pattern, message):
            return found.expand(words)
    return message
