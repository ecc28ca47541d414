"""What tokens cost. The table is configuration: prices change, and a wrong one is worse than none."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from penstock.models.base import Usage

_MILLION = 1_000_000


class Price(Struct, frozen=True):
    """US dollars for a million tokens."""

    input: float = 0.0
    output: float = 0.0
    cached: float | None = None
    """For input read from the provider's cache; the price of input where it is not given."""


Prices = Mapping[str, Price]
"""By `provider/model`, by model, or `provider/*`; the first that is there."""

FREE = Price()


def price_of(prices: Prices, provider: str, model: str, *, local: bool = False) -> Price | None:
    """What is configured; a model of one's own costs nothing where nothing is."""
    for name in (f"{provider}/{model}", model, f"{provider}/*"):
        found = prices.get(name)
        if found is not None:
            return found
    return FREE if local else None


def cost(price: Price | None, usage: Usage) -> float | None:
    """Dollars, or None where there is no price."""
    if price is None:
        return None
    cached = price.input if price.cached is None else price.cached
    paid = (usage.input - usage.cached) * price.input + usage.cached * cached + usage.output * price.output
    return paid / _MILLION
