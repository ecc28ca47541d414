"""Lengths of time as people write them, and as seconds.

Knows nothing of where a duration stands or what it is for.
"""

from __future__ import annotations

import re
from typing import Final

_NUMBER: Final = r"(\d+(?:\.\d+)?)"
_SHORT: Final = re.compile(
    rf"(?:{_NUMBER}d)?(?:{_NUMBER}h)?(?:{_NUMBER}m(?!s))?(?:{_NUMBER}s)?(?:{_NUMBER}ms)?", re.ASCII
)
_ISO: Final = re.compile(
    rf"P(?:{_NUMBER}W|(?:{_NUMBER}D)?(?:T(?=\d)(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?)", re.ASCII
)
_SHORT_UNITS: Final = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)
_ISO_UNITS: Final = (604_800.0, 86_400.0, 3_600.0, 60.0, 1.0)

LONGEST: Final = 10 * 365 * 86_400.0
"""Ten years, in seconds: anything longer is a mistake."""

PATTERN: Final = (
    r"^(P(?=[0-9T])[0-9.WDTHMS]+"
    r"|(?=[0-9])([0-9.]+d)?([0-9.]+h)?([0-9.]+m)?([0-9.]+s)?([0-9.]+ms)?)$"
)
"""What JSON Schema can say of these texts: each one that `seconds` reads matches."""

EXAMPLES: Final = "250ms, 30s, 5m, 1m30s, 1h or PT5M"


def seconds(text: str) -> float | None:
    """`1m30s` or `PT1M30S` as 90.0; None when the text is not a duration."""
    short = _SHORT.fullmatch(text)
    match, units = (short, _SHORT_UNITS) if short else (_ISO.fullmatch(text), _ISO_UNITS)
    if match is None or not any(match.groups()):
        return None
    total = 0.0
    for number, unit in zip(match.groups(), units, strict=True):
        if number:
            # Dividing keeps 250ms at exactly 0.25, the same value as the number written out.
            total += float(number) / 1000 if unit < 1 else float(number) * unit
    return total
