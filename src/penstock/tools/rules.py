"""What the owner of a machine says about tools, by patterns such as `git:*`. Pure functions of an id.

Whether one may be called: the strictest rule that fits wins (`deny`, then `ask`, then `allow`), and
where no `allow` is given, everything is allowed. Effect class and time limit: the most specific
pattern that fits wins, which is the one with the most plain characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from penstock.workflow.spec import Effect

Verdict = Literal["allow", "ask", "deny"]


@dataclass(frozen=True, slots=True)
class Standing:
    """A verdict, and the pattern that led to it; none where no rule speaks of the tool."""

    verdict: Verdict
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class Rules:
    allow: tuple[str, ...] = ("*",)
    ask: tuple[str, ...] = ()
    """A person approves each call, whatever its effect class and whatever the workflow says."""
    deny: tuple[str, ...] = ()
    effects: Mapping[str, Effect] = field(default_factory=dict)
    """By pattern; outweighs what functions, servers and their configuration say."""
    timeouts: Mapping[str, float] = field(default_factory=dict)
    """Seconds by pattern, for calls whose caller sets no limit."""

    def standing(self, id: str) -> Standing:
        """What the rules say of a tool, and which of them does."""
        if denied := _first(id, self.deny):
            return Standing("deny", denied)
        allowed = _first(id, self.allow)
        if not allowed:
            return Standing("deny")
        if asked := _first(id, self.ask):
            return Standing("ask", asked)
        return Standing("allow", "" if self.allow == ("*",) else allowed)

    def verdict(self, id: str) -> Verdict:
        return self.standing(id).verdict

    def effect(self, id: str) -> tuple[Effect | None, str]:
        """The effect class that is said here, with its pattern; None when nothing is."""
        pattern = most_specific(id, self.effects)
        return self.effects.get(pattern), pattern

    def timeout(self, id: str) -> float | None:
        return self.timeouts.get(most_specific(id, self.timeouts))

    def refusal(self, id: str) -> str:
        """Why a tool may not be called, and what to do about it; empty when it may."""
        if not self.deny and self.allow == ("*",):
            return ""
        found = self.standing(id)
        if found.verdict != "deny":
            return ""
        if found.pattern:
            return f"the rules for tools deny it: {found.pattern!r} is in [tools] deny"
        return f"the rules for tools deny it: nothing in [tools] allow fits it ({', '.join(self.allow)})"


def most_specific(id: str, patterns: Iterable[str]) -> str:
    """The pattern that says most about an id; empty when none fits."""
    fitting = (pattern for pattern in patterns if fnmatchcase(id, pattern))
    return max(fitting, key=lambda one: (one == id, sum(char not in "*?[]" for char in one)), default="")


def _first(id: str, patterns: Iterable[str]) -> str:
    return next((pattern for pattern in patterns if fnmatchcase(id, pattern)), "")
