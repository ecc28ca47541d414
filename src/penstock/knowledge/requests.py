"""What a request asks for: its telling words, and the work that it implies without naming it.

Who says "save it in plan.md" needs a tool that writes files; who says "tomorrow" needs one that
knows the day. Words, not models: cheap, the same every time, and easy to read.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_ENDINGS: Final = "md txt html htm py json js ts css log bib yaml yml xml tex sh ini toml sql rst"
_TEXTS: Final = frozenset(_ENDINGS.split())
_SPOKEN: Final = {
    "md": "write file markdown",
    "txt": "file text",
    "html": "write file html",
    "py": "write file python",
    "pptx": "ppt powerpoint presentation",
    "xlsx": "excel sheet spreadsheet",
    "docx": "word document",
    "pdf": "pdf document",
    "csv": "csv file",
    "png": "image",
    "jpg": "image",
    "svg": "image svg",
}
"""What a file's ending says in words."""

_READ: Final = {
    "xlsx": "read excel sheet",
    "xls": "read excel sheet",
    "docx": "get word document text",
    "pptx": "open presentation",
    "pdf": "read pdf document",
    "csv": "read csv file",
    "png": "read image file",
    "jpg": "read image file",
}
_WRITE: Final = {
    "xlsx": "write to excel sheet",
    "docx": "create word document, add paragraph",
    "pptx": "create presentation, add slide, save presentation",
    "pdf": "create document, convert to pdf",
    "csv": "write file",
    "png": "save image",
    "svg": "save image",
}
_PATH: Final = re.compile(
    r"(?<!\w)(?:~|\.{0,2})/[\w.~-]+(?:/[\w.~-]+)*/?"
    r"|\b[\w-]+\.(?:md|txt|html|py|json|log|csv|xlsx|docx|pptx|pdf|png|jpg)\b"
)
_OUT: Final = re.compile(
    r"\b(?:sav(?:e|ed|ing)|writ(?:e|ing)|stored?|export|output|generate|create|put|download)\b"
)
_IN: Final = re.compile(r"\b(?:read|open|load|from|under|convert|analy[sz]e|check|file)\b")
_SENTENCE: Final = re.compile(r"[.?!]\s")
_DAY: Final = re.compile(r"\b(?:today|tomorrow|next (?:week|month|\w+day)|near future)\b")
_BLOB: Final = re.compile(r"[A-Za-z0-9+/=]{80,}")
_HUMP: Final = re.compile(r"([a-z])([A-Z])")
_WORD: Final = re.compile(r"[a-z0-9]+|[\u4e00-\u9fff]")

_EMPTY: Final = """
a an the of to in on at for from by with and or is are was be been it its this that these those i
im me my we our you your he she they them their what which who whom how when where why do does did can could
would should will shall may might must have has had need want please help tell show give let lets us about
into as if than then so not no any some all each every just also s t m ve ll re d there here up out more
most very get make using use used via based within per"""
STOP: Final = frozenset(_EMPTY.split())
"""Words that are in every request and tell no tool from another."""

LONGEST: Final = 4_000
"""Characters of a request that are read."""


class Request(NamedTuple):
    text: str
    """In words, paths spelled out."""
    implied: tuple[str, ...]
    """Requests for work that goes without saying."""


def understood(request: str) -> Request:
    plain = _BLOB.sub(" ", request[:LONGEST])
    implied = [work for path in _PATH.finditer(plain) for work in _work(plain, path).split(", ")]
    if _DAY.search(plain.lower()):
        implied.append("get current time")
    return Request(_PATH.sub(_said, plain), tuple(dict.fromkeys(filter(None, implied))))


def terms(text: str) -> list[str]:
    """The telling words of a text, each once; `camelCase` and `snake_case` taken apart."""
    apart = _HUMP.sub(r"\1 \2", text).lower()
    return [word for word in dict.fromkeys(_WORD.findall(apart)) if word not in STOP]


def told(text: str) -> str:
    """A text without the words that say nothing."""
    apart = _HUMP.sub(r"\1 \2", text.replace("_", " ").replace("-", " "))
    return " ".join(word for word in re.findall(r"\w+", apart) if word.lower() not in STOP)


def _ending(path: str) -> str:
    name = path.rpartition("/")[2]
    return name.rpartition(".")[2].lower() if "." in name else ""


def _said(path: re.Match[str]) -> str:
    ending = _ending(path[0])
    return f" {_SPOKEN.get(ending, ending)} " if ending else " directory "


def _work(request: str, path: re.Match[str]) -> str:
    """What has to be done to a file that a request names."""
    ending = _ending(path[0])
    if not ending:
        return "list directory"
    before = _SENTENCE.split(request[: path.start()].lower())[-1]
    written = _last(_OUT, before) > _last(_IN, before)
    if ending in _TEXTS:
        return "write file content" if written else "read file contents"
    return (_WRITE if written else _READ).get(ending, "")


def _last(pattern: re.Pattern[str], text: str) -> int:
    return max((found.end() for found in pattern.finditer(text)), default=-1)
