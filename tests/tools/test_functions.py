"""Python functions as tools: the signature is the schema."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import UnknownTool
from penstock.tools.functions import Functions, complaints, tool_of


async def fetch(url: str, retries: int = 3, *, headers: dict[str, str] | None = None) -> str:
    """Fetch a page.

    The rest is detail.
    """
    return f"{url} {retries} {headers}"


def test_a_signature_and_its_hints_are_the_schema() -> None:
    tool = tool_of(fetch)

    assert (tool.id, tool.effect, tool.blocking, tool.description) == (
        "local:fetch",
        "write",
        False,
        "Fetch a page.",
    )
    assert tool.input_schema["required"] == ["url"]
    assert tool.input_schema["properties"]["url"] == {"type": "string"}
    assert tool.input_schema["additionalProperties"] is False


def test_a_plain_function_blocks_and_a_coroutine_function_does_not() -> None:
    def plain() -> None: ...

    async def coroutine() -> None: ...

    assert tool_of(plain).blocking
    assert not tool_of(coroutine).blocking
    assert not tool_of(functools.partial(fetch, url="x")).blocking


def test_the_decorator_notes_and_leaves_the_function_alone() -> None:
    @ps.tool(id="web:get", effect="read", duration=2.5)
    def get(url: str) -> str:
        return url

    @ps.tool
    def bare() -> None: ...

    tool = tool_of(get)
    assert (tool.id, tool.effect, tool.duration) == ("web:get", "read", 2.5)
    assert get("x") == "x"
    assert tool_of(bare).effect == "write"


def test_a_parameter_that_wants_the_task_is_not_an_argument() -> None:
    def who(name: str, task: ps.Task) -> None: ...

    tool = tool_of(who)
    assert tool.wants_task == "task"
    assert set(tool.input_schema["properties"]) == {"name"}


def test_arguments_are_converted_to_what_the_hints_ask_for() -> None:
    def typed(path: Path, n: int, anything: Any) -> None: ...

    convert = tool_of(typed).convert
    assert convert is not None
    with pytest.raises(ValueError, match="argument n: "):
        convert({"path": "x", "n": "three", "anything": object})
    assert convert({"path": "x", "n": 3, "anything": 1})["n"] == 3


def test_names_of_arguments_are_checked_with_a_suggestion() -> None:
    found = complaints(tool_of(fetch), ["ulr"])

    assert ("ulr", "local:fetch takes no argument 'ulr'", "did you mean 'url'?") in found
    assert ("", "local:fetch needs the argument 'url'", "") in found
    assert complaints(tool_of(fetch), ["url"]) == []


def test_a_function_that_takes_anything_takes_any_name() -> None:
    def loose(**given: Any) -> None: ...

    assert complaints(tool_of(loose), ["a", "b"]) == []


def test_registered_functions_are_found_by_id_and_others_with_a_suggestion() -> None:
    catalog = Functions([ps.tool(id="web:get")(lambda: None)])

    assert catalog.find("web:get").id == "web:get"
    with pytest.raises(UnknownTool, match="did you mean 'web:get'"):
        catalog.find("web:gte")


@pytest.mark.parametrize(
    ("uses", "words"),
    [
        ("py:nowhere:f", "no module 'nowhere'"),
        ("py:os:getcdw", "did you mean 'getcwd'"),
        ("py:os:name", "is not a function"),
    ],
)
def test_a_python_function_that_cannot_be_found_says_why(uses: str, words: str) -> None:
    with pytest.raises(UnknownTool, match=words):
        Functions().find(uses)


def test_the_folder_of_a_workflow_file_is_importable(tmp_path: Path) -> None:
    (tmp_path / "beside_the_workflow.py").write_text("def f():\n    return 1\n")

    assert Functions().find("py:beside_the_workflow:f", folder=str(tmp_path)).call() == 1


def test_a_module_that_breaks_on_import_says_so(tmp_path: Path) -> None:
    (tmp_path / "broken_on_import.py").write_text("1 / 0\n")

    with pytest.raises(UnknownTool, match="importing broken_on_import failed: ZeroDivisionError"):
        Functions().find("py:broken_on_import:f", folder=str(tmp_path))
