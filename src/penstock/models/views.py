"""Which candidates a call may be served by: the tier it asks for and those after it, or the model it pins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from penstock.models.base import Provider, Request, Usage
from penstock.models.calls import Group, UnknownModel
from penstock.models.catalog import KEYS
from penstock.models.desk import BACKUP, LAST, Desk
from penstock.models.members import Member
from penstock.models.prices import Prices, cost, price_of
from penstock.models.tiers import Seat, Tiers
from penstock.policy.buckets import Cost
from penstock.policy.selection import Candidate, Passed, dearest
from penstock.workflow.findings import did_you_mean

OUTPUT: Final = 1_000
"""Tokens that an answer is taken to have where nothing limits it."""

PINNED: Final = 500
"""Models that may be pinned without being configured."""


class View(Struct, frozen=True):
    requested: str
    groups: tuple[Group, ...]
    tier: int
    pin: str
    lane: int | None


class Views:
    def __init__(self, tiers: Tiers, providers: Mapping[str, Provider], desk: Desk) -> None:
        self._tiers = tiers
        self._providers = providers
        self._desk = desk
        self._names = [name for name, _ in tiers.order]
        self._known: dict[tuple[str, str, str, int | None], View] = {}
        self._pinned = 0

    def of(self, operation: str, *, tier: str, model: str, lane: int | None) -> View:
        key = (operation, tier, model, lane)
        view = self._known.get(key)
        if view is None:
            lane = _lower(lane, self._tiers.lane)
            if model:
                view = self._pin(model, lane)
            elif operation == "embed":
                view = self._embedding(lane)
            else:
                view = self._tier(tier or self._tiers.default, lane)
            if len(self._known) < 2 * PINNED:
                self._known[key] = view
        return view

    def _tier(self, name: str, lane: int | None) -> View:
        tiers, members = self._tiers, self._desk.members
        if not name:
            name = self._names[0] if self._names else ""
        if name and self._names and name not in self._names:
            hint = did_you_mean(name, self._names) or f"there are {', '.join(self._names)}"
            raise UnknownModel(f"there is no tier {name!r}", hint)
        start = self._names.index(name) if name in self._names else 0
        groups: list[Group] = []
        seen: set[str] = set()
        ranked = [*enumerate((seats for _, seats in tiers.order[start:]), start), (BACKUP, tiers.backups)]
        for number, seats in ranked:
            new = [one for one in seats if one not in seen]
            seen.update(new)
            if new:
                groups.append(
                    (number, tuple(_placed(members[one], number, at) for at, one in enumerate(new)))
                )
        if tiers.last_resort and tiers.last_resort not in seen:
            groups.append((LAST, (_placed(members[tiers.last_resort], LAST, 0),)))
        allowed = dearest((c for _, group in groups for c, _ in group), tier=start, allowed=lane)
        return View(name or tiers.last_resort, tuple(groups), start, "", allowed)

    def _pin(self, model: str, lane: int | None) -> View:
        members = self._desk.members
        found = [model] if model in members else [n for n, one in members.items() if one.seat.model == model]
        if len(found) > 1:
            raise UnknownModel(f"{model!r} could be {' or '.join(found)}", "name its provider, too")
        member = members[found[0]] if found else self._newcomer(model)
        return View(member.name, ((0, (_placed(member, 0, 0),)),), 0, member.name, lane)

    def _newcomer(self, model: str) -> Member:
        """A model that no tier names, of a provider that is configured."""
        provider, _, rest = model.partition("/")
        if provider in KEYS and provider not in self._providers:
            hint = did_you_mean(model, list(self._desk.members)) or f"set {KEYS[provider]}"
            raise UnknownModel(f"{model!r} cannot be asked: {provider} has no key", hint)
        if provider not in self._providers or not rest:
            known = [*self._desk.members, *(f"{name}/…" for name in self._providers)]
            raise UnknownModel(f"there is no model {model!r}", did_you_mean(model, known) or _among(known))
        if self._pinned >= PINNED:
            raise UnknownModel(f"{model!r} is one model too many", "name it in a tier")
        self._pinned += 1
        like = self._tiers.likes.get(provider) or Seat(provider=provider, model=rest)
        seat = replace(like, model=rest)
        alone, holder = self._desk.shared.alone, self._desk.holder
        member = Member(seat, self._providers[provider], alone=alone, holder=holder)
        self._desk.add(member)
        return member

    def _embedding(self, lane: int | None) -> View:
        names = self._tiers.embeddings or ((self._tiers.last_resort,) if self._tiers.last_resort else ())
        if not names:
            raise UnknownModel("no model is configured for embeddings", "name one in models.embeddings")
        members = self._desk.members
        model = members[names[0]].seat.model
        same = [members[name] for name in names if members[name].seat.model == model]
        group = tuple(_placed(one, 0, at) for at, one in enumerate(same))
        return View(names[0], ((0, group),), 0, "", lane)

    def no_larger(self, name: str, asked: Cost) -> set[str]:
        """Models that are not known to take more than this one, for which the request was too long."""
        failed = self._desk.members[name].seat.window or asked.input_tokens
        return {one.name for one in self._desk.members.values() if (one.seat.window or 0) <= failed} | {name}


def _placed(member: Member, tier: int, order: int) -> tuple[Candidate, Member]:
    seat = member.seat
    domain = seat.domain or seat.provider
    return Candidate(name=member.name, tier=tier, lane=seat.lane, order=order, domain=domain), member


def _lower(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _among(known: Iterable[str]) -> str:
    some = sorted(known)[:5]
    return f"there are {', '.join(some)}" if some else "none is configured"


def estimate(request: Request) -> Cost:
    """What a request will take, before anyone has counted. Four characters are about one token."""
    size = sum(len(one.content) for one in request.messages)
    given = size / 4.0 + 4.0 * len(request.messages)
    taken = float(request.max_tokens or 0)
    return Cost(tokens=given + taken, input_tokens=given, output_tokens=taken)


def over_budget(groups: Iterable[Group], asked: Cost, budget: float, prices: Prices) -> dict[str, Passed]:
    """Candidates that would cost more than this, or nobody knows what."""
    found: dict[str, Passed] = {}
    usage = Usage(int(asked.input_tokens), int(asked.output_tokens) or OUTPUT)
    for _, group in groups:
        for candidate, member in group:
            seat = member.seat
            about = cost(price_of(prices, seat.provider, seat.model, local=not seat.lane), usage)
            if about is None:
                found[candidate.name] = Passed(
                    candidate.name, "lane", "no price is known, and there is a budget"
                )
            elif about > budget:
                why = f"about ${about:.4f}, and the call may cost ${budget:.4f}"
                found[candidate.name] = Passed(candidate.name, "lane", why)
    return found
