"""What every store must do, in sentences.

Say where your stores live by subclassing `Place`, and check each sentence on a fresh one:

    @pytest.mark.parametrize("sentence", sentences(YourPlace), ids=named)
    def test_my_store(sentence: Sentence) -> None:
        asyncio.run(sentence(YourPlace(...)))

What a kind of store cannot do by its nature is declared on its place, never skipped by name.
"""

from __future__ import annotations

from penstock.testing.conformance import (  # noqa: F401 - they bring the sentences
    examples,
    histories,
    sharing,
    upkeep,
)
from penstock.testing.conformance.places import KEY, Place, Sentence, named, sentences

__all__ = ["KEY", "Place", "Sentence", "named", "sentences"]
