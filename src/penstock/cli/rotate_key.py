"""`penstock rotate-key`: seal what a store holds with another key, a first one, or none."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli import exits, stores
from penstock.errors import Owned

if TYPE_CHECKING:
    from penstock.store.rotation import Progress

_OFTEN: Final = 2.0
"""Seconds between words about how far it is."""


@exits.guarded
def rotate_key(
    plain: Annotated[
        bool, typer.Option("--plain", help="Seal nothing any more: make everything readable.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say how much there is to do, change nothing.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One line that says what was done.")] = False,
    store: stores.Url = "",
) -> None:
    """Seal everything in a store with the first key of PENSTOCK_KEY.

    PENSTOCK_KEY=NEW,OLD names the new key and the ones that open what is there. No run may be going
    on. What was interrupted is finished by the same command; afterwards NEW alone is enough.
    """
    from penstock import settings
    from penstock.store.sealed import keys_from

    configuration = settings.read(store=store or None)
    stores.check_there(configuration.store)
    keys = keys_from(configuration.key)
    if not keys:
        raise exits.Refused(
            "there is no key: set PENSTOCK_KEY=NEW,OLD, of which the first seals and all of them open"
        )
    new, old = (None, keys) if plain else (keys[0], keys[1:])
    try:
        touched = _rotated(configuration.store, new, old, dry_run=dry_run)
    except Owned as error:
        abort = stores.line("abort", error.run, store)
        raise exits.Refused(f"{error}; let it end, or stop it ({abort}), and try again") from None
    if json:
        from penstock.cli.outlets import json_line

        done = {"dry_run": dry_run, "payloads": touched, "sealed": not plain}
        sys.stdout.buffer.write(json_line(done))
    else:
        exits.say(_words(touched, plain=plain, dry_run=dry_run, others=len(old)))


def _rotated(url: str, new: str | None, old: tuple[str, ...], *, dry_run: bool) -> int:
    say = _teller()
    if url.startswith("sqlite:///"):
        from penstock.store.sqlite import rotate as in_file

        path = url.removeprefix("sqlite:///")
        return in_file.rotate(path, old=old, new=new, progress=say, dry_run=dry_run)
    if url.startswith(("postgresql:", "postgres:")):
        from penstock.errors import Problem, Unsupported

        try:
            from penstock.store.postgres import rotate as in_database
        except ModuleNotFoundError:
            raise Unsupported(
                [Problem("the Postgres store needs psycopg", 'pip install "penstock[postgres]"')]
            ) from None
        return in_database.rotate(url, old=old, new=new, progress=say, dry_run=dry_run)
    raise exits.Refused(f"{url!r} is not a store; name one with --store or PENSTOCK_STORE")


def _teller() -> Callable[[Progress], None]:
    """Says now and then how far it is; of what takes no time, nothing."""
    told = time.monotonic()

    def tell(progress: Progress) -> None:
        nonlocal told
        if time.monotonic() - told > _OFTEN:
            told = time.monotonic()
            exits.say(f"{progress.done:,} of {progress.total:,} payloads")

    return tell


def _words(touched: int, *, plain: bool, dry_run: bool, others: int) -> str:
    from penstock.cli.text import count

    what = count(touched, "payload")
    how = "made plain" if plain else "sealed with the first key"
    if dry_run:
        return f"{what} would be {how}. Nothing was changed."
    if plain:
        return f"{what} {how}; PENSTOCK_KEY is not needed any more"
    after = "; leave only that key in PENSTOCK_KEY, and forget the others" if others else ""
    return f"{what} {how}{after}"
