"""One tool, two names: `server:tool` among ourselves, `server__tool` where a provider must accept it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from penstock.errors import UnknownTool
from penstock.workflow.findings import did_you_mean

LONGEST: Final = 64
"""Characters that every provider takes."""

_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")
_DIGITS: Final = 8
_HASHED: Final = re.compile(rf"_[0-9a-f]{{{_DIGITS}}}$")


def wire_name(id: str) -> str:
    """The name of a tool on the wire: `[A-Za-z0-9_-]`, at most 64 characters, the same every time.

    A name that had to be cut or changed ends in a hash of the id, so that no two ids share one; so
    does one that could be read in two ways, or that only looks as if it ended in a hash.
    """
    plain = id.replace(":", "__", 1)
    tidy = _OTHER.sub("_", plain)
    one_way = plain.count("__") == 1 and "___" not in plain and not _HASHED.search(plain)
    if tidy == plain and len(tidy) <= LONGEST and one_way:
        return tidy
    digest = sha256(id.encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
    return f"{tidy[: LONGEST - _DIGITS - 1]}_{digest}"


def by_wire_name(name: str, ids: Iterable[str]) -> str:
    """The id of the tool that a model or a client means by `server__tool`."""
    known = {wire_name(id): id for id in ids}
    if name not in known:
        raise UnknownTool(name, did_you_mean(name, known) or "write SERVER:TOOL, as `discover` does")
    return known[name]
