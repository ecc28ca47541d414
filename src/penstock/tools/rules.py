"""Which tools may be called: allow, ask first, or deny, by patterns such as `git:*`.

A pure function of an id. The strictest rule that matches wins; where no `allow` is given,
everything is allowed that is not denied.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

Verdict = Literal["allow", "ask", "deny"]


@dataclass(frozen=True, slots=True)
class Rules:
    allow: tuple[str, ...] = ("*",)
    ask: tuple[str, ...] = ()
    """A person approves each call, whatever its effect class."""
    deny: tuple[str, ...] = ()

    def verdict(self, id: str) -> Verdict:
        if _any(id, self.deny) or not _any(id, self.allow):
            return "deny"
        return "ask" if _any(id, self.ask) else "allow"


def _any(id: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(id, pattern) for pattern in patterns)
