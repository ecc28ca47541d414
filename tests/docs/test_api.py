"""The public API is small, sorted, and exactly what the documentation lists."""

from __future__ import annotations

import re

import pages

import penstock


def names_in(page: str) -> list[str]:
    return re.findall(r"^## `(\w+)`$", (pages.ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)


def test_the_public_api_is_exactly_what_the_docs_list() -> None:
    assert names_in("docs/reference/api.md") == penstock.__all__


def test_the_public_api_has_at_most_25_names_in_order() -> None:
    assert len(penstock.__all__) <= 25
    assert penstock.__all__ == sorted(penstock.__all__)


def test_every_public_name_can_be_had() -> None:
    assert [name for name in penstock.__all__ if getattr(penstock, name, None) is None] == []
