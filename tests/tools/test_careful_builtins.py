"""The built-in tools lose nothing, leave nothing open, and say what was wrong with what they were given."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from serving import VARIABLES

from penstock.tools.builtin.data import Data
from penstock.tools.builtin.files import Files
from penstock.tools.builtin.http import Forbidden, Hosts, is_public
from penstock.tools.builtin.places import Outside, Places
from penstock.tools.builtin.shell import LARGEST, Shell


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places([tmp_path])


# --- files ---


def test_a_file_that_only_its_owner_may_read_stays_so_when_it_is_written(
    places: Places, tmp_path: Path
) -> None:
    secret = tmp_path / "key.pem"
    secret.write_text("old")
    secret.chmod(0o600)

    Files(places).write("key.pem", "new")

    assert secret.read_text() == "new"
    assert secret.stat().st_mode & 0o777 == 0o600


def test_reading_a_folder_is_refused_by_its_name_and_leaves_nothing_open(places: Places) -> None:
    before = len(list(Path("/dev/fd").iterdir()))

    for _ in range(20):
        with pytest.raises(Outside, match=r"^\. is not a file"):
            places.read(".")

    assert len(list(Path("/dev/fd").iterdir())) == before


@pytest.mark.parametrize("use", [Places.read, Places.delete])
def test_what_is_not_there_is_named_by_the_whole_path(places: Places, use: Callable[..., Any]) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        use(places, "docs/nope/x.md")

    assert raised.value.filename == "docs/nope/x.md"


def test_a_name_that_is_not_text_does_not_hide_the_others(places: Places, tmp_path: Path) -> None:
    try:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/b\xff.txt")).write_text("water")
    except OSError:
        pytest.skip("names are text on this file system")
    (tmp_path / "a.txt").write_text("water")
    files = Files(places)

    answers = [files.list_directory(), files.search(), files.search(text="water")]

    assert all("a.txt" in json.dumps(one, ensure_ascii=False).encode().decode() for one in answers)
    assert answers[0]["files"] == ["a.txt", "b\ufffd.txt"]


# --- data ---


def test_a_text_of_xml_is_text_whatever_it_says_of_its_letters(places: Places, tmp_path: Path) -> None:
    data = Data(places)
    text = '<?xml version="1.0" encoding="iso-8859-1"?><a>grüße</a>'
    (tmp_path / "a.xml").write_bytes(text.encode("iso-8859-1"))

    assert data.parse_xml(text=text)["text"] == "grüße"
    assert data.parse_xml(path="a.xml")["text"] == "grüße"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n3,4,5\n", "row 3 has 3 fields, and the first one 2"),
        ("a,b,a\n1,2,3\n", "two columns are called 'a'"),
    ],
)
def test_a_table_that_would_lose_a_field_is_refused(places: Places, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Data(places).parse_csv(text=text)

    assert Data(places).parse_csv(text=text, header=False)[-1] == text.splitlines()[-1].split(",")


def test_rows_may_end_in_nothing_or_early(places: Places) -> None:
    assert Data(places).parse_csv(text="a,b\n1,2,\n3\n") == [{"a": "1", "b": "2"}, {"a": "3"}]


@pytest.mark.parametrize(("text", "words"), [("[NaN]", "the text is not JSON: NaN"), ("", "^give either")])
def test_what_is_not_json_is_said_of_the_text(places: Places, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Data(places).parse_json(text=text)


# --- http ---


@pytest.mark.parametrize("address", ["::ffff:93.184.216.34", "::ffff:5db8:d822", "64:ff9b::5db8:d822"])
def test_what_is_denied_is_denied_in_every_spelling(address: str) -> None:
    hosts = Hosts(deny=("93.184.216.34",))

    assert is_public(address)
    with pytest.raises(Forbidden):
        hosts.judge_address("example.org", 443, address)


def test_the_old_private_addresses_are_not_public() -> None:
    assert not is_public("fec0::1")


# --- shell ---


def test_a_program_that_says_a_lot_is_heard_to_the_end_in_little_memory(places: Places) -> None:
    shell = Shell(places, VARIABLES)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    heard = shell.run(["sh", "-c", "head -c 300000000 /dev/zero; echo the end; echo oh >&2"])

    assert heard["stdout"].endswith("the end\n")
    assert (len(heard["stdout"]), heard["stderr"]) == (LARGEST, "oh\n")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


def test_a_program_is_told_all_of_its_input_and_may_leave_it_unread(places: Places) -> None:
    shell = Shell(places, VARIABLES)

    assert shell.run(["wc", "-c"], stdin="x" * 3_000_000)["stdout"].strip() == "3000000"
    assert shell.run(["true"], stdin="x" * 3_000_000)["code"] == 0
