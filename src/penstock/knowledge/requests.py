"""What a request asks for: its telling words, its parts, and the work that it implies without naming it.

Who says "save it in plan.md" needs a tool that writes files; who says "tomorrow" needs one that
knows the day. Words, not models: cheap, the same every time, and easy to read.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_KINDS: Final = {
    "md": "markdown file",
    "txt": "text file",
    "html": "html file",
    "py": "python file",
    "csv": "csv file",
    "xlsx": "excel sheet",
    "xls": "excel sheet",
    "docx": "word document",
    "pptx": "powerpoint ppt presentation",
    "pdf": "pdf document",
    "png": "image",
    "jpg": "image",
    "svg": "svg image",
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
    "png": "save image",
    "jpg": "save image",
    "svg": "save image",
}
"""Files that are not plain text need tools of their own."""

_PATH: Final = re.compile(
    r"(?<!\w)(?:~|\.{0,2})/[\w.~-]*[\w~](?:/[\w.~-]*[\w~])*/?"  # a full stop after it is not of it
    r"|\b[\w-]+\.(?:md|txt|html|py|json|log|csv|xlsx|docx|pptx|pdf|png|jpg)\b"
)
_OUT: Final = re.compile(
    r"\b(?:sav(?:e|ed|ing)|writ(?:e|ing)|stored?|export|output|generate|create|put|keep|download)\b"
)
_IN: Final = re.compile(r"\b(?:read|open|load|from|under|convert|analy[sz]e|check|file)\b")
_DAY: Final = re.compile(
    r"\b(?:today|tomorrow|next (?:few )?(?:days?|weeks?|weekend|months?|years?|\w+day))\b"
)
_SENTENCE: Final = re.compile(r"[.?!]\s")
_CLAUSE: Final = re.compile(
    r"(?<=[.?!;:])\s+|\n+|,\s+|\b(?:then|and|also|finally|as well as)\b", re.IGNORECASE
)
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

MOST: Final = 8
"""Parts of a request that are looked at."""


class Request(NamedTuple):
    text: str
    """In words, paths spelled out."""
    clauses: tuple[str, ...]
    """What it asks for one by one."""
    implied: tuple[str, ...] = ()
    """What goes without saying."""

    @property
    def parts(self) -> tuple[str, ...]:
        """All that it is about beside the whole. Who asks for one thing only has none."""
        if len(self.clauses) + len(self.implied) < 2:
            return ()
        return tuple(dict.fromkeys(self.implied + self.clauses))[:MOST]


def understood(request: str) -> Request:
    plain = _BLOB.sub(" ", request[:LONGEST])
    implied: list[str] = []

    def spelled(path: re.Match[str]) -> str:
        ending = _ending(path[0])
        if not ending:
            return " directory "
        work = _work(plain, path, ending)
        implied.extend(filter(None, work.split(", ")))
        return f" {work} {_KINDS.get(ending, f'{ending} file')} "

    text = _PATH.sub(spelled, plain)
    if _DAY.search(plain.lower()):
        implied.append("get current time")
    clauses = [clause for clause in _CLAUSE.split(text) if len(terms(clause)) > 1]
    return Request(text, tuple(clauses) if len(clauses) > 1 else (text,), tuple(dict.fromkeys(implied)))


def terms(text: str) -> list[str]:
    """The telling words of a text, each once; `camelCase` and `snake_case` taken apart."""
    return list(dict.fromkeys(words(text)))


def words(text: str) -> list[str]:
    """The telling words of a text, as often as it says them."""
    apart = _HUMP.sub(r"\1 \2", text).lower()
    return [word for word in _WORD.findall(apart) if word not in STOP]


def told(text: str) -> str:
    """A text without the words that say nothing."""
    apart = _HUMP.sub(r"\1 \2", text.replace("_", " ").replace("-", " "))
    return " ".join(word for word in re.findall(r"\w+", apart) if word.lower() not in STOP)


def stem(word: str) -> str:
    """A word without its endings: `queries`, `queried` and `querying` are one with `query`."""
    if len(word) < 4 or word.endswith(("ss", "us", "is")):
        return word
    word = f"{word[:-3]}y" if word.endswith(("ies", "ied")) else word.removesuffix("s")
    for ending in ("ing", "ed", "e"):
        if word.endswith(ending) and len(word) - len(ending) > 2:
            word = word.removesuffix(ending)
            break
    doubled = len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz"
    return word[:-1] if doubled else word


def _ending(path: str) -> str:
    name = path.rpartition("/")[2]
    return name.rpartition(".")[2].lower() if "." in name else ""


def _work(request: str, path: re.Match[str], ending: str) -> str:
    """What has to be done to a file that a request names."""
    before = _SENTENCE.split(request[: path.start()].lower())[-1]
    written = _last(_OUT, before) > _last(_IN, before)
    if written:
        return _WRITE.get(ending, "write file content")
    return _READ.get(ending, "read file contents")


def _last(pattern: re.Pattern[str], text: str) -> int:
    return max((found.end() for found in pattern.finditer(text)), default=-1)
