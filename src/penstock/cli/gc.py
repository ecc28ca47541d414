"""`penstock gc`: forget runs that are old, many or large."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli import exits, stores

if TYPE_CHECKING:
    from penstock.policy.retention import Limits
    from penstock.store.gc import Cleaning, Line

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]?)i?B?", re.ASCII | re.IGNORECASE)
_UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


@exits.guarded
def gc(
    older_than: Annotated[
        str, typer.Option(help="Runs that ended longer ago than this, e.g. 30d.", metavar="DURATION")
    ] = "",
    keep: Annotated[
        int | None,
        typer.Option(help="All but this many of each workflow.", metavar="N", min=0, show_default=False),
    ] = None,
    max_size: Annotated[
        str, typer.Option(help="The oldest, until the rest takes no more than e.g. 500MB.", metavar="SIZE")
    ] = "",
    status: Annotated[
        list[str] | None, typer.Option(help="Only runs that ended like this. Repeatable.", metavar="STATUS")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, forget nothing.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="One line for each run, then one that sums up.")
    ] = False,
    store: stores.Url = "",
) -> None:
    """Forget runs that have ended and are beyond a limit.

    Runs that have not ended stay, and so does every run whose history another one shares or that
    belongs to one that stays. Without a limit nothing is forgotten.
    """
    limits = _limits(older_than, keep, max_size, status or [])

    async def clean(penstock: Any) -> Cleaning:
        from penstock.store.gc import plan_and_forget

        return await plan_and_forget(penstock.store, limits, dry_run=dry_run)

    try:
        cleaned = stores.asked(store, clean)
    except stores.NoStore as error:
        exits.say(str(error))
        return
    if json:
        _print_json(cleaned)
    else:
        _print(cleaned, limited=bool(older_than or max_size or keep is not None))


def _limits(older_than: str, keep: int | None, max_size: str, statuses: list[str]) -> Limits:
    from penstock.policy.retention import ENDED, Limits
    from penstock.workflow.durations import seconds

    age = seconds(older_than) if older_than else None
    if older_than and age is None:
        msg = f"{older_than!r} is not a length of time; write 12h, 30d or P4W"
        raise typer.BadParameter(msg, param_hint="--older-than")
    size = _SIZE.fullmatch(max_size.strip())
    if max_size and size is None:
        msg = f"{max_size!r} is not a size; write 500MB or 2GB"
        raise typer.BadParameter(msg, param_hint="--max-size")
    strange = [one for one in statuses if one not in ENDED]
    if strange:
        msg = f"no run ends {strange[0]!r}; it is one of {', '.join(sorted(ENDED))}"
        raise typer.BadParameter(msg, param_hint="--status")
    return Limits(
        older_than=age,
        keep_count=keep,
        max_bytes=int(float(size[1]) * _UNITS[size[2].upper()]) if size else None,
        statuses=frozenset(statuses) or ENDED,
    )


def _print_json(cleaned: Cleaning) -> None:
    from penstock.cli.outlets import json_line

    out = sys.stdout.buffer
    out.writelines(json_line(_plain(one, forgotten=True)) for one in cleaned.forgotten)
    out.writelines(json_line(_plain(one, forgotten=False)) for one in cleaned.kept)
    sums = {
        "dry_run": cleaned.dry_run,
        "forgotten": len(cleaned.forgotten),
        "kept": len(cleaned.kept),
        "bytes_before": cleaned.bytes_before,
        "bytes_after": cleaned.bytes_after,
        "freed": cleaned.freed,
    }
    out.write(json_line(sums))


def _plain(one: Line, *, forgotten: bool) -> dict[str, Any]:
    from penstock.engines.plain import moment

    return {
        "run_id": one.run,
        "workflow": one.workflow,
        "status": one.status,
        "ended": None if one.ended is None else moment(one.ended),
        "forgotten": forgotten,
        "reason": one.reason,
    }


def _print(cleaned: Cleaning, *, limited: bool) -> None:
    from penstock.cli.text import count, size

    for one in cleaned.forgotten:
        print(f"{one.run}  {one.status:<9}  {one.workflow}  {one.reason}")
    went, stay = count(len(cleaned.forgotten), "run"), f"{len(cleaned.kept):,}"
    sizes = f"{size(cleaned.bytes_before)} before, {size(cleaned.bytes_after)} after"
    if cleaned.dry_run:
        exits.say(f"{went} would be forgotten, {stay} would stay; {sizes}. Nothing was changed.")
    else:
        exits.say(f"{went} forgotten, {stay} stay; {sizes}")
    if not limited:
        exits.say("there is no limit: give --older-than, --keep or --max-size")
