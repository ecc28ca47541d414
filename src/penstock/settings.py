"""The only reader of the environment. Read once, at the top, into a frozen value."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Settings:
    store: str = "memory:"
    engine: str = "native"


def read(environment: Mapping[str, str] | None = None, **given: str | None) -> Settings:
    """Arguments win over `PENSTOCK_*`, which win over the defaults."""
    env = os.environ if environment is None else environment
    found = {
        name: value
        for name in Settings.__dataclass_fields__
        if (value := given.get(name) or env.get(f"PENSTOCK_{name.upper()}"))
    }
    return Settings(**found)
