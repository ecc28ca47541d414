"""The text of a request, taken apart: what is asked, and the sentences that may answer it. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.models.base import Message

LARGEST: Final = 200_000
"""Characters that are looked at: the last ones, which are closest to the question."""

_SENTENCE = re.compile(r"(?<=[.!?…])[\"')\]]{0,2}\s+(?=[\"'(\[]?[^\W_])|\n+")
WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_MARKUP = re.compile(r"^\s{0,8}(?:[#>*•-]+|\d{1,3}[.)])\s+")
_ASKING = re.compile(r"^\s*(?:question|task|query|q)\s*:\s*", re.IGNORECASE)
_ENDINGS: Final = ("ingly", "edly", "ing", "ies", "ied", "est", "ed", "es", "ly", "er", "s")

_COMMON: Final = frozenset(
    {
        "a", "about", "after", "all", "also", "an", "and", "any", "are", "as", "at", "be", "because", "been",
        "but", "by", "can", "could", "did", "do", "does", "for", "from", "give", "had", "has", "have", "how",
        "i", "if", "in", "into", "is", "it", "its", "me", "more", "most", "my", "no", "not", "of", "on",
        "or", "our", "please", "should", "so", "some", "such", "tell", "than", "that", "the", "their",
        "them", "then", "there", "these", "they", "this", "those", "to", "us", "use", "using", "was", "we",
        "were", "what", "when", "where", "which", "while", "who", "whom", "why", "will", "with", "would",
        "you", "your",
    }
)  # fmt: skip


def words(text: str) -> list[str]:
    """The words of a text that carry meaning, without most of their endings."""
    return [_stem(word) for word in WORD.findall(text.lower()) if word not in _COMMON]


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def sentences(text: str) -> list[str]:
    found = (_MARKUP.sub("", part).strip() for part in _SENTENCE.split(text))
    return [part for part in found if part]


def clean(text: str) -> str:
    """Text that can be written as UTF-8."""
    return text.encode("utf-8", "replace").decode()


class Passages:
    """A conversation as a question and the sentences around it."""

    def __init__(self, messages: Sequence[Message]) -> None:
        asked = next((at for at in reversed(range(len(messages))) if messages[at].role == "user"), -1)
        texts = [clean(message.content) for message in messages]
        self.question, rest = _question(texts[asked][-LARGEST:] if asked >= 0 else "")
        given = [texts[at] for at, m in enumerate(messages) if at != asked and m.role in ("user", "tool")]
        self.sentences = sentences("\n".join(given)[-LARGEST:]) + rest
        if not self.sentences:  # some put the text into their instructions
            told = "\n".join(texts[at] for at, m in enumerate(messages) if m.role == "system")
            self.sentences = sentences(told[-LARGEST:])
        self.size = sum(map(len, texts))
        self._bags = [Counter(words(sentence)) for sentence in self.sentences]
        self._places: dict[str, list[int]] = {}
        for at, bag in enumerate(self._bags):
            for word in bag:
                self._places.setdefault(word, []).append(at)

    def best(self, count: int, query: str | None = None) -> list[str]:
        """The sentences that overlap most with the question, in the order in which they were given.

        A request that names nothing of the text and asks no question ("summarise this") gets the
        sentences that have most in common with the rest of it.
        """
        ranked = self._ranked(set(words(self.question if query is None else query)))
        if not ranked and query is None and "?" not in self.question:
            whole = Counter(word for bag in self._bags for word in bag)
            ranked = self._ranked({word for word, n in whole.items() if n > 1} or set(whole))
        chosen: list[int] = []
        covered: set[str] = set()
        for _, at in ranked:
            if len(chosen) == count:
                break
            new = set(self._bags[at]) - covered
            if len(new) * 2 >= len(self._bags[at]):  # what says the same again adds nothing
                chosen.append(at)
                covered |= new
        return [self.sentences[at] for at in sorted(chosen)]

    def _ranked(self, wanted: Iterable[str]) -> list[tuple[float, int]]:
        """Sentences by the weight of the wanted words in them. Rare words tell more than frequent ones."""
        scores: defaultdict[int, float] = defaultdict(float)
        for word in sorted(wanted):  # sums of floats depend on their order, and a set has none
            places = self._places.get(word, ())
            weight = math.log(1 + len(self._bags) / len(places)) if places else 0.0
            for at in places:
                scores[at] += weight
        ranked = [(score / math.sqrt(4 + self._bags[at].total()), at) for at, score in scores.items()]
        return sorted(ranked, key=lambda each: (-each[0], each[1]))


def _question(text: str) -> tuple[str, list[str]]:
    """What the last message asks, and the sentences in it that do not ask."""
    parts = sentences(text)
    marked = [part for part in parts if _ASKING.match(part)]
    asking = marked or [part for part in parts if part.endswith("?")]
    if asking:
        question = " ".join(_ASKING.sub("", part) for part in asking)
        return question, [part for part in parts if part not in asking]
    if len(parts) <= 1:
        return text, []
    return parts[0], parts[1:]  # "Summarise this: …"
