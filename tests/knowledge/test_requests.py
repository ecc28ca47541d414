"""What requests say and what they imply."""

from __future__ import annotations

import pytest

from penstock.knowledge.requests import terms, told, understood


@pytest.mark.parametrize(
    ("request_", "implied"),
    [
        ("Write a report and save it in /root/a/report.md", ("write file content",)),
        ("Read /root/notes.txt and tell me more", ("read file contents",)),
        ("Summarise report.pdf", ("read pdf document",)),
        ("Make slides, saved at /tmp/x.pptx", ("create presentation", "add slide", "save presentation")),
        ("What is in /root/git ?", ("list directory",)),
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
