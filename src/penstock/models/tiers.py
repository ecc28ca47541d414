"""Which models may answer what: tiers, lanes and limits, as configured. Values only.

A tier is a list of models that are equally welcome; an answer from a later tier than the one that
was asked for is degraded. A lane says what a model costs: 0 is nothing, higher is dearer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from penstock.errors import Problem
from penstock.models.prices import Price
from penstock.policy.buckets import Limit
from penstock.policy.bulkhead import HOSTED
from penstock.policy.health import LEAST, MOST
from penstock.workflow.findings import did_you_mean

EXTRACTIVE: Final = "extractive/extractive"

WhenBusy = Literal["wait", "last_resort"]


class Seat(Struct, frozen=True, kw_only=True):
    """A model of a provider, and what may be asked of it."""

    provider: str
    model: str
    lane: int = 1
    concurrency: int = HOSTED
    """Calls at once."""
    limits: tuple[Limit, ...] = ()
    """Its own, where the provider does not tell, or tells more than is wanted."""
    domain: str = ""
    """What it shares with others that fail with it; its provider where nothing is said."""
    window: int | None = None
    """Tokens that fit into it."""
    first_byte: tuple[float, float] = (LEAST, MOST)
    """Seconds, the bounds of the adaptive timeout."""
    stream: bool = True
    """Ask it for streams: only then does a late first byte mean anything."""
    missing: str = ""
    """Why it cannot be called as things are configured."""
    origin: str = ""
    """Where it comes from, if not from a configuration."""
    fingerprint: str = ""
    """Changes with the key and the address: what was found out about others is not about this one."""

    @property
    def name(self) -> str:
        return f"{self.provider}/{self.model}"

    @property
    def key(self) -> str:
        """What processes share its state under."""
        return f"{self.name}#{self.fingerprint}" if self.fingerprint else self.name


class Tiers(Struct, frozen=True, kw_only=True):
    seats: Mapping[str, Seat] = {}
    """By `provider/model`."""
    order: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Tiers by name with the names of their seats: the best tier first, its preferred seat first."""
    default: str = ""
    """The tier of a call that names none; the first where nothing is said."""
    backups: tuple[str, ...] = ()
    """Models behind all tiers, mostly local ones: asked before anybody has to wait."""
    last_resort: str = EXTRACTIVE
    """Stands in where no model is to be had: down, off, out of budget. Empty: nobody does."""
    when_busy: WhenBusy = "wait"
    """Where all models are merely busy, a call waits and is turned away in the end; or the last resort
    answers it at once."""
    embeddings: tuple[str, ...] = ()
    """Seats that embed. They are one model at several providers: vectors of two models do not mix."""
    likes: Mapping[str, Seat] = {}
    """By provider: what a model of it is like that is pinned and that no tier names."""
    lane: int | None = None
    """The dearest lane that any call may use."""
    hedge: bool = False
    """Ask a second model when the first takes longer than usual."""


# --- [models] of a configuration file ---


class SeatTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model in a tier, where its name alone does not say it all."""

    model: str
    lane: int | None = None
    concurrency: int | None = None
    rpm: float | None = None
    tpm: float | None = None
    domain: str = ""
    window: int | None = None
    first_byte: float | None = None
    """Seconds: the least that the adaptive timeout may be."""
    stream: bool = True


class ModelsTable(Struct, frozen=True, kw_only=True):
    """`[models]`, read and checked."""

    tiers: Mapping[str, tuple[SeatTable, ...]] = {}
    prices: Mapping[str, Price] = {}
    default: str = ""
    backups: tuple[SeatTable, ...] = ()
    """The models in a `last_resort` that is a list."""
    last_resort: Literal["extractive", "none"] = "extractive"
    when_busy: WhenBusy = "wait"
    embeddings: tuple[SeatTable, ...] = ()
    lane: int | None = None
    hedge: bool = False


NOTHING_SAID: Final = ModelsTable()
USUAL: Final = ("best", "standard", "local")
"""The tiers that there are where none is configured."""

_KEYS: Final = tuple(name for name in ModelsTable.__struct_fields__ if name != "backups")


_CHOICES: Final = {
    "last_resort": "must be 'extractive', 'none' or a list of models",
    "when_busy": "must be 'wait' or 'last_resort'",
}


def read_table(raw: Any, *, file: str = "") -> tuple[ModelsTable, list[Problem]]:
    """What the table says, and everything that is wrong with it."""
    problems: list[Problem] = []

    def wrong(where: str, message: str, hint: str = "") -> None:
        problems.append(Problem(message, hint, where=where, file=file))

    if not isinstance(raw, Mapping):
        wrong("models", "must be a table")
        return NOTHING_SAID, problems
    for name in raw:
        if name not in _KEYS:
            wrong(f"models.{name}", "unknown setting", did_you_mean(name, _KEYS))
    found: dict[str, Any] = {}
    raw = _backed(raw, found, wrong)
    plain = {
        name: raw[name] for name in ("default", "last_resort", "when_busy", "lane", "hedge") if name in raw
    }
    for name, value in plain.items():
        try:
            found[name] = getattr(msgspec.convert({name: value}, ModelsTable), name)
        except msgspec.ValidationError as error:
            wrong(f"models.{name}", _CHOICES.get(name) or _said(error))
    tiers = raw.get("tiers", {})
    if not isinstance(tiers, Mapping):
        wrong("models.tiers", "must be a table of lists")
        tiers = {}
    found["tiers"] = {name: _seats(seats, f"models.tiers.{name}", wrong) for name, seats in tiers.items()}
    found["embeddings"] = _seats(raw.get("embeddings", []), "models.embeddings", wrong)
    for number, one in enumerate(found["embeddings"]):
        if one.model.partition("/")[2] != found["embeddings"][0].model.partition("/")[2]:
            message = "is another model than the first: vectors of two models do not compare"
            wrong(f"models.embeddings[{number}]", message)
    found["prices"] = _prices(raw.get("prices", {}), wrong)
    default = found.get("default", "")
    if default and default not in (tiers or USUAL):
        wrong("models.default", f"there is no tier {default!r}", did_you_mean(default, list(tiers or USUAL)))
    if (lane := found.get("lane")) is not None and lane < 0:
        wrong("models.lane", "must be 0 or more")
    return ModelsTable(**found), problems


def _backed(raw: Mapping[str, Any], found: dict[str, Any], wrong: Any) -> Mapping[str, Any]:
    """A `last_resort` that is a list: models, and `extractive` at its end where that is wanted too."""
    last = raw.get("last_resort")
    if not isinstance(last, Sequence) or isinstance(last, str):
        return raw
    named = [one for one in last if one != "extractive"]
    if "extractive" in last and last[-1] != "extractive":
        wrong("models.last_resort", "extractive comes last: nobody is asked after it")
    if named:
        found["backups"] = _seats(named, "models.last_resort", wrong)
    return {**raw, "last_resort": "extractive" if "extractive" in last else "none"}


def _seats(raw: Any, where: str, wrong: Any) -> tuple[SeatTable, ...]:
    if not isinstance(raw, Sequence) or isinstance(raw, str) or not (raw or where == "models.embeddings"):
        wrong(where, "must be a list of models", 'as in ["openai/gpt-5", "ollama/llama3.2"]')
        return ()
    found: list[SeatTable] = []
    for number, one in enumerate(raw):
        place = f"{where}[{number}]"
        try:
            seat = msgspec.convert({"model": one} if isinstance(one, str) else one, SeatTable)
        except msgspec.ValidationError as error:
            known = SeatTable.__struct_fields__
            unknown = (
                next((name for name in one if name not in known), "") if isinstance(one, Mapping) else ""
            )
            wrong(place, _said(error), did_you_mean(unknown, known) if unknown else "")
            continue
        provider, slash, model = seat.model.partition("/")
        if not (provider and slash and model):
            wrong(place, f"{seat.model!r} is not a model", "it is written provider/model")
            continue
        numbers = (seat.concurrency, seat.rpm, seat.tpm, seat.window, seat.first_byte)
        if any(figure is not None and figure <= 0 for figure in numbers) or (seat.lane or 0) < 0:
            wrong(place, "its limits must be greater than 0")
            continue
        if any(seat.model == other.model for other in found):
            wrong(place, f"{seat.model} is in this list already")
            continue
        found.append(seat)
    return tuple(found)


def _prices(raw: Any, wrong: Any) -> dict[str, Price]:
    if not isinstance(raw, Mapping):
        wrong("models.prices", "must be a table")
        return {}
    found: dict[str, Price] = {}
    for name, price in raw.items():
        try:
            found[name] = msgspec.convert(price, Price, strict=True)
        except msgspec.ValidationError as error:
            wrong(f"models.prices.{name}", _said(error), "as in {input = 2.5, output = 10.0}")
            continue
        if min(found[name].input, found[name].output, found[name].cached or 0.0) < 0:
            wrong(f"models.prices.{name}", "a price is not negative")
    return found


def _said(error: Exception) -> str:
    """What msgspec says, with the name of the field before it where that is one of several."""
    what, _, place = str(error).replace("`", "'").partition(" - at ")
    what = what.replace("Object contains unknown field", "unknown setting").replace(" | null", "")
    field = place.strip("'$.")
    return f"{field}: {what}" if field and field not in _KEYS else what
