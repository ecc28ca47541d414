"""One tool, two names: `server:tool` among ourselves, `server__tool` where a provider must accept it."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

LONGEST: Final = 64
"""Characters that every provider takes."""

_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")
_DIGITS: Final = 8


def wire_name(id: str) -> str:
    """The name of a tool on the wire: `[A-Za-z0-9_-]`, at most 64 characters, the same every time.

    A name that had to be cut or changed ends in a hash of the id, so that no two ids share one.
    """
    plain = id.replace(":", "__", 1)
    tidy = _OTHER.sub("_", plain)
    if tidy == plain and len(tidy) <= LONGEST and plain.count("__") == 1:
        return tidy
    digest = sha256(id.encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
    return f"{tidy[: LONGEST - _DIGITS - 1]}_{digest}"
