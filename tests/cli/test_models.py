"""`penstock models` and `penstock models test`, as a person types them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PENSTOCK = (sys.executable, "-m", "penstock")

TABLE = """
[models.tiers]
best = ["openai/gpt", "ollama/llama"]
"""


def models(
    folder: Path, environment: dict[str, str], *args: str, **more: str
) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in environment.items() if "KEY" not in name and "TOKEN" not in name}
    return subprocess.run(
        [*PENSTOCK, "models", *args],
        cwd=folder, env={**kept, **more}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_without_a_key_or_a_table_there_is_the_last_resort(folder: Path, environment: dict[str, str]) -> None:
    shown = models(folder, environment)
    tested = models(folder, environment, "test", "--json")

    assert shown.returncode == 0
    assert "extractive/extractive" in shown.stdout
    assert "no provider is named in the environment" in shown.stderr
    assert json.loads(tested.stdout)["label"] == "extractive"
    assert not (folder / ".penstock").exists()


def test_what_was_found_is_shown_without_its_value(folder: Path, environment: dict[str, str]) -> None:
    (folder / "penstock.toml").write_text(TABLE)
    secret = "sk-do-not-show-me-123456"  # noqa: S105 - made up

    shown = models(folder, environment, OPENAI_API_KEY=secret)
    data = models(folder, environment, "--json", OPENAI_API_KEY=secret)

    assert "OPENAI_API_KEY" in shown.stderr
    assert secret not in shown.stdout + shown.stderr + data.stdout + data.stderr
    rows = [json.loads(line) for line in data.stdout.splitlines()]
    assert [row["name"] for row in rows if row["type"] == "model"][:2] == ["openai/gpt", "ollama/llama"]
    assert next(row for row in rows if row["type"] == "provider")["from"] == ["OPENAI_API_KEY"]


def test_with_a_key_alone_the_default_models_are_shown_with_where_they_come_from(
    folder: Path, environment: dict[str, str]
) -> None:
    azure = {"AZURE_OPENAI_API_KEY": "k-0123456789", "AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com"}
    shown = models(folder, environment, ANTHROPIC_API_KEY="sk-made-up-0123456789", **azure)
    data = models(folder, environment, "--json", ANTHROPIC_API_KEY="sk-made-up-0123456789")

    assert "these models are the default of 20" in shown.stderr
    assert "no model of azure is named" in shown.stderr
    rows = [json.loads(line) for line in data.stdout.splitlines()]
    found = {row["name"]: row["tiers"] for row in rows if row.get("origin", "").startswith("default of 20")}
    assert sorted(found.values()) == [["best"], ["standard"]]
    assert all(name.startswith("anthropic/claude-") for name in found)


def test_in_a_pipe_no_name_is_cut_off(folder: Path, environment: dict[str, str]) -> None:
    name = f"openai/{'long-' * 30}name"
    (folder / "penstock.toml").write_text(f'[models.tiers]\nbest = ["{name}"]\n')

    shown = models(folder, environment)

    [line] = [line for line in shown.stdout.splitlines() if "long" in line]
    assert name in line
    assert line.rstrip().endswith("no key: set OPENAI_API_KEY")


def test_a_model_that_does_not_answer_is_named_and_the_exit_code_says_so(
    folder: Path, environment: dict[str, str]
) -> None:
    (folder / "penstock.toml").write_text(TABLE)

    tested = models(folder, environment, "test", OLLAMA_HOST="127.0.0.1:1")

    assert tested.returncode == 6
    assert "openai/gpt: off: no key: set OPENAI_API_KEY" in tested.stdout
    assert "ollama/llama: transport:" in tested.stdout


def test_a_model_that_no_tier_names_can_be_tested_and_one_that_nobody_has_is_refused(
    folder: Path, environment: dict[str, str]
) -> None:
    tested = models(folder, environment, "test", "ollama/other", OLLAMA_HOST="127.0.0.1:1")
    refused = models(folder, environment, "test", "olama/other", OLLAMA_HOST="127.0.0.1:1")

    assert (tested.returncode, refused.returncode) == (6, 2)
    assert tested.stdout.startswith("ollama/other: transport:")
    assert "there is no model 'olama/other'" in refused.stderr


def test_a_mistake_in_the_table_is_said_with_its_place(folder: Path, environment: dict[str, str]) -> None:
    (folder / "penstock.toml").write_text('[models]\ndefualt = "x"\n[models.tiers]\nbest = ["gpt"]\n')

    shown = models(folder, environment)

    assert shown.returncode == 2
    assert "models.defualt: unknown setting (did you mean 'default'?)" in shown.stderr
    assert "models.tiers.best[0]: 'gpt' is not a model" in shown.stderr


def test_an_unknown_model_is_refused_with_a_suggestion(folder: Path, environment: dict[str, str]) -> None:
    (folder / "penstock.toml").write_text(TABLE)

    tested = models(folder, environment, "test", "openai/gtp")

    assert tested.returncode == 2
    assert "did you mean 'openai/gpt'" in tested.stderr
