"""`PENSTOCK_EMBEDDING` and `embedding` in `penstock.toml` choose the vectors that tools are found by."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def search(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", "tools", "search", "fetch a web page", "--limit", "1"],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_file_chooses_and_the_environment_wins(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="penstock[minilm] is not installed")
    (tmp_path / "penstock.toml").write_text('embedding = "minilm"\n')

    by_file = search(tmp_path)
    by_environment = search(tmp_path, PENSTOCK_EMBEDDING="embedded")

    assert (by_file.returncode, by_environment.returncode) == (0, 0)
    assert "http:get" in by_file.stdout
    assert by_file.stdout != by_environment.stdout


def test_an_embedding_that_does_not_exist_is_refused_with_the_choice(tmp_path: Path) -> None:
    refused = search(tmp_path, PENSTOCK_EMBEDDING="bert")

    assert refused.returncode == 2
    assert "choose `embedded`, `minilm` or `openai-compatible:URL#MODEL`" in refused.stderr
    assert "Traceback" not in refused.stderr
