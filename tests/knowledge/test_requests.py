"""What requests say and what they imply."""

from __future__ import annotations

import pytest

from penstock.knowledge.requests import stem, terms, told, understood


@pytest.mark.parametrize(
    ("request_", "implied"),
    [
        ("Write a report and save it in /root/a/report.md", ("write file content",)),
        ("Read /root/notes.txt and tell me more", ("read file contents",)),
        ("Summarise report.pdf", ("read pdf document",)),
        ("Make slides, saved at /tmp/x.pptx", ("create presentation", "add slide", "save presentation")),
        ("The news in a letter, saved at /tmp/x.docx.", ("create word document", "add paragraph")),
        ("What is in /root/git ?", ()),
        ("trains to Lyon next Friday", ("get current time",)),
        ("draw a cowboy", ()),
    ],
)
def test_files_and_days_imply_work(request_: str, implied: tuple[str, ...]) -> None:
    assert understood(request_).implied == implied


def test_paths_are_spelled_out_and_blobs_left_out() -> None:
    text = understood(f"look at /a/b.xlsx and {'QUJD' * 40}").text

    assert "excel sheet" in text
    assert "QUJD" not in text


def test_names_are_taken_apart_and_empty_words_dropped() -> None:
    assert terms("Please getUserName for the user_id") == ["user", "name", "id"]
    assert told("get-stationCode of_citys") == "station Code citys"


@pytest.mark.parametrize(
    "forms",
    [
        ["query", "queries", "queried", "querying"],
        ["search", "searches", "searched", "searching"],
        ["create", "creates", "created", "creating"],
        ["stop", "stops", "stopped", "stopping"],
        ["file", "files"],
    ],
)
def test_the_forms_of_a_word_are_one(forms: list[str]) -> None:
    assert len(set(map(stem, forms))) == 1


@pytest.mark.parametrize("word", ["css", "bus", "git", "is", "x", "process", "status"])
def test_short_words_and_those_that_only_look_plural_stay(word: str) -> None:
    assert stem(word) == word


def test_a_request_has_its_clauses_for_parts() -> None:
    request = understood("Find the cheapest train to Lyon, then draw a chart of prices. Mail it to Ada Byron")

    assert [part.strip() for part in request.parts] == [
        "Find the cheapest train to Lyon",
        "draw a chart of prices.",
        "Mail it to Ada Byron",
    ]


def test_a_request_for_one_thing_has_no_parts() -> None:
    assert understood("draw a cowboy").parts == ()


def test_a_full_stop_after_a_path_is_not_of_the_path() -> None:
    assert understood("Save it in /root/report.md.").implied == ("write file content",)
