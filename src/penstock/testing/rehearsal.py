"""Models for tests and demos: whatever tier is asked for, the one provider that was given answers.

`Scripted` says what it was told to say, `Replay` what a `Recorder` once wrote down.
"""

from __future__ import annotations

from penstock.models.base import Provider
from penstock.models.router import Router
from penstock.models.tiers import USUAL, Seat, Tiers


def rehearsed(provider: Provider, *, model: str = "any") -> Router:
    """A router with nobody else behind it, for the `models` of `ps.open`.

    `model` is what the provider is asked for: a cassette is played with the one that it was recorded with.
    """
    seat = Seat(provider=provider.name, model=model, lane=0, stream=False)
    tiers = Tiers(
        seats={seat.name: seat}, order=tuple((tier, (seat.name,)) for tier in USUAL), last_resort=""
    )
    return Router(tiers, {provider.name: provider})
