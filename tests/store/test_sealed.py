"""What is sealed opens with its key, in its place, and in no other way."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StoreError, WrongKey
from penstock.store.sealed import NoSeal, Seal, is_sealed, keys_from, new_key, seal_of, sealed_by

KEY, OTHER = new_key(), new_key()
HERE = ("events", "run", 1)


@given(st.binary(max_size=300), st.lists(st.text(max_size=5), max_size=3))
def test_what_is_sealed_opens_again_in_its_place(data: bytes, row: list[str]) -> None:
    sealed = Seal([KEY]).seal(data, "events", *row)

    assert Seal([KEY]).open(sealed, "events", *row) == data
    assert is_sealed(sealed)
    assert len(data) < 8 or data not in sealed


@given(st.binary(max_size=100), st.integers(0), st.integers(1, 255))
def test_a_payload_that_was_changed_anywhere_is_refused(data: bytes, at: int, by: int) -> None:
    seal = Seal([KEY])
    sealed = bytearray(seal.seal(data, *HERE))
    at = 4 + at % (len(sealed) - 4)
    sealed[at] ^= by

    with pytest.raises(StoreError):
        seal.open(bytes(sealed), *HERE)


@given(st.integers(4, 39))
def test_a_payload_that_was_cut_short_is_refused(length: int) -> None:
    seal = Seal([KEY])

    with pytest.raises(StoreError):
        seal.open(seal.seal(b"", *HERE)[:length], *HERE)


def test_a_payload_that_was_moved_is_refused_and_not_for_its_key() -> None:
    seal = Seal([KEY])
    sealed = seal.seal(b"approve", "commands", "run", "id")

    with pytest.raises(StoreError, match="not where it was written") as raised:
        seal.open(sealed, "commands", "other", "id")
    assert not isinstance(raised.value, WrongKey)


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (("commands", "a", "bc"), ("commands", "ab", "c")),
        (("commands", "a:1", "b"), ("commands", "a", "1:b")),
        (("commands", "a\x1fb"), ("commands", "a", "b")),
        (("events", 1), ("blobs", 1)),
        (("events", "run", 1), ("events", "run", 11)),
    ],
)
def test_places_of_different_rows_are_different(here: tuple[str, ...], there: tuple[str, ...]) -> None:
    seal = Seal([KEY])

    with pytest.raises(StoreError):
        seal.open(seal.seal(b"x", *here), *there)


def test_the_same_payload_never_looks_the_same_twice() -> None:
    seal = Seal([KEY])

    assert len({seal.seal(b"same", *HERE) for _ in range(1_000)}) == 1_000


def test_another_key_is_a_wrong_key() -> None:
    sealed = Seal([KEY]).seal(b"text", *HERE)

    for seal, said in ((Seal([OTHER]), "with another key"), (NoSeal(), "there is no key")):
        with pytest.raises(WrongKey, match=said):
            seal.open(sealed, *HERE)


def test_the_first_key_seals_and_any_opens() -> None:
    both = Seal([KEY, OTHER])

    assert both.open(Seal([OTHER]).seal(b"old", *HERE), *HERE) == b"old"
    assert Seal([KEY]).open(both.seal(b"new", *HERE), *HERE) == b"new"
    assert sealed_by(both.seal(b"new", *HERE)) == both.current == Seal([KEY]).current


def test_plain_payloads_pass_where_there_is_no_key_and_while_a_store_is_being_sealed() -> None:
    assert NoSeal().seal(b"[]", *HERE) == NoSeal().open(b"[]", *HERE) == b"[]"
    assert Seal([KEY], plain=True).open(b"[]", *HERE) == b"[]"
    assert sealed_by(b"[]") == b""
    assert isinstance(seal_of([]), NoSeal)
    assert isinstance(seal_of([KEY]), Seal)


def test_where_there_is_a_key_a_payload_that_is_not_sealed_is_refused() -> None:
    with pytest.raises(StoreError, match="something in events is not sealed"):
        Seal([KEY]).open(b"[]", *HERE)


def test_the_name_of_a_key_says_nothing_about_it() -> None:
    sealed = Seal([KEY]).seal(b"text", *HERE)
    raw = base64.urlsafe_b64decode(KEY + "=")

    assert len(sealed_by(sealed)) == 8
    assert sealed_by(sealed) not in raw
    assert raw[:8] not in sealed


def test_a_key_may_be_spelt_in_several_ways() -> None:
    raw = os.urandom(31) + b"\xff"
    spellings = [
        base64.b64encode(raw).decode(),
        base64.b64encode(raw).decode().rstrip("="),
        base64.urlsafe_b64encode(raw).decode(),
        raw.hex(),
        raw.hex().upper(),
    ]

    assert len({Seal([text]).current for text in spellings}) == 1


def test_a_passphrase_is_a_key_too_however_it_is_spelt() -> None:
    phrase = "correct horse battery staple"

    assert Seal([phrase]).open(Seal([phrase]).seal(b"x", *HERE), *HERE) == b"x"
    assert Seal([phrase]).current != Seal([phrase + " "]).current
    # Without the spaces it has the length of a key in base64; it is none.
    spaced = " ".join(["abcdefg"] * 6) + " a"
    assert Seal([spaced]).current != Seal([spaced.replace(" ", "")]).current


# --- where keys come from ---


def no_files(path: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", path)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", ()),
        ("  ", ()),
        ("one", ("one",)),
        (" new , old ,old", ("new", "old")),
        ("a passphrase of words", ("a passphrase of words",)),
    ],
)
def test_a_setting_names_keys(text: str, keys: tuple[str, ...]) -> None:
    assert keys_from(text, no_files) == keys


def test_a_file_holds_a_key_on_each_line() -> None:
    files = {"/run/keys": "# since May\nnew, with a comma\n\n  old  \n", "~/k": "home\n"}

    assert keys_from("file:/run/keys", files.__getitem__) == ("new, with a comma", "old")
    assert keys_from("first,file:/run/keys,file:~/k", files.__getitem__) == (
        "first",
        "new, with a comma",
        "old",
        "home",
    )


def test_a_real_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n", encoding="utf-8")

    assert keys_from(f"file:{tmp_path}/key") == keys_from(f"file://{tmp_path}/key") == (KEY,)


@pytest.mark.parametrize("text", [",", " , ", "file:/nowhere", "file:"])
def test_a_setting_without_a_key_in_it_is_an_error_and_not_a_store_without_a_seal(text: str) -> None:
    with pytest.raises(StoreError):
        keys_from(text, no_files)


def test_a_file_without_a_key_in_it_is_an_error() -> None:
    with pytest.raises(StoreError, match="holds no key"):
        keys_from("file:/k", lambda _: "# nothing\n")


def test_a_file_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xff\xfe\xff")

    with pytest.raises(StoreError, match="it is not text"):
        keys_from(f"file:{tmp_path}/key")
